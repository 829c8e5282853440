"""What is read off states and runs. Sensors: an IMU at rest, on a turning arm and against finite differences; encoders; load cells; noise; a fit."""

import dataclasses
import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.output.quantities import _check_directions
from jaxmb.simulation import Solution
from jaxmb.system import Scale, State

P, S = jm.planar, jm.spatial
G = 9.81
STEPS = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "max_steps": 256}


@functools.cache
def pendulum():
    """Two rods; a sensor sits off the second, turned by 0.4 rad against it, a motor at the first."""
    turn = jnp.array([[np.cos(0.4), -np.sin(0.4), 0.1], [np.sin(0.4), np.cos(0.4), 0.05], [0.0, 0.0, 1.0]])
    system = P.Mechanism(
        [P.Body.rod("upper", 1.0, 1.0), P.Body.rod("lower", 0.5, 0.8, points={"chip": turn})],
        [P.Revolute("shoulder", "ground", "upper.a"), P.Revolute("elbow", "upper.b", "lower.a")],
        actuators=[P.Motor("motor", "shoulder")],
        gravity=(0.0, -G),
    ).build()
    return system, jm.assemble(system, {"shoulder": -1.2, "elbow": 0.5}, {"shoulder": 1.0, "elbow": -2.0})


def test_an_imu_at_rest_shows_minus_g_in_its_axes():
    system, _ = pendulum()
    hanging = jm.assemble(system, {"shoulder": -np.pi / 2, "elbow": 0.0})
    angle = -np.pi / 2 + 0.4
    shown = jm.output.IMU("lower.chip")(system, hanging)
    assert np.allclose(shown, [G * np.sin(angle), G * np.cos(angle), 0.0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_an_imu_on_a_turning_arm_shows_the_centripetal_acceleration():
    """In space, without gravity: f = −ω²r along the arm, ω in the sensor's axes."""
    arm = S.Mechanism(
        [S.Body.box("arm", 1.0, (1.0, 0.1, 0.1), position=(0.5, 0.0, 0.0))],
        [S.Revolute("pivot", "ground", ("arm", (-0.5, 0.0, 0.0)), axis=(0.0, 0.0, 1.0))],
    ).build()
    state = jm.assemble(arm, {"pivot": 0.7}, {"pivot": 3.0})
    # Axes of the sensor: x along the arm, y down, z against the axis' side, so that ω shows in y.
    pose = np.array([[1, 0, 0, 0.25], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1.0]])
    shown = jm.output.IMU(("arm", pose))(arm, state)
    assert np.allclose(shown, [-9.0 * 0.75, 0, 0, 0, 3.0, 0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_an_imu_of_a_run_is_that_of_finite_differences():
    system, start = pendulum()
    torque = lambda t, q, v, p: 2.0 * jnp.sin(5 * t)[None]
    h, middle = 2e-4, jnp.array([0.2, 0.5, 0.8])
    ts = (middle[:, None] + h * jnp.arange(-2, 3)).ravel()
    run = jm.simulate(system, start, ts, control=torque, **STEPS)
    shown = jm.output.IMU("lower.chip")(system, run)
    pose = np.asarray(jm.pose(system, run, "lower.chip")).reshape(3, 5, 3, 3)
    second = np.array([-1, 16, -30, 16, -1]) / 12 / h**2  # of fourth order
    first = np.array([1, -8, 0, 8, -1]) / 12 / h
    a = np.einsum("k,tkij->tij", second, pose)[:, :2, 2]
    rotation, turning = pose[:, 2, :2, :2], np.einsum("k,tkij->tij", first, pose)[:, :2, :2]
    force = np.einsum("tji,tj->ti", rotation, a + np.array([0.0, G]))
    omega = np.einsum("tij,tij->t", turning[:, 1:], rotation[:, :1])  # of Ṙ Rᵀ
    there = np.asarray(shown).reshape(3, 5, 3)[:, 2]
    assert np.abs(there[:, :2] - force).max() < 1e-6 * np.abs(force).max()
    assert np.abs(there[:, 2] - omega).max() < 1e-6 * np.abs(omega).max()


def test_an_encoder_shows_steps_and_has_the_derivative_of_its_coordinate():
    system, start = pendulum()
    encoder = jm.output.Encoder("elbow", 2 * np.pi / 4096)
    step, shown = 2 * np.pi / 4096, float(encoder(system, start))
    assert abs(shown - 0.5) <= step / 2 and abs(shown / step - round(shown / step)) < 1e-9
    slope = jax.grad(lambda q: encoder(system, dataclasses.replace(start, q=q)))(start.q)
    assert np.array_equal(slope, [0.0, 1.0])
    assert float(jm.output.Encoder("elbow'", 0.3)(system, start)) == pytest.approx(-2.1)
    assert encoder.name == "elbow"


def test_a_load_cell_shows_the_reaction_and_noise_follows_from_its_key():
    system, start = pendulum()
    cell = jm.output.LoadCell("elbow", frame="body", sigma=(1.0, 1.0, 0.1))
    u = np.array([2.0])
    wrench = jm.joint_reaction(system, start, "elbow", frame="body", u=u)
    exact = cell(system, start, u)
    assert np.array_equal(exact, np.concatenate([wrench.force, wrench.torque]))
    one, same, other = (cell(system, start, u, key=jax.random.key(k)) for k in (0, 0, 1))
    assert np.array_equal(one, same) and not np.any(one == other)
    many = jax.vmap(lambda key: cell(system, start, u, key=key))(jax.random.split(jax.random.key(2), 4000))
    assert np.allclose(np.std(many - exact, axis=0), [1.0, 1.0, 0.1], rtol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jm.output.Encoder("elbow", 0.0), "Argument `resolution` of Encoder must be a positive number"),
        (lambda: jm.output.Encoder("wrist", 0.1)(*pendulum()), "wrist"),
        (lambda: jm.output.IMU("lower.chop")(*pendulum()), "chop"),
        (lambda: jm.output.IMU(3.0), "Argument `point` must be"),
        (lambda: jm.output.IMU("lower", sigma=-1.0), "Argument `sigma` of IMU"),
        (lambda: jm.output.LoadCell("elbow", on="ground")(*pendulum()), "Argument `on` must be one of the bodies"),
    ],
    ids=["resolution", "joint", "point", "marker", "sigma", "body"],
)
def test_wrong_arguments_are_refused_by_name(make, message):
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        make()


@pytest.mark.slow
def test_a_fit_to_an_imu_finds_a_mass_and_where_the_sensor_sits():
    def build(mass, chip):
        rod, load = P.Body.rod("rod", 1.0, 1.0, points={"chip": chip}), P.Body("load", mass, 0.01)
        return P.Mechanism(
            [rod, load],
            [P.Revolute("pivot", "ground", "rod.a"), P.Fixed("clamp", "rod.b", "load")],
            actuators=[P.Motor("motor", "pivot")],
            gravity=(0.0, -G),
        )

    true, nominal = build(0.7, (0.2, 0.0)), build(0.4, (0.05, 0.0))
    system = true.build()
    start, ts = jm.assemble(system, {"pivot": -1.2}), jnp.linspace(0.0, 1.0, 51)
    torque = lambda t, q, v, p: 3.0 * jnp.sin(6 * t)[None]
    run = jm.simulate(system, start, ts, control=torque, **STEPS)
    imu = jm.output.IMU("rod.chip", sigma=(0.02, 0.02, 0.002))
    record = jm.fit.Signal(imu, imu(system, run, key=jax.random.key(0)), sigma=imu.sigma)
    assert record.name == "imu"
    there = jm.fit.Experiment(ts, jm.assemble(nominal.build(), {"pivot": -1.2}), record, control=torque)
    parameters = [jm.fit.Parameter("load.mass", min_value=0.0), jm.fit.Parameter("rod.points.chip.x")]
    fit = jm.fit.identify(nominal, parameters, there, **STEPS)
    errors = fit.standard_errors()
    assert fit.result == jm.RESULTS.successful
    for name, value in (("load.mass", 0.7), ("rod.points.chip.x", 0.2)):
        assert abs(fit.estimates[name] - value) < 4 * errors[name] < 0.05


# What is read off states and runs


def placed(system, q, v):
    """A state whose sizes are 1, not measured."""
    rows = jnp.ones(system.m)
    scale = Scale(rows, rows, jnp.ones(system.nv), rows, jnp.ones(()))
    return State(jnp.zeros(()), jnp.asarray(q, float), jnp.asarray(v, float), scale)


def recorded(system, q, v=None, u=None, z=None):
    """A run that has saved such coordinates."""
    q = jnp.asarray(q, float)
    v = jnp.zeros((len(q), system.nv)) if v is None else jnp.asarray(v, float)
    ts, done = jnp.arange(float(len(q))), jm.RESULTS.successful
    return Solution(ts, q, v, 0.0 * ts, u, placed(system, q[0], v[0]).scale, {}, None, done, None, None, z=z)


def arm(drivers=(), forces=(), actuators=()):
    """A rod of 2 kg and 1 m on a pin."""
    pin = P.Revolute("pin", "ground", "rod.a")
    return P.Mechanism([P.Body.rod("rod", 2.0, 1.0)], [pin], drivers, forces, actuators, gravity=(0.0, -10.0))


@functools.cache
def sprung():
    """It on a spring, with a motor."""
    return arm((), [P.JointSpring("coil", "pin", 3.0)], [P.Motor("motor", "pin")]).build()


def test_turns_of_a_joint_that_is_no_coordinate_are_counted_along_a_run():
    system = arm().build("absolute")
    slow, fast = (
        np.linspace(0.0, 9.0, 7),
        -25.0 * np.arange(7.0) + 0.3 * np.arange(7.0) ** 2,
    )  # some turns between saved times
    for angle, rate in ((slow, 0.0 * slow), (fast, -25.0 + 0.6 * np.arange(7.0))):
        across = np.stack([-0.5 * np.sin(angle), 0.5 * np.cos(angle), angle**0], axis=1)
        run = recorded(
            system, np.stack([0.5 * np.cos(angle), 0.5 * np.sin(angle), angle], axis=1), across * rate[:, None]
        )
        np.testing.assert_allclose(jm.coordinate(system, run, "pin"), angle, atol=1e-12)
    np.testing.assert_allclose(
        jm.coordinate(system, run.states, "pin"), np.arctan2(np.sin(angle), np.cos(angle)), atol=1e-12
    )


def test_a_force_is_read_off_a_run_with_its_inputs():
    system = sprung()
    angle = np.linspace(-1.0, 2.0, 4)
    run = recorded(system, angle[:, None], u=jnp.zeros((4, 1)))
    np.testing.assert_allclose(jm.output.force(system, run, "coil"), -3.0 * angle, atol=1e-12)
    with pytest.raises(ValueError, match=r"`u` must have shape \(4, 1\), but has shape \(3, 1\)"):
        jm.output.force(system, run, "coil", u=np.zeros((3, 1)))


def test_commands_are_those_of_the_computed_torque():
    """m l²/3 (4 (0.1 − q) − q̇) + m g l/2 cos q + 3 q, along a run and at its first state."""
    system = sprung()
    law = jm.control.Track("pin", lambda t: 0.1, stiffness=4.0, damping=1.0)
    q, v = np.array([0.3, -0.8, 1.2]), np.array([0.5, 0.0, -2.0])
    each = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *jnp.shape(x))), law.init(system))
    run = recorded(system, q[:, None], v[:, None], z=each)
    exact = 2 / 3 * (4 * (0.1 - q) - v) + 10 * np.cos(q) + 3 * q
    found = jm.output.commands(system, run, law)
    np.testing.assert_allclose(found.u[:, 0], exact, rtol=1e-10)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-10)
    np.testing.assert_allclose(jm.output.commands(system, run.state(0), law).u[0], exact[0], rtol=1e-10)


def test_commands_of_a_force_are_what_the_wall_does_not_bear():
    """A bead of 2 kg on a floor that shall bear 5 N: two inputs, the second m g − 5 N."""
    bead = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: 2.0 * jnp.eye(2),
        potential=lambda t, q, p: 20.0 * q[1],
        constraints=[jm.Holonomic("floor", lambda t, q, p: q[1])],
        actuation=lambda t, q, p: jnp.eye(2),
    )
    motion = jm.control.Track(jm.control.Outputs(lambda t, q, p: q[:1]), lambda t: jnp.zeros(1), 4.0, 1.0)
    law = jm.control.TrackForce(motion, jm.control.Multipliers("floor"), 5.0)
    found = jm.output.commands(bead, placed(bead, [0.3, 0.0], [0.5, 0.0]), law)
    np.testing.assert_allclose(found.u, [2 * (-4 * 0.3 - 0.5), 20.0 - 5.0], rtol=1e-10)


def test_the_multiplier_of_a_driver_is_its_effort():
    system = arm([P.Driver("turn", "pin", lambda t, p: 2.0 * t)]).build()
    found = jm.reactions(system, placed(system, [0.0], [2.0]))
    assert found.multipliers["turn"].shape == () and float(found.multipliers["turn"]) == pytest.approx(10.0)
    np.testing.assert_allclose(found.forces["turn"], [10.0], rtol=1e-12)


def test_directions_of_a_square_system_are_as_many_as_rows():
    with pytest.raises(ValueError, match="`directions` must hold 2 directions for scheme 'square'"):
        _check_directions(True, 0.0, 2)


def test_a_pose_that_nothing_holds_may_be_asked_for_quietly():
    spring = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), potential=lambda t, q, p: 4.0 * q[0] ** 2)
    pulled = placed(spring, [0.5], [0.0])
    with pytest.raises(ValueError, match="`hold` must hold the pose, but does not: along 'x'"):
        jm.statics(spring, pulled, hold=[])
    assert bool(jm.statics(spring, pulled, hold=[], throw=False).result == jm.RESULTS.no_equilibrium)
