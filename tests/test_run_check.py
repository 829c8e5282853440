"""A run's evidence: sound runs have it, and what is wrong with others is told by name and time."""

import json
import xml.etree.ElementTree

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slider_crank
from fourbar_model import LENGTHS
from systems import SYSTEMS, TELLING, make

import jaxmb as jm

TS = jnp.linspace(0.0, 1.0, 51)
AT = 25  # where runs are spoilt


@pytest.fixture(scope="module")
def system():
    return SYSTEMS["four-bar"]()[0]


@pytest.fixture(scope="module")
def run(system):
    """A function from the tolerance to a run of the four-bar."""

    start = jm.assemble(system, *SYSTEMS["four-bar"]()[1])

    def run(tolerance):
        steps = dfx.PIDController(rtol=tolerance, atol=1e-2 * tolerance)
        return jm.simulate(system, start, TS, stepsize_controller=steps, max_steps=400, throw=False)

    return run


@pytest.fixture(scope="module")
def sound(run):
    return run(1e-8)


@pytest.fixture(scope="module")
def failed(run):
    """One that needs more steps than it may take."""
    return run(1e-13)


def verdicts(check):
    return {x.name: x.verdict for x in check.evidence}


def spoilt(solution, q=None, v=None):
    """With other numbers from the middle on."""
    for read, change in ((lambda s: s.q, q), (lambda s: s.v, v)):
        if change is not None:
            solution = eqx.tree_at(read, solution, replace_fn=lambda x, change=change: x.at[AT:].set(change(x[AT:])))
    return solution


def mirrored(q):
    """Coupler and rocker on the other side of the line between crank pin and ground."""
    angles = np.cumsum(np.asarray(q), axis=1)
    along = lambda k: LENGTHS[k] * np.stack([np.sin(angles[:, k]), np.cos(angles[:, k])], axis=1)
    line = np.array([1.0, 0.0]) - along(0)
    line /= np.linalg.norm(line, axis=1, keepdims=True)
    reflected = [2 * np.sum(along(k) * line, axis=1, keepdims=True) * line - along(k) for k in (1, 2)]
    turned = [angles[:, 0], *(np.arctan2(*x.T) for x in reflected)]
    return jnp.stack([turned[0], turned[1] - turned[0], turned[2] - turned[1]], axis=1)


def test_a_sound_run_has_all_the_evidence(system, sound):
    check = jm.check(system, sound)
    expected = {x.name: "ok" for x in check.evidence} | {"reference": "not asked"}
    assert check.ok and check.verdict == "ok" and verdicts(check) == expected
    assert check["position residual"].value < 1e-13 and 0.02 < check["singular poses"].value < 1
    assert check["steps"].threshold == int(sound.stats["num_accepted_steps"])
    assert check["energy balance"].value == pytest.approx(largest_imbalance(system, sound), rel=1e-12)


def largest_imbalance(system, solution):
    energy = jm.energy(system, solution)
    size = max(float(jnp.max(energy.kinetic)), float(jnp.ptp(energy.potential)))
    assert jnp.abs(energy.potential - energy.potential[0]).max() <= size
    return float(jnp.max(jnp.abs(energy.balance))) / size


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (dict(q=lambda q: q.at[0, 0].add(1e-9)), {"position residual": "attention"}),
        (dict(q=lambda q: q.at[0, 0].add(1e-6)), {"position residual": "failed"}),
        (dict(v=lambda v: v.at[0, 0].add(1e-6)), {"velocity residual": "failed"}),
        (dict(v=lambda v: 1.0001 * v), {"energy balance": "attention"}),
        (dict(v=lambda v: 1.1 * v), {"energy balance": "failed", "continuity": "failed"}),
        (
            dict(q=mirrored),
            {
                "continuity": "failed",
                "energy balance": "failed",
                "velocity residual": "failed",
                "passages": "attention",
            },
        ),
    ],
    ids=["off by little", "off", "fast", "energy by little", "energy", "mirrored"],
)
def test_what_is_spoilt_is_named(system, sound, change, expected):
    check = jm.check(system, spoilt(sound, **change))
    wrong = {x.name: x.verdict for x in check.evidence if x.verdict in ("attention", "failed")}
    assert expected.items() <= wrong.items() and check.ok == ("failed" not in wrong.values())
    first = check[next(iter(expected))]
    at = float(sound.ts[AT])
    assert first.t == at if "residual" in first.name or first.name == "continuity" else first.t >= at
    assert "loop" in first.words or "residual" not in first.name
    # The mirrored states hold the constraints.
    assert wrong.keys() == expected.keys()


def test_a_failed_run_says_why_and_how_far_it_came(system, failed):
    check = jm.check(system, failed)
    reached = float(failed.ts[np.isfinite(failed.q[:, 0])][-1])
    assert check.verdict == "failed" and failed.ts[0] < reached < failed.ts[-1]
    assert check["result"].t == reached and "max_steps" in check["result"].words
    assert {k for k, x in verdicts(check).items() if x == "failed"} == {"result"}
    nothing = eqx.tree_at(lambda s: (s.q, s.v), failed, (jnp.nan * failed.q, jnp.nan * failed.v))
    assert verdicts(jm.check(system, nothing))["energy balance"] == "not asked"


@pytest.fixture(scope="module")
def batch(failed, sound):
    """A sound run, one that failed, one that is off, and the first once more, in two rows."""
    runs = [sound, failed, spoilt(sound, q=lambda q: q.at[0, 0].add(1e-6)), sound]
    return jax.tree.map(lambda *x: jnp.stack(x).reshape(2, 2, *x[0].shape), *runs)


def test_a_batch_is_judged_by_its_worst_run(system, sound, batch):
    check = jm.check(system, batch)
    result, residual = check["result"], check["position residual"]
    assert (result.value, result.run, result.verdict) == (1, (0, 1), "failed")
    assert (residual.run, residual.verdict, residual.t) == ((1, 0), "failed", sound.ts[AT])
    assert {k for k, x in verdicts(check).items() if x == "failed"} == {"result", "position residual"}
    alone = jm.check(system, sound)
    assert check["singular poses"].value <= alone["singular poses"].value
    assert "4 runs" in str(check) and "run 1, 0, t = 0.5 s" in str(check) and "1 of 4 runs failed" in str(check)


def test_a_reference_tells_how_far_a_loose_run_is_off(system, run, sound):
    tight, loose = run(1e-9), run(1e-4)
    assert jm.check(system, sound, reference=tight)["reference"].verdict == "ok"
    of_loose = jm.check(system, loose, reference=sound)
    assert of_loose["reference"].verdict in ("attention", "failed")
    assert of_loose["reference"].value > 100 * jm.check(system, sound, reference=tight)["reference"].value
    assert of_loose["energy balance"].verdict == "attention" and of_loose["position residual"].verdict == "ok"
    assert "no more steps" in jm.check(system, sound, reference=sound)["reference"].words


def rod(t, q, p):
    return q @ q - p["l"] ** 2


@pytest.fixture(scope="module")
def redundant():
    """A pendulum whose rod is stated twice."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * p["g"] * q[1],
        constraints=[jm.Holonomic("rod", rod), jm.Holonomic("again", lambda t, q, p: 1e3 * rod(t, q, p))],
        params={"m": 2.0, "l": 1.0, "g": 9.81},
    )


def of_pendulum(system, length=1.0, mass=1.0, time=1.0):
    """The check of a run in units of length, mass and time."""
    system = system.with_params({"m": 2.0 * mass, "l": length, "g": 9.81 * length / time**2})
    start = jm.as_state(system, length * np.array([-0.8, -0.6]))
    return jm.check(system, jm.simulate(system, start, time * TS))


def test_redundant_rows_and_the_reactions_that_they_leave_open(redundant):
    check = of_pendulum(redundant)
    assert check.ok and check.verdict == "attention"
    assert check["redundant rows"].value == 1 and check["redundant rows"].verdict == "ok"
    assert check["redundant rows"].words.endswith("'rod' and 'again'")
    assert check["reactions"].verdict == "attention" and check["reactions"].words.endswith("'rod' and 'again'")
    assert {k for k, x in verdicts(check).items() if x == "attention"} == {"reactions"}


def test_units_change_no_verdict(redundant):
    metres, others = of_pendulum(redundant), of_pendulum(redundant, length=1e3, mass=1e6, time=1e3)
    assert verdicts(metres) == verdicts(others)
    for name in ("singular poses", "energy balance", "steps"):
        assert others[name].value == pytest.approx(metres[name].value, rel=1e-3)
    assert others["continuity"].value == pytest.approx(metres["continuity"].value, rel=1e-3)


def folding(ts):
    """A slider-crank of equal links in a motion that folds it, as the solution of a run; nothing drives it so."""
    system, angle = slider_crank.slider_crank(), 0.3 + 5 * ts
    q, v = jnp.stack([angle, 2 * jnp.pi - 2 * angle], axis=1), jnp.tile(jnp.array([5.0, -10.0]), (len(ts), 1))
    counts = ("num_steps", "num_accepted_steps", "num_rejected_steps", "compiled_steps", "lowest_rank", "highest_rank")
    stats = {name: jnp.array(1) for name in counts} | {"row_residuals": jnp.zeros(1)}
    scale, done = jm.as_state(system, q[0], v[0]).scale, jm.RESULTS.successful
    return system, jm.Solution(ts, q, v, jnp.zeros(len(ts)), None, scale, stats, None, done, None, None)


@pytest.mark.slow
def test_singular_poses_are_told_at_saved_states_and_between():
    """The only row of a slider-crank of equal links vanishes where they lie on each other."""
    system, solution = folding(jnp.linspace(0.0, 0.4, 31))
    between = jm.check(system, solution)["passages"]
    crank = solution.q[int(np.argmin(np.abs(solution.ts - between.t))) - 1 :, 0]
    assert between.value == 1 and crank[0] < np.pi / 2 <= crank[1]
    at_pose = jm.check(system, folding(jnp.linspace(0.0, (np.pi - 0.6) / 5, 31))[1])
    assert at_pose["passages"].value == 1 and at_pose["passages"].t == pytest.approx((np.pi / 2 - 0.3) / 5)
    assert at_pose["singular poses"].value == 0 and at_pose["singular poses"].verdict == "attention"
    too_far = jm.check(system, folding(jnp.linspace(0.0, 9.0, 31))[1])
    assert too_far["continuity"].verdict == "not asked" and "30 of 30 intervals too long" in too_far["passages"].words


@pytest.mark.slow
def test_a_run_through_a_singular_pose():
    system, start = slider_crank.slider_crank(), ([0.0, 0.0], [5.0, -10.0])
    check = jm.check(system, jm.simulate(system, jm.assemble(system, *start), TS))
    assert check.ok and check["passages"].value == 1, str(check)
    assert {k for k, x in verdicts(check).items() if x == "attention"} == {"passages", "singular poses"}


def test_json_and_html_are_well_formed(system, batch):
    check = jm.check(system, batch)
    record = json.loads(check.to_json(), parse_constant=lambda x: pytest.fail(x))
    assert record["ok"] is False and record["axes"] == [2, 2] and record["times"] == [51, 0.0, 1.0]
    assert [x["name"] for x in record["evidence"]] == [x.name for x in check.evidence]
    assert record["evidence"][-1]["value"] is None and record["evidence"][0]["run"] == [0, 1]
    odd = jm.verification.Evidence("<b> & 'c'", np.inf, 1.0, "failed", '"words"')
    page = jm.RunCheck((), (1, 0.0, 0.0), (odd,))
    assert xml.etree.ElementTree.fromstring(page._repr_html_()).text == str(page)
    assert "<b> & 'c'" in str(page) and "http" not in check._repr_html_()
    assert json.loads(page.to_json())["evidence"][0]["value"] is None


def test_arguments(system, sound, redundant):
    with pytest.raises(ValueError, match="The motion must be one of `system`"):
        jm.check(redundant, sound)
    with pytest.raises(TypeError, match="Argument `solution` must be a Solution"):
        jm.check(system, sound.state(0))
    with pytest.raises(ValueError, match="`reference` must be saved at the times of `solution`"):
        jm.check(system, sound, reference=jax.tree.map(lambda x: x[:-1] if x.shape[:1] == TS.shape else x, sound))
    with pytest.raises(TypeError, match="`solution` must hold known numbers"):
        jax.jit(lambda q: jm.check(system, eqx.tree_at(lambda s: s.q, sound, q)).evidence[0].value)(sound.q)
    with pytest.raises(KeyError, match="'result', 'position residual'"):
        jm.check(system, sound)["no such"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [x for x in SYSTEMS if x in TELLING])
def test_no_sound_run_fails(name):
    system, start = make(name)
    check = jm.check(system, jm.simulate(system, start, start.t + TS))
    assert check.ok and verdicts(check)["continuity"] in ("ok", "not asked"), str(check)
    assert {k for k, x in verdicts(check).items() if x == "attention"} <= {"reactions"}, str(check)


@pytest.mark.slow
def test_rows_of_locks_are_constraints():
    plane = jm.planar
    rods = [plane.Body.rod("upper", mass=1.0, length=1.0), plane.Body.rod("lower", mass=0.5, length=0.8)]
    joints = [plane.Revolute("shoulder", "ground", "upper.a"), plane.Revolute("elbow", "upper.b", "lower.a")]
    system = plane.Mechanism(rods, joints, gravity=(0.0, -9.81)).build()
    events = [jm.Lock("elbow", at=0.5)]
    check = jm.check(system, jm.simulate(system, jm.assemble(system, {"shoulder": 0.3}), TS, events=events))
    assert check.verdict == "ok" and "lock elbow" in check["position residual"].words
    assert check["redundant rows"].words.startswith("rank 0 to 1")
    assert check["continuity"].value < 0.1  # the rate jumps at the event


@pytest.mark.slow
def test_single_precision_has_thresholds_of_its_own():
    with jax.enable_x64(False):
        system, _ = SYSTEMS["four-bar"]()
        start = jm.assemble(system, [0.3, 1.1, 1.7], [1.0, 0.0, 0.0])
        check = jm.check(system, jm.simulate(system, start, jnp.linspace(0.0, 1.0, 51)))
    assert check.verdict == "ok", str(check)
    assert check["position residual"].threshold == pytest.approx(2.42e-5, rel=0.01)
