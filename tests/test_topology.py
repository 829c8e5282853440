"""Constraints that begin and cease to act: jumps, events located in time, brakes, restarts, derivatives."""

import dataclasses
import functools
import json
import pathlib

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.simulation import integration
from jaxmb.simulation.compiled_run import compiled_run
from jaxmb.simulation.reason import reason
from jaxmb.system import position_residual
from jaxmb.topology.jump import energy_loss
from jaxmb.topology.reactions import ConstraintReactions

DATA = pathlib.Path(__file__).parent / "data"
TOLERANCE = 1e-10


def precise(tolerance=TOLERANCE):
    return {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=tolerance, atol=tolerance)}


# Müller's pendulum of three links


MASS, INERTIA = 108.0, 9.36


def centres(q):
    angle = jnp.cumsum(q)
    along = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return jnp.cumsum(along, axis=0) - along / 2


def chain_mass(t, q, p):
    jac, spin = jax.jacfwd(centres)(q), jnp.tril(jnp.ones((3, 3)))
    return MASS * jnp.einsum("iab,iac->bc", jac, jac) + INERTIA * jnp.einsum("ia,ib->ab", spin, spin)


def chain_potential(t, q, p):
    return -MASS * jnp.sum(centres(q) @ p["g"])


CHAIN = jm.System(
    ("q1", "q2", "q3"),
    mass=chain_mass,
    potential=chain_potential,
    params={"g": jnp.array([0.0, -9.81]), "level": -0.4},
)
GRAVITIES = {"H": [0.0, -9.81], "V": [9.81, 0.0]}  # the links' first direction is horizontal, or downward


@functools.cache
def chain_start():
    with jax.ensure_compile_time_eval():
        return jm.assemble(CHAIN, jnp.full(3, np.pi / 6))


def locked_chain(gravity, ts, consistent):
    """Joint 2 is locked at 0.8 s and joint 3 at 1.3 s."""
    system = CHAIN.with_params({"g": gravity, "level": -0.4})
    events = [jm.Lock("q2", at=0.8, consistent=consistent), jm.Lock("q3", at=1.3, consistent=consistent)]
    return jm.simulate(system, chain_start(), ts, events=events, max_events=2, throw=False, **precise(1e-12))


@pytest.mark.slow
@pytest.mark.parametrize("consistent", [True, False])
def test_locked_pendulum_of_the_reference(consistent):
    reference = np.load(DATA / "lock3r.npz")
    jumps = json.loads((DATA / "lock3r.json").read_text())["jumps"]
    ts = jnp.asarray(reference["t"])
    run = jax.jit(jax.vmap(lambda g: locked_chain(g, ts, consistent)))
    solutions = run(jnp.array(list(GRAVITIES.values())))
    for i, name in enumerate(GRAVITIES):
        solution = jax.tree.map(lambda x, i=i: x[i], solutions)
        assert solution.result == jm.RESULTS.successful
        suffix = name if consistent else f"{name}_naive"
        np.testing.assert_allclose(solution.q, reference[f"q_{suffix}"], atol=1e-9)
        np.testing.assert_allclose(solution.v, reference[f"v_{suffix}"], atol=1e-8)
        events = solution.events
        assert int(events.count) == 2 and [events.what(k) for k in (0, 1)] == [("lock q2",), ("lock q3",)]
        for k, jump in enumerate(jumps[suffix].values()):
            size = np.abs(jump["v_minus"]).max()
            np.testing.assert_allclose(events.before.v[k], jump["v_minus"], atol=1e-9 * size)
            np.testing.assert_allclose(events.after.v[k], jump["v_plus"], atol=1e-9 * size)
            np.testing.assert_allclose(events.loss[k], jump["T_minus"] - jump["T_plus"], rtol=1e-8)
            if consistent:
                mass = chain_mass(0.0, events.before.q[k], None)
                momenta = np.array([mass @ events.before.v[k], mass @ events.after.v[k]])
                unlocked, locked = ([0, 2], [1]) if k == 0 else ([0], [1, 2])
                np.testing.assert_allclose(momenta[1][unlocked], momenta[0][unlocked], rtol=1e-9)
                pulses = [events.impulses[f"lock q{i + 1}"][k, 0] for i in locked]
                np.testing.assert_allclose(pulses, jump["impulse"], rtol=1e-8)
                np.testing.assert_allclose(np.diff(momenta, axis=0)[0, locked], pulses, rtol=1e-8)
        assert np.ptp(solution.q[ts >= 0.8, 1]) < 1e-12 and np.ptp(solution.q[ts >= 1.3, 2]) < 1e-12
        balance = jm.energy(CHAIN.with_params({"g": jnp.array(GRAVITIES[name]), "level": 0.0}), solution).balance
        assert np.abs(balance).max() < 1e-5  # of some 7,000 J; what transitions take counts as work


# Transitions


def linear(counts):
    """Constraints C₁q = 0, C₂q = 0 and C₃v + b = 0 with random numbers, held in `params`."""
    one, two, three = counts
    return jm.System(
        6,
        mass=lambda t, q, p: p["M"],
        constraints=[
            jm.Holonomic("first", lambda t, q, p: p["C"][:one] @ q),
            jm.Holonomic("second", lambda t, q, p: p["C"][one : one + two] @ q),
            jm.Pfaffian("third", lambda t, q, v, p: p["C"][one + two :] @ v + p["b"]),
        ],
        params={"M": np.eye(6), "C": np.zeros((one + two + three, 6)), "b": np.zeros(three)},
    )


def cases(rng, counts, ranks, rheonomic):
    """Random inertia and rows of given ranks."""
    root = rng.normal(size=(6, 6))
    rows = [rng.normal(size=(n, r)) @ rng.normal(size=(r, 6)) for n, r in zip(counts, ranks, strict=True)]
    b = rows[2] @ rng.normal(size=6) * rheonomic  # in the range of the rows, so that they agree
    return {"M": root @ root.T + np.eye(6), "C": np.concatenate(rows), "b": b}


@pytest.mark.slow_except("more")
@pytest.mark.parametrize(
    ("counts", "ranks"),
    [((2, 1, 1), (2, 1, 1)), ((3, 2, 1), (2, 1, 1)), ((2, 2, 2), (1, 2, 1))],
    ids=["regular", "redundant", "more"],
)
def test_methods_agree_and_momentum_of_free_directions_is_kept(counts, ranks):
    rng = np.random.default_rng(sum(counts))
    batch = [cases(rng, counts, ranks, i % 2) for i in range(100)]
    params = jax.tree.map(lambda *x: jnp.stack(x), *batch)
    system = linear(counts)
    m = sum(counts)
    velocities, pulses = jnp.asarray(rng.normal(size=(100, 6))), jnp.asarray(rng.normal(size=(100, 6)))
    pulses = pulses * jnp.asarray(np.arange(100) % 3 == 0)[:, None]
    active = jnp.arange(m) < counts[0]

    @jax.jit
    @jax.vmap
    def start(params, v):
        rows = params["C"][: counts[0]]
        v = v - jnp.linalg.pinv(rows) @ (rows @ v)  # before, the first constraints hold
        mode = jm.system.Mode((), active, jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, bool))
        return jm.as_state(system.with_params(params), jnp.zeros(6), v, mode=mode)

    @functools.partial(jax.jit, static_argnums=0)
    @functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
    def jump(method, params, state, impulse):
        here = system.with_params(params)
        return jm.transition(here, state, activate=["second", "third"], impulse=impulse, method=method)

    states = start(params, velocities)
    found = {method: jump(method, params, states, pulses) for method in ("full", "projected", "minimal")}
    after = found["full"].after.v
    for method in ("projected", "minimal"):
        np.testing.assert_allclose(found[method].after.v, after, atol=1e-11 * np.abs(after).max())
        if ranks == counts:  # else those of least norm belong to other rows
            for name in ("second", "third"):
                pulse = found["full"].impulses[name]
                np.testing.assert_allclose(found[method].impulses[name], pulse, atol=1e-11 * np.abs(pulse).max())
    rest = jnp.einsum("bij,bj->bi", params["C"], after).at[:, m - counts[2] :].add(params["b"])
    np.testing.assert_allclose(rest, 0, atol=1e-11)
    before, then = found["full"].free_momentum
    quiet = ~np.asarray(pulses).any(axis=1)
    np.testing.assert_allclose(then[quiet], before[quiet], atol=1e-11)
    still = quiet & ~np.asarray(params["b"]).any(axis=1)
    assert (np.asarray(found["full"].loss)[still] >= -1e-12).all() and still.sum() > 20
    power = jnp.einsum(
        "bij,bi->bj",
        params["C"],
        jnp.concatenate([found["full"].impulses[n] for n in ("first", "second", "third")], axis=1),
    )
    momenta = found["full"].momentum
    np.testing.assert_allclose(momenta[1] - momenta[0], power + pulses, atol=1e-9)


def test_transition_reports_regular_and_singular_changes():
    """The line y = 0 and the parabola y = x² touch at the origin and nowhere near it."""
    system = jm.System(
        ("x", "y", "z"),
        mass=lambda t, q, p: jnp.eye(3),
        constraints=[
            jm.Holonomic("line", lambda t, q, p: q[1]),
            jm.Holonomic("parabola", lambda t, q, p: q[1] - q[0] ** 2),
            jm.Holonomic("plane", lambda t, q, p: q[2] + q[0]),
        ],
    )
    state = jm.assemble(system, v=[1.0, 0.0, 0.0], inactive=["parabola", "plane"])
    regular = jm.transition(system, state, activate=["plane"])
    np.testing.assert_allclose(regular.after.v, [0.5, 0.0, -0.5], atol=1e-14)
    assert regular.regular and not jm.transition(system, state, activate=["parabola"]).regular
    assert "regular, energy lost 0.25 J" in str(regular)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_a_loss_that_is_rounding_is_zero_and_keeps_its_derivative(unit):
    """Of a wheel that runs beside a small weight; a true loss of a thousand millionth of the wheel's energy stays."""
    mass, scale = (
        jnp.diag(jnp.array([1e3, 1e-6])),
        jm.as_state(jm.System(2, mass=lambda t, q, p: jnp.eye(2)), jnp.zeros(2)).scale,
    )
    before = jnp.array([10.0, 0.3]) * unit
    for step in (jnp.array([0.0, -2 * 0.3]) * unit, 1e-16 * before, jnp.array([1e-16, 0.0]) * unit):
        assert energy_loss(mass, before, step, scale) == 0
    lost = lambda v: energy_loss(mass, before.at[1].set(v), jnp.array([0.0, -v]), scale)
    np.testing.assert_allclose(lost(0.3 * unit), 0.5e-6 * (0.3 * unit) ** 2, rtol=1e-12)
    # A ball that leaves a wall as fast as it has come: the derivative by its speed after.
    after = lambda w: energy_loss(mass, before, jnp.array([0.0, w - 0.3 * unit]), scale)
    np.testing.assert_allclose(jax.grad(after)(-0.3 * unit), 1e-6 * 0.3 * unit, rtol=1e-9)


@pytest.mark.slow
def test_masked_rows_are_like_removed_ones():
    system = linear((2, 1, 1))
    rng = np.random.default_rng(3)
    params = jax.tree.map(jnp.asarray, cases(rng, (2, 1, 1), (2, 1, 1), 0))
    whole = system.with_params(params)
    fewer = jm.System(
        6,
        mass=lambda t, q, p: p["M"],
        constraints=system.constraints[:1],
        force=lambda t, q, v, p: jnp.ones(6),
        params=params,
    )
    whole = jm.System(
        6,
        mass=lambda t, q, p: p["M"],
        constraints=system.constraints,
        force=lambda t, q, v, p: jnp.ones(6),
        params=params,
    )
    mode = jm.system.Mode((), jnp.array([True, True, False, False]), jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, bool))
    zero = jnp.zeros(6)
    for formulation in (
        jm.formulation.GaussProjection(),
        jm.formulation.KKT(),
        jm.formulation.NullSpace(),
        jm.formulation.OrthogonalProjection(),
        jm.formulation.CoordinatePartition(),
    ):
        masked = jm.reactions(whole, jm.as_state(whole, zero, mode=mode), formulation=formulation)
        removed = jm.reactions(fewer, jm.as_state(fewer, zero), formulation=formulation)
        np.testing.assert_allclose(masked.vdot, removed.vdot, atol=1e-12)
        np.testing.assert_allclose(masked.multipliers["first"], removed.multipliers["first"], atol=1e-11)
        assert not masked.multipliers["second"].any() and not masked.multipliers["third"].any()


# Events located in time


BALL = jm.System(
    ("height",),
    mass=lambda t, q, p: jnp.eye(1),
    force=lambda t, q, v, p: jnp.array([-p["g"]]),
    constraints=[jm.Holonomic("ground", lambda t, q, p: q[0])],
    params={"g": 10.0, "level": 0.0},
)


@functools.cache
def unconstrained(system):
    with jax.ensure_compile_time_eval():
        return jm.assemble(SYSTEMS[system], inactive=list(SYSTEMS[system].rows))


def above_ground(height, v=0.0):
    """The ball in the air."""
    here = jnp.array([height]), jnp.array([v])
    return eqx.tree_at(lambda s: (s.q, s.v), unconstrained("ball"), here)


HIT = jm.Activate(
    "ground", when=lambda t, q, v, reaction, p: p["level"] - q[0], restitution=0.5, repeat=True, name="hit"
)


@functools.partial(jax.jit, static_argnames="count")
def bounces(height, v, ts, count=8):
    return jm.simulate(BALL, above_ground(height, v), ts, events=[HIT], max_events=count, throw=False, **precise())


@pytest.mark.slow
def test_ball_bounces_at_the_right_times():
    first = np.sqrt(2 / 10.0)
    times = first + 2 * first * (
        1 - 0.5 ** np.arange(8)
    )  # first, then each flight half as long: 2·first·(0.5 + 0.25 + …)
    solution = bounces(1.0, 0.0, jnp.array([0.0, first, 1.0, 1.2]))
    assert solution.result == jm.RESULTS.successful
    events, count = solution.events, int(solution.events.count)
    assert count == (times < 1.2).sum()
    np.testing.assert_allclose(events.t[:count], times[:count], atol=10 * TOLERANCE)
    assert np.isnan(events.t[count:]).all()
    speeds = 10 * first * 0.5 ** np.arange(count)
    np.testing.assert_allclose(events.before.v[:count, 0], -speeds, atol=1e-8)
    np.testing.assert_allclose(events.after.v[:count, 0], speeds / 2, atol=1e-8)
    np.testing.assert_allclose(events.impulses["ground"][:count, 0], 1.5 * speeds, atol=1e-8)
    np.testing.assert_allclose(events.loss[:count], 0.375 * speeds**2, atol=1e-8)
    assert np.abs(jm.energy(BALL, solution).balance).max() < 1e-8  # what hits take counts as work
    few = bounces(1.0, 0.0, jnp.array([0.0, 0.5, 1.0, 1.5]))  # at 3·first = 1.34 s infinitely many have happened
    assert few.result == jm.RESULTS.events_exhausted and int(few.events.count) == 8
    np.testing.assert_allclose(few.q[2], solution.q[2], atol=1e-9)
    assert np.isnan(few.q[3]).all()


def test_a_contact_closes_where_rebounds_pile_up():
    """Of 1.2 m, 10 µm and 1 pm, and of none; a rebound lower than h = 1.5e-8 m is left out, and those after it: 4 √(2 h/g)."""
    ts = jnp.array([0.0, 0.5, 1.5, 3.0])
    for height, v, count in ((1.2, 0.0, 14), (1e-5, 0.0, 5), (1e-12, 0.0, 1), (0.0, 0.0, 1), (0.0, -1e-17, 1)):
        found = bounces(height, v, ts, 16)
        assert found.result == jm.RESULTS.successful and int(found.events.count) == count
        np.testing.assert_allclose(found.q[2:, 0], 0, atol=1e-15)
        assert found.modes.active[2:, 0].all()
        np.testing.assert_allclose(np.nanmax(found.events.t), 3 * np.sqrt(height / 5), atol=4 * np.sqrt(1.5e-8 / 5))
        lost = float(jnp.nansum(found.events.loss))
        np.testing.assert_allclose(lost, 10 * height + v**2 / 2, atol=1e-8)
    ended = eqx.tree_at(lambda s: s.result, found, jm.RESULTS.events_exhausted)
    assert reason(BALL, jm.Projection(), found.state(0), ended).endswith(" The last, at t = 0, was 'hit'.")


@pytest.mark.slow  # those of a ball that bounces are, too
def test_located_times_are_as_exact_as_the_motion():
    events = [jm.Lock("q2", when=lambda t, q, v, reaction, p: p["level"] - q[0])]

    def first(tolerance):
        solution = jm.simulate(
            CHAIN, chain_start(), jnp.array([0.6]), events=events, max_events=1, **precise(tolerance)
        )
        return float(solution.events.t[0])

    exact = first(1e-13)
    for tolerance in (1e-6, 1e-8, 1e-10):
        assert abs(first(tolerance) - exact) <= 10 * tolerance


@pytest.mark.slow
def test_what_only_touches_zero_does_not_act():
    """Thrown up from 1 m below, the ball turns just under the level, and just above."""
    ts = jnp.array([0.0, 0.8])
    high = np.sqrt(20.0)
    ceiling = jm.Lock("height", when=lambda t, q, v, reaction, p: q[0] - p["level"], name="ceiling")
    run = jax.jit(
        lambda v: jm.simulate(BALL, above_ground(-1.0, v), ts, events=[ceiling], max_events=2, throw=False, **precise())
    )
    assert int(run(high * (1 - 1e-4)).events.count) == 0
    caught = run(high * (1 + 1e-5))  # above it for 1/130 of the run
    assert int(caught.events.count) == 1 and abs(float(caught.q[1, 0])) < 1e-9
    np.testing.assert_allclose(caught.events.t[0], (high - np.sqrt(20 * 2e-5)) / 10, atol=1e-5)
    np.testing.assert_allclose(caught.events.after.v[0], 0, atol=1e-12)


TWO = jm.System(
    ("a", "b"),
    mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0])),
    force=lambda t, q, v, p: p["f"] * jnp.array([1.0, 2.0]) + jnp.array([p["pull"] * t, 0.0]),
    constraints=[
        jm.Holonomic("a stop", lambda t, q, p: q[0] - 1.0),
        jm.Holonomic("b stop", lambda t, q, p: q[1] - 1.0),
    ],
    params={"f": 2.0, "pull": 0.0},
)


SYSTEMS = {"ball": BALL, "two": TWO}


def two_free(v=0.0, t=0.0):
    """Two masses whose stops do not act."""
    return eqx.tree_at(lambda s: (s.t, s.v), unconstrained("two"), (jnp.asarray(t), jnp.full(2, v)))


@pytest.mark.slow
def test_events_at_one_instant_are_one_transition_at_both_ends_too():
    stops = [
        jm.Activate(f"{name} stop", when=lambda t, q, v, reaction, p, i=i: q[i] - 1.0) for i, name in enumerate("ab")
    ]
    events = [*stops, jm.Lock("a", at=0.0, name="hold"), jm.Release("hold", at=0.0), jm.Release(["a stop"], at=2.0)]
    solution = jm.simulate(TWO, two_free(), jnp.array([0.0, 0.5, 1.0, 2.0]), events=events, **precise())
    found = solution.events
    assert [found.what(i) for i in range(int(found.count))] == [
        ("hold", "release hold"),
        ("activate a stop", "activate b stop"),
        ("release a stop",),
    ]
    np.testing.assert_allclose(found.t[:3], [0.0, 1.0, 2.0], atol=1e-9)
    np.testing.assert_allclose(found.impulses["a stop"][1], -2.0, atol=1e-8)
    np.testing.assert_allclose(found.impulses["b stop"][1], -4.0, atol=1e-8)
    np.testing.assert_allclose(solution.q, [[0, 0], [0.25, 0.25], [1, 1], [1, 1]], atol=1e-9)
    assert solution.modes.active[:, 0].tolist() == [False, False, True, False]  # at jumps a saved state is that after


@pytest.mark.slow
def test_a_guard_beyond_zero_acts_at_the_start_and_a_time_before_it_is_refused():
    late = jm.Lock("a", when=lambda t, q, v, reaction, p: q[1] + 1.0, name="late")
    solution = jm.simulate(TWO, two_free(), jnp.array([0.0, 1.0]), events=[late], **precise())
    assert float(solution.events.t[0]) == 0.0 and float(solution.q[1, 0]) == 0.0
    with pytest.raises(ValueError, match=r"`at` of event 'lock a' must not lie before the start, but does, by 0\.5 s"):
        jm.simulate(TWO, two_free(t=1.0), jnp.array([2.0]), events=[jm.Lock("a", at=0.5)])


@pytest.mark.slow
def test_a_run_restarts_from_any_saved_state():
    events = [
        jm.Lock("a", at=0.4),
        jm.Activate("b stop", when=lambda t, q, v, reaction, p: q[1] - 1.0),
        jm.Release("lock a", at=1.2),
    ]
    run = jax.jit(lambda state, ts: jm.simulate(TWO, state, ts, events=events, throw=False, **precise()))
    ts = jnp.linspace(0.0, 2.0, 6)
    whole = run(jax.tree.map(lambda x: x, jm.simulate(TWO, two_free(), ts[:1], events=events).state(0)), ts)
    for i in (1, 2, 3, 5):
        rest = run(whole.state(i), jnp.concatenate([ts[i:], ts[-1] + 0.1 + jnp.arange(i)]))
        np.testing.assert_allclose(rest.q[: 6 - i], whole.q[i:], atol=1e-9)
        assert int(rest.events.count) == 3 - int((whole.events.t[:3] <= ts[i]).sum())


@pytest.mark.parametrize("speed", [0.0, 1e-300, 1e-112, 1e-17])
@pytest.mark.slow
def test_a_locked_joint_may_move_by_rounding(speed):
    """A run goes on from a lock whatever is left of the joint's velocity; on a tree nothing else tells its size."""
    tree, after = locked_arm()
    start = dataclasses.replace(after, v=after.v.at[1].set(speed))
    run = jm.simulate(tree, start, jnp.array([0.3]))
    np.testing.assert_allclose(run.q[0], jm.simulate(tree, after, jnp.array([0.3])).q[0], rtol=0, atol=1e-9)
    assert run.stats["num_steps"] < 20


def test_a_lock_at_half_a_turn_holds_the_shorter_way_round():
    """Of a joint without turns of its own the angle jumps from π to −π: a lock there had turned bodies on by 2π, or more."""
    P = jm.planar
    free = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("O", "ground", "rod.a")]).build("absolute")
    none, acts = jnp.zeros(0, bool), jnp.ones(3, bool)
    mode = jm.system.Mode((jm.Lock("O", at=0.0).row(free),), acts, jnp.array([np.pi]), jnp.zeros(1), none)
    residual = position_residual(free.in_mode(mode), jnp.zeros(()), jnp.array([0.0, 0.0, np.pi + 1e-9]))
    np.testing.assert_allclose(residual, [0.0, 0.0, 1e-9], rtol=1e-6)


@functools.cache
def locked_arm():
    """An open arm of two links, and its state after its elbow has been locked."""
    rod, hinge = jm.planar.Body.rod, jm.planar.Revolute
    tree = jm.planar.Mechanism(
        [rod("upper", mass=1.0, length=1.0), rod("lower", mass=0.5, length=0.8)],
        [hinge("shoulder", "ground", "upper.a"), hinge("elbow", "upper.b", "lower.a")],
        gravity=(0.0, -9.81),
    ).build()
    state = jm.assemble(tree, {"elbow": 0.5}, {"elbow": 1.0})
    return tree, jm.simulate(tree, state, jnp.array([0.1]), events=[jm.Lock("elbow", at=0.1)]).state(0)


@pytest.mark.slow
def test_a_position_that_does_not_fit_is_refused_or_assembled():
    events = lambda assemble: [jm.Activate("a stop", at=0.5, assemble=assemble)]
    with pytest.raises(RuntimeError, match="does not fit the position"):
        jm.simulate(TWO, two_free(), jnp.array([1.0]), events=events(False))
    solution = jm.simulate(TWO, two_free(), jnp.array([0.5, 1.0]), events=events(True), **precise())
    np.testing.assert_allclose(solution.q[:, 0], 1.0, atol=1e-12)
    with pytest.raises(
        ValueError,
        match=r"Constraint 'a stop' must fit the position .* its residual, relative to the size of the mechanism, is \d;",
    ):
        jm.transition(TWO, two_free(), activate=["a stop"])
    assert jm.transition(TWO, two_free(1.0), activate=["a stop"], assemble=True).after.v.tolist() == [0.0, 1.0]


# Mechanisms


P = jm.planar


def rods(joint):
    """Two rods, the second on the first by a given joint."""
    bodies = [P.Body.rod("one", 2.0, 1.0), P.Body.rod("two", 1.0, 0.8)]
    return P.Mechanism(bodies, [P.Revolute("O", "ground", "one.a"), joint], gravity=(0.0, -9.81))


def test_the_reverse_derivative_by_the_time_of_a_lock():
    """A mass that a constant force has moved until then stays: x = a t²/2."""
    system = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: jnp.array([3.0]))
    start = jm.as_state(system, [0.0])
    end = lambda at: jm.simulate(system, start, jnp.array([1.0]), events=[jm.Lock("x", at=at)], throw=False).q[-1, 0]
    np.testing.assert_allclose(jax.jit(jax.value_and_grad(end))(0.4), (0.24, 1.2), rtol=1e-9)


def test_a_lock_of_what_a_driver_moves_is_told_where_it_acts():
    """No velocity satisfies both, whatever the accelerations: what is saved before stays."""
    drive = jm.Holonomic("drive", lambda t, q, p: q - t)
    system = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), constraints=[drive])
    start, locks = jm.assemble(system, [0.0], [1.0]), [jm.Lock("x", at=0.5)]
    run = jm.simulate(system, start, jnp.array([0.25, 1.0]), events=locks, throw=False)
    assert run.result == jm.RESULTS.contradictory_constraints and run.events.count == 1
    np.testing.assert_allclose(run.q[:, 0], [0.25, np.nan], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["relative", pytest.param("absolute", marks=pytest.mark.slow)])
def test_a_locked_joint_is_like_a_weld(coordinates):
    """Its lock bears what the weld bears about the joint's axis; forces in the joints are those of the welded mechanism."""
    turn = P.frame((1.0, 0.0), 0.4)
    free = rods(P.Revolute("A", "one.b", "two.a")).build(coordinates)
    welded = rods(P.Fixed("A", ("one", turn), "two.a")).build(coordinates)
    state = jm.assemble(free, {"O": 0.3, "A": 0.4} if coordinates == "relative" else _placed(0.3, 0.4))
    after = jm.transition(free, state, lock=["A"]).after
    same = jm.assemble(welded, {"O": 0.3} if coordinates == "relative" else _placed(0.3, 0.4))
    found, expected = ({j: jm.joint_reaction(*x, j) for j in "OA"} for x in ((free, after), (welded, same)))
    for name in "OA":
        np.testing.assert_allclose(found[name].force, expected[name].force, atol=1e-11)
        np.testing.assert_allclose(found[name].torque, 0, atol=1e-11)
    multipliers = jm.reactions(free, after).multipliers["lock A"]
    np.testing.assert_allclose(multipliers, expected["A"].torque, atol=1e-11)
    report = jm.analyse_reactions(free, after)
    assert report.groups["lock A"].unique and report.groups["O"].unique


def _placed(first, second):
    end = jnp.array([jnp.cos(first), jnp.sin(first)])
    return {"one.angle": first, "two.x": end[0], "two.y": end[1], "two.angle": first + second}


@pytest.mark.slow
def test_a_joint_that_does_not_act_lets_go():
    """A rod on a hinge that is released falls freely, its joint being in the mechanism all the while."""
    system = P.Mechanism(
        [P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("O", "ground", "rod.a")], gravity=(0.0, -9.81)
    ).build("absolute")
    state = jm.assemble(system, inactive=["O"])
    assert not jm.reactions(system, state).multipliers["O"].any()
    np.testing.assert_allclose(jm.acceleration(system, state, ("rod", (0.5, 0.0))), [0.0, -9.81], atol=1e-12)
    np.testing.assert_allclose(jm.joint_reaction(system, state, "O").force, 0, atol=1e-12)
    assert jm.diagnose(system, state).freedom == 3
    with pytest.raises(ValueError, match="must have no mode"):
        jm.convert(state, system, system)


# Brakes


@pytest.mark.slow
def test_a_brake_slides_sticks_and_comes_loose():
    """A block of 1 kg at 3 m/s, braked by 6 N from 0.5 s; pulled by t newtons it comes loose at 8 N."""
    system = TWO.with_params({"f": 0.0, "pull": 1.0})
    brake = jm.Brake("a", sliding=6.0, holding=8.0, at=0.5)
    ts = jnp.array([0.5, 5.0, 8.0, 9.0])
    solution = jm.simulate(system, two_free(3.0), ts, events=[brake], **precise())
    found = solution.events
    assert [found.what(i) for i in range(int(found.count))] == [
        ("brake a",),
        ("brake a rests",),
        ("brake a comes loose",),
    ]
    before = 3 * 0.5 + 0.5**3 / 6, 3 + 0.5**2 / 2
    stop = np.roots([0.5, -6.0, before[1] - 0.5**2 / 2 + 6 * 0.5])  # v(t) = v₀ + (t² − 0.25)/2 − 6 (t − 0.5)
    stop = stop.min()
    np.testing.assert_allclose(found.t[:3], [0.5, stop, 8.0], atol=1e-9)
    rest = before[0] + (before[1] - 0.125 + 3) * (stop - 0.5) + (stop**3 - 0.5**3) / 6 - 3 * (stop**2 - 0.25)
    np.testing.assert_allclose(solution.q[1:3, 0], rest, atol=1e-8)
    after = ts[3] - 8.0
    np.testing.assert_allclose(solution.q[3, 0] - rest, 2 * after**2 / 2 + after**3 / 6, atol=1e-8)
    assert not found.doubtful.any()
    np.testing.assert_allclose(found.impulses["brake a"][:3], 0, atol=1e-8)


def test_an_impact_moves_what_a_brake_drags_or_holds():
    """By a force that is limited no impulse is borne: p of what is braked is kept, and it slides against the motion that is left."""
    system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.array([[2.0, 1.0], [1.0, 1.0]]))

    def run(v, holding):
        events = [jm.Brake("x", 0.4, holding, at=0.0), jm.Lock("y", at=0.5)]
        return jm.simulate(system, jm.assemble(system, [0.0, 0.0], v), jnp.array([0.5, 13.0]), events=events)

    # 2 ẋ + ẏ is kept by the lock, at (0.8, −4), (0.8, 3.2) and (0, 3) m/s; 0.4 N on 2 kg then stop it.
    for v, holding, left, way, loss in (
        ([1.0, -4.2], 0.4, -1.2, 0.45 - 3.6, 5.44 - 1.44),
        ([1.0, 3.0], 0.4, 2.4, 0.45 + 14.4, 8.32 - 5.76),
        ([0.0, 3.0], 0.7, 1.5, 5.625, 4.5 - 2.25),
        ([0.0, 3.0], jnp.inf, 0.0, 0.0, 4.5),
    ):
        solution = run(v, holding)
        events = solution.events
        moves = left != 0
        assert [events.what(i) for i in range(int(events.count))][2:] == [("brake x rests",)] * moves
        np.testing.assert_allclose(solution.v[0, 0], left, atol=1e-8)
        np.testing.assert_allclose(events.t[2] if moves else 0.5, 0.5 + abs(left) / 0.2, atol=1e-7)
        np.testing.assert_allclose(solution.q[1, 0], way, atol=1e-7)
        np.testing.assert_allclose(events.impulses["brake x"][1, 0], 0 if moves else -3, atol=1e-8)
        np.testing.assert_allclose(events.loss[1], loss, atol=1e-7)


@pytest.mark.slow
def test_a_run_goes_on_with_the_brakes_of_its_state_only_if_it_knows_them():
    row, none = jm.Brake("a", sliding=6.0, at=0.0).row(TWO), jnp.zeros(3, bool)
    mode = jm.system.Mode((row,), none, jnp.zeros(1), jnp.array([-6.0]), jnp.zeros(0, bool))
    state = jm.as_state(TWO, two_free(1.0).q, two_free(1.0).v, mode=mode)
    for events in ([], [jm.Lock("b", at=0.5)]):
        with pytest.raises(ValueError, match="Brake 'brake a' slides in the state, so that `events` must hold it"):
            jm.simulate(TWO, state, jnp.array([1.0]), events=events)


@pytest.mark.slow
def test_a_brake_that_cannot_hold_turns_round_and_doubt_is_told():
    system = TWO.with_params({"f": -10.0, "pull": 0.0})
    weak = jm.Brake("a", sliding=6.0, at=0.0)
    solution = jm.simulate(system, two_free(4.0), jnp.array([0.25, 1.0]), events=[weak], **precise())
    found = solution.events
    assert [found.what(i) for i in range(int(found.count))] == [("brake a",), ("brake a rests",)]
    np.testing.assert_allclose(found.t[1], 0.25, atol=1e-9)
    np.testing.assert_allclose(solution.v[1, 0], -4.0 * 0.75, atol=1e-8)  # back with 10 N less 6 N
    assert not found.doubtful.any()
    pair = [jm.Brake("a", sliding=3.0, at=0.0), jm.Brake("a", sliding=3.0, at=0.0, name="other")]
    shared = jm.simulate(system, two_free(0.0), jnp.array([0.5]), events=pair, **precise())
    assert bool(shared.events.doubtful.any()) and "not determined" in str(shared.events)


@functools.cache
def block():
    """A block of 1 kg, in a unit of length of its own, that is pushed by t newtons, and its state at rest."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: t[None] * p, params=1.0)
    with jax.ensure_compile_time_eval():
        return system, jm.assemble(system)


@pytest.mark.slow_except("2")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.slow
def test_a_brake_comes_loose_slowly_where_it_holds_as_much_as_it_slides(count):
    """x = (t − 6)³/6 from 6 s on, in metres, millimetres and kilometres; two brakes share the load anyhow."""
    system, state = block()
    ts, units = jnp.array([5.0, 9.0, 10.0]), jnp.array([1.0, 1e3, 1e-3])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def run(part, unit):
        brakes = [jm.Brake("q0", 6.0 * x * unit, at=0.0, name=str(i)) for i, x in enumerate((part, 1 - part)[:count])]
        pushed = system.with_params(unit)
        return jm.simulate(pushed, state, ts, events=brakes, max_events=6, throw=False, **precise())

    found = run(jnp.array([1.0] if count == 1 else [0.5, 1 / 3]), units)
    assert (found.result == jm.RESULTS.successful).all()
    np.testing.assert_allclose(found.q[..., 0] / units[:, None] - jnp.array([0, 4.5, 32 / 3]), 0, atol=1e-9)
    np.testing.assert_allclose(np.nanmax(found.events.t, axis=-1), 6, atol=1e-9)
    assert found.events.count.max(axis=1).tolist() == ([2] if count == 1 else [2, 3])
    assert bool(found.events.doubtful.any()) == (count == 2)


@pytest.mark.slow
def test_a_load_that_exceeds_the_hold_for_a_moment_is_not_passed_over():
    """25 sin² N m on a rotor at rest, above the 20 that hold it for 0.1 s of 10 s: when it comes loose, and stops again."""
    width = 0.1 / (1 - 2 * np.arcsin(np.sqrt(0.8)) / np.pi)

    def torque(t, q, v, p):
        pulse = 25 * jnp.sin(jnp.pi * (t - p) / width) ** 2
        return jnp.where((t > p) & (t < p + width), pulse, 0.0)[None]

    rotor = jm.System(1, mass=lambda t, q, p: 0.5 * jnp.eye(1), force=torque, params=0.0)
    state, brake = jm.assemble(rotor), jm.Brake("q0", sliding=12.0, holding=20.0, at=0.0)
    run = lambda at: jm.simulate(rotor.with_params(at), state, [10.0], events=[brake], max_events=4, throw=False)
    starts = jnp.array([4.0, 0.37, 8.123])
    found = jax.jit(jax.vmap(run))(starts)
    assert (found.result == jm.RESULTS.successful).all() and (found.events.count == 3).all()
    loose = width * np.arcsin(np.sqrt(0.8)) / np.pi
    push = lambda s: 25 * (s / 2 - width / (4 * np.pi) * np.sin(2 * np.pi * s / width))
    stop = loose + (push(width) - push(loose)) / 12  # when the pulse is over
    assert stop > width
    np.testing.assert_allclose(found.events.t[:, 1] - starts, loose, atol=1e-8)
    np.testing.assert_allclose(found.events.t[:, 2] - starts, stop, atol=1e-8)


@functools.cache
def driven_slider():
    """A slider of 2 kg, x = cos t, from rest."""
    system = jm.System(
        1,
        mass=lambda t, q, p: 2.0 * jnp.eye(1),
        constraints=[jm.Holonomic("driver", lambda t, q, p: q[0] - jnp.cos(t))],
    )
    return system, jm.assemble(system, [1.0])


def test_a_brake_on_what_a_driver_determines_slides_through_reversals(monkeypatch):
    """λ = m ẍ + F sign ẋ; there is nothing to hold, neither at rest at the start nor where the slider turns round."""
    made = []  # motions up to a guard, by one call of compiled code each
    monkeypatch.setattr(integration, "compiled_run", lambda *x: made.append(compiled_run(*x)) or made[-1])
    system, state = driven_slider()
    ts = jnp.linspace(0.4, 9.0, 30)
    for at in (0.0, 0.5):
        found = jm.simulate(system, state, ts, events=[jm.Brake("q0", sliding=3.0, at=at)], max_events=5, **precise())
        assert found.stats["compiled_steps"] == found.stats["num_accepted_steps"]
        np.testing.assert_allclose(found.events.t[int(found.events.count) - 2 :][:2], [np.pi, 2 * np.pi], atol=1e-9)
        drag = np.where(np.arange(30) * 8.6 / 29 + 0.4 < at, 0.0, 3 * np.sign(-np.sin(ts)))
        force = jm.reactions(system, found).multipliers["driver"][:, 0]
        np.testing.assert_allclose(force, -2 * np.cos(ts) + drag, atol=1e-9)
    assert made and None not in made


@pytest.mark.slow  # as one on what a driver determines does
def test_a_brake_on_a_slider_at_a_dead_centre_slides_through():
    """The crank goes on, whatever holds the slider there; the work of the brake is what energy is lost."""
    system = jm.System(
        ("crank", "slider"),
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 1.0])),
        constraints=[jm.Holonomic("rod", lambda t, q, p: (q[1] - jnp.cos(q[0])) ** 2 + jnp.sin(q[0]) ** 2 - 9.0)],
    )
    state = jm.assemble(system, [1.0, 3.4], [3.0, 0.0])
    brake = jm.Brake("slider", sliding=0.5, at=0.0)
    found = jm.simulate(system, state, jnp.array([0.0, 3.0]), events=[brake], max_events=5, **precise())
    turns = np.asarray(found.events.before.q[1 : int(found.events.count), 0])
    np.testing.assert_allclose(turns, np.pi * (1 + np.arange(len(turns))), atol=1e-9)
    places = np.array(
        [float(state.q[1]), *np.asarray(found.events.before.q[1 : 1 + len(turns), 1]), float(found.q[1, 1])]
    )
    lost = jm.energy(system, found).total[0] - jm.energy(system, found).total[1]
    np.testing.assert_allclose(lost, 0.5 * np.abs(np.diff(places)).sum(), atol=1e-8)
    assert len(turns) >= 2


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.slow
def test_a_release_by_a_load_and_its_doubt(twice):
    """A stop that gives way at 3 N under a pull that grows; stated twice, no model tells its load."""
    rows = [jm.Holonomic(name, lambda t, q, p: q[0]) for name in ("stop", "again")[: 1 + twice]]
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: t[None], constraints=rows)
    give_way = jm.Release(
        [row.name for row in rows], when=lambda t, q, v, reaction, p: jnp.abs(reaction["stop"][0]) - 3.0 / (1 + twice)
    )
    state = jm.as_state(system, jnp.zeros(1))
    solution = jm.simulate(system, state, jnp.array([4.0]), events=[give_way], max_events=2, **precise())
    np.testing.assert_allclose(solution.events.t[0], 3.0, atol=1e-9)
    np.testing.assert_allclose(solution.q[0, 0], 1 / 6 + 3 / 2, atol=1e-8)
    assert bool(solution.events.doubtful[0]) == twice


# Batches and derivatives


@pytest.mark.slow
def test_times_and_thresholds_are_batched():
    @jax.jit
    @jax.vmap
    def end(at, f):
        system = TWO.with_params({"f": f, "pull": 0.0})
        events = [jm.Lock("a", at=at), jm.Activate("b stop", when=lambda t, q, v, reaction, p: q[1] - 1.0)]
        solution = jm.simulate(system, two_free(), jnp.array([2.0]), events=events, throw=False, **precise())
        return solution.q[0], solution.result == jm.RESULTS.successful, solution.events

    at, f = jnp.linspace(0.1, 1.9, 7), jnp.linspace(0.5, 2.0, 7)
    q, well, happened = end(at, f)
    assert well.all()
    hits = jnp.sqrt(2 / f)
    np.testing.assert_allclose(q, np.stack([0.5 * f * at**2, np.ones(7)], axis=1), atol=1e-9)
    np.testing.assert_allclose(happened.t[:, :2], np.sort(np.stack([at, hits], axis=1), axis=1), atol=1e-9)
    assert str(happened) == "from 2 to 2 instants of events in each of 7 runs"


def through_three_events(theta):
    """Gravity, threshold of a guard and time of a lock; two locks and a release."""
    gravity, level, at = theta
    system = CHAIN.with_params({"g": jnp.array([0.0, -1.0]) * gravity, "level": level})
    events = [
        jm.Lock("q2", when=lambda t, q, v, reaction, p: p["level"] - q[0]),
        jm.Lock("q3", at=at),
        jm.Release("lock q2", at=1.5),
    ]
    solution = jm.simulate(
        system, chain_start(), jnp.array([1.9]), events=events, max_events=3, max_steps=256, throw=False,
        **precise(1e-12),
    )  # fmt: skip
    return jnp.concatenate([solution.q[-1], solution.v[-1], solution.events.t])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
def test_derivatives_through_three_events(mode):
    theta = jnp.array([[9.81, -0.4, 1.1], [9.0, -0.5, 1.2]])
    if mode == "reverse":
        slopes = jax.jit(jax.vmap(jax.jacrev(through_three_events)))(theta)
    else:
        slopes = jax.jit(jax.vmap(jax.jacfwd(through_three_events)))(theta)
    run, step = jax.jit(jax.vmap(through_three_events)), 1e-3
    values = run(theta)
    assert np.isfinite(values).all() and (np.diff(values[:, -3:]) > 0.1).all()
    for i in range(3):
        at = lambda k, i=i: run(theta.at[:, i].add(k * step))
        differences = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        np.testing.assert_allclose(slopes[:, :, i], differences, atol=1e-6)


@pytest.mark.slow
def test_forward_and_reverse_mode_agree_through_a_guard():
    """The time that is found on the interpolation has no derivative; that of the event is one of the motion, in both modes."""
    spring = lambda t, q, p: 0.5 * p * q[0] ** 2 * (1 + q[1] ** 2) + 0.5 * q[1] ** 2
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=spring, params=jnp.array(1.0))
    events = [jm.Lock(0, when=lambda t, q, v, reaction, p: q[0] - 0.2 * p)]

    def end(p):
        own = system.with_params(p)
        start = jm.as_state(own, [-1.0, 0.5], [0.0, 0.3])
        solution = jm.simulate(own, start, [3.0], events=events, max_events=1, throw=False)
        return jnp.concatenate([solution.q[-1], solution.v[-1], solution.events.t])

    p = jnp.array(1.3)
    forward = jax.jit(jax.jacfwd(end))(p)
    assert np.abs(forward).min(where=forward != 0, initial=1) > 0.01
    np.testing.assert_allclose(jax.jit(jax.jacrev(end))(p), forward, atol=1e-13)


# Messages


GUARD = lambda t, q, v, reaction, p: q[0]
WRONG = {
    "no trigger": (lambda: jm.Lock("a"), "Event 'lock a' must have either `at`, a time, or `when`, a guard"),
    "two triggers": (lambda: jm.Lock("a", at=1.0, when=GUARD), "must have either `at`"),
    "direction": (lambda: jm.Lock("a", when=GUARD, direction=0), "must be 1 or -1, but is 0"),
    "unnamed": (lambda: jm.Lock(lambda t, q, p: q[0], at=1.0), "Argument `name` must be given to a `Lock` of a function"),
    "coordinate": (lambda: _run([jm.Lock("c", at=1.0)]), "'lock c' must act on a function or a coordinate out of 'a' and 'b'"),
    "constraint": (lambda: _run([jm.Activate("c", at=1.0)]), "Event 'activate c' must name constraints or locks out of"),
    "repeat": (lambda: jm.Lock("a", at=1.0, repeat=True), "Argument `repeat` of event 'lock a' must be False for a known time"),
    "numbers": (lambda: jm.Lock(jax.tree_util.Partial(lambda x, t, q, p: x * q[0], jnp.array(2.0)), at=1.0, name="twice"), "`what` of 'twice' must be a function without numbers of its own"),
    "name of a constraint": (lambda: _run([jm.Lock("a", at=1.0, name="a stop")]), "must hold different names, but 'a stop' is used twice"),
    "two rows": (lambda: _run([jm.Lock("a", at=0.5), jm.Lock("a", at=1.0, name="hold")]), "must lock a coordinate by one row, but 'lock a' and 'hold' lock the same"),
    "index": (lambda: _run([jm.Lock(2, at=1.0)]), "'lock 2' must act on a function or a coordinate out of 'a' and 'b', but acts on 2"),
    "function": (lambda: _run([jm.Lock(lambda t, q, p: float(q[0]), at=1.0, name="a")]), r"`what of 'a'` must compute with `jax.numpy` alone.*; it raised ConcretizationTypeError"),
    "functions": (lambda: _run([jm.Lock(lambda t, q, p: q, at=1.0, name="a")]), r"`what of 'a'` must return an array of shape \(\) or \(1,\), but returns shape \(2,\)"),
    "comparison": (lambda: _run([jm.Brake(lambda t, q, p: q[0] > 1, 1.0, at=1.0, name="a")]), r"`what of 'a'` must return an array .* of floating-point numbers, but returns bool numbers"),
    "guard": (lambda: _run([jm.Lock("a", when=lambda t, q, v, reaction, p: float(q[0]))]), "`when` of event 'lock a' must compute with `jax.numpy` alone"),
    "guards": (lambda: _run([jm.Lock("a", when=lambda t, q, v, reaction, p: q)]), r"`when of event 'lock a'` must return an array of shape \(\), but returns shape \(2,\)"),
    "truth value": (lambda: _run([jm.Lock("a", when=lambda t, q, v, reaction, p: q[0] > 1)]), r"`when of event 'lock a'` must return an array of shape \(\) of floating-point numbers, but returns bool numbers"),
    "guard of nothing": (lambda: _run([jm.Lock("a", when=lambda t, q, v, reaction, p: None)]), r"`when of event 'lock a'` must return an array of shape \(\), but returns None"),
    "impulse": (lambda: jm.transition(TWO, two_free(), lock=["a"], impulse=[1.0]), r"`impulse` must have shape \(2,\), but has shape \(1,\)"),
    "kind": (lambda: _run(["a"]), "Argument `events` must be a sequence, each entry an AbstractEvent"),
    "weak": (lambda: _run([eqx.tree_at(lambda b: b.holding, jm.Brake("a", 2.0, 3.0, at=1.0), jnp.array(1.0))]), "Brake 'brake a' must slide with a positive force, and hold at least that"),
    "weaker": (lambda: jm.Brake("a", sliding=2.0, holding=1.0, at=1.0), "`holding` of 'brake a' must not be below `sliding`, but is 1 below 2"),
    "two brakes": (lambda: _run([jm.Brake("a", sliding=2.0, at=t) for t in (0.5, 1.0)]), "must hold one `Brake` of a name, but holds 'brake a' and 'brake a'"),
    "nothing": (lambda: jm.transition(TWO, two_free(), release=[]), "One of the arguments `lock`, `activate`, `release` and `impulse` must say"),
    "restitution of nothing": (lambda: jm.transition(TWO, two_free(), lock=["a"], restitution=0.5), "`restitution` must be None where `activate` names nothing"),
    "assembly of nothing": (lambda: jm.transition(TWO, two_free(), lock=["a"], assemble=True), "`assemble` must be False where `activate` names nothing"),
    "method": (lambda: jm.transition(TWO, two_free(), lock=["a"], method="fast"), "Argument `method` must be 'full', 'projected' or 'minimal'"),
    "released": (lambda: jm.transition(*pair(), release=["bar"]), "Argument `release` must name what acts, but 'bar' does not"),
    "dense": (lambda: _run([jm.Lock("a", at=1.0)], dense=True), "Argument `dense` must be False"),
}  # fmt: skip


def _run(events, **more):
    return jm.simulate(TWO, two_free(), jnp.array([2.0]), events=events, **more)


@pytest.mark.slow_cases("weak")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case):
    make, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_an_impulse_alone_is_a_transition():
    """Nothing begins to act: of a particle on a wall the part along it moves it, the other is the wall's."""
    wall = jm.Holonomic("wall", lambda t, q, p: q[1])
    system = jm.System(2, mass=lambda t, q, p: 2.0 * jnp.eye(2), constraints=[wall])
    found = jm.transition(system, jm.assemble(system, [0.0, 0.0]), activate=[], impulse=jnp.array([3.0, 5.0]))
    np.testing.assert_allclose(found.after.v, [1.5, 0.0], atol=1e-14)


@functools.cache
def pair(gap=1.0):
    """Masses of 1 and 2 kg that approach each other, and a bar of length 1 between them that does not act yet."""
    bar = jm.Holonomic("bar", lambda t, q, p: q[1] - q[0] - 1.0)
    system = jm.System(("a", "b"), mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0])), constraints=[bar])
    return system, jm.assemble(system, [0.0, gap], [1.0, -2.0], inactive=["bar"])


@pytest.mark.parametrize("restitution", [None, 0.5])
def test_a_bar_is_hit_at_a_known_time(restitution):
    """The speed of approach, 3 m/s, is reversed times e by the impulse 2 · 3 (1 + e)/3; without e the bar acts on."""
    e = restitution or 0.0
    jump = jm.transition(*pair(), activate=["bar"], restitution=restitution)
    np.testing.assert_allclose(jump.impulses["bar"], [2.0 * (1 + e)], atol=1e-13)
    np.testing.assert_allclose(jump.after.v, [1.0 - 2.0 * (1 + e), -2.0 + (1 + e)], atol=1e-13)
    assert jump.after.mode.active.tolist() == [restitution is None]
    if restitution is None:
        system, held = pair()[0], jump.after
        with pytest.raises(ValueError, match="`activate` must name what does not act yet, but 'bar' does"):
            jm.transition(system, held, activate=["bar"])
        pushed = jm.transition(system, held, release=["bar"], impulse=[3.0, 0.0])
        np.testing.assert_allclose(pushed.after.v, [2.0, -1.0], atol=1e-13)
        assert not pushed.after.mode.active.any()


def test_masses_are_moved_to_a_bar_that_does_not_fit():
    """By the centre of gravity, which stays: 2 m too far apart are 4/3 m of the lighter mass and 2/3 m of the other."""
    with pytest.raises(ValueError, match=r"'bar' must fit the position where it is activated, but .*; see `assemble`"):
        jm.transition(*pair(3.0), activate=["bar"])
    jump = jm.transition(*pair(3.0), activate=["bar"], assemble=True)
    np.testing.assert_allclose(jump.after.q, [4 / 3, 3 - 2 / 3], atol=1e-12)
    np.testing.assert_allclose(jump.after.v, [-1.0, -1.0], atol=1e-13)


@pytest.mark.slow
def test_a_start_that_is_moved_to_a_bar_has_derivatives():
    """The centre of gravity stays, whatever the length of the bar: (x₁ + 2 x₂)/3 − 2 L/3."""
    system, start = pair(3.0)
    ends = lambda q: jm.simulate(
        system, dataclasses.replace(start, q=q), [0.1], events=[jm.Activate("bar", at=0.0, assemble=True)]
    ).q[-1]
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(mode(ends))(start.q), np.tile([1 / 3, 2 / 3], (2, 1)), atol=1e-12)


def total(t, q, p):
    return q[0] + q[1]


@pytest.mark.parametrize(
    ("what", "after", "impulse"),
    [(1, [1.0, 0.0], 4.0), (jm.Lock(total, at=0.0, name="sum"), [5 / 3, -5 / 3], 2 / 3)],
    ids=["index", "function"],
)
def test_what_is_locked_is_an_index_or_a_function(what, after, impulse):
    """Of a sum that shrinks by 1 m/s: an impulse I on both, I + I/2 = 1."""
    jump = jm.transition(*pair(), lock=[what])
    np.testing.assert_allclose(jump.after.v, after, atol=1e-13)
    np.testing.assert_allclose(jump.impulses["lock 1" if what == 1 else "sum"], [impulse], atol=1e-13)


def test_reactions_are_solved_for_when_the_first_is_read():
    solved = []
    reaction = ConstraintReactions({"a": slice(0, 1), "b": slice(1, 3)}, lambda: solved.append(1) or jnp.arange(3.0))
    assert list(reaction) == ["a", "b"] and len(reaction) == 2 and not solved
    assert reaction["b"].tolist() == [1.0, 2.0] and reaction["a"].tolist() == [0.0] and len(solved) == 1
    with pytest.raises(KeyError, match="There is no constraint 'c'; there are 'a' and 'b'"):
        reaction["c"]
