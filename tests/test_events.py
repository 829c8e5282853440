"""Events that repeat, massless coordinates through events, and runs in other units of time."""

import dataclasses
import functools
import pathlib
import re
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxmb as jm
from jaxmb.runge_kutta import guarded
from jaxmb.simulation.guard import SAMPLES_PER_STEP, STEPS_PER_RUN, Guard
from jaxmb.simulation.phase import Phase, Phases
from jaxmb.simulation.segments import LOCATED, Events, Run, Segment, Sight, run_through
from jaxmb.simulation.solver import ConstrainedSolver
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.step_records import Interpolant
from jaxmb.simulation.vector_field import VectorField
from jaxmb.topology import AbstractEvent, Plan
from jaxmb.topology.context import EventContext
from jaxmb.topology.reactions import ConstraintReactions

TIGHT = {"stepsize_controller": dfx.PIDController(rtol=1e-10, atol=1e-12)}


@pytest.mark.parametrize(
    ("rises", "falls", "too_long", "at_end"),
    [(1.3, 1.7, True, False), (0.5, 0.9, False, False), (1.6, 3.2, False, True), (3.2, 4.5, False, False)],
    ids=["within the step", "before it", "until after it", "after it"],
)
def test_a_guard_that_rises_and_falls_within_a_step_is_seen(rises, falls, too_long, at_end):
    guard = lambda t: ((t - rises) * (falls - t) > 0,) * 2
    found = guarded(guard, jnp.array(1.0), jnp.array(3.0), SAMPLES_PER_STEP)
    assert [bool(x) for x in found[:2]] == [too_long, at_end]
    assert rises < found[2] < rises + 4e-16 * 3 if at_end else found[2] == 3


def test_a_guard_is_found_at_the_resolution_of_time_where_it_begins_to_hold():
    """And at the end of a step where it ends a run that does not begin to hold, as one that has left zero."""
    for begins, expected in ((True, 1234.5), (False, 2000.0)):
        guard = lambda t, begins=begins: (t > 1234.5, (t > 1234.5) & begins)
        too_long, holds, found = guarded(guard, jnp.array(1000.0), jnp.array(2000.0), SAMPLES_PER_STEP)
        assert not too_long
        assert holds and expected <= found < expected + 5e-13 and (begins or found == expected)


# A mass on a plane under a periodic force, m q̈ = −m g + A sin(ω t + a) + N, N ≥ 0


PLANE = jm.System(
    ("height",),
    mass=lambda t, q, p: jnp.eye(1),
    force=lambda t, q, v, p: jnp.array([p["A"] * jnp.sin(p["w"] * t + p["a"]) - p["g"]]),
    constraints=[jm.Holonomic("plane", lambda t, q, p: q[0])],
    params={"A": 2.0, "w": 3.0, "a": 0.0, "g": 1.0},
)
CONTACT = [
    jm.Activate("plane", when=lambda t, q, v, reaction, p: q[0], direction=-1, repeat=True, name="lands"),
    jm.Release(
        "plane", when=lambda t, q, v, reaction, p: reaction["plane"][0], direction=-1, repeat=True, name="lifts"
    ),
]


@functools.cache
def on_plane(height=0.0, v=0.0):
    with jax.ensure_compile_time_eval():
        state = jm.assemble(PLANE) if height == v == 0 else jm.assemble(PLANE, [height], [v], inactive=["plane"])
    if state.mode is None:  # both starts share a program
        mode = jm.system.Mode((), jnp.ones(1, bool), jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, bool))
        state = eqx.tree_at(lambda s: s.mode, state, mode, is_leaf=lambda x: x is None)
    return state


@jax.jit
def contact(state, p, ts):
    return jm.simulate(PLANE.with_params(p), state, ts, events=CONTACT, max_events=12, throw=False, **TIGHT)


def exact(height, v, p, end):
    """Times and names of what happens, and the height at the end."""
    A, w, a, g = (float(p[k]) for k in ("A", "w", "a", "g"))
    force = lambda t: A * np.sin(w * t + a) - g
    t, found, resting, fine = 0.0, [], height == 0 and v == 0, 1e-3 / w
    while True:
        if resting:
            grid = np.arange(t, end + fine, fine)
            up = next((i for i in range(len(grid) - 1) if force(grid[i]) <= 0 < force(grid[i + 1])), None)
            lift = t if force(t) > 0 else None if up is None else brentq(force, grid[up], grid[up + 1], xtol=1e-15)
            if lift is None or lift >= end:
                return found, 0.0
            t, resting, height, v = lift, False, 0.0, 0.0
            found.append((t, "lifts"))
        start, h, s = t, height, v

        def flight(t, start=start, h=h, s=s):
            slope = s + A / w * np.cos(w * start + a)
            return (
                h
                + slope * (t - start)
                - A / w**2 * (np.sin(w * t + a) - np.sin(w * start + a))
                - g * (t - start) ** 2 / 2
            )

        grid = np.arange(start + fine, end + 2 * fine, fine)
        down = next((i for i in range(len(grid) - 1) if flight(grid[i]) > 0 >= flight(grid[i + 1])), None)
        land = np.inf if down is None else brentq(flight, grid[down], grid[down + 1], xtol=1e-15)
        if land >= end:
            return found, flight(end)
        t, resting = land, True
        found.append((t, "lands"))


@pytest.mark.slow_except("lands where it is lifted")
@pytest.mark.parametrize(
    ("height", "A", "a"),
    [(0.0, 2.0, 0.0), (0.5, 2.0, 0.0), (0.3, 3.0, 2.0)],
    ids=["from rest", "from above", "lands where it is lifted"],
)
@pytest.mark.slow
def test_a_mass_lifts_off_and_lands_again(height, A, a):
    p = {"A": jnp.array(A), "w": jnp.array(3.0), "a": jnp.array(a), "g": jnp.array(1.0)}
    ts = jnp.linspace(0.0, 6.0, 7)
    solution = contact(on_plane(height), p, ts)
    assert solution.result == jm.RESULTS.successful
    assert solution.stats["compiled_steps"] == solution.stats["num_accepted_steps"]
    expected, _ = exact(height, 0.0, p, 6.0)
    found = solution.events
    assert int(found.count) == len(expected) and len(expected) >= 4
    assert [found.what(i) for i in range(len(expected))] == [(name,) for _, name in expected]
    np.testing.assert_allclose(found.t[: len(expected)], [t for t, _ in expected], atol=1e-8)
    heights = [exact(height, 0.0, p, float(t))[1] if t > 0 else height for t in ts]
    np.testing.assert_allclose(solution.q[:, 0], heights, atol=1e-8)
    landings = np.array([name == "lands" for _, name in expected])
    np.testing.assert_allclose(np.asarray(found.after.v[: len(expected), 0])[landings], 0, atol=1e-12)
    multipliers = jm.reactions(PLANE.with_params(p), solution).multipliers["plane"][:, 0]
    assert (np.asarray(multipliers)[~np.asarray(solution.modes.active[:, 0])] == 0).all()


@pytest.mark.slow
def test_tapes_of_motions_between_events_are_not_kept():
    """In the gradient of a run with several motions of up to 1,234 steps, of which only the trace is made."""
    state, most = on_plane(0.5), {"max_events": 3, "max_steps": 1234, "throw": False}
    run = lambda v: jm.simulate(PLANE, dataclasses.replace(state, v=v), [1.0], events=CONTACT, **most).q[-1, 0]
    text = str(jax.make_jaxpr(jax.grad(run))(jnp.zeros(1)))
    assert "f64[1235,3]" in text and not re.search(r"f64\[\d+,1235", text)


@pytest.mark.slow
def test_a_contact_with_rebounds_opens_again():
    """From rest: it lifts, hits, closes before the force pulls again, and lifts a period later; e = 0 too."""
    ts, p, start = jnp.linspace(0.0, 4.0, 5), {"A": 2.0, "w": 3.0, "a": 0.0, "g": 1.0}, on_plane()

    @jax.jit
    @jax.vmap
    def run(e):
        gap = lambda t, q, v, reaction, p: q[0]
        hits = jm.Activate("plane", when=gap, direction=-1, restitution=e, repeat=True, name="hits")
        events = [hits, CONTACT[1]]
        return jm.simulate(PLANE.with_params(p), start, ts, events=events, max_events=16, throw=False, **TIGHT)

    found = run(jnp.array([0.0, 0.2]))
    assert (found.result == jm.RESULTS.successful).all()
    (first, _), (land, _), (second, _), (again, _) = exact(0.0, 0.0, p, 4.0)[0]
    for i, e in enumerate((0.0, 0.2)):
        events = jax.tree.map(lambda x, i=i: x[i], found.events)
        names = [events.what(k) for k in range(int(events.count))]
        lifts, hits = (events.t[: len(names)][np.array([n == (name,) for n in names])] for name in ("lifts", "hits"))
        np.testing.assert_allclose(lifts, [first, second], atol=1e-8)
        np.testing.assert_allclose([hits[0], hits[hits > second][0]], [land, again], atol=1e-8)
        assert len(hits) == 2 if e == 0 else len(hits) > 6


@pytest.mark.slow
def test_derivatives_through_a_contact_that_comes_and_goes():
    """Of the height after two flights with respect to the force, against differences of the exact solution."""
    ts, p = jnp.array([5.0]), {"A": 2.0, "w": 3.0, "a": 0.0, "g": 1.0}

    def height(A):
        system = PLANE.with_params(p | {"A": A})
        return jm.simulate(system, on_plane(), ts, events=CONTACT, max_events=6, max_steps=256, throw=False, **TIGHT).q[
            0, 0
        ]

    at = lambda A: exact(0.0, 0.0, p | {"A": A}, 5.0)[1]
    differences = (8 * (at(2.001) - at(1.999)) - (at(2.002) - at(1.998))) / 0.012
    np.testing.assert_allclose(jax.jit(jax.grad(height))(2.0), differences, rtol=1e-6)


@pytest.mark.slow
def test_contacts_at_one_instant_are_one_transition_every_time():
    """Two equal masses, of which each event has its own: those that wait are armed again together."""
    pair = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        force=lambda t, q, v, p: jnp.full(2, 2.0 * jnp.sin(3.0 * t) - 1.0),
        constraints=[jm.Holonomic(name, lambda t, q, p, i=i: q[i]) for i, name in enumerate("ab")],
    )
    events = []
    for i, name in enumerate("ab"):
        load = lambda t, q, v, reaction, p, name=name: reaction[name][0]
        gap = lambda t, q, v, reaction, p, i=i: q[i]
        events.append(jm.Activate(name, when=gap, direction=-1, repeat=True, name=f"{name} lands"))
        events.append(jm.Release(name, when=load, direction=-1, repeat=True, name=f"{name} lifts"))
    found = jm.simulate(pair, jm.assemble(pair), [4.0], events=events, max_events=5, **TIGHT).events
    names = [("a lifts", "b lifts"), ("a lands", "b lands")] * 2
    assert [found.what(i) for i in range(int(found.count))] == names
    p = {"A": 2.0, "w": 3.0, "a": 0.0, "g": 1.0}
    np.testing.assert_allclose(found.t[:4], [t for t, _ in exact(0.0, 0.0, p, 4.0)[0]], atol=1e-8)


SLIDER = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: jnp.ones(1))


@pytest.mark.slow
def test_a_repeated_guard_acts_again_when_it_has_left_zero():
    """Locked at 0 and 2π by sin t, which is above zero when the lock is released one second later."""
    events = [
        jm.Lock("q0", when=lambda t, q, v, reaction, p: jnp.sin(t), repeat=True),
        jm.Release("lock q0", when=lambda t, q, v, reaction, p: jnp.sin(t - 1.0), repeat=True),
    ]
    state, ts, turn = jm.assemble(SLIDER, v=[1.0]), jnp.array([0.5, 5.0, 6.5, 8.0]), 2 * np.pi
    run = lambda state, ts, count: jm.simulate(SLIDER, state, ts, events=events, max_events=count, throw=False, **TIGHT)
    solution = run(state, ts, 4)
    assert solution.result == jm.RESULTS.successful and int(solution.events.count) == 4
    np.testing.assert_allclose(solution.events.t, [0, 1, turn, turn + 1], atol=1e-9)
    far = (turn - 1) ** 2 / 2
    np.testing.assert_allclose(solution.q[:, 0], [0, 8, far, far + (7 - turn) ** 2 / 2], atol=1e-8)
    again = run(solution.state(1), jnp.array([5.0, 6.5, 7.5, 8.0]), 4)  # armed since π
    np.testing.assert_allclose(again.q[-1], solution.q[-1], atol=1e-8)
    few = run(state, ts, 3)  # the one at the start counts too
    assert few.result == jm.RESULTS.events_exhausted and int(few.events.count) == 3
    with pytest.raises(RuntimeError, match=r"than `max_events`.*The last, at t = 6\.28319, was 'lock q0'"):
        jm.simulate(SLIDER, state, ts, events=events, max_events=3, **TIGHT)


def test_the_state_at_an_event_is_where_its_guard_is_zero():
    """To rounding, though steps are long, their interpolation is not exact, and the guard is steep."""
    push = lambda t, q, v, p: 20.0 * t**3 * jnp.ones(1)
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=push)
    lock = jm.Lock("q0", when=lambda t, q, v, reaction, p: 1000.0 * (q[0] - 0.3))
    steps = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=0.25)
    solution = jm.simulate(system, jm.assemble(system), [1.0], events=[lock], max_events=2, **steps)
    assert abs(float(solution.q[-1, 0]) - 0.3) < 1e-15
    unused = jax.tree.map(lambda x: x[1], (solution.events.t, solution.events.happened, solution.events.doubtful))
    assert int(solution.events.count) == 1 and np.isnan(unused[0]) and not unused[1].any() and not unused[2]


FREE = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1))
NO_MODE = jm.system.Mode((), jnp.ones(0, bool), jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, bool))


def field_of(system):
    scale, yes = jm.as_state(system, jnp.zeros(system.nq), length=1.0).scale, jnp.array(True)
    return VectorField(
        system, jm.formulation.GaussProjection(), jm.Projection(), None, scale, consistent=yes, choice=None
    )


class Guarded(Plan):
    """A plan of guards that always have the same values, beside which one has left zero or not."""

    values: tuple[float, ...] = eqx.field(static=True, default=(7.0,))
    left: bool = eqx.field(static=True, default=False)

    guarded, waits = True, (False,)

    def guards_in_run(self, system, mode, state, u, in_use):
        return 2 * (jnp.array(self.values),) + (jnp.array(self.left),)


def plan_of(kind, instant=1e-9, **fields):
    """A plan of a stand-in's kind, of a single coordinate and without events."""
    none = jnp.zeros(0)
    return kind(FREE, jm.formulation.GaussProjection(), (), jnp.array(instant), none, none, **fields)


def test_a_motion_ends_where_a_guard_has_risen_or_left_zero():
    """Not before the time from which on guards are looked at. How often they are is told."""
    page = " ".join((pathlib.Path(__file__).parents[1] / "docs" / "topology.md").read_text().split())
    assert f"at most 1/{STEPS_PER_RUN} of the run" in page
    assert f"shorter than 1/{STEPS_PER_RUN * SAMPLES_PER_STEP} of the run" in page
    field, y = field_of(FREE), StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(()))

    def ends(values, leaving, t=2.0):
        guard = SimpleNamespace(plan=plan_of(Guarded, values=values, left=leaving), mode=NO_MODE, since=1.0)
        return tuple(bool(x) for x in Guard.__call__(guard, field, jnp.asarray(t), y, jnp.zeros(0, bool)))

    yes, no = (True, True), (False, False)
    cases = {
        ((-1.0, 2.0), False): yes,
        ((-1.0, -2.0), True): (True, False),
        ((0.0, -2.0), True): (True, False),
        ((0.5, -2.0), True): yes,
        ((0.0, -2.0), False): no,
    }
    assert {case: ends(*case) for case in cases} == cases
    assert all(ends((-1.0, x), True, t=t) == no for x in (2.0, -2.0) for t in (0.5, 1.0))


def test_events_are_listed_with_what_they_cost():
    """A loss of zero has no sign, and what a reaction that is not determined has decided is told."""
    events = SimpleNamespace(
        count=jnp.array(2), t=jnp.array([0.5, 1.25, jnp.nan]), loss=jnp.array([-0.0, 2.5, jnp.nan]),
        doubtful=jnp.array([False, True, False]), what=lambda i: (("a", "b"), ("c",))[i],
    )  # fmt: skip
    lines = Events.__str__(events).splitlines()[1:]
    assert [line.split() for line in lines] == [
        ["0.5", "0", "a,", "b"],
        ["1.25", "2.5", "c", *["(by", "a", "reaction", "that", "is", "not", "determined)"]],
    ]


class Between(eqx.Module):
    """A guard that is above zero from one time to another one."""

    rises: jax.Array
    falls: jax.Array

    def __call__(self, field, t, y, in_use):
        return ((t - self.rises) * (self.falls - t) > 0,) * 2


def test_a_step_is_rejected_within_which_a_guard_has_risen_and_fallen_and_ends_the_motion_where_it_holds_at_the_end(
    monkeypatch,
):
    """Not one that has failed; one that cannot be made shorter is not rejected. The time of the end is held: the state has the derivative there."""
    field, y, solver = (
        field_of(FREE),
        StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(())),
        ConstrainedSolver(dfx.Bosh3()),
    )
    record = solver.init(None, 0.0, 1.0, y, (field, jnp.ones(0, bool)))

    def step(rises, falls, end, good, shift):
        """The interpolation goes from zero by s² (3 − 2 s) `shift`."""
        result = dfx.RESULTS.where(good, dfx.RESULTS.successful, dfx.RESULTS.breakdown)
        to = y.like(jnp.full(3, shift))
        dense = Interpolant(y.like(jnp.zeros((4, 3))), y, y, to).dense
        monkeypatch.setattr(ConstrainedSolver, "_step", lambda *_: (to, y.like(y.packed + 0.1), dense, record, result))
        own = dataclasses.replace(field, guard=Between(rises, falls))
        y1, error, _, accepted, result = solver.step(None, 1.0, end, y, (own, jnp.ones(0, bool)), record, False)
        stopped = accepted.ended & (result == dfx.RESULTS.breakdown)
        return y1.packed[0], (error.packed[0], accepted.reached, stopped)

    eps, s = float(np.finfo(float).eps), 0.15
    within = s**2 * (3 - 2 * s)
    cases = {
        (1.3, 1.7, 3.0, True): (np.inf, 3.0, False, 1.0),
        (1.3, 3.5, 3.0, True): (0.1, 1.3, True, within),
        (0.5, 0.9, 3.0, True): (0.1, 3.0, False, 1.0),
        (1.3, 1.7, 3.0, False): (0.1, 3.0, False, 1.0),
        (1.3, 3.5, 3.0, False): (0.1, 3.0, False, 1.0),
        (1 + 2 * eps, 1 + 6 * eps, 1 + 8 * eps, True): (0.1, 1 + 8 * eps, False, 1.0),
    }
    slopes = jax.jit(jax.vmap(jax.value_and_grad(step, argnums=(0, 2, 4), has_aux=True), in_axes=(0, 0, 0, 0, None)))
    (y1, told), (by_rising, by_end, by_shift) = slopes(*map(jnp.array, zip(*cases, strict=True)), 2.0)
    *expected, weight = (np.array(x) for x in zip(*cases.values(), strict=True))
    for found, value in zip((*told, y1, by_shift), (*expected, 2 * weight, weight), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-13)
    assert not jnp.any(by_rising) and jnp.all(jnp.isfinite(by_end))


class Told(SimpleNamespace):
    """What stands in for a plan, without any array."""


jax.tree_util.register_pytree_node(Told, lambda told: ((), told), lambda told, _: told)


def segment_of(**fields):
    """A stage of a run of a single coordinate, at rest at zero, with some fields of its own."""
    y, no = StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(())), jnp.array(False)
    none = dict(
        t=jnp.zeros(()), y=y, mode=NO_MODE, since=jnp.zeros(()), fresh=jnp.zeros(0, bool), displaced=no, due=no[None],
        by_guard=no, result=jm.RESULTS.successful, count=jnp.array(0), done=no, saved=y, modes=NO_MODE, sight=None,
    )  # fmt: skip
    return Segment(**none | fields)


class Rising(Plan):
    """A plan of three occurrences, whose guards are q − 5, slope (q − place) and −1."""

    line: tuple[jax.Array, jax.Array] = (jnp.ones(()), jnp.zeros(()))
    ready: tuple[bool, ...] = eqx.field(static=True, default=())

    waits = property(lambda self: self.ready)

    def guards_in_run(self, system, mode, state, u, in_use):
        slope, place = self.line
        values = jnp.stack([state.q[0] - 5.0, slope * (state.q[0] - place), -jnp.ones(())])
        return values, values, jnp.array(False)


def test_an_event_is_located_along_the_motion_with_the_derivative_of_its_time():
    """By a Newton step of the guard, a hundred instants long at most; none where the guard does not rise, nor an event that has only left zero."""
    instant, speed, push = 1e-9, 2.0, 3.0
    field = field_of(FREE)

    @functools.partial(jax.jit, static_argnums=4)
    def located(off, at, rising, slope, waits):
        none = jnp.zeros(0)
        plan = Rising(
            FREE, field.formulation, (), jnp.array(instant), none, none, line=(slope, rising), ready=(False, waits)
        )
        flow = lambda field, t, y, in_use: y.like(jnp.array([speed, push, 7.0]))
        t, yes = jnp.asarray(4.0), jnp.array(True)
        run = SimpleNamespace(plan=plan, flow=flow, field=lambda segment: field)
        y = StateVector.of(at + off[None], jnp.ones(1), jnp.zeros(()))
        segment = segment_of(t=t, y=y, by_guard=yes)
        seen = Run._sight(run, field, segment, y, jnp.zeros(0, bool), yes)
        segment, _ = Run.location(run, dataclasses.replace(segment, sight=seen))
        return segment.t, (segment.y.packed, segment.due)

    slopes = jax.value_and_grad(located, argnums=(0, 2), has_aux=True)
    for off in (1e-8, -1e-8):
        (t, (y, which)), (by_off, by_rising) = slopes(jnp.asarray(off), 0.3, jnp.asarray(0.3), 10.0, False)
        wait = -off / speed
        np.testing.assert_allclose([t - 4, *y[1:]], [wait, 1 + push * wait, 7 * wait], rtol=1e-6)
        assert abs(y[0] - 0.3) < 1e-15 and which.tolist() == [False, True, False]
        np.testing.assert_allclose([by_off, by_rising], [-1 / speed, 1 / speed], rtol=1e-6)
    far = slopes(jnp.asarray(1e-3), 0.3, jnp.asarray(0.3), 10.0, False)[0][0]
    np.testing.assert_allclose(far - 4, -100 * instant, rtol=1e-6)
    for slope in (-10.0, 0.0):
        (t, _), derivatives = slopes(jnp.asarray(1e-8), 0.3, jnp.asarray(0.3), slope, False)
        assert t == 4 and derivatives == (0, 0)
    assert slopes(jnp.asarray(0.0), 0.3, jnp.asarray(0.3), 0.0, True)[0][1][1][1]  # what stays at zero has not left it
    for instants, waits in ((1.0, True), (0.0, True), (-0.5, True), (-2.0, True), (-2.0, False)):
        which = slopes(jnp.asarray(instants * instant * speed), 0.3, jnp.asarray(0.3), 10.0, waits)[0][1][1]
        assert bool(which[1]) == (instants > -1 or not waits)


def test_a_motion_is_ended_by_no_guard_before_two_instants_and_saves_times_within_it(monkeypatch):
    """What is above zero where it begins, and does not act, leaves zero by then."""
    monkeypatch.setattr("jaxmb.simulation.segments.regular_if_possible", lambda method, field, t, y: field)
    given = []
    keep = lambda inputs, method, guard, **_: given.extend((inputs, guard)) or object.__new__(Phase)
    monkeypatch.setattr("jaxmb.simulation.segments.integrate", keep)
    field, y, instant = field_of(FREE), StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(())), 0.25
    plan, ts = plan_of(Guarded, instant), jnp.array([1.0, 5.0, 6.0, 8.0, 9.0])
    run = lambda ts: SimpleNamespace(plan=plan, method=None, ts=ts)
    within = lambda ts: Run._motion(run(ts), field, NO_MODE, jnp.array(5.0), jnp.array(8.0), y) and given[0].ts
    slopes = jax.jvp(within, (ts,), (jnp.ones(5),))[1]
    assert slopes.tolist() == [0, 1, 1, 1, 0]  # also of the times at both ends
    given.clear()
    within(ts)
    inputs, guard = given
    times = 5 + instant * jnp.array([-1.0, 1.9, 2.0, 2.1, 3.1])
    ends = [bool(guard(field, t, y, jnp.zeros(0, bool))[0]) for t in times]
    assert ends == [False, False, False, True, True] and guard.plan.system is None
    assert (float(inputs.t0), float(inputs.t1), inputs.ts.tolist()) == (5, 8, [5, 5, 6, 8, 8])


class Stretch(Phases):
    """The record of a motion of which only its end is told."""

    def __init__(self, t):
        self.failed, self.stats, self.accepted = t > 4, {"t": t}, None


class Scripted(Run):
    """Stretches of one second, with events at 1 s and 3 s, until it is over."""

    over: float

    def __init__(self, ts, over, *waits):
        self.plan = SimpleNamespace(names=("one", "two"), waits=waits, system=FREE, guarded=False)
        self.drift = self.loop = self.method = None
        self.scale, self.ts, self.end = jm.system.Scale(*map(jnp.ones, (0, 0, 1, 0, ()))), ts, ts[-1]
        self.max_events, self.over = 3, over

    def field(self, segment):
        return segment.t

    def at(self, segment):
        return jm.State(segment.t, segment.y.q, segment.y.v, self.scale, mode=NO_MODE)

    def transition(self, segment):
        t, acts = segment.t, (segment.t == 1) | (segment.t == 3)
        later = t > 2
        record = acts, t, jnp.stack([acts & later, acts]), self.at(segment), jnp.zeros(0), 10 * t, acts & later
        y = segment.y.like(segment.y.packed + acts)
        return dataclasses.replace(segment, y=y, count=segment.count + acts), record

    def motion(self, segment):
        saved = jnp.where((self.ts <= segment.t)[:, None], 7.0, segment.saved.packed)
        following = dataclasses.replace(segment, t=segment.t + 1, saved=segment.saved.like(saved))
        return following, (self.at(segment), Stretch(segment.t + 1))

    def look(self, segment, stage):
        return dataclasses.replace(segment, done=(stage == 1) & (segment.t >= self.over))


def test_a_run_is_its_stretches_and_what_has_happened_between_them(monkeypatch):
    """So many as there may be events, twice as many where some leave zero, and two more; what is not over by then has too many events."""
    kept = lambda field, t, y, start: (y.like(y.packed + t), None)
    monkeypatch.setattr("jaxmb.simulation.segments.finished", kept)
    scale, ts = jm.system.Scale(*map(jnp.ones, (0, 0, 1, 0, ()))), jnp.array([0.5, 1.5, 9.0])
    state = jm.State(jnp.zeros(()), jnp.array([2.0]), jnp.array([3.0]), scale, mode=NO_MODE)

    @eqx.filter_jit
    def of(over, consistent, *waits):
        return run_through(Scripted(ts, over, *waits), state, consistent)

    told = lambda over, *waits, consistent=True: of(*map(jnp.array, (over, consistent)), *waits)
    results = jm.RESULTS.successful, jm.RESULTS.events_exhausted
    for over, waits, stretches, result in (
        (5.0, (False, False), 5, 0),
        (6.0, (False, False), 5, 1),
        (8.0, (False, True), 8, 0),
    ):
        last, events, phases, u = told(over, *waits)
        assert (
            last.t == stretches
            and phases.stats["t"].tolist() == [*range(1, stretches + 1)]
            and last.result == results[result]
        )
        assert events.count == 2 and events.names == ("one", "two") and u is None
        np.testing.assert_array_equal(events.t, [1.0, 3.0, np.nan])
        np.testing.assert_array_equal(events.loss, [10.0, 30.0, np.nan])
        assert events.happened.tolist() == [[False, True], [True, True], [False, False]]
        assert events.doubtful.tolist() == [False, True, False]
        np.testing.assert_array_equal(events.before.q[:, 0], [2.0, 3.0, np.nan])
        np.testing.assert_array_equal(events.after.q[:, 0], [3.0, 4.0, np.nan])
        expected = 7.0 + ts[:, None] + np.where(ts < stretches, 0, np.nan)[:, None]
        np.testing.assert_array_equal(last.saved.packed, np.broadcast_to(expected, (3, 3)))
        assert last.modes.active.shape == (3, 0)
    last, events, phases, _ = told(5.0, False, False, consistent=False)
    assert (
        last.t == 0
        and not phases.stats["t"].any()
        and last.result == jm.RESULTS.inconsistent_state
        and last.y.packed.tolist() == [0.0] * 3
    )
    assert events.count == 0 and np.isnan(events.t).all() and np.isnan(last.saved.packed).all()


def test_a_stretch_ends_where_its_guard_is_located_and_saves_what_it_reaches(monkeypatch):
    """Else where the motion has ended; one that has failed stays where it began. At the time of an event that after it is saved."""
    monkeypatch.setattr("jaxmb.simulation.segments.verdict", lambda *_: jm.RESULTS.projection_failed)
    y = StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(()))
    ts, like = jnp.array([0.5, 1.0, 2.1, 2.5]), lambda x: y.like(jnp.full((4, 3), x))
    modes = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), NO_MODE)
    begun = segment_of(t=jnp.array(1.0), y=y.like(jnp.ones(3)), count=jnp.array(1), saved=like(7.0), modes=modes)

    def found(result, rises=1.0, off=0.25, until=3.0, end=3.0, instant=0.1):
        """A guard is at −`off` where the motion has ended, on its way to zero at a speed of one, and at zero there as it is corrected."""
        asked = []
        due = lambda *given: asked.append(bool(given[-1])) or (jnp.array([False]), NO_MODE)
        motion = SimpleNamespace(result=result, t=jnp.array(2.0), y=y.like(jnp.full(3, 2.0)), ys=like(3.0), record=None)
        guards = lambda system, mode, state, *_: 2 * (jnp.array([rises * (state.t - 2 - off)]),)
        plan = Told(
            guarded=True, instant=instant, next_time=lambda *_: jnp.array(until), due=due, waits=(False,),
            guards_in_run=guards,
        )  # fmt: skip
        field = SimpleNamespace(
            independent=lambda t, y: jnp.zeros(0, bool), correct=lambda t, y, in_use: y.like(y.packed + 0.5), takes_samples=False,
            inputs=lambda t, y, in_use: None, system=None, state=lambda t, y: SimpleNamespace(t=t),
        )  # fmt: skip

        def sight(field, segment, y, in_use, unlocated):
            step = LOCATED * instant
            seen = jnp.array([rises * (segment.t + h - 2 - off) for h in (-step, step, 0.0, 0.0)])[:, None]
            return Sight(in_use, y, y.like(jnp.full(3, 8.0)), seen, seen)

        run = SimpleNamespace(
            plan=plan, loop=None, scale=jm.system.Scale(*map(jnp.ones, (0, 0, 1, 0, ()))), ts=ts, end=jnp.array(end),
            field=lambda segment: field, _motion=lambda *_: motion, stages=3 * [None], _sight=sight,
        )  # fmt: skip
        segment = begun
        for stage, part in ((1, Run.motion), (2, Run.location)):
            segment = Run.look(run, part(run, segment)[0], jnp.array(stage))
            assert stage == 2 or not segment.done
        told = float(segment.t), float(segment.y.packed[0]), bool(segment.due[0]), bool(segment.done), asked[-1]
        return told, segment.saved.packed[:, 0].tolist(), segment.result == begun.result

    results, nan = dfx.RESULTS, float("nan")
    # From the corrected state 2.5 a quarter of a second along the motion, 8 units in a second, and corrected once more.
    for case, told, saved in (
        ((results.event_occurred,), (2.25, 5.0, True, False, True), [7, 3, nan, nan]),
        ((results.event_occurred, 0.0), (2.0, 3.0, True, False, True), [7, 3, nan, nan]),
        ((results.successful,), (3.0, 2.0, False, True, True), [7, 3, 3, 3]),
        ((results.successful, 1.0, 0.25, 2.5), (2.5, 2.0, False, False, True), [7, 3, 3, 3]),
        ((results.event_occurred, 1.0, -0.81), (1.19, -3.48, True, False, False), [7, 3, nan, nan]),
        ((results.event_occurred, 1.0, -0.75), (1.25, -3.0, True, False, True), [7, 3, nan, nan]),
    ):
        np.testing.assert_allclose(found(*case)[0], told, atol=1e-12)
        assert bool(found(*case)[2])
        np.testing.assert_array_equal(found(*case)[1], saved)
    # Twice the time within which all is one instant.
    assert not found(results.event_occurred, 1.0, -0.75, instant=0.125)[0][-1]
    told, _, good = found(results.breakdown)
    assert told[1:4] == (1.0, False, True) and not good


def test_a_transition_is_made_where_one_is_due_and_has_room_and_what_fails_is_told():
    """With what an impact takes as work, and by the rows of the mode after it, which move all by a half here."""
    free, held = (dataclasses.replace(NO_MODE, active=jnp.array([x])) for x in (False, True))
    sizes, codes = jm.system.Scale(*map(jnp.ones, (0, 0, 1, 0, ()))), jm.RESULTS
    fields = lambda segment: SimpleNamespace(
        inputs=lambda t, y, in_use=None: None,
        independent=lambda t, y: segment.mode.active,
        correct=lambda t, y, in_use: y.like(y.packed + 0.5 * (in_use & segment.consistent)),
        takes_samples=True,
        after_sample=lambda t, y, in_use: y.with_control(y.control + 100),
    )
    y = StateVector.of(jnp.array([1.0]), jnp.array([2.0]), jnp.array(3.0), jnp.array([4.0]))

    @jax.jit
    def found(due, count, done, before, told, mismatch):
        jump = SimpleNamespace(
            mode=held, q=jnp.array([5.0]), v=jnp.array([6.0]), loss=jnp.array(0.25), result=told, mismatch=mismatch,
            impulses=jnp.array([8.0]), doubtful=jnp.array(True),
        )  # fmt: skip
        nothing = jnp.array([False])
        plan = Told(jump=lambda *_: jump, guarded=False, instant=0.1, due=lambda *given: (nothing, given[0]))
        run = SimpleNamespace(
            plan=plan, field=fields, scale=sizes, loop=True, max_events=3, stages=2 * [None], end=jnp.array(8.0)
        )
        begun = segment_of(t=jnp.array(7.0), y=y, mode=free, due=due[None], result=before, count=count, done=done)
        segment, record = Run.transition(run, begun)
        return Run.look(run, segment, jnp.array(0)), record

    def of(due=True, count=2, done=False, before=codes.successful, told=codes.successful, mismatch=1e-9):
        return found(jnp.array(due), jnp.array(count), jnp.array(done), before, told, jnp.array(mismatch))

    for case, acts, result in (
        ({}, True, codes.successful),
        ({"due": False, "count": 3, "told": codes.projection_failed, "mismatch": 1.0}, False, codes.successful),
        ({"done": True, "before": codes.ill_conditioned_state}, False, codes.ill_conditioned_state),
        ({"count": 3, "mismatch": 1.0}, False, codes.events_exhausted),
        ({"told": codes.projection_failed}, True, codes.projection_failed),
        ({"told": codes.projection_failed, "mismatch": 1e-7}, True, codes.position_mismatch),
    ):
        segment, (acted, t, due, before, impulses, loss, doubtful) = of(**case)
        assert acted == acts == due[0] == segment.mode.active[0] == segment.fresh[0] and segment.result == result
        assert segment.count == case.get("count", 2) + acts and (t, loss, impulses[0], doubtful) == (7, 0.25, 8, True)
        moved = acts and result == codes.successful
        expected = [5.5, 6.5, 3.25, 104.5] if moved else [5, 6, 2.75, 104] if acts else [1, 2, 3, 104]
        assert segment.y.packed.tolist() == expected and not before.mode.active[0] and segment.since == 7
        assert [before.q[0], before.v[0], before.control[0]] == [1, 2, 4] and segment.done == case.get("done", False)


# A kind of event that the library does not know


class Blow(AbstractEvent):
    """An impulse from outside, at which constraints begin to act too."""

    impulse: jax.Array
    joined: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, name, impulse, joined=(), **trigger):
        super().__init__(name, **trigger)
        self.impulse, self.joined = jnp.asarray(impulse), joined

    @property
    def acts_on(self):
        return self.joined

    def apply(self, change, here):
        return change.push(self.impulse).activate(here.rows(self.joined))


@pytest.mark.slow
def test_a_new_kind_of_event_is_one_class():
    """Masses of 1 and 2 kg that move alike are pushed every 2 s; where the first is struck, a bar shares the blow."""
    pair = jm.System(
        ("a", "b"),
        mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0])),
        constraints=[jm.Holonomic("bar", lambda t, q, p: q[1] - q[0] - 1.0)],
    )
    state = jm.assemble(pair, [0.0, 1.0], [1.0, 1.0], inactive=["bar"])
    events = [
        Blow("strike", [3.0, 0.0], ("bar",), when=lambda t, q, v, reaction, p: q[0] - 1.0),
        Blow("push", [0.5, 1.0], when=lambda t, q, v, reaction, p: -jnp.cos(np.pi * t), repeat=True),
    ]
    run = lambda events: jm.simulate(pair, state, jnp.array([0.25, 2.0, 4.0]), events=events, max_events=4, **TIGHT)
    solution = run(events)
    found = solution.events
    assert found.names == ("strike", "push")
    assert [found.what(i) for i in range(int(found.count))] == [("push",), ("strike",), ("push",)]
    np.testing.assert_allclose(found.t[:3], [1 / 2, 5 / 6, 5 / 2], atol=1e-9)
    np.testing.assert_allclose(found.after.v[:3], [[1.5, 1.5], [2.5, 2.5], [3.0, 3.0]], atol=1e-12)
    np.testing.assert_allclose(found.impulses["bar"][:3, 0], [0, 2, 0], atol=1e-12)
    np.testing.assert_allclose(found.loss[:3], [-1.875, -6.0, -4.125], atol=1e-12)
    np.testing.assert_allclose(solution.q[:, 0], [1 / 4, 47 / 12, 29 / 3], atol=1e-8)
    np.testing.assert_allclose(solution.q[:, 1] - solution.q[:, 0], 1, atol=1e-12)
    assert solution.modes.active[:, 0].tolist() == [False, True, True]
    with pytest.raises(ValueError, match="Event 'strike' must name constraints or locks out of 'bar', but names 'rod'"):
        run([Blow("strike", [3.0, 0.0], ("rod",), at=1.0)])


def test_whether_an_event_would_change_anything():
    """What acts may be released, what does not may begin to; a push changes something unless it is none."""
    bar = jm.Holonomic("bar", lambda t, q, p: q[1] - q[0] - 1.0)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[bar])
    off = jm.assemble(system, [0.0, 1.0], inactive=["bar"])
    none = jnp.zeros(0)

    def able(acts, event):
        mode = eqx.tree_at(lambda m: m.active, off.mode, jnp.array([acts]))
        load = ConstraintReactions({}, lambda: none)
        gauss, instant = jm.formulation.GaussProjection(), jnp.array(1e-9)
        rest = lambda: jnp.zeros(2)
        there = EventContext(system.in_mode(mode), gauss, mode, off, instant, rest, load, none, none, ())
        return bool(event.able(there))

    assert [able(acts, jm.Release("bar", at=1.0)) for acts in (False, True)] == [False, True]
    assert [able(acts, jm.Activate("bar", at=1.0)) for acts in (False, True)] == [True, False]
    assert [able(True, Blow("blow", [0.0, push], at=1.0)) for push in (0.0, 2.0)] == [False, True]
    assert [able(acts, Blow("join", [0.0, 0.0], ("bar",), at=1.0)) for acts in (False, True)] == [True, False]


# Massless coordinates


ROPE = jm.System(
    ("a", "b", "c"),
    mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 0.0, 1.0])),
    force=lambda t, q, v, p: jnp.array([t, 0.0, 0.0]),
    constraints=[
        jm.Holonomic("left", lambda t, q, p: q[1] - q[0] - 1.0),
        jm.Holonomic("right", lambda t, q, p: q[2] - q[1] - 1.0),
    ],
)


@pytest.mark.slow
def test_massless_coordinates_pass_through_events():
    """Two masses and a massless one between them; the first is torn off by its load, the others are stopped by the middle."""
    events = [
        jm.Release("left", when=lambda t, q, v, reaction, p: reaction["left"][0] - 0.5),
        jm.Lock("b", at=2.0),
        jm.Release("lock b", at=3.0),
    ]
    start = jm.assemble(ROPE, [0.0, 1.0, 2.0])
    ts = jnp.array([1.5, 2.5, 4.0])
    solution = jm.simulate(ROPE, start, ts, events=events, max_events=3, formulation=jm.formulation.KKT(), **TIGHT)
    found = solution.events
    np.testing.assert_allclose(found.t, [1.0, 2.0, 3.0], atol=1e-9)
    np.testing.assert_allclose(found.impulses["lock b"][1], -0.25, atol=1e-9)
    np.testing.assert_allclose(found.loss, [0, 0.25**2 / 2, 0], atol=1e-9)
    first = 1 / 12 + (ts - 1) / 4 + (ts**3 - 1) / 6 - (ts - 1) / 2
    others = jnp.where(ts < 2, 1 / 12 + (ts - 1) / 4, 1 / 12 + 1 / 4)
    np.testing.assert_allclose(solution.q, jnp.stack([first, 1 + others, 2 + others], axis=1), atol=1e-8)
    assert not found.doubtful.any()
    loads = jm.reactions(ROPE, solution)
    np.testing.assert_allclose(loads.vdot[:, 0], ts, atol=1e-9)
    with pytest.raises(ValueError, match="must be positive definite for `GaussProjection`, but is singular along 'b'"):
        jm.reactions(ROPE, solution, formulation=jm.formulation.GaussProjection())


@pytest.mark.slow
def test_transitions_of_massless_coordinates():
    moving = jm.assemble(ROPE, [0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    torn = jm.transition(ROPE, moving, release=["left"])
    for method in ("full", "projected", "minimal"):
        jump = jm.transition(ROPE, torn.after, lock=["b"], method=method)
        np.testing.assert_allclose(jump.after.v, [1, 0, 0], atol=1e-12)
        np.testing.assert_allclose(jump.impulses["lock b"], -1, atol=1e-12)
        np.testing.assert_allclose(jump.free_momentum[1], jump.free_momentum[0], atol=1e-12)
        assert jump.result == jm.RESULTS.successful and jump.regular and abs(float(jump.loss) - 0.5) < 1e-12


# Units of time


@pytest.mark.slow
def test_units_of_time_change_nothing():
    """A timed lock, a lock by a guard and brakes, one on what hardly moves, in seconds, milliseconds and 1,000 s."""

    def force(t, q, v, p):
        return (jnp.array([0.0, 1.0, 0.5, 0.0]) - q * jnp.array([1.0, 2.0, 0.3, 0.0])) / p["s"] ** 2

    system = jm.System(tuple("abcd"), mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0, 1.0, 1.0])), force=force,
                       params={"s": 1.0})  # fmt: skip
    start = jm.assemble(system)

    @jax.jit
    @jax.vmap
    def run(s):
        events = [
            jm.Brake("a", sliding=3.0 / s**2, at=0.2 * s),
            jm.Lock("b", at=0.5 * s),
            jm.Lock("c", when=lambda t, q, v, reaction, p: q[2] - 0.2),
            jm.Brake("d", sliding=1.0 / s**2, at=0.1 * s),
        ]
        state = eqx.tree_at(lambda x: x.v, start, jnp.array([1.0, 0.5, 0.1, 5e-10]) / s)
        solution = jm.simulate(
            system.with_params({"s": s}), state, s * jnp.linspace(0.1, 1.2, 5), events=events, max_events=6, throw=False,
            solver=dfx.Dopri8(), stepsize_controller=dfx.PIDController(rtol=1e-11, atol=1e-15),
        )  # fmt: skip
        return solution.q, solution.v * s, solution.events.t / s, solution.events.happened, solution.result

    q, v, t, happened, result = run(jnp.array([1.0, 1e3, 1e-3]))
    assert bool((result == jm.RESULTS.successful).all())
    assert (happened == happened[0]).all() and happened[0].sum() == 5  # "brake d" does not rest later: it is at rest
    for found in (q, v, t):
        np.testing.assert_allclose(found[1], found[0], atol=1e-8)
        np.testing.assert_allclose(found[2], found[0], atol=1e-8)
    np.testing.assert_allclose(v[0, -1, [0, 1, 2, 3]], 0, atol=1e-9)
