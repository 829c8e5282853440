"""A check of a gradient tells right ones from wrong ones, and why."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.foundations import both_ways
from jaxmb.reaction import ReactionReport
from jaxmb.simulation import Solution
from jaxmb.simulation.segments import Events
from jaxmb.system import Scale
from jaxmb.verification import Evidence, RunCheck, SearchCheck
from jaxmb.verification.run import _continuity, _difference, _reactions
from jaxmb.verification.saved_states import SavedStates, _eventful


@jax.custom_vjp
def wrong(x):
    return jnp.sum(x**2)


wrong.defvjp(lambda x: (wrong(x), x), lambda x, bar: (3 * bar * x,))


@pytest.mark.parametrize(
    ("fn", "at", "reason"),
    [
        (lambda p: jnp.sin(p["a"]) * jnp.sum(p["b"] ** 2), {"a": 0.3, "b": np.array([1.0, -2.0])}, ""),
        (
            lambda p: jnp.sum(p[0]) + 0 * jnp.sum(p[1]),
            (1e9 * np.ones(3), 1e-9 * np.ones(2)),
            "",
        ),  # units, and a slope of zero
        (lambda x: jnp.abs(x - 1e-4), np.array(1e-4), "a kink"),
        (wrong, np.array([2.0, 1.0]), "is not that of the values"),
        (lambda x: jnp.where(x > 1.0, x, 0.0), np.array(1.0), "values jump or are noisy"),
        (lambda x: jnp.sqrt(x - 1), np.array(1.0), "the derivative is not finite"),
        (jnp.log, np.array(-1.0), "no finite value here"),
        (lambda x: jnp.where(x < 1.05, x, jnp.nan), np.array(1.0), ""),  # smaller steps do
        (lambda x: jnp.where(x <= 1.0, x, jnp.nan), np.array(1.0), "no finite value nearby"),
        (lambda x: eqx.error_if(x, x > 1.0, "the loop stays open"), np.array(1.0), "no finite value nearby"),
    ],
)
def test_verdicts(fn, at, reason):
    found = jm.check_gradient(fn, at)
    assert found.agrees == (reason == "") and all(reason in x.reason for x in found.directions)
    assert ("agrees" if found.agrees else "DISAGREES") in str(found)


def test_the_array_of_a_wrong_derivative_is_named():
    found = jm.check_gradient(lambda p: jnp.sin(p["a"]) + wrong(p["b"]), {"a": 0.3, "b": np.array([1.0, 2.0])})
    assert {x.name: x.agrees for x in found.directions} == {
        "all 1": False,
        "all 2": False,
        "['a']": True,
        "['b']": False,
    }
    assert "custom_vjp" in found.without_forward and all(x.forward is None for x in found.directions)


def test_modes_that_differ():
    @jax.custom_jvp
    def square(x):
        return x**2

    @square.defjvp
    def _(primals, dots):
        slope = lambda factor: lambda x, dot: [factor * x[0] * dot[0]]
        return square(*primals), both_ways(slope(3.0), slope(2.0), primals, dots, primals, "")[0]

    found = jm.check_gradient(square, 2.0)
    assert all(x.reason == "reverse and forward mode differ" for x in found.directions)


@pytest.mark.parametrize(("off", "agrees"), [(0.0, True), (1e-8, True), (1e-4, False)])
def test_at_a_minimum_derivatives_are_held_against_how_fast_the_slope_changes(off, agrees):
    """(x − 1)² of which the derivative is off, by what the tolerance of a run leaves, and by more."""

    @jax.custom_jvp
    def fn(x):
        return (x - 1.0) ** 2

    fn.defjvp(lambda x, dot: (fn(*x), (2 * (x[0] - 1.0) + off) * dot[0]))
    found = jm.check_gradient(fn, 1.0)
    assert found.agrees == agrees
    assert {x.reason for x in found.directions} == ({""} if agrees else {"the derivative is not that of the values"})


def row_of(name, verdict):
    return Evidence(name, 0.5, 0.1, verdict, f"words of {name}", t=2.0)


def test_the_evidence_for_a_search_in_few_lines():
    """What is well is one line; what is not is named by experiment, row and parameter."""
    good = RunCheck((2,), (3, 0.0, 1.0), (row_of("energy", "ok"),))
    bad = RunCheck((1,), (3, 0.0, 1.0), (row_of("energy", "failed"), row_of("steps", "ok")))
    right = jm.check_gradient(lambda p: jnp.sum(p["k"]), {"k": np.ones(2)}, directions=1)
    sound = SearchCheck((("a", "b"),), (good,), right)
    assert sound.ok and str(sound).splitlines() == [
        "Check of 2 runs, 3 times from 0 to 1 s: ok ('a' and 'b')",
        "Gradient along 2 directions: agrees with values",
    ]
    spoilt = SearchCheck((("a",), ("b",)), (good, bad), jm.check_gradient(wrong, np.ones(2), directions=1))
    assert not spoilt.ok and "failed, see 'energy' ('b')\n  energy: words of energy (t = 2 s)\n" in str(spoilt)
    assert "DISAGREES with values\n  all 1: the derivative is not that of the values" in str(spoilt)
    fields = json.loads(spoilt.to_json())
    assert fields["experiments"] == [["a"], ["b"]] and fields["runs"][1]["evidence"][0]["verdict"] == "failed"
    held = SearchCheck((("a",),), (good,), None)
    assert held.ok and "bounds hold all parameters" in str(held)


def made_up(following=True, turning=0.0, event=None, doubtful=False):
    """A run of one coordinate at 0, 1, 2 and 3 s, perhaps with an event, and what constraints see of it."""
    ts, q, one = np.arange(4.0), np.array([[0.0], [0.1], [0.2], [0.3]]), np.ones((1, 4))
    scale = Scale(jnp.ones(1), jnp.ones(1), jnp.ones(1), jnp.ones(1), jnp.ones(()))
    arrays = jnp.asarray(ts), jnp.asarray(q), 0.1 * jnp.ones((4, 1)), jnp.zeros(4), None
    run = Solution(*arrays, scale, {}, None, jm.RESULTS.successful, None, None)
    if event is not None:
        states = jax.tree.map(lambda x: x[:2], run.states)
        at, mask = jnp.array([event, jnp.nan]), jnp.array([[True], [False]])
        told = jnp.array([doubtful, False])
        run = dataclasses.replace(
            run, events=Events(("hit",), jnp.array(1), at, mask, states, states, {}, jnp.zeros(2), told)
        )
    saved = SavedStates(
        axes=(),
        names=("rod",),
        ts=ts[None],
        reached=one > 0,
        following=np.full((1, 3), following),
        q=q[None],
        qdot=0.1 * one[..., None],
        reach=one[..., None],
        extent=one[..., None],
        position=0.0 * one[..., None],
        velocity=0.0 * one[..., None],
        contradiction=0.0 * one[..., None],
        redundancy=np.zeros((1, 4), int),
        singular=one < 0,
        distance=one,
        turning=turning * one,
        turned=np.zeros((1, 3), bool),
        flat=run.states,
    )
    return run, saved


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"following": False}, "no two saved states follow each other"),
        ({"turning": 3.0}, "saved times are too far apart to tell"),
    ],
)
def test_of_states_too_far_apart_continuity_is_not_asked(how, words):
    found = _continuity(*made_up(**how))
    assert found.verdict == "not asked" and found.words == words
    near = _continuity(*made_up())  # q = 0.1 t with its rate
    assert near.verdict == "ok" and near.value == pytest.approx(0.0, abs=1e-12)


def test_a_reference_that_got_nowhere_tells_nothing():
    run, saved = made_up()
    nowhere = dataclasses.replace(run, q=jnp.full((4, 1), jnp.nan))
    assert _difference(run, saved, nowhere).words == "no time was reached by both"


@pytest.mark.parametrize("at", [0.5, 1.0, 2.5])
def test_an_event_lies_before_the_state_that_is_saved_at_its_time(at):
    run, saved = made_up(event=at)
    assert _eventful(run, saved.ts).tolist() == [[at <= 1, False, at > 2]]


def test_events_decided_by_reactions_that_are_not_determined_ask_for_attention():
    report = ReactionReport(0.0, 1, 1, 0, "qr", 1e-8, (1.0, 0.0), {}, ())
    for doubtful, verdict in ((False, "ok"), (True, "attention")):
        found = _reactions(*made_up(event=0.5, doubtful=doubtful), {0: report})
        assert found.verdict == verdict and ("an event was decided by one" in found.words) == doubtful


def test_arguments():
    with pytest.raises(ValueError, match="`at` must hold floating-point numbers"):
        jm.check_gradient(jnp.sum, np.arange(3))
    with pytest.raises(ValueError, match=r"`fn` must return an array of shape \(\), but returns"):
        jm.check_gradient(lambda x: 2 * x, np.ones(3))


@pytest.mark.slow
def test_a_run_has_the_gradient_of_its_values():
    """Reverse mode over the tape, forward mode, and differences; the mass of a pendulum changes nothing."""
    system = jm.System(
        2,
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * p["g"] * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - p["l"] ** 2)],
        params={"m": 2.0, "g": 9.81, "l": 1.0},
    )

    def end(params):
        varied = system.with_params(params)
        return jm.simulate(varied, jm.assemble(varied, [-0.8, -0.6]), jnp.array([1.0])).q[-1, 0]

    found = jm.check_gradient(end, dict(system.params))
    assert found.agrees, str(found)
    assert all(abs(x.reverse - x.forward) <= 1e-11 * abs(x.reverse) + 1e-14 for x in found.directions)


def test_differences_know_the_noise_of_values():
    """A slope that is small beside its function: equal slopes at small steps are a chance of rounding, and no sign of exactness."""
    found = jm.check_gradient(lambda p: 1e-4 * jnp.sin(p) + 0.5, 1.0, directions=6)
    for x in found.directions:
        assert x.agrees and x.digits > 9
        assert abs(x.reverse - x.difference) <= 10 * x.uncertainty
