"""Forces by tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

import jaxmb as jm

P, S = jm.planar, jm.spatial
SPEEDS, TORQUES = [0.0, 50.0, 150.0], [3.0, 2.0, 0.0]  # two straight parts
STRETCH, PULL = [0.9, 1.0, 1.5, 2.5], [-4.0, 0.0, 2.0, 30.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_cubic_is_the_monotone_one(seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.normal(size=9)), np.round(rng.normal(size=9), 1 - seed)  # with equal neighbours
    at = np.linspace(x[0], x[-1], 301)
    found = jax.vmap(P.Table(x, y, "cubic"))(jnp.asarray(at))
    np.testing.assert_allclose(found, PchipInterpolator(x, y)(at), rtol=1e-10, atol=1e-12)
    slope = jax.vmap(jax.grad(P.Table(x, y, "cubic")))(jnp.asarray(at[1:-1]))
    np.testing.assert_allclose(slope, PchipInterpolator(x, y).derivative()(at[1:-1]), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_values_beyond_the_points_are_held_or_refused(interpolation):
    held, refused = (P.Table([1.0, 2.0], [5.0, 7.0], interpolation, beyond) for beyond in ("hold", "refuse"))
    assert [float(held(x)) for x in (0.0, 1.0, 1.5, 2.0, 9.0)] == [5.0, 5.0, 6.0, 7.0, 7.0]
    np.testing.assert_array_equal([refused(x) for x in (0.0, 1.0, 1.5, 2.0, 9.0)], [np.nan, 5.0, 6.0, 7.0, np.nan])
    assert float(jax.grad(held)(9.0)) == 0.0


def flywheel(**more):
    """A flywheel with the torque of a motor by its speed."""
    motor = P.JointCharacteristic("motor", "axle", "rate", SPEEDS, TORQUES, **more)
    return P.Mechanism([P.Body("wheel", 1.0, 0.05)], [P.Revolute("axle", "ground", "wheel")], forces=[motor])


@pytest.fixture(scope="module")
def run_up():
    system = flywheel().build()
    return system, jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, 3.0, 7))


def test_a_motor_runs_up_along_its_characteristic(run_up):
    """ω̇ J = 3 − ω/50 up to 50 rad/s, then (150 − ω)/50: both exponentials of the time constant 50 J."""
    system, solution = run_up
    ts, constant = solution.ts, 50 * 0.05
    np.testing.assert_allclose(
        jm.rate(system, solution, "axle"), 150 * (1 - jnp.exp(-ts / constant)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(jm.force(system, solution, "motor"), 3 * jnp.exp(-ts / constant), rtol=1e-5)
    np.testing.assert_allclose(jm.energy(system, solution).balance, 0, atol=1e-3)


def test_a_table_that_refuses_ends_a_run_and_starts_none():
    ramp = P.JointCharacteristic("motor", "axle", "rate", SPEEDS[:2], TORQUES[:2], beyond="refuse")
    system = P.Mechanism(flywheel().bodies, flywheel().joints, forces=[ramp]).build()
    with pytest.raises(ValueError, match="`force` must give finite numbers at this state"):
        jm.assemble(system, v={"axle": 51.0})
    solution = jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, 3.0, 7), throw=False)
    assert solution.result != jm.RESULTS.successful
    reached = jm.rate(system, solution, "axle")
    assert 0 < jnp.nanmax(reached) <= 50


def test_a_line_by_its_length_is_a_spring_and_by_its_speed_a_damper():
    bodies = [P.Body("mass", 2.0, 0.1, position=(1.2, 0.3))]
    table = lambda of, x, y: P.LineCharacteristic("line", "ground", "mass", of, x, y)
    forces = {
        "spring": (
            table("length", [0.0, 4.0], [-30.0, 90.0]),
            P.SpringDamper("line", "ground", "mass", 30.0, 0.0, 1.0),
        ),
        "damper": (table("speed", [-5.0, 5.0], [-35.0, 35.0]), P.SpringDamper("line", "ground", "mass", 0.0, 7.0)),
    }
    for pair in forces.values():
        found = []
        for force in pair:
            system = P.Mechanism(bodies, forces=[force]).build()
            state = jm.assemble(system, [1.2, 0.3, 0.0], [0.4, -0.7, 0.0])
            found.append((jm.evaluate(system, state).force, jm.force(system, state, "line")))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), *found)


def test_angles_count_full_turns_and_time_is_read():
    joints = [P.Revolute("axle", "ground", "wheel")]
    forces = [
        P.JointCharacteristic("stop", "axle", "coordinate", [0.0, 10.0, 12.0], [0.0, 0.0, -8.0]),
        P.JointCharacteristic("ramp", "axle", "time", [0.0, 2.0], [0.0, 6.0]),
    ]
    system = P.Mechanism([P.Body("wheel", 1.0, 0.05)], joints, forces=forces).build("absolute")
    state = jm.assemble(system, {"wheel.angle": 11.0, "axle.turns": 11.0}, t=0.5)
    assert float(jm.force(system, state, "stop")) == pytest.approx(-4.0)
    assert float(jm.force(system, state, "ramp")) == pytest.approx(1.5)


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


def test_functions_read_tables_of_anything_and_are_not_written():
    table = P.Table([0.0, 1.0], [0.0, 10.0])
    force = P.JointForce("governor", "axle", lambda motion: -table(motion.position("wheel.rim")[1]))
    wheel = P.Body("wheel", 1.0, 0.05, points={"rim": (0.0, 0.5)})
    mechanism = P.Mechanism([wheel], [P.Revolute("axle", "ground", "wheel")], forces=[force])
    system = mechanism.build()
    assert float(jm.force(system, jm.assemble(system), "governor")) == pytest.approx(-5.0)
    with pytest.raises(TypeError, match="Force 'governor' holds a function, `fn`, which a text cannot"):
        mechanism.to_text()


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
            "`interpolation` must be out of 'linear' and 'cubic', but is 'spline'",
        ),
        (lambda: P.Table([0, 1], [0, 1], beyond="nan"), "`beyond` must be out of 'hold' and 'refuse', but is 'nan'"),
        (
            lambda: S.JointCharacteristic("m", "j", "speed", [0, 1], [0, 1]),
            "`of` of force 'm' must be out of 'coordinate', 'rate' and 'time', but is 'speed'",
        ),
        (lambda: S.JointCharacteristic("m", "j", "rate", [1, 0], [0, 1]), "Argument `x` of force 'm' must increase"),
        (
            lambda: S.LineCharacteristic("m", "a", "b", "rate", [0, 1], [0, 1]),
            "`of` of force 'm' must be out of 'length', 'speed' and 'time', but is 'rate'",
        ),
    ],
)
def test_what_is_no_table_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
