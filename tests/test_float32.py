"""Mechanisms at JAX's own precision, in a process of its own, since x64 belongs to the whole of one."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import SYSTEMS

import jaxmb as jm

PROGRAM = """
import json
import jax
import jax.numpy as jnp
import jaxmb as jm

P = jm.planar
lengths = {"crank": 1.0, "coupler": 4.0, "rocker": 2.5}
joints = [
    P.Revolute("O", "ground", "crank.a"),
    P.Revolute("A", "crank.b", "coupler.a"),
    P.Revolute("B", "coupler.b", "rocker.b"),
    P.Revolute("C", ("ground", (3.0, 0.0)), "rocker.a"),
]
bodies = [P.Body.rod(name, 1.0, length) for name, length in lengths.items()]
system = P.Mechanism(bodies, joints, gravity=(0.0, -9.81)).build()
state = jm.assemble(system, {"O": 1.0, "A": -0.5, "C": 1.8}, hold=["O"])
found = jm.diagnose(system, state)
solution = jm.simulate(system, state, [0.1, 0.2])

friction = P.BearingFriction("friction", "O", 0.3, 0.1)
hinged = P.Mechanism(bodies[:1], joints[:1], forces=[friction], gravity=(0.0, -9.81)).build()
moving = jm.as_state(hinged, [0.4], [1.3])
force = jm.evaluate(hinged, moving).force
types = {str(x.dtype) for x in jax.tree.leaves((system, state, solution, force)) if jnp.issubdtype(x.dtype, jnp.floating)}
print(json.dumps([sorted(types), solution.q[-1].tolist(), found.rank_tol, str(found), force.tolist()]))
"""


@pytest.mark.slow
def test_a_fourbar_and_bearing_friction_in_float32():
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    types, q, rank_tol, table, force = json.loads(run.stdout.splitlines()[-1])
    assert types == ["float32"]
    np.testing.assert_allclose(q, [0.86622642, -0.53925746, 0.95902945], atol=1e-4)  # in float64
    assert rank_tol == 1e3 * np.finfo(np.float32).eps
    assert f"cut-off {rank_tol:.2g}" in table
    np.testing.assert_allclose(force, [-4.62697056], rtol=1e-5)


SINGLE = """
import json
import jax, jax.numpy as jnp
import jaxmb as jm
from systems import SYSTEMS

assert not jax.config.jax_enable_x64
found = {}
for name, make in SYSTEMS.items():
    system, (q, v) = make()
    solution = jm.simulate(system, jm.assemble(system, q, v), [0.3], throw=False)
    found[name] = [bool(solution.result == jm.RESULTS.successful), int(solution.stats["lowest_rank"]), solution.q[0].tolist()]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_system_in_float32():
    """With the default tolerances of that precision, 1e-4 and 1e-6: the same ranks, positions to 1e-3."""
    folder = pathlib.Path(__file__).parent
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder.parent), str(folder.parent / "examples")])
    done = subprocess.run([sys.executable, "-c", SINGLE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (successful, rank, q) in json.loads(done.stdout.splitlines()[-1]).items():
        system, (guess, v) = SYSTEMS[name]()
        solution = jm.simulate(system, jm.assemble(system, guess, v), [0.3])
        assert successful and rank == int(solution.stats["lowest_rank"]), name
        np.testing.assert_allclose(q, solution.q[0], atol=1e-3, err_msg=name)


def closed_twice():
    system, (q, v) = SYSTEMS["four-bar, 3 loops"]()
    state = jm.assemble(system, q, v)
    return system, state, jm.simulate(system, state, jnp.array([0.3]), throw=False)


@pytest.mark.slow
def test_both_precisions_in_one_process():
    """Within `jax.enable_x64(False)` all is float32, before and after float64, and numbers of the two are not mixed."""
    system, state, wide = closed_twice()
    with jax.enable_x64(False):
        system32, state32, narrow = closed_twice()
        kinds = {x.dtype for x in jax.tree.leaves(narrow) if jnp.issubdtype(x.dtype, jnp.floating)}
        assert kinds == {jnp.dtype("float32")}
        with pytest.raises(
            ValueError, match="`state` must hold float32 numbers, as JAX is configured here, but holds float64"
        ):
            jm.simulate(system, state, jnp.array([0.3]))
    assert bool(narrow.result == jm.RESULTS.successful) and narrow.stats["lowest_rank"] == wide.stats["lowest_rank"]
    np.testing.assert_allclose(narrow.q, wide.q, atol=1e-3)
    assert np.abs(narrow.q - wide.q).max() > 1e-9
    for use in (lambda: jm.simulate(system32, state32, jnp.array([0.3])), lambda: jm.energy(system, state32)):
        with pytest.raises(
            ValueError, match="`state` must hold float64 numbers, as JAX is configured here, but holds float32"
        ):
            use()
    np.testing.assert_array_equal(closed_twice()[2].q, wide.q)
