"""Whether a run can be trusted: evidence of the result itself, against the thresholds of the library."""

import math
from collections.abc import Iterable

import jax
import numpy as np

from ..formulation import contradiction_tol
from ..foundations import (
    SUCCESS,
    as_jax,
    codes,
    contract,
    counted,
    default_float,
    expect_concrete,
    in_numpy,
    listing,
    positive_or_one,
    verdicts,
)
from ..kinematics import NEAR
from ..output import check_motion, energy
from ..reaction import ReactionReport, analyse_reactions
from ..simulation import Projection, Solution
from ..system import System
from .evidence import Evidence, RunCheck, Verdict
from .saved_states import Peak, SavedStates

# Errors relative to the motion that are below this power of eps, 6e-6 and in float32 5e-3, are no reason for concern: those of fifty to some
# hundred steps at the default tolerances, 1e-8 and 1e-4, come to that.
ACCURATE = 1 / 3
# An error that is a twentieth of what is measured is seen in any picture of the motion.
VISIBLE = 0.05
# Reactions are analysed at no more poses than that: one of each kind, by the rows that act and those that are redundant.
MOST_POSES = 8
NAN = math.nan
# Names of the evidence for constraints and for the motion, in their order.
POSITION, VELOCITY, ACCELERATION = "position residual", "velocity residual", "acceleration"
CORRECTIONS, REDUNDANCY, DISTANCE = "corrections", "redundant rows", "singular poses"
PASSAGES, REACTIONS, ENERGY, CONTINUITY = "passages", "reactions", "energy balance", "continuity"
OF_ROWS = (POSITION, VELOCITY, ACCELERATION, CORRECTIONS, REDUNDANCY, DISTANCE, PASSAGES)


@contract
def check(system: System, solution: Solution, *, reference: Solution | None = None) -> RunCheck:
    """Checks a run against the equations that it should solve, computed again at its saved states.

    Residuals φ/Φ and (C v + b)/(Φ Ω), the contradiction of C v̇ = Γ, the energy balance T + V − W, the distance of rows from being dependent,
    redundant rows and the reactions that are not determined because of them, the continuity of q between saved times, and steps. Each is compared
    with the threshold that the library itself uses; for energy and `reference`, for which it has none, 6e-6 (5e-3 in float32) asks for attention
    and 1/20 fails.

    Args:
        system: the system of the run; one for all runs of a batch.
        solution: the run, or a batch of runs, with known numbers.
        reference: the same run with tolerances ten times tighter, or by another solver; none by default.

    Returns:
        A `RunCheck`: `print` shows it as a table, `ok` tells whether nothing failed. For a batch each row is that of the worst run.

    Raises:
        TypeError: under a transformation of JAX, where numbers are not known.
        ValueError: for the motion of another system, and a reference with other times or of another system.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> sol = jm.simulate(system, jm.assemble(system, [-1.0, 0.0]), jnp.linspace(0, 1, 51))
        >>> found = jm.check(system, sol)
        >>> found.ok, found["redundant rows"].value
        (True, 0.0)
    """
    _check_arguments(system, solution, reference)
    saved = SavedStates.of(system, solution)
    evidence = [_result(solution, saved)]
    if saved.reached.any():
        evidence += _of_constraints(system, solution, saved)
        evidence += [_energy(system, solution, saved), _continuity(solution, saved)]
    else:
        evidence += [_not_asked(name, "no state was reached") for name in (*OF_ROWS, REACTIONS, ENERGY, CONTINUITY)]
    evidence += [_steps(solution, saved), _difference(solution, saved, reference)]
    times = (saved.ts.shape[1], float(saved.ts.min()), float(saved.ts.max()))
    return RunCheck(saved.axes, times, tuple(evidence))


def _check_arguments(system: System, solution: Solution, reference: Solution | None) -> None:
    for name, motion in (("solution", solution), ("reference", reference)):
        if motion is None:
            continue
        expect_concrete(system=system, **{name: motion})
        check_motion(system, motion)
    if reference is not None and not np.array_equal(*in_numpy(reference.ts, solution.ts)):
        raise ValueError("Argument `reference` must be saved at the times of `solution`, but has other ones.")


def _graded(value: float, attention: float, failed: float) -> tuple[float, Verdict]:
    """The threshold that a value was held against, and the verdict."""
    if not value <= failed:  # not a number: failed
        return failed, "failed"
    if value <= attention:
        return attention, "ok"
    return attention, "attention"


def _evidence(name: str, peak: Peak, limits: tuple[float, float], words: str) -> Evidence:
    threshold, verdict = _graded(peak.value, *limits)
    # What is zero everywhere is worst nowhere.
    where = (peak.run, peak.t) if peak.value else ((), NAN)
    return Evidence(name, peak.value, threshold, verdict, words, *where)


def _result(solution: Solution, saved: SavedStates) -> Evidence:
    """How the runs ended, in words."""
    results = codes(solution.result).ravel()
    failed = np.flatnonzero(results != int(codes(SUCCESS)))
    count, threshold = float(len(failed)), 0.0
    if not len(failed):
        return Evidence("result", count, threshold, "ok", "successful")
    first = int(failed[0])
    reached = saved.ts[first][saved.reached[first]]
    text = " ".join(verdicts()[int(results[first])][1].split())
    runs = f"{len(failed)} of {len(results)} runs failed: " if saved.axes else ""
    last = float(reached[-1]) if len(reached) else NAN
    return Evidence(
        name="result",
        value=count,
        threshold=threshold,
        verdict="failed",
        words=runs + text,
        run=saved.index(first),
        t=last,
    )


# Constraints


def _of_constraints(system: System, solution: Solution, saved: SavedStates) -> Iterable[Evidence]:
    reports = _reports(system, saved)
    reactions = _reactions(solution, saved, reports)
    if not saved.names:
        return [*(_not_asked(name, "the system has no constraints") for name in OF_ROWS), reactions]
    # Accepted after each step, and at the start of a run; the latter is far above rounding and far below any gap of consequence.
    precision = np.finfo(saved.q.dtype)
    limits = Projection().tolerance(precision.dtype), float(precision.eps) ** 0.5
    where, tolerance = saved.reached, contradiction_tol(precision.dtype)
    position, velocity, acceleration = (
        saved.peak(x, where) for x in (saved.position, saved.velocity, saved.contradiction)
    )
    of = lambda peak: f"'{saved.names[peak.entry]}'"
    return [
        _evidence(POSITION, position, limits, f"largest |φ|/Φ, of {of(position)}"),
        _evidence(VELOCITY, velocity, limits, f"largest |C v + b|/(Φ Ω), of {of(velocity)}"),
        _evidence(
            ACCELERATION,
            acceleration,
            (tolerance, tolerance),
            f"least |C v̇ − Γ| of any v̇, relative to its terms, of {of(acceleration)}",
        ),
        _corrections(system, solution, saved, limits),
        _redundancy(solution, saved, reports),
        _distance(saved),
        _passages(saved),
        reactions,
    ]


def _not_asked(name: str, reason: str) -> Evidence:
    return Evidence(name, NAN, NAN, "not asked", reason)


def _corrections(system: System, solution: Solution, saved: SavedStates, limits: tuple[float, float]) -> Evidence:
    """What corrections have left at accepted steps, which saved times may lie between."""
    rows = np.asarray(solution.stats["row_residuals"]).reshape(len(saved.ts), -1)
    parts = system.in_mode(solution.modes).rows.values()
    largest = np.stack([rows[:, part].max(axis=1, initial=0) for part in parts], axis=1)[:, None]
    peak = saved.peak(largest, np.ones(largest.shape[:2], bool))
    steps = Peak(peak.value, peak.run, NAN, peak.entry)
    return _evidence(
        CORRECTIONS, steps, limits, f"largest residual that a step has left, of '{saved.names[peak.entry]}'"
    )


def _reports(system: System, saved: SavedStates) -> dict[int, ReactionReport]:
    """Which reactions are determined at the pose nearest to a singular one, and at the most regular pose of each kind; by number of the state."""
    if not saved.names and system.joints is None:
        return {}
    distance, reached = saved.distance.ravel(), saved.reached.ravel()
    active = None if saved.flat.mode is None else np.asarray(saved.flat.mode.active)
    poses: dict[tuple[bytes, int], int] = {}
    for i in np.argsort(-distance, kind="stable"):
        kind = (b"" if active is None else active[i].tobytes(), int(saved.redundancy.flat[i]))
        if reached[i] and len(poses) < MOST_POSES:
            poses.setdefault(kind, int(i))
    nearest = int(np.argmin(np.where(reached, distance, np.inf)))
    state = lambda i: jax.tree.map(lambda x: as_jax(x[i]), saved.flat)
    return {i: analyse_reactions(system, state(i)) for i in dict.fromkeys([*poses.values(), nearest])}


def _redundancy(solution: Solution, saved: SavedStates, reports: dict[int, ReactionReport]) -> Evidence:
    """How many rows follow from others, and which constraints these belong to."""
    peak = saved.peak(saved.redundancy.astype(float), saved.reached)
    regular = [report for i, report in reports.items() if not saved.singular.flat[i]]
    shared = dict.fromkeys(
        name
        for report in regular or reports.values()
        for name, verdict in report.groups.items()
        if not verdict.multipliers_unique
    )
    lowest, highest = (
        int(f(np.asarray(solution.stats[k]))) for f, k in ((np.min, "lowest_rank"), (np.max, "highest_rank"))
    )
    ranks = f"rank {highest}" if lowest == highest else f"rank {lowest} to {highest}"
    words = (
        f"{ranks}, all rows independent"
        if not peak.value
        else f"{ranks}; rows depend on each other in {listing(shared)}"
    )
    # Redundant rows are no fault: what they leave open are reactions.
    return Evidence(
        name=REDUNDANCY,
        value=peak.value,
        threshold=NAN,
        verdict="ok",
        words=words,
        run=peak.run if peak.value else (),
        t=NAN,
    )


def _reactions(solution: Solution, saved: SavedStates, reports: dict[int, ReactionReport]) -> Evidence:
    """Reactions that a rigid model does not determine."""
    if not reports:
        return _not_asked(REACTIONS, "the system has no constraints")
    regular, singular = (
        dict.fromkeys(
            name
            for i, report in reports.items()
            if bool(saved.singular.flat[i]) == at_pose
            for name in report.groups
            if name not in report.unique
        )
        for at_pose in (False, True)
    )
    only = [name for name in singular if name not in regular]
    clauses = [f"not determined of {listing(regular)}"] if regular else []
    clauses += [f"at a singular pose not of {listing(only)}"] if only else []
    events = solution.events
    if events is not None and bool(np.any(np.asarray(events.doubtful))):
        clauses.append("an event was decided by one that is not determined")
    words = "; ".join(clauses) or "all are determined"
    return Evidence(REACTIONS, float(len(regular) + len(only)), 0.0, "attention" if clauses else "ok", words)


def _distance(saved: SavedStates) -> Evidence:
    """How near the saved states come to a pose where rows become dependent."""
    peak = saved.peak(-saved.distance, saved.reached)
    least = -peak.value
    words = "least remainder of a row beside the others, of 1 at most"
    return Evidence(
        name=DISTANCE,
        value=least,
        threshold=NEAR,
        verdict="ok" if least >= NEAR else "attention",
        words=words,
        run=peak.run,
        t=peak.t,
    )


def _passages(saved: SavedStates) -> Evidence:
    """How often rows become dependent at a saved state, or between two of them."""
    between = saved.turned & saved.resolved
    at_states = saved.singular & saved.reached
    met = at_states.copy()
    met[:, 1:] |= between
    counts = between.sum(axis=1) + at_states.sum(axis=1)
    run, count = int(np.argmax(counts)), int(counts.max())
    if not count:
        return Evidence(PASSAGES, 0.0, 0.0, "ok", f"no row has changed its sign{_unresolved(saved)}")
    words = f"through or close by singular poses, up to here for the first time{_unresolved(saved)}"
    first = float(saved.ts[run, int(np.argmax(met[run]))])
    return Evidence(
        name=PASSAGES,
        value=float(count),
        threshold=0.0,
        verdict="attention",
        words=words,
        run=saved.index(run),
        t=first,
    )


def _unresolved(saved: SavedStates) -> str:
    """How many intervals between saved times are too long to tell anything."""
    count, long = int(saved.following.sum()), int((saved.following & ~saved.resolved).sum())
    return f"; {long} of {counted(count, 'interval')} too long to tell" if long else ""


# Motion


def _energy(system: System, solution: Solution, saved: SavedStates) -> Evidence:
    """By how much energy is not that of the start and the work since."""
    energies = energy(system, solution)
    shape = saved.ts.shape
    balance, kinetic, potential, work = (
        np.asarray(x).reshape(shape) for x in (energies.balance, energies.kinetic, energies.potential, energies.work)
    )
    if saved.qdot.any() and not kinetic.any():
        return _not_asked(ENERGY, "without inertia no energy tells how exact work must be")
    largest = lambda x: np.max(np.abs(x), axis=1, keepdims=True, where=saved.reached, initial=0)
    # Kinetic energy counts from rest; the others have no zero of their own.
    size = np.maximum(largest(kinetic), np.maximum(*(largest(x - x[:, :1]) for x in (potential, work))))
    off = np.where(balance == 0, 0, np.abs(balance) / positive_or_one(size))
    words = "|T + V − W| less that of the start, relative to the largest of T, ΔV and ΔW"
    return _evidence(ENERGY, saved.peak(off, saved.reached), _accuracy(), words)


def _accuracy() -> tuple[float, float]:
    """What asks for attention, and what fails, of errors relative to the motion."""
    return float(np.finfo(default_float()).eps) ** ACCURATE, VISIBLE


def _continuity(solution: Solution, saved: SavedStates) -> Evidence:
    """Whether coordinates follow from their rates: a state of another branch does not."""
    name, resolved = CONTINUITY, saved.resolved
    if not resolved.any():
        return _not_asked(
            name,
            "saved times are too far apart to tell"
            if saved.following.any()
            else "no two saved states follow each other",
        )
    step = np.diff(saved.ts)[..., None]
    changes = np.abs(np.diff(saved.qdot, axis=1))
    # A move is h q̇ at some time between, and q̇ there within what it changes by here and in the intervals beside.
    beside = np.pad(np.where(saved.following[..., None], changes, 0), ((0, 0), (1, 1), (0, 0)))
    # Branches come closer than `NEAR` lengths only near singular poses, where steps look for jumps themselves. Coordinates that no row
    # determines have none: of these nothing is asked that their range would not explain.
    least = np.where(saved.reach > 0, NEAR * saved.reach, saved.extent)[:, 1:]
    admissible = step * (beside[:, :-2] + changes + beside[:, 2:]) + least
    off = np.abs(np.diff(saved.q, axis=1) - step * (saved.qdot[:, 1:] + saved.qdot[:, :-1]) / 2)
    jumps = np.where(off > 0, off / positive_or_one(admissible), 0)
    peak = saved.peak(jumps, resolved)
    words = f"largest jump, of '{_coordinate(solution, peak)}', in units of what rates explain{_unresolved(saved)}"
    return _evidence(name, peak, (1.0, 1.0), words)


def _coordinate(solution: Solution, peak: Peak) -> str:
    return str(peak.entry) if solution.names is None else solution.names.coordinates[peak.entry]


def _steps(solution: Solution, saved: SavedStates) -> Evidence:
    """How many steps were accepted and rejected."""
    accepted, rejected, compiled = (
        np.asarray(solution.stats[k]).reshape(len(saved.ts))
        for k in ("num_accepted_steps", "num_rejected_steps", "compiled_steps")
    )
    run = int(np.argmax(rejected - accepted))
    words = f"{int(rejected[run])} rejected, {int(accepted[run])} accepted; {int(compiled[run])} by compiled code"
    verdict: Verdict = "ok" if rejected[run] <= accepted[run] else "attention"
    return Evidence(
        name="steps",
        value=float(rejected[run]),
        threshold=float(accepted[run]),
        verdict=verdict,
        words=words,
        run=saved.index(run),
    )


def _difference(solution: Solution, saved: SavedStates, reference: Solution | None) -> Evidence:
    """How far another run of the same motion is off."""
    name = "reference"
    if reference is None:
        return _not_asked(name, "give `reference`, a run with tolerances ten times tighter")
    q = np.asarray(reference.q).reshape(saved.q.shape)
    both = saved.reached & np.isfinite(q).all(axis=-1)
    if not both.any():
        return _not_asked(name, "no time was reached by both")
    off = np.abs(saved.q - q)
    off = np.where(off > 0, off / positive_or_one(saved.extent), 0)
    peak = saved.peak(off, both)
    words = f"difference, of '{_coordinate(solution, peak)}', relative to how far it moves"
    evidence = _evidence(name, peak, _accuracy(), words)
    if _accepted(reference) <= _accepted(solution) and evidence.verdict == "ok":
        return Evidence(
            name, peak.value, NAN, "attention", f"{words}; it took no more steps: are its tolerances tighter?"
        )
    return evidence


def _accepted(solution: Solution) -> int:
    return int(np.asarray(solution.stats["num_accepted_steps"]).sum())
