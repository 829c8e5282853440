"""Forces by tables."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

import jaxmb as jm

P, S = jm.planar, jm.spatial
SPEEDS, TORQUES = [0.0, 50.0, 150.0], [3.0, 2.0, 0.0]  # two straight parts
STRETCH, PULL = [0.9, 1.0, 1.5, 2.5], [-4.0, 0.0, 2.0, 30.0]


VALUES = eqx.filter_jit(lambda table, at: jax.vmap(table)(at))
SLOPES = eqx.filter_jit(lambda table, at: jax.vmap(jax.grad(table))(at))


@pytest.mark.parametrize("seed", range(3))
def test_the_cubic_is_the_monotone_one(seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.normal(size=9)), np.round(rng.normal(size=9), 1 - seed)  # with equal neighbours
    at = np.linspace(x[0], x[-1], 301)
    found = VALUES(P.Table(x, y, "cubic"), jnp.asarray(at))
    np.testing.assert_allclose(found, PchipInterpolator(x, y)(at), rtol=1e-10, atol=1e-12)
    slope = SLOPES(P.Table(x, y, "cubic"), jnp.asarray(at[1:-1]))
    np.testing.assert_allclose(slope, PchipInterpolator(x, y).derivative()(at[1:-1]), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_values_beyond_the_points_are_held_or_refused(interpolation):
    held, refused = (P.Table([1.0, 2.0], [5.0, 7.0], interpolation, beyond) for beyond in ("hold", "refuse"))
    at = jnp.array([0.0, 1.0, 1.5, 2.0, 9.0])
    np.testing.assert_array_equal(VALUES(held, at), [5.0, 5.0, 6.0, 7.0, 7.0])
    np.testing.assert_array_equal(VALUES(refused, at), [np.nan, 5.0, 6.0, 7.0, np.nan])
    assert SLOPES(held, at)[-1] == 0.0


def flywheel():
    """A flywheel with the torque of a motor by its speed."""
    motor = P.JointCharacteristic("motor", "axle", "rate", SPEEDS, TORQUES, beyond="refuse")
    return P.Mechanism([P.Body("wheel", 1.0, 0.05)], [P.Revolute("axle", "ground", "wheel")], forces=[motor])


@pytest.fixture(scope="module")
def run_up():
    system = flywheel().build()
    return system, jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, 3.0, 7))


@pytest.mark.slow
def test_a_motor_runs_up_along_its_characteristic(run_up):
    """ω̇ J = 3 − ω/50 up to 50 rad/s, then (150 − ω)/50: both exponentials of the time constant 50 J."""
    system, solution = run_up
    ts, constant = solution.ts, 50 * 0.05
    np.testing.assert_allclose(
        jm.rate(system, solution, "axle"), 150 * (1 - jnp.exp(-ts / constant)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(jm.force(system, solution, "motor"), 3 * jnp.exp(-ts / constant), rtol=1e-5)
    np.testing.assert_allclose(jm.energy(system, solution).balance, 0, atol=1e-3)


@pytest.mark.slow
def test_a_table_that_refuses_ends_a_run_and_starts_none(run_up):
    system = flywheel().replace("motor", x=[0.0, 25.0, 50.0], y=[3.0, 2.5, 2.0]).build()
    with pytest.raises(ValueError, match="`force` must give finite numbers at this state"):
        jm.assemble(system, v={"axle": 51.0})
    solution = jm.simulate(system, jm.assemble(system), run_up[1].ts, throw=False)
    assert solution.result != jm.RESULTS.successful
    reached = jm.rate(system, solution, "axle")
    assert 0 < jnp.nanmax(reached) <= 50


def test_a_line_by_its_length_is_a_spring_and_by_its_speed_a_damper():
    """On one of two masses that move alike."""
    bodies = [P.Body(name, 2.0, 0.1) for name in ("one", "two")]
    tables = [
        P.LineCharacteristic("spring by table", "ground", "one", "length", [0.0, 4.0], [-30.0, 90.0]),
        P.LineCharacteristic("damper by table", "ground", "one", "speed", [-5.0, 5.0], [-35.0, 35.0]),
    ]
    elements = [
        P.SpringDamper("spring", "ground", "two", 30.0, 0.0, 1.0),
        P.SpringDamper("damper", "ground", "two", 0.0, 7.0),
    ]
    system = P.Mechanism(bodies, forces=[*tables, *elements]).build()
    state = jm.assemble(system, [1.2, 0.3, 0.0] * 2, [0.4, -0.7, 0.0] * 2)
    for table, element in zip(tables, elements, strict=True):
        np.testing.assert_allclose(
            jm.force(system, state, table.name), jm.force(system, state, element.name), rtol=1e-12
        )
    one, two = np.split(np.asarray(jm.evaluate(system, state).force), 2)
    assert np.abs(one).max() > 1
    np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_angles_count_full_turns_and_time_and_functions_are_read():
    table = P.Table([0.0, 1.0], [0.0, 10.0])
    forces = [
        P.JointCharacteristic("stop", "axle", "coordinate", [0.0, 10.0, 12.0], [0.0, 0.0, -8.0]),
        P.JointCharacteristic("ramp", "axle", "time", [0.0, 2.0], [0.0, 6.0]),
        P.JointForce("governor", "axle", lambda motion: -table(motion.position("wheel.rim")[0])),
    ]
    wheel = P.Body("wheel", 1.0, 0.05, points={"rim": (0.5 / np.cos(11.0), 0.0)})
    mechanism = P.Mechanism([wheel], [P.Revolute("axle", "ground", "wheel")], forces=forces)
    system = mechanism.build("absolute")
    assert system.coordinates == ("wheel.x", "wheel.y", "wheel.angle", "axle.turns")
    motion = lambda q: system.joints.motion(jnp.asarray(0.5), q, jnp.zeros(3), system.params)
    found = jax.jit(lambda q: jnp.stack([force.value(motion(q)) for force in forces]))(
        jnp.array([0.0, 0.0, 11.0, 11.0])
    )
    np.testing.assert_allclose(found, [-4.0, 1.5, -5.0])
    with pytest.raises(TypeError, match="Force 'governor' holds a function, `fn`, which a text cannot"):
        mechanism.to_text()


@pytest.mark.slow
def test_tables_are_written_and_read_replaced_renamed_and_differentiated(run_up):
    line = P.LineCharacteristic("line", "ground", "wheel.rim", "length", STRETCH, PULL, "cubic", "refuse")
    wheel = P.Body("wheel", 1.0, 0.05, points={"rim": (0.1, 0.0)})
    mechanism = P.Mechanism([wheel], flywheel().joints, forces=[*flywheel().forces, line])
    text = mechanism.to_text()
    assert 'kind = "JointCharacteristic"' in text and "x = [0.0, 50.0, 150.0]" in text and 'beyond = "refuse"' in text
    again = P.Mechanism.from_text(text)
    assert again.to_text() == text
    assert again.renamed("left_").elements["left_motor"].joint == "left_axle"
    system, _ = run_up
    state = jm.assemble(system, v={"axle": 100.0})
    halfway = lambda y: jm.force(flywheel().replace("motor", y=y).build(), state, "motor")
    np.testing.assert_allclose(jax.grad(halfway)(jnp.array(TORQUES)), [0.0, 0.5, 0.5])


def test_a_short_pulse_of_time_is_met():
    """Of a body at rest, whose steps would be longer than the pulse; along a joint and a line."""
    pulse = dict(x=[0.0, 5.0, 5.01, 5.02], y=[0.0, 0.0, 3.0, 0.0])
    push = P.JointCharacteristic("push", "rail", "time", **pulse)
    pull = P.LineCharacteristic("pull", "body", ("ground", (9.0, 0.0)), "time", **pulse)
    rail = P.Prismatic("rail", "ground", "body", axis=(1.0, 0.0))
    system = P.Mechanism([P.Body("body", 2.0, 0.1)], [rail], forces=[push, pull]).build()
    run = jm.simulate(system, jm.assemble(system), [10.0])
    np.testing.assert_allclose(run.v[-1, 0], 2 * 3.0 * 0.01 / 2.0, rtol=1e-8)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: P.Table([0.0, 1.0], [1.0]),
            r"Arguments `x` and `y` must have one shape \(n,\), .* have \(2,\) and \(1,\)",
        ),
        (lambda: P.Table([0.0], [1.0]), "of two points or more"),
        (lambda: P.Table([0.0, 0.0], [1.0, 2.0]), "Argument `x` must increase, but does not"),
        (
            lambda: P.Table([0, 1], [0, 1], "spline"),
            "`interpolation` of Table must be 'linear' or 'cubic', but is 'spline'",
        ),
        (lambda: P.Table([0, 1], [0, 1], beyond="nan"), "`beyond` of Table must be 'hold' or 'refuse', but is 'nan'"),
        (
            lambda: S.JointCharacteristic("m", "j", "speed", [0, 1], [0, 1]),
            "`of` of JointCharacteristic 'm' must be 'coordinate', 'rate' or 'time', but is 'speed'",
        ),
        (lambda: S.JointCharacteristic("m", "j", "rate", [1, 0], [0, 1]), "Argument `x` of force 'm' must increase"),
        (
            lambda: S.LineCharacteristic("m", "a", "b", "rate", [0, 1], [0, 1]),
            "`of` of LineCharacteristic 'm' must be 'length', 'speed' or 'time', but is 'rate'",
        ),
    ],
)
def test_what_is_no_table_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
