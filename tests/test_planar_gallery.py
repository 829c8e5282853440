"""Planar mechanisms from bodies and joints beside solutions that were found without this package."""

import functools
import json
import pathlib

import andrews_joints
import andrews_model
import equinox as eqx
import jax
import jax.numpy as jnp
import knife_edge
import mobile_robot
import nfourbar_joints
import numpy as np
import pytest
from nfourbar import reduced_motion

import jaxmb as jm
from jaxmb.system import position_residual

DATA = pathlib.Path(__file__).parent / "data"
# Eighth-order central difference.
STENCIL = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])


@functools.cache
def reference(name):
    return json.loads((DATA / f"{name}.json").read_text()), dict(np.load(DATA / f"{name}.npz"))


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
def states_of(system, t, q, v):
    return jm.as_state(system, q, v, t=t)


@eqx.filter_jit
def solved(system, states):
    """C, accelerations, multipliers by name."""

    def one(state):
        terms = jm.evaluate(system, state)
        found = jm.formulation.GaussProjection().acceleration(terms)
        return terms.jacobian, found.vdot, {name: found.multipliers[part] for name, part in system.rows.items()}

    return jax.vmap(one)(states)


def in_other_coordinates(source, target, states):
    """The same states; both builds must be of one mechanism."""

    @jax.jit
    @jax.vmap
    def measured(t, q, v):
        motion = source.joints.motion(t, q, v, source.params)
        poses, rates = motion.poses, motion.rates
        return target.joints.measure(poses, target.params), target.joints.measure_rates(poses, rates, target.params)

    return states_of(target, states.t, *measured(states.t, states.q, states.v))


def accelerations_in(target, source, states, vdot):
    """What accelerations in the source's coordinates are in those of the target."""

    @jax.jit
    @jax.vmap
    def carried(state, vdot):
        def speeds(q, v):
            motion = source.joints.motion(state.t, q, v, source.params)
            return target.joints.measure_rates(motion.poses, motion.rates, target.params)

        return jax.jvp(speeds, (state.q, state.v), (source.qdot(state.q, state.v), vdot))[1]

    return carried(states, vdot)


# The mobile robot of Frączek and Wojtyra


@functools.cache
def robot(coordinates):
    return mobile_robot.mobile_robot().build(coordinates)


@functools.cache
def robot_solved(coordinates):
    """The start and seven states of the reference, these far from the driver's breaks, with what holds there; their indices."""
    _, arrays = reference("mobile_robot")
    index = np.array([0, 10, 50, 75, 110, 200, 300, 430])
    system = robot("absolute")
    states = states_of(system, *(jnp.asarray(arrays[name][index]) for name in ("t", "q", "v")))
    if coordinates == "relative":
        system, states = robot("relative"), in_other_coordinates(system, robot("relative"), states)
    return index, states, solved(system, states)


def test_robot_has_the_numbers_of_the_reference():
    given, arrays = reference("mobile_robot")
    mechanism = mobile_robot.mobile_robot()
    numbered = {str(i + 1): body for i, body in enumerate(mechanism.bodies)}
    np.testing.assert_array_equal([body.mass for body in mechanism.bodies], given["mass"])
    np.testing.assert_array_equal([body.inertia for body in mechanism.bodies], given["Jz"])
    as_numbers = lambda text: [float(x) for x in text.strip("()").split(",")]
    place = lambda marker: mechanism.elements[marker.body].points[marker.point][:2, 2]
    for name, (first, at_first, second, at_second) in given["joints"].items():
        joint = mechanism.elements[name]
        assert (joint.a.body, joint.b.body) == (numbered[first].name, numbered[second].name)
        np.testing.assert_allclose([place(joint.a), place(joint.b)], [as_numbers(at_first), as_numbers(at_second)])
    for name, (body, at, _) in given["edges"].items():
        edge = mechanism.elements[name]
        assert edge.b.body == numbered[body].name
        np.testing.assert_allclose(place(edge.b), as_numbers(at))
    assert [list(bump) for bump in mobile_robot.BUMPS] == given["driver_bumps"]
    system = robot("absolute")
    rows = [name for name, part in system.rows.items() for _ in range(part.stop - part.start)]
    assert [("drv" if name == "steering" else name) for name in rows] == given["row_labels"]
    np.testing.assert_allclose(
        jax.vmap(lambda t: mobile_robot.shift(t, None))(arrays["t"]) - 0.16, arrays["d"], atol=1e-15
    )
    np.testing.assert_allclose(system.guess, arrays["q"][0], atol=1e-12)


@pytest.mark.slow
def test_robot_at_states_of_the_reference():
    """Ranks, residuals, kinetic energy, accelerations, and those reactions that are unique."""
    given, arrays = reference("mobile_robot")
    system = robot("absolute")
    index, states, (jacobians, vdot, multipliers) = robot_solved("absolute")
    off = jm.residuals(system, states)
    assert float(jnp.abs(off.position).max()) < 1e-11 and float(jnp.abs(off.velocity).max()) < 1e-11
    assert {mobile_robot.ranks(system, jacobian) for jacobian in jacobians} == {(17, 4, 20)}
    np.testing.assert_allclose(jm.energy(system, states).kinetic, arrays["T"][index], atol=1e-10)
    nearby = arrays["v"][index[1:, None] + np.arange(-4, 5)]
    np.testing.assert_allclose(vdot[1:], np.einsum("k,nkj->nj", STENCIL, nearby) / 0.02, atol=1e-8)
    labels = np.array(given["row_labels"])
    for name in (name for name, unique in given["unique_reaction"].items() if unique):
        ours = multipliers["steering" if name == "drv" else name]
        theirs = arrays["lam_minnorm"][index][:, labels == name]
        if name in "ADEFG":  # two components in other axes
            ours, theirs = (np.linalg.norm(x, axis=1) for x in (ours, theirs))
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-8, err_msg=name)


@pytest.mark.slow
def test_robot_accelerates_alike_in_relative_coordinates():
    absolute, relative = robot("absolute"), robot("relative")
    assert (relative.nv, relative.m) == (9, 10)
    _, states, (jacobians, vdot, _) = robot_solved("relative")
    carried = accelerations_in(absolute, relative, states, vdot)
    np.testing.assert_allclose(carried, robot_solved("absolute")[2][1], atol=1e-9)
    assert set(np.linalg.matrix_rank(jacobians, rtol=1e-9).tolist()) == {8}


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "relative"])
def test_motion_of_the_robot(coordinates):
    _, arrays = reference("mobile_robot")
    system, state = mobile_robot.build(coordinates)
    solution = mobile_robot.run(system, state, arrays["t"])
    angles = arrays["q"][:, 2::3]
    exact = np.stack([arrays["q"][:, 0::3], arrays["q"][:, 1::3], np.cos(angles), np.sin(angles)], axis=-1)
    np.testing.assert_allclose(mobile_robot.poses(system, solution), exact, atol=1e-9)
    if coordinates == "absolute":
        np.testing.assert_allclose(solution.q, arrays["q"], atol=1e-9)
        np.testing.assert_allclose(solution.v, arrays["v"], atol=1e-9)
    assert {int(solution.stats[name]) for name in ("lowest_rank", "highest_rank")} == {system.nv - 1}
    assert float(jnp.abs(jm.energy(system, solution).balance).max()) < 1e-10


# Andrews' squeezer


@functools.cache
def squeezer():
    return andrews_joints.squeezer().build(cut=("plate pin", "upper pin", "lower pin"))


def test_squeezer_is_the_published_one():
    """Mass matrix, forces, energies, and the amounts by which the loops are open, at random angles and rates."""
    m = andrews_model
    model = jm.System(m.ANGLES, mass=m.mass, force=m.motor, potential=m.spring_energy, params=m.PARAMS)
    system = squeezer()
    assert sorted(system.coordinates) == sorted(m.ANGLES)
    rng = np.random.default_rng(0)
    q, v = jnp.asarray(rng.uniform(-np.pi, np.pi, (20, 7))), jnp.asarray(rng.normal(scale=500, size=(20, 7)))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0))
    def compare(q, v):
        t, order = jnp.zeros(()), np.array([system.coordinates.index(name) for name in m.ANGLES])
        mine = jnp.zeros(7).at[order].set(q), jnp.zeros(7).at[order].set(v)
        force = lambda s, q, v: s.intrinsic_force(t, q, v) + s.applied_force(t, q, v)
        loops = jnp.stack([loop(t, q, model.params) for loop in (m.plate_loop, m.upper_loop, m.lower_loop)])
        return {
            "mass": (system.mass(t, mine[0])[order][:, order], model.mass(t, q)),
            "force": (force(system, *mine)[order], force(model, q, v)),
            "energy": (jnp.stack(system.energies(t, *mine)), jnp.stack(model.energies(t, q, v))),
            "loops": tuple(
                jnp.linalg.norm(x.reshape(3, 2), axis=1) for x in (position_residual(system, t, mine[0]), loops)
            ),
        }

    for label, (found, wanted) in compare(q, v).items():
        scale = jnp.abs(wanted).max()
        np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-12, err_msg=label)


@pytest.mark.slow
def test_squeezer_at_states_of_the_reference():
    """Accelerations, and forces in the common pin."""
    _, arrays = reference("A03_andrews_ivp")
    system = squeezer()
    values = arrays["Y"][::20]
    order = [andrews_joints.ANGLES.index(name) for name in system.coordinates]
    q, v, vdot = (values[:, i : i + 7][:, order] for i in (0, 7, 14))
    _, found, multipliers = solved(system, states_of(system, arrays["t"][::20], q, v))
    np.testing.assert_allclose(found / abs(vdot).max(), vdot / abs(vdot).max(), atol=1e-10)
    pins = np.stack([multipliers[name] for name in ("plate pin", "upper pin", "lower pin")], axis=1)
    sizes = np.linalg.norm(values[:, 21:].reshape(-1, 3, 2), axis=2)
    np.testing.assert_allclose(np.linalg.norm(pins, axis=2) / sizes.max(), sizes / sizes.max(), atol=1e-10)


@pytest.mark.slow
def test_motion_of_the_squeezer():
    _, arrays = reference("A03_andrews_ivp")
    system, state = andrews_joints.build()
    solution = andrews_joints.run(system, state, arrays["t"])
    angles = andrews_joints.angles(system, solution.q)
    np.testing.assert_allclose(angles, arrays["Y"][:, :7], atol=1e-9)
    total, torque = jm.energy(system, solution).total, andrews_joints.PARAMS["mom"]
    np.testing.assert_allclose(total - total[0], torque * (angles[:, 0] - angles[0, 0]), atol=1e-11)
    np.testing.assert_allclose(jm.energy(system, solution).balance, 0, atol=1e-11)


# Bodies on knife edges


@pytest.mark.slow
def test_knife_edge_on_an_incline():
    ts = jnp.linspace(0.0, 8.0, 501)
    solution, found = knife_edge.run(*knife_edge.incline(), ts)
    np.testing.assert_allclose(found, knife_edge.on_incline(ts), atol=1e-9)
    size = 9.81 * np.sin(np.pi / 6) / (2 * 1.5**2)
    np.testing.assert_allclose(solution.q[:, 0], size * np.sin(1.5 * ts) ** 2, atol=1e-9)


@pytest.mark.slow
def test_sleigh_of_the_reference():
    _, arrays = reference("chaplygin_sleigh")
    solution, found = knife_edge.run(*knife_edge.sleigh(), arrays["t"])
    wanted = np.stack([arrays[name] for name in ("x", "y", "theta", "lam")], axis=-1)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    np.testing.assert_allclose(solution.v[:, 2], arrays["omega"], atol=1e-9)


# N four-bars in a row


def uprights_accelerate(n, angle):
    return -9.81 * 3 * (3 * n + 1) / (2 * (4 * n + 1)) * np.cos(angle)


def in_step(system, n, rate):
    """The state with all uprights turning at a rate, in the pose that the mechanism was made in."""
    v = {f"foot{i}": rate for i in range(n + 1)} | {f"left{i}": -rate for i in range(n)}
    v = jnp.array([v[name] for name in system.velocities])
    return states_of(system, jnp.zeros(1), system.guess[None], v[None])


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_four_bars_beside_and_at_the_flat_pose(n):
    """Where N rows are lost the acceleration is that of the motion."""
    for angle in (0.3, 0.0):
        system = nfourbar_joints.nfourbar(n, angle).build(cut=[f"right{i}" for i in range(n)])
        assert (system.nv, system.m) == (2 * n + 1, 2 * n)
        jacobians, vdot, _ = solved(system, in_step(system, n, -4.0))
        feet = np.array([system.velocities.index(f"foot{i}") for i in range(n + 1)])
        np.testing.assert_allclose(vdot[0, feet], uprights_accelerate(n, angle), atol=1e-9)
        assert np.linalg.matrix_rank(jacobians[0], rtol=1e-9) == (2 * n if angle else n)


@pytest.mark.slow
def test_four_bars_accelerate_alike_in_absolute_coordinates():
    mechanism = nfourbar_joints.nfourbar(3, 0.7)
    relative, absolute = mechanism.build(cut=[f"right{i}" for i in range(3)]), mechanism.build("absolute")
    here = in_step(relative, 3, -3.0)
    there = in_other_coordinates(relative, absolute, here)
    assert float(jnp.abs(jm.residuals(absolute, there).velocity).max()) < 1e-14
    carried = accelerations_in(absolute, relative, here, solved(relative, here)[1])
    np.testing.assert_allclose(carried, solved(absolute, there)[1], atol=1e-11)


@pytest.mark.slow
def test_motion_of_two_four_bars():
    """A02, ten passages of the flat pose."""
    _, arrays = reference("A02_nfourbar")
    system = nfourbar_joints.nfourbar(2).build(cut=("right0", "right1"))
    solution = nfourbar_joints.run(system, nfourbar_joints.turning(system, 2, -1.0), arrays["t"])
    exact = np.stack([arrays["B0x_N2"], arrays["B0y_N2"]], axis=1)
    np.testing.assert_allclose(jm.position(system, solution, "up0.b"), exact, atol=1e-9)
    np.testing.assert_allclose(jm.position(system, solution, "up2.b") - np.array([2.0, 0.0]), exact, atol=1e-9)


@pytest.mark.slow
def test_motion_of_forty_four_bars():
    """81 bodies, 10 s: the error is that of the step size control at this tolerance."""
    n, ts = 40, jnp.linspace(0.0, 10.0, 21)
    system = nfourbar_joints.nfourbar(n).build(cut=[f"right{i}" for i in range(n)])
    assert (system.nv, system.m) == (81, 80)
    solution = nfourbar_joints.run(system, nfourbar_joints.turning(system, n, -1.0), ts, 1e-9)
    angle = reduced_motion(n, jnp.array(np.pi / 2), jnp.array(-1.0), ts, nfourbar_joints.PARAMS)
    exact = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for i in (0, n):
        np.testing.assert_allclose(jm.position(system, solution, f"up{i}.b") - np.array([i, 0.0]), exact, atol=1e-6)


@pytest.mark.slow
def test_a_geneva_drive_turns_its_wheel_by_its_formula():
    """A wheel with four slots: the pin enters one, turns the wheel by a quarter and leaves it; in between the wheel is locked."""
    plane, slots, reach, speed = jm.planar, 4, 0.1, 2 * np.pi
    radius, entry = reach * np.sin(np.pi / slots), np.pi / 2 - np.pi / slots
    frames = {f"s{i}": plane.frame((0.0, 0.0), np.pi + 2 * np.pi * i / slots) for i in range(slots)}
    bodies = [
        plane.Body("driver", 1.0, 1e-3, points={"pin": (radius, 0.0)}),
        plane.Body("wheel", 1.0, 2e-3, position=(reach, 0.0), points=frames),
    ]
    joints = [plane.Revolute("O", "ground", "driver"), plane.Revolute("W", ("ground", (reach, 0.0)), "wheel")]
    joints += [plane.PointOnLine(f"slot{i}", f"wheel.s{i}", "driver.pin") for i in range(slots)]
    motor = plane.DrivenSpeed("motor", "O", lambda t, p: speed + 0.0 * t)
    system = plane.Mechanism(bodies, joints, [motor]).build()
    # The direction from the wheel's axle to the pin while that is in a slot.
    direction = lambda a: np.arctan2(radius * np.sin(a), radius * np.cos(a) - reach) % (2 * np.pi)
    start, events = direction(-entry) - np.pi, [jm.Lock("W", at=0.0)]
    for turn in range(2):
        begin = lambda t, q, v, reaction, p, turn=turn: q[0] + entry - 2 * np.pi * turn
        end = lambda t, q, v, reaction, p, turn=turn: q[0] - entry - 2 * np.pi * turn
        events += [jm.Release("lock W", when=begin), jm.Activate(f"slot{turn}", when=begin)]
        events += [jm.Release(f"slot{turn}", when=end), jm.Lock("W", when=end)]
    guess = {"O": -entry - 1.0, "W": start}
    state = jm.assemble(system, guess, {"O": speed}, hold=["O", "W"], inactive=[f"slot{i}" for i in range(slots)])
    ts = np.linspace(0.0, 1.6, 81)
    run = jm.simulate(system, state, ts, events=events, max_events=10)
    angle = speed * ts - entry - 1.0
    count = np.maximum(np.floor((angle + entry) / (2 * np.pi)), 0)
    within = np.clip(angle - 2 * np.pi * count, -entry, entry)
    exact = start + direction(within) - direction(-entry) - 2 * np.pi / slots * count
    np.testing.assert_allclose(run.q[:, 1], exact, rtol=0, atol=1e-7)
    times = (1.0 + 2 * np.pi * np.array([0, 1])[:, None] + np.array([0.0, 2 * entry])) / speed
    np.testing.assert_allclose(run.events.t[1:5], times.ravel(), rtol=0, atol=1e-9)
    assert float(np.abs(jm.energy(system, run).balance).max()) < 1e-7
