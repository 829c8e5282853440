"""Large mechanisms: sparse steps do what dense ones do, and what MuJoCo does."""

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import many_bodies
import mujoco
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.lanes import Program
from jaxmb.planar import Body, Mechanism, PointOnLine, Revolute
from jaxmb.system.scalar import _compiled
from jaxmb.system.terms import residuals

KINDS = range(8)
EACH = 8


def mechanism(kind):
    """Links of random length in a row of 20 to 60, hung up at both ends; in half of the kinds with redundant guides.

    Further links hang on some of them. What is redundant: a second pin beside the first, and pins of a link of its own that is as
    long as the two that it runs along.
    """
    rng = np.random.default_rng(kind)
    count = int(rng.integers(14, 40))
    lengths, angles = rng.uniform(0.2, 0.5, count), rng.uniform(-0.8, 0.8, count)
    corners = np.concatenate(
        [np.zeros((1, 2)), np.cumsum(lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1), axis=0)]
    )
    bodies = [
        Body.rod(f"link{i}", rng.uniform(0.5, 2.0), lengths[i], position=corners[i], angle=angles[i])
        for i in range(count)
    ]
    joints = [Revolute("first", ("ground", (0.0, 0.0)), "link0.a")]
    joints += [Revolute(f"pin{i}", f"link{i - 1}.b", f"link{i}.a") for i in range(1, count)]
    joints.append(Revolute("last", ("ground", corners[-1]), f"link{count - 1}.b"))
    for k in range(int(rng.integers(6, 20))):
        on, length = int(rng.integers(count)), rng.uniform(0.2, 0.5)
        place = corners[on] + 0.5 * (corners[on + 1] - corners[on])
        bodies.append(Body.rod(f"arm{k}", rng.uniform(0.5, 2.0), length, position=place, angle=rng.uniform(-2.0, -1.0)))
        joints.append(Revolute(f"hinge{k}", (f"link{on}", (lengths[on] / 2, 0.0)), f"arm{k}.a"))
        if kind % 2:
            joints.append(PointOnLine(f"guide{k}", (f"link{on}", (lengths[on] / 2, 0.0)), f"arm{k}.a", axis=(1.0, 0.0)))
    return Mechanism(bodies, joints, gravity=(0.0, -9.81))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_steps_of_random_mechanisms_equal_dense_ones(kind):
    system = mechanism(kind).build("absolute")
    assert 60 <= system.nv <= 180
    place, rng = jm.assemble(system).q, np.random.default_rng(kind)
    for _ in range(EACH):
        heavier = rng.uniform(0.7, 1.4, (system.nv // 3, 1, 1))
        own = system.with_params(eqx.tree_at(lambda p: p.inertia, system.params, heavier * system.params.inertia))
        state = jm.assemble(own, place, 0.3 * rng.normal(size=system.nv))
        settings = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=2e-3)
        sparse, dense = (
            jm.simulate(own, state, [0.02, 0.04], engine=jm.XLA(sparse=flag), **settings) for flag in (True, False)
        )
        assert int(sparse.stats["sparse_steps"]) >= 19 and int(dense.stats["sparse_steps"]) == 0
        assert int(sparse.stats["highest_rank"]) == int(dense.stats["highest_rank"])
        assert int(sparse.stats["lowest_rank"]) == int(dense.stats["lowest_rank"])
        assert (int(dense.stats["highest_rank"]) < system.m) == (kind % 2 == 1)
        np.testing.assert_allclose(sparse.q, dense.q, rtol=0, atol=1e-9)
        np.testing.assert_allclose(sparse.v, dense.v, rtol=0, atol=1e-9 * np.abs(dense.v).max())


def hinges(count, length, mass):
    """A chain of links in a horizontal row, hung up at the left end, for MuJoCo."""
    text, end = "", ""
    for i in range(count):
        text += (
            f'<body pos="{length if i else 0} 0 0"><joint axis="0 0 1"/>'
            f'<inertial pos="{length / 2} 0 0" mass="{mass}" diaginertia="1e-4 1e-4 {mass * length**2 / 12}"/>'
        )
        end += "</body>"
    options = '<option timestep="1e-4" integrator="RK4" gravity="0 -9.81 0"><flag contact="disable"/></option>'
    return mujoco.MjModel.from_xml_string(f"<mujoco>{options}<worldbody>{text}{end}</worldbody></mujoco>")


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 200])
def test_a_chain_moves_as_in_mujoco(count):
    length, ts = 0.05, np.array([0.25, 0.5, 0.75, 1.0])
    model = hinges(count, length, 0.1)
    data, angles = mujoco.MjData(model), []
    for t in ts:
        while data.time < t - 5e-5:
            mujoco.mj_step(model, data)
        angles.append(np.cumsum(data.qpos))
    system = many_bodies.chain(count, length).build("absolute")
    found = jm.simulate(system, jm.assemble(system), ts)
    np.testing.assert_allclose(found.q[:, 2::3], angles, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_closed_chain_falls_from_the_pose_that_assembly_finds_for_it_drawn_in_line():
    """Twenty links, the ground one of them: energy to what steps with rtol 1e-8 leave, 1e-8 of what is exchanged, and to 1e-10 with tighter ones."""
    P, count = jm.planar, 19
    bodies = [P.Body.rod(f"link{i}", 1.0, 1.0) for i in range(count)]
    joints = [P.Revolute("joint0", "ground", "link0.a")]
    joints += [P.Revolute(f"joint{i}", f"link{i - 1}.b", f"link{i}.a") for i in range(1, count)]
    joints += [P.Revolute(f"joint{count}", f"link{count - 1}.b", ("ground", (1.0, 0.0)))]
    system = P.Mechanism(bodies, joints, gravity=(0.0, -9.81)).build()
    state = jm.assemble(system)
    tighter = dfx.PIDController(rtol=1e-11, atol=1e-12)
    for settings, tolerance in (({}, 2e-8), ({"stepsize_controller": tighter}, 1e-10)):
        solution = jm.simulate(system, state, np.linspace(0.0, 1.0, 11), **settings)
        energy = jm.energy(system, solution)
        balance = np.abs(energy.balance - energy.balance[0])
        assert float(np.max(energy.kinetic)) > 500
        assert float(np.max(balance)) < tolerance * float(np.max(energy.kinetic))


def test_equal_elements_of_many_bodies_are_left_to_xla(monkeypatch):
    hung = lambda count: [
        Revolute(f"pin{i}", f"link{i - 1}.b" if i else ("ground", (0.0, 0.0)), f"link{i}.a") for i in range(count)
    ]
    links = lambda count: [Body.rod(f"link{i}", 1.0, 0.1, position=(0.1 * i, 0.0)) for i in range(count)]
    system = Mechanism(links(15), hung(15), gravity=(0.0, -9.81)).build("absolute")
    t, q, v = jnp.zeros(()), jnp.linspace(0.0, 1.0, system.nq), jnp.linspace(-1.0, 1.0, system.nv)
    programs = []
    callee = Program.callee
    monkeypatch.setattr(Program, "callee", lambda *given: programs.append(callee(*given)) or programs[-1])
    values = []
    # So many velocities, and functions of as many equations whatever the number of links.
    for many, short in ((45, 1_500), (44, 1_500), (44, 10)):
        monkeypatch.setattr("jaxmb.system.scalar.MANY", many)
        monkeypatch.setattr("jaxmb.system.scalar.SHORT", short)
        _compiled.cache_clear()
        programs.clear()
        values.append(residuals(system, t, q, v))
        assert bool(programs) is (many >= system.nv or short == 10)
    for position, velocity in values[1:]:
        np.testing.assert_allclose(position, values[0][0], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(velocity, values[0][1], rtol=1e-13, atol=1e-14)
