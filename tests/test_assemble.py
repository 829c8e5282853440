"""Assembly: onto the constraints, what is held is held, and refusals by name."""

import dataclasses
import functools
import importlib
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import TELLING, fourbar, make, pendulum, slow_but, states, top

import jaxmb as jm
from jaxmb.foundations import Check, all_hold
from jaxmb.kinematics import closing, consistency, correction
from jaxmb.kinematics.closing import Assembly, Guess, _missing, with_driven_turns
from jaxmb.kinematics.search import SAMPLES, SOLVED, _descend, _unwound, search_pose
from jaxmb.kinematics.shortest_move import LinearEquations, shortest_move


@pytest.mark.parametrize("name", slow_but(TELLING))
@pytest.mark.slow_except("driven cart")
def test_states_are_consistent(name):
    system, batch = states(name)
    out = jm.residuals(system, batch)
    # Relative to spans, which are 0.2 to 3 m here; what holds to 8 eps of its terms is left alone.
    assert float(jnp.max(jnp.abs(out.position), initial=0)) <= 2e-14
    assert float(jnp.max(jnp.abs(out.velocity), initial=0)) <= 2e-14


@pytest.mark.slow
def test_the_shortest_way_in_the_metric():
    """M (q − guess) is a combination of the rows, to first order in the distance; the same for v exactly."""
    system, state = make("four-bar")
    guess = state.q + 1e-5 * jnp.array([1.0, -2.0, 0.5])
    moved = jm.assemble(system, guess, state.v + 0.1)
    terms = jm.evaluate(system, moved)
    null = np.linalg.svd(np.asarray(terms.jacobian))[2][2]
    for change in (moved.q - guess, (moved.v - state.v - 0.1)):
        assert abs(null @ terms.mass @ change) <= 1e-4 * float(jnp.linalg.norm(change))


def test_held_coordinates_and_velocities():
    system, (q, v) = fourbar()
    state = jm.assemble(system, q, [2.0, 0.0, 0.0], hold=["a1"], hold_velocity=["a1"])
    assert float(state.q[0]) == q[0]
    np.testing.assert_allclose(state.v[0], 2.0, atol=1e-14)
    by_index = jm.assemble(system, q, [2.0, 0.0, 0.0], hold=[0], hold_velocity=[0])
    np.testing.assert_array_equal(state.q, by_index.q)
    system, (q, v) = top()
    assert float(jm.assemble(system, q, v, hold=["x"]).q[0]) == pytest.approx(q[0], abs=1e-15)


@pytest.mark.slow
def test_rough_guesses_and_redundant_rows():
    system, _ = fourbar(3)
    for guess in ([0.0, 0.0, 0.0], [3.0, 1.0, -2.0], [-1.0, 2.5, 0.5]):
        assert float(jnp.max(jnp.abs(jm.residuals(system, jm.assemble(system, guess)).position))) <= 1e-14


@pytest.mark.parametrize("mode", [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)])
def test_derivatives_of_the_assembled_state(mode):
    """With respect to guess and parameters, against central differences."""
    system, (q, v) = pendulum(2)

    def closed(length, q, v):
        changed = eqx.tree_at(lambda s: s.params["l"], system, length[0])
        state = jm.assemble(changed, q, v, hold=["x"])
        return jnp.concatenate([state.q, state.v])

    arguments = (system.params["l"][None], jnp.array(q), jnp.array(v))
    derivatives = jax.jit(mode(closed, argnums=(0, 1, 2)))(*arguments)
    run, h = jax.jit(closed), 1e-6
    # Of known numbers it ends where nothing moves any more, at the same state.
    np.testing.assert_array_equal(closed(*arguments), run(*arguments))
    for i, a in enumerate(derivatives):
        for j, e in enumerate(jnp.eye(len(arguments[i]))):
            ends = [run(*(x + s * h * e if k == i else x for k, x in enumerate(arguments))) for s in (1, -1)]
            np.testing.assert_allclose(a[:, j], (ends[0] - ends[1]) / (2 * h), atol=1e-7)


BAD = {
    r"Constraint 'rod' cannot be satisfied from this guess: its position residual.* 2\.19": lambda s: jm.assemble(
        s, [0.0, 0.5], hold=["x", "y"]
    ),
    r"Constraint 'rod' cannot be satisfied from this guess: its velocity residual": lambda s: jm.assemble(
        s, [0.0, 1.0], [0.0, 1.0], hold_velocity=["y"]
    ),
    r"`hold` must hold indices or names out of x, y, but holds 'z'": lambda s: jm.assemble(s, [0.0, 1.0], hold=["z"]),
    r"`hold_velocity` must be a sequence, each entry .*, but is 'x'": lambda s: jm.assemble(
        s, [0.0, 1.0], hold_velocity="x"
    ),
    r"`inactive` must hold names of constraints out of 'rod', but holds \['bar'\]": lambda s: jm.assemble(
        s, [0.0, 1.0], inactive=["bar"]
    ),
    r"`q` must have shape \(2,\), but has shape \(3,\)": lambda s: jm.assemble(s, [0.0, 1.0, 2.0]),
    r"`v` must have shape \(2,\), but has shape \(1,\)": lambda s: jm.assemble(s, [0.0, 1.0], [0.0]),
    r"`v` must have shape \(2,\), but has shape \(\)": lambda s: jm.assemble(s, [0.0, 1.0], 0.0),
    r"^Argument `q` must hold finite numbers, but 'x' is none\.$": lambda s: jm.assemble(s, [float("nan"), 1.0]),
    r"^Argument `v` must hold finite numbers, but 'y' is none\.$": lambda s: jm.assemble(
        s, [0.0, 1.0], [0.0, float("inf")]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_messages(message):
    with pytest.raises((TypeError, ValueError), match=message):
        BAD[message](pendulum()[0])


@pytest.mark.slow
def test_traced_values_are_refused_when_the_program_runs():
    system, _ = pendulum()
    run = jax.jit(lambda y: jm.assemble(system, jnp.stack([0.0 * y, y]), hold=["x", "y"]).q)
    assert float(run(1.0)[1]) == 1.0
    with pytest.raises(Exception, match="Constraint 'rod' cannot be satisfied"):
        jax.block_until_ready(run(0.5))


def encoder(t, p):
    return p["angle"] + 2 * np.pi * p["turns"] + t


@pytest.mark.parametrize("turns", [0, 1, -2])
@pytest.mark.slow_cases("0")
def test_a_driver_beyond_half_a_turn_drives_the_mechanism_as_it_is_drawn(turns):
    """Bodies are drawn between −π and π; an encoder may count from 0 to 2π, or several turns."""
    P, angle = jm.planar, 4.2
    pin = 0.4 * np.array([np.cos(angle), np.sin(angle)])
    rods = [
        P.Body.rod("crank", mass=1.0, length=0.4, position=tuple(pin / 2), angle=angle),
        P.Body.rod("coupler", mass=1.0, length=0.9, position=tuple(pin + np.array([0.3, 0.3])), angle=0.8),
        P.Body.rod("rocker", mass=1.0, length=0.8, position=(0.8, 0.3), angle=-1.2),
    ]
    joints = [
        P.Revolute("A", "ground", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.a"),
        P.Revolute("D", "rocker.b", ("ground", (1.0, 0.0))),
    ]
    numbers = {"angle": angle, "turns": float(turns)}
    system = P.Mechanism(rods, joints, [P.Driver("motor", "A", encoder)], params=numbers).build(cut=["D"])
    state = jm.assemble(system)
    assert float(state.q[0]) == pytest.approx(angle + 2 * np.pi * turns, abs=1e-12)
    start = system.guess
    beyond = np.asarray(state.q - start) / (2 * np.pi)
    assert round(float(beyond[0])) == turns + 1  # the guess is −2.08
    assert (np.abs(beyond[1:]) < 0.25).all()


def test_a_search_follows_a_bent_valley_to_its_end():
    """That of Rosenbrock's function, 100 (y − x²)² + (1 − x)², from his start."""
    rows = lambda q: jnp.stack([10 * (q[1] - q[0] ** 2), 1 - q[0]])
    end = jax.jit(lambda q: _descend(rows, jnp.add, q, 2))(jnp.array([-1.2, 1.0]))
    assert float(jnp.abs(rows(end)).max()) < SOLVED


def descended(rows, jacobian, q):
    """Where Nielsen's damped steps lead: μ of the diagonal, times max(0.1, 1 − (2 ρ − 1)³) or times 2, 4, 8, …"""
    damping, growth, slow = 1e-2, 2.0, 0
    for _ in range(60):
        r, j = rows(q), jacobian(q)
        if abs(r).max() < 1e-8 or slow == 4:
            break
        normal = j.T @ j
        move = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), j.T @ r)
        before, after, promised = (float(x @ x) for x in (r, rows(q + move), r + j @ move))
        gain = (before - after) / (before - promised)
        if gain > 1e-4:
            slow = slow + 1 if after > (1 - 1e-3) * before else 0
            q, damping, growth = q + move, max(damping * max(0.1, 1 - (2 * gain - 1) ** 3), 1e-12), 2.0
        else:
            damping, growth = damping * growth, 2 * growth
    return q


def test_steps_of_a_search_are_damped_as_nielsen_says():
    """Along a steeper valley, to its end, until steps gain little, or until there have been as many as may be; the first step is good or not."""
    rows = lambda q, xp=jnp: xp.stack([100 * (q[1] - q[0] ** 2), 1 - q[0]])
    ends = (
        [(1.2, 6.1), (0.3, 6.1)],
        [(1.6, -17.1), (-0.4, -15.5), (-0.4, -13.2), (60.0, 3600.0)],
        [(7.8, -7.3), (0.2, 18.3)],
    )
    starts = np.array([x for each in ends for x in each])
    found = jax.jit(jax.vmap(lambda q: _descend(rows, jnp.add, q, 2)))(jnp.asarray(starts))
    jacobian = lambda q: np.array([[-200 * q[0], 100.0], [-1.0, 0.0]])
    expected = [descended(lambda q: rows(q, np), jacobian, q) for q in starts]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_residuals_of_a_search_are_relative_to_their_root_mean_square_all_around():
    """Between x = 1 and x = −1, which contradict each other, in whatever units."""
    systems = jm.System(1, mass=lambda t, q, p: jnp.eye(1), constraints=[jm.Holonomic("both", two_places)], params=1.0)
    state = jm.as_state(systems, jnp.array([0.3]), length=1.0)
    small = dataclasses.replace(state.scale, span=jnp.full(2, 1e-9))
    found = [search_pose(systems.with_params(k), state.t, state.q, (), small)[0] for k in (1.0, 1e4)]
    draws = 0.3 + np.random.default_rng(0).uniform(-np.pi, np.pi, SAMPLES)
    weights = 1 / np.array([np.mean((draws - 1) ** 2), np.mean((draws + 1) ** 2)])
    np.testing.assert_allclose(found, np.average([1.0, -1.0], weights=weights), rtol=1e-5)


def test_driven_angles_are_in_the_turn_of_their_drivers_unless_they_are_held():
    P = jm.planar
    bodies = [P.Body.rod(name, 1.0, 1.0) for name in ("one", "two")]
    joints = [P.Revolute("A", "ground", "one.a"), P.Revolute("B", "one.b", "two.a")]
    drivers = [P.Driver(f"motor {name}", name, lambda t, p, k=k: k * np.pi + t) for name, k in (("A", 4), ("B", -6))]
    system, t, q = P.Mechanism(bodies, joints, drivers).build(), jnp.array(0.3), jnp.array([0.25, 0.35])
    for fixed, turns in (((), [2, -3]), ((0,), [0, -3]), ((1,), [2, 0])):
        found = with_driven_turns(system, t, q, fixed)
        np.testing.assert_allclose(found, q + 2 * np.pi * np.array(turns), rtol=1e-14)
    idle = jm.assemble(system, inactive=["motor A"])
    found = with_driven_turns(system.in_mode(idle.mode), t, q, ())
    np.testing.assert_allclose(found, q + 2 * np.pi * np.array([0, -3]), rtol=1e-14)


def two_places(t, q, p):
    return jnp.stack([q[0] - 1, p * (q[0] + 1)])


@pytest.mark.parametrize(("nv", "count"), [(1, 64), (100, 20), (600, 4)])
def test_where_no_guess_leads_to_a_pose_the_last_one_is_the_furthest(nv, count, monkeypatch):
    """Guesses of a coordinate are those of any mechanism that has as many, and begin with what is given, where they end if that is a pose."""
    monkeypatch.setattr("jaxmb.kinematics.search._descend", lambda rows, displaced, start, nv: start)
    row = jm.Holonomic("nowhere", lambda t, q, p: q[-1:] ** 2 + 1 + p)
    system = jm.System(nv, mass=lambda t, q, p: jnp.eye(nv), constraints=[row], params=0.0)
    scale = jm.system.Scale(*[jnp.ones(1)] * 2, 3 * jnp.ones(nv), jnp.ones(1), jnp.ones(()))
    found = search_pose(system, jnp.zeros(()), jnp.full(nv, 0.5), (0,) * (nv > 1), scale)
    rng = np.random.default_rng(0)
    expected = 0.5 + 3 * np.array([rng.uniform(-np.pi, np.pi, 16 + count)[-1] for _ in range(nv)])
    expected[: nv > 1] = 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    met = system.with_params(-1.25)
    np.testing.assert_array_equal(search_pose(met, jnp.zeros(()), jnp.full(nv, 0.5), (0,) * (nv > 1), scale), 0.5)


def test_a_search_goes_back_by_turns_unless_rows_count_them():
    """Angles alone, and within half a turn of the guess; not where a gear counts turns."""
    start, around = jnp.array([4.0, -4.0, 3.0]), 2 * np.pi * jnp.array([3.0, -2.0, 2.0])
    found, angles = start + around + jnp.array([2.0, -3.0, 0.1]), np.array([True, True, False])
    back = found.at[:2].add(-around[:2])
    rows = lambda q: jnp.stack([jnp.sin(q[0] - 6), jnp.sin(q[1] + 7)])
    np.testing.assert_allclose(_unwound(rows, start, found, angles), back, rtol=1e-14)
    gear = lambda q: q[:1] + q[1:2] - found[0] - found[1]
    np.testing.assert_array_equal(_unwound(gear, start, found, angles), found)


def test_rounding_of_velocities_is_no_violation():
    """A sled in its own direction: no row moves or turns, so that rates of rows are rounding like their residuals."""
    points = {"left": (0.0, 0.3), "right": (0.0, -0.3)}
    edges = [jm.planar.KnifeEdge("edge left", "sled.left"), jm.planar.KnifeEdge("edge right", "sled.right")]
    system = jm.planar.Mechanism([jm.planar.Body("sled", 2.0, 0.5, points=points)], edges).build()
    state = jm.as_state(system, [0.0, 0.0, np.pi / 2], [0.0, 1.0, 0.0])
    assert 0 < float(jnp.abs(jm.residuals(system, state).velocity).max()) < 1e-15
    jm.linearise(system, state)
    with pytest.raises(ValueError, match="'edge left' is violated by the state: its velocity residual"):
        jm.linearise(system, jm.as_state(system, state.q, [1e-6, 1.0, 0.0]))


# The pieces of an assembly


@functools.cache
def laid_out():
    """Four velocities and four rows, of which the last one follows from the first two, and their sparsity, with random numbers of it."""
    pattern = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 0]], bool)
    blank = lambda t, q, p: jnp.zeros(4)
    system = jm.System(4, mass=lambda t, q, p: jnp.eye(4), constraints=[jm.Holonomic("rows", blank)])
    rng = np.random.default_rng(0)
    rows = pattern * rng.normal(size=(4, 4))
    rows[3] = 2 * rows[0] - rows[1]
    layout = jm.linalg.Layout.of(np.eye(4, dtype=bool), pattern)
    return system, layout, np.diag(rng.uniform(0.5, 2, 4)), rows, rng.normal(size=4), rng.uniform(0.5, 2, 4)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_shortest_move_is_that_of_the_rows_that_count(sparse):
    """By a layout as without one; of residuals that are rounding nothing is left but the derivative."""
    system, layout, mass, jacobian, wanted, sizes = laid_out()
    system = system.with_layout(layout) if sparse else system

    @jax.jit
    def moved(jacobian, residual, extra, holonomic, magnitude, offset):
        of = lambda holonomic: shortest_move(
            system,
            LinearEquations(
                jnp.asarray(mass), jacobian, jnp.asarray(sizes), extra, residual, magnitude, offset, holonomic
            ),
            1e-9,
        )
        return of(None), of(holonomic)

    def exact(rows, residual):
        return np.linalg.solve(mass, rows.T @ np.linalg.lstsq(rows @ np.linalg.solve(mass, rows.T), residual, 1e-12)[0])

    none, ones, holonomic = jnp.zeros((0, 4)), np.ones(4), np.array([True, False, True, False])
    consistent = jacobian @ wanted
    apart = jacobian + np.outer([0, 0, 0, 1], [0, 0, 1, 0])
    for rows, residual in ((jacobian, consistent), (apart, wanted)):
        (move, gap), (position, _) = moved(rows, residual, none, holonomic, 0 * ones, 0 * ones)
        np.testing.assert_allclose(move, exact(rows, residual), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(position, exact(rows[holonomic], residual[holonomic]), rtol=1e-9, atol=1e-12)
        scaled = np.linalg.solve(np.sqrt(mass), (rows / sizes[:, None]).T)
        assert (
            np.linalg.svd(scaled, compute_uv=False)[-1 - (rows is jacobian)]
            <= gap
            <= np.linalg.norm(scaled, axis=0).min()
        )
    # What is held is an equation like the others, and comes first.
    held = moved(jacobian, np.append(consistent, 0.7), np.eye(4)[:1], holonomic, 0 * ones, 0 * ones)[1][0]
    both, values = np.vstack([jacobian[holonomic], np.eye(4)[:1]]), np.append(consistent[holonomic], 0.7)
    np.testing.assert_allclose(held, exact(both, values), rtol=1e-9, atol=1e-12)
    # Rounding of C x and of the other part of the residual: eight units of each.
    for magnitude, offset in ((ones, 0 * ones), (0 * ones, np.abs(jacobian) @ ones)):
        for units, moves in ((7.9, False), (8.1, True)):
            residual = units * np.finfo(float).eps * np.abs(jacobian) @ ones * np.array([1, 0, 0, 0])
            move, slope = jax.jvp(
                lambda r, m=magnitude, o=offset: moved(jacobian, r, none, holonomic, m, o)[1][0],
                (residual,),
                (consistent,),
            )
            assert bool(jnp.any(move != 0)) == moves
            np.testing.assert_allclose(slope, exact(jacobian[holonomic], consistent[holonomic]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_displacement_is_read_off_the_change_of_coordinates_without_what_normalising_adds(sparse):
    matrix = 0.5 * np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    rate = lambda q, v, p: jnp.asarray(matrix[:, :3]) @ v
    system = jm.System(4, velocities=["a", "b", "c"], mass=lambda t, q, p: jnp.eye(3), rate=rate)
    wanted = np.array([0.3, -0.7, 1.1])
    change = jnp.asarray(matrix[:, :3] @ wanted + 0.2 * matrix[:, 3])
    found = jax.jit(lambda change: correction.displacement(system, jnp.ones(4), change, sparse))(change)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_state_is_consistent_relative_to_the_sizes_of_its_mechanism():
    """φ by spans, C v + b by these in the time of a motion; what is rounding of a row at the speed of all coordinates is none, at rest as well."""
    rows = [
        jm.Holonomic("one", lambda t, q, p: q[:1]),
        jm.Holonomic("two", lambda t, q, p: jnp.stack([3e-16 * q[0], q[1]])),
    ]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=rows)

    def amounts(q, v, rate=4.0, reach=0.8):
        sizes = [1.0] * 3, [0.5, 0.25, 0.2], [reach, 0.0], [1.0, 0.5, 1.0], rate
        state = jm.State(jnp.zeros(()), jnp.array(q), jnp.array(v), jm.system.Scale(*map(jnp.array, sizes)))
        checks = consistency(system, state, "is off")
        assert {c.limit for c in checks} == {float(np.finfo(float).eps ** 0.5)} and checks[0].names == ("one", "two")
        return [[float(x) for x in c.amount] for c in checks]

    np.testing.assert_allclose(amounts([-1e-3, 2e-3], [0.0, -3e-3]), [[2e-3, 1e-2], [0.0, 3e-3 / 0.2 / 4]], rtol=1e-12)
    # 3e-16 m/s of the second constraint's first row are rounding at 1 m/s, and would be something in its second row.
    np.testing.assert_allclose(amounts([0.0, 0.0], [1.0, 0.0]), [[0.0, 0.0], [1 / 0.5 / 4, 0.0]], rtol=1e-12)
    np.testing.assert_allclose(amounts([0.0, 0.0], [0.0, 1e-17])[1], [0.0, 1e-17 / 0.2 / 4], rtol=1e-12)
    slow = amounts([0.0, 0.0], [1.0, 0.0], reach=4.0)[1]  # 1 m/s is slow where a coordinate has so far to go
    np.testing.assert_allclose(slow, [1 / 0.5 / 4, 3e-16 / 0.25 / 4], rtol=1e-12)
    assert amounts([0.0, 0.0], [0.0, 0.0], rate=0.0) == [[0.0, 0.0]] * 2


def test_an_angle_is_off_by_the_shorter_way_round():
    rod = jm.planar.Mechanism([jm.planar.Body.rod("rod", 1.0, 1.0)], [jm.planar.Revolute("O", "ground", "rod.a")])
    system = rod.build("absolute")
    q = jnp.zeros(3).at[system.coordinates.index("rod.angle")].set(3.0)
    for target, off in ((2.5, 0.5), (-3.0, 6.0 - 2 * np.pi), (0.5 - 4 * np.pi, 2.5)):
        guess = Guess(jnp.zeros(()), q, q, aims=("O",), targets=jnp.array([target]))
        np.testing.assert_allclose(_missing(system, guess, q), [off], rtol=1e-12)


class Turned(eqx.Module):
    """Joints of which some are the wrong way round."""

    aligned: dict

    def alignment(self, q, params):
        return self.aligned


def test_a_joint_is_the_wrong_way_round_where_its_alignment_is_negative_and_it_acts():
    rows = [jm.Holonomic(name, lambda t, q, p: q[:1]) for name in ("one", "two", "three")]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=rows)
    state = jm.State(jnp.zeros(()), *jnp.zeros((2, 2)), jm.system.Scale(*map(jnp.ones, (3, 3, 2, 3, ()))))
    assert closing._orientation_checks(system, state) == ()
    with_joints = lambda aligned: eqx.tree_at(lambda s: s.joints, system, Turned(aligned), is_leaf=lambda x: x is None)
    assert closing._orientation_checks(with_joints({}), state) == ()
    aligned = {name: jnp.array(x) for name, x in (("one", -0.5), ("two", 0.25), ("three", -0.125))}
    for active, holds in ((None, [False, True, False]), ((True, True, False), [False, True, True])):
        turned = with_joints(aligned)
        if active is not None:
            none = jnp.zeros(0)
            turned = turned.in_mode(jm.system.Mode((), jnp.array(active), none, none, jnp.zeros(0, bool)))
        (check,) = closing._orientation_checks(turned, state)
        told = dict(zip(check.names, (check.amount <= check.limit).tolist(), strict=True))
        assert told == dict(zip(("one", "two", "three"), holds, strict=True))


def test_of_an_iteration_that_part_is_made_that_closes_best(monkeypatch):
    """Of Newton's step in the metric of M a power of two from 1 to 1/128: Σ (φ/Φ)² + Σ (g/Σ |∂g/∂q| ℓ)² of aims g is least, and defined.

    An aim that nothing moves at a pose counts in its own unit there.
    """
    lengths, reach, span, masses = (
        2.0 ** -np.arange(8),
        np.array([2.0, 0.5, 3.0]),
        0.7,
        1e16 * np.array([1.0, 3.0, 0.2]),
    )
    row = lambda q, of=np: q[0] * q[1] + 3 * of.sqrt(q[2] + 1.5) - 9
    aims = lambda q, of=np: of.stack([4 * of.sin(2 * q[1]) + q[2] - q[0], 2 + 6 * q[0] ** 2])
    system = jm.System(
        3,
        mass=lambda t, q, p: jnp.diag(jnp.asarray(masses)),
        constraints=[jm.Holonomic("row", lambda t, q, p: row(q, jnp))],
    )
    monkeypatch.setattr(closing, "_missing", lambda system, guess, q: aims(q, jnp))
    scale = jm.system.Scale(*map(jnp.array, ([2e-8], [span], reach, [1.0], 1.0)))
    guess = Guess(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3), aims=("one", "two"), targets=jnp.zeros(2))
    poses = np.random.default_rng(5).uniform(-1.2, 1.2, (40, 3))
    poses[::2, 0] = 0
    found = jax.jit(jax.vmap(lambda q: closing._closing_step(system, guess, q, q, scale)))(jnp.asarray(poses))
    chosen = []
    for q, q_found in zip(poses, found, strict=True):
        rows = [[q[1], q[0], 1.5 / np.sqrt(q[2] + 1.5)], [-1, 8 * np.cos(2 * q[1]), 1], [12 * q[0], 0, 0]]
        count = 3 if q[0] else 2
        root = np.array(rows)[:count] / np.sqrt(masses)
        move = -np.linalg.pinv(root) @ np.append(row(q), aims(q))[:count] / np.sqrt(masses)
        far = np.abs(rows[1:]) @ reach
        sizes = np.append(span, np.where(far > 0, far, 1))
        with np.errstate(invalid="ignore"):
            trials = q + lengths[:, None] * move
            off = np.array([np.sum((np.append(row(x), aims(x)) / sizes) ** 2) for x in trials])
        chosen.append(np.nanargmin(off))
        np.testing.assert_allclose(q_found, trials[chosen[-1]], rtol=1e-9, atol=1e-12)
    assert len(set(chosen)) > 4


def test_a_guess_is_closed_in_two_rounds_and_judged_where_these_end(monkeypatch):
    """By sizes at the start of each; those at the guess are for a search, which nothing asks for but poses that are missed. A guess that was moved says so beside a singular pose."""
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("row", lambda t, q, p: q[:1])])
    usual = {"q": (8.0, 4.0), "v": 3.0, "moves": True, "gap": 1.0, "unknown": False}
    usual |= {"position": 0.0, "velocity": 0.0, "turned": 0.0}
    check = lambda name: Check(jnp.asarray(case[name]), 0.5, name)
    sizes = lambda q: jm.system.Scale(q[:1], q[:1], q, q[:1], jnp.zeros(()))
    pieces = {
        "measure": lambda full, t, q, length: (sizes(q), jnp.array([False]), jnp.asarray(case["unknown"])[None]),
        "_closed": lambda system, guess, start, q, scale: q / jnp.where(scale.reach == q, 1 + case["moves"], 1),
        "consistent_velocities": lambda system, guess, t, q, v, *_: (v + case["v"] - 3, jnp.asarray(case["gap"])),
        "Values": SimpleNamespace(of=lambda *_: "values"),
        "check_rows": lambda *_: (),
        "check_values": lambda *_: (),
        "with_rate": lambda full, state, values=None: rated.append(values is not None) or state,
        "consistency": lambda *_: (check("position"), check("velocity")),
        "_orientation_checks": lambda *_: (check("turned"),),
    }
    for name, piece in pieces.items():
        monkeypatch.setattr(closing, name, piece)

    @jax.jit
    @jax.vmap
    def judged(numbers):
        case.update(numbers)
        found = closing.solve_guess.__wrapped__(system, Guess(jnp.zeros(()), case["q"], 3 * jnp.ones(2), mode=None))
        told = found.missed, all_hold(found.checks), found.beside
        return told, found.state.q, found.scale.reach, found.state.scale.reach

    case, rated = dict(usual), []
    cases = {
        (): (False, True, False),
        (("position", 1.0),): (True, False, False),
        (("turned", 1.0),): (True, False, False),
        (("velocity", 1.0),): (False, False, False),
        (("unknown", True),): (False, False, False),
        (("position", 1.0), ("q", (np.nan, 4.0))): (False, False, False),
        (("gap", 1e-3),): (False, True, True),
        (("gap", 1e-3), ("moves", False), ("v", 2.0)): (False, True, True),
        (("gap", 1e-3), ("moves", False)): (False, True, False),
    }
    each = [usual | dict(changes) for changes in cases]
    numbers = {name: jnp.array([x[name] for x in each]) for name in usual}
    told, q, at_guess, sizes_there = judged(numbers)
    np.testing.assert_array_equal(np.transpose(told), list(cases.values()))
    part = 1 + np.array(numbers["moves"], int)[:, None]
    np.testing.assert_array_equal(q, numbers["q"] / part**2)
    np.testing.assert_array_equal(at_guess, numbers["q"])
    np.testing.assert_array_equal(sizes_there, numbers["q"] / part)
    mode = jm.system.Mode((), jnp.ones(1, bool), *jnp.zeros((2, 0)), jnp.zeros(0, bool))
    case, guess = usual, Guess(jnp.zeros(()), *jnp.ones((2, 2)), mode=mode)
    jax.eval_shape(lambda: closing.solve_guess.__wrapped__(system, guess).missed)
    assert rated == [True, False]  # values of a mode are none of the system as a whole
    free = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    found = closing.solve_guess.__wrapped__(free, dataclasses.replace(guess, mode=None))
    assert not found.missed and not found.beside


def test_iterations_are_twenty_or_end_where_nothing_moves(monkeypatch):
    """Of numbers that may be differentiated, in both modes, they are twenty."""
    monkeypatch.setattr(closing, "_closing_step", lambda system, guess, start, q, scale: jnp.where(q > 0, q - 1, q))
    system, scale = pendulum()[0], jm.system.Scale(*map(jnp.ones, (1, 1, 2, 1, ())))
    of = lambda q, concrete: closing._closed(system, Guess(jnp.zeros(()), q, q, concrete=concrete), q, q, scale)
    for concrete in (True, False):
        np.testing.assert_array_equal(of(jnp.array([30.0, 5.0]), concrete), [10.0, 0.0])
    np.testing.assert_array_equal(jax.jacrev(of)(jnp.array([30.0, 5.0]), False), np.eye(2))


def test_a_pose_is_searched_for_where_iterations_from_the_guess_have_missed(monkeypatch):
    """Of known numbers the program of the search is not made where they have not."""
    module, no, searches = importlib.import_module("jaxmb.kinematics.assemble"), jnp.array(False), []
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    state = jm.as_state(system, [1.0])
    reached = lambda q, missed: Assembly(dataclasses.replace(state, q=jnp.full(1, q)), (), missed, no, state.scale)
    monkeypatch.setattr(module, "_after_search", lambda *_: searches.append(1) or reached(7.0, no))

    def found(missed, concrete):
        guess = Guess(state.t, state.q, state.v, concrete=concrete)
        return module._with_search(system, guess, reached(3.0, missed)).state.q[0]

    for missed, q in ((False, 3.0), (True, 7.0)):
        searches.clear()
        assert found(jnp.array(missed), concrete=True) == q and bool(searches) == missed
        assert jax.jit(functools.partial(found, concrete=False))(missed) == q
