"""Open chains: systems without rows, beside which LAPACK calls of a program must compile."""

import os
import pathlib
import subprocess
import sys

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest
from systems import SYSTEMS

import jaxmb as jm

LENGTHS = [1, 2, 10, 11, 12, 20, 60]
QUICK = {("planar", 2), ("planar", 12), ("spatial", 12)}


def chain(kind, n):
    """n rods of 1 m in a row, hanging aside, in the coordinates of their hinges."""
    if kind == "planar":
        space, gravity, axis = jm.planar, (0.0, -9.81), {}
        bodies = [space.Body.rod(f"b{i}", mass=1.0, length=1.0) for i in range(n)]
        ends = ["b{}.a", "b{}.b"]
    else:
        space, gravity, axis = jm.spatial, (0.0, -9.81, 0.0), {"axis": (0.0, 0.0, 1.0)}
        points = {"a": (-0.5, 0.0, 0.0), "b": (0.5, 0.0, 0.0)}
        bodies = [space.Body(f"b{i}", 1.0, (1e-3, 1 / 12, 1 / 12), points=points) for i in range(n)]
        ends = ["b{}.a", "b{}.b"]
    joints = [
        space.Revolute(f"j{i}", ends[1].format(i - 1) if i else "ground", ends[0].format(i), **axis) for i in range(n)
    ]
    return space.Mechanism(bodies, joints, gravity=gravity).build()


def swing(kind, n, solver=None):
    """The angles after 0.1 s, and the energy's balance."""
    system = chain(kind, n)
    state = jm.assemble(system, {f"j{i}": 0.1 for i in range(n)})
    solution = jm.simulate(system, state, jnp.array([0.1]), solver=solver)
    return np.asarray(solution.q[0]), float(
        jnp.abs(jm.energy(system, solution).total[0] - jm.energy(system, state).total)
    )


def cases(kinds=("planar", "spatial")):
    return [
        pytest.param(kind, n, marks=() if (kind, n) in QUICK else pytest.mark.slow) for kind in kinds for n in LENGTHS
    ]


@pytest.mark.slow_except("planar-2")
@pytest.mark.parametrize(("kind", "n"), cases())
def test_open_chains_swing(kind, n):
    q, drift = swing(kind, n)
    assert np.isfinite(q).all() and drift < 1e-9 * n**2 * 9.81
    if kind == "spatial" and n <= 20:
        np.testing.assert_allclose(q, swing("planar", n)[0], atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["planar", pytest.param("spatial", marks=pytest.mark.slow)])
def test_implicit_solvers_of_open_chains(kind):
    np.testing.assert_allclose(swing(kind, 2, dfx.Kvaerno3())[0], swing(kind, 2)[0], atol=1e-6)


ALONE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax
jax.config.update("jax_enable_x64", True)
import diffrax, test_chains
test_chains.swing("planar", 12)
test_chains.swing("planar", 2, diffrax.Kvaerno3())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_open_chains_on_one_core():
    """What XLA makes of a program may depend on the number of cores that it compiles on."""
    folder = pathlib.Path(__file__).parent
    places = [folder, folder.parent, folder.parent / "examples"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "top" else pytest.mark.slow) for name in SYSTEMS]
)
def test_systems_without_their_constraints(name):
    system, (q, v) = SYSTEMS[name]()
    free = jm.System(
        system.coordinates,
        inertia=system.inertia,
        force=system.force_fn,
        params=system.params,
        velocities=system.velocities,
        rate=system.rate_fn,
        normalise=system.normalise_fn,
    )
    solution = jm.simulate(free, jm.assemble(free, q, v), jnp.array([0.1]))
    balance = jm.energy(free, solution)
    start = jm.energy(free, jm.assemble(free, q, v)).total
    np.testing.assert_allclose(balance.total - balance.work, start, rtol=1e-7)
