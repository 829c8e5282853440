"""Forces at rest: against virtual work, a truss by hand, and where a rigid model does not determine them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm

P = jm.planar
G = 9.81
CRANK, ROD, PUSH = 0.3, 0.8, 1000.0


def press(drivers=()):
    """A slider-crank that works as a press, with weights; its toggle pose is near A = 0."""
    bodies = [
        P.Body.rod("crank", 2.0, CRANK),
        P.Body.rod("rod", 1.0, ROD, position=(CRANK, 0.0)),
        P.Body("slider", 3.0, 0.1, position=(CRANK + ROD, 0.0)),
    ]
    joints = [
        P.Revolute("O", "ground", "crank.a"),
        P.Revolute("A", "crank.b", "rod.a"),
        P.Revolute("B", "rod.b", "slider"),
        P.Prismatic("guide", "ground", "slider"),
    ]
    load = P.Load("work", "slider", force=(-PUSH, 0.0))
    return P.Mechanism(bodies, joints, drivers, [load], gravity=(0.0, -G))


@pytest.fixture(scope="module")
def pressed():
    system = press().build()
    state = jm.assemble(system, {"O": 0.2}, {"O": 3.0}, hold=["O"])
    return system, state, jm.statics(system, state, hold=["O"])


def reach(angle):
    """Of the slider."""
    return CRANK * jnp.cos(angle) + jnp.sqrt(ROD**2 - (CRANK * jnp.sin(angle)) ** 2)


@pytest.mark.slow
def test_the_torque_of_a_press_follows_from_virtual_work(pressed):
    _, state, found = pressed
    angle = state.q[0]
    height = lambda a: (2.0 + 1.0) * 0.5 * CRANK * jnp.sin(a)  # of crank and rod, times their masses
    exact = PUSH * jax.grad(reach)(angle) + G * jax.grad(height)(angle)
    np.testing.assert_allclose(found.efforts["O"], exact, rtol=1e-10)
    np.testing.assert_allclose(found.residual, 0, atol=1e-9)
    np.testing.assert_array_equal(found.state.v, 0)


def test_the_joints_of_a_press_balance_each_body(pressed):
    _, _, found = pressed
    at = found.joints  # on the body of B: crank, rod, slider, slider
    np.testing.assert_allclose(at["O"].force - at["A"].force, [0, 2.0 * G], atol=1e-9)
    np.testing.assert_allclose(at["A"].force - at["B"].force, [0, 1.0 * G], atol=1e-9)
    np.testing.assert_allclose(at["B"].force + at["guide"].force, [PUSH, 3.0 * G], atol=1e-9)
    np.testing.assert_allclose(at["B"].force[0], PUSH, rtol=1e-12)
    assert found.unique == dict.fromkeys(("O", "A", "B", "guide"), True)
    assert [line.split()[0] for line in str(found).splitlines()[1:]] == ["O", "A", "B", "guide", "effort"]
    # 39 N make 39 N m across the press: a torque of 1e-14 N m is rounding beside them, and one of 1e-12 N m is none.
    for torque, word in ((1e-14, "0"), (1e-12, "1e-12")):
        values = jnp.array([-5e-15, 39.0]), jnp.array([torque])
        rounded = eqx.tree_at(lambda f: (f.joints["B"].force, f.joints["B"].torque), found, values)
        words = [line.split() for line in str(rounded).splitlines()]
        assert next(line[1:4] for line in words if line[0] == "B") == ["0", "39", word]


@pytest.mark.slow
def test_a_driver_holds_like_a_clamp_however_fast_it_is(pressed):
    _, state, held = pressed
    driver = P.Driver("motor", "O", lambda t, p: 0.2 + 30.0 * t + 50.0 * t**2)
    system = press([driver]).build()
    found = jm.statics(system, jm.as_state(system, state.q))
    np.testing.assert_allclose(found.efforts["motor"], held.efforts["O"], rtol=1e-12)
    np.testing.assert_allclose(found.joints["B"].force, held.joints["B"].force, rtol=1e-12)


@pytest.mark.slow
def test_a_truss_of_two_bars_by_hand():
    """Two bars from a wall at 0° and 45° to a node that carries a load: −P in the lower one, √2 P in the other."""
    bodies = [P.Body.rod("low", 1e-6, 1.0), P.Body.rod("high", 1e-6, 2**0.5, angle=-np.pi / 4, position=(0.0, 1.0))]
    joints = [
        P.Revolute("a", "ground", "low.a"),
        P.Revolute("b", ("ground", (0.0, 1.0)), "high.a"),
        P.Revolute("node", "low.b", "high.b"),
    ]
    truss = P.Mechanism(bodies, joints, forces=[P.Load("load", "low.b", force=(0.0, -50.0))]).build()
    found = jm.statics(truss, jm.assemble(truss))
    np.testing.assert_allclose(found.joints["a"].force, [50.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(found.joints["b"].force, [-50.0, 50.0], atol=1e-9)
    np.testing.assert_allclose(found.joints["node"].force, [50.0, -50.0], atol=1e-9)
    assert all(found.unique.values()) and not found.efforts


@pytest.mark.slow
def test_a_beam_clamped_at_both_ends_is_not_determined():
    beam = P.Body.rod("beam", 4.0, 2.0)
    joints = [P.Fixed("left", "ground", "beam.a"), P.Fixed("right", ("ground", (2.0, 0.0)), "beam.b")]
    frame = P.Mechanism([beam], joints, gravity=(0.0, -G)).build("absolute")
    found = jm.statics(frame, jm.assemble(frame))
    assert found.unique == {"left": False, "right": False}
    total = found.joints["left"].force + found.joints["right"].force
    np.testing.assert_allclose(total, [0, 4.0 * G], atol=1e-9)  # only the sum is known
    assert "not unique" in str(found) and "trade against each other: left, right" in str(found)


@pytest.mark.slow
def test_a_hinge_that_is_held_shares_its_load_though_the_torque_that_holds_it_is_unique():
    S = jm.spatial
    hinges = [
        S.Revolute(name, ("ground", (0.0, 0.0, z)), ("door", (-0.4, 0.0, z - 1.0)))
        for name, z in (("low", 0.3), ("high", 1.7))
    ]
    door = S.Body.box("door", 20.0, (0.8, 0.04, 2.0), position=(0.4, 0.0, 1.0))
    system = S.Mechanism([door], hinges, gravity=(0.0, G, 0.0)).build()
    found = jm.statics(system, jm.assemble(system, {"low": 0.0}), hold=["low"])
    np.testing.assert_allclose(found.efforts["low"], -20.0 * G * 0.4, rtol=1e-9)
    assert found.unique == {"low": False, "high": False}
    words = {line.split("  ")[1]: line for line in str(found).splitlines()[1:]}
    assert "not unique" in words["low"] and "not unique" not in words["effort at low"]


@pytest.mark.slow
def test_two_efforts_for_one_freedom_are_flagged(pressed):
    system, state, once = pressed
    twice = jm.statics(system, state, hold=["O", "guide"])
    assert not twice.unique["O"] and not twice.unique["guide"]
    slope = jax.grad(reach)(state.q[0])
    np.testing.assert_allclose(twice.efforts["O"] + slope * twice.efforts["guide"], once.efforts["O"], rtol=1e-9)


@pytest.mark.slow
def test_efforts_may_be_differentiated(pressed):
    _, state, _ = pressed

    def by_push(push):
        heavier = press().replace("work", force=jnp.array([-push, 0.0])).build()
        return jm.statics(heavier, state, ["O"]).efforts["O"]

    np.testing.assert_allclose(jax.grad(by_push)(PUSH), jax.grad(reach)(state.q[0]), rtol=1e-9)


def test_what_cannot_be_held_is_told(pressed):
    system, state, _ = pressed
    with pytest.raises(TypeError, match=r"`hold` must be a sequence, .*, but is 'O'"):
        jm.statics(system, state, hold="O")
    with pytest.raises(
        ValueError, match="must act on a function or a coordinate out of 'O', 'A', 'guide' and 'B', but acts on 'Z'"
    ):
        jm.statics(system, state, hold=["Z"])
    with pytest.raises(ValueError, match=r"`u` must have shape \(0,\), but has shape \(\)"):
        jm.statics(system, state, ["O"], u=1.0)
    with pytest.raises(ValueError, match="`frame` must be 'world', 'body' or 'joint', but is 'x'"):
        jm.statics(system, state, hold=["O"], frame="x")


def test_a_pendulum_that_hangs_or_stands_straight_needs_nothing_to_hold_it():
    """All that acts along its hinge is rounding; beside the vertical it is its weight."""
    system = P.Mechanism([P.Body.rod("rod", 2.0, 1.0)], [P.Revolute("O", "ground", "rod.a")], gravity=(0.0, -G)).build()
    state = jm.assemble(system)
    for angle in (-np.pi / 2, np.pi / 2):
        found = jm.statics(system, dataclasses.replace(state, q=jnp.array([angle])))
        np.testing.assert_allclose(found.joints["O"].force, [0.0, 2 * G], atol=1e-12)
    for angle in (1e-6 - np.pi / 2, 0.0):
        found = jm.statics(system, dataclasses.replace(state, q=jnp.array([angle])), throw=False)
        assert found.result == jm.RESULTS.no_equilibrium


@pytest.mark.slow
def test_systems_of_functions_have_efforts_only():
    pendulum = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.eye(2),
        potential=lambda t, q, p: G * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)],
    )
    state = jm.assemble(pendulum, [0.6, -0.8])
    found = jm.statics(pendulum, state, hold=["x"])
    np.testing.assert_allclose(found.efforts["x"], 0.6 / 0.8 * G, rtol=1e-10)
    np.testing.assert_allclose(found.multipliers["rod"], [-G / 1.6], rtol=1e-10)
    assert found.joints == {} and found.unique == {"x": True}
    with pytest.raises(
        ValueError, match=r"`hold` must hold the pose, but does not: along '\w+' forces are out of balance"
    ):
        jm.statics(pendulum, state)
    falling = jm.statics(pendulum, state, throw=False)
    assert falling.result == jm.RESULTS.no_equilibrium and float(jnp.abs(falling.residual).max()) > 1
