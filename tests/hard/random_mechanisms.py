"""mechanisms: random mechanisms by the builders, in both kinds of coordinates, against the dense integrator."""

import dataclasses
import time
from collections import Counter

import numpy as np

import jaxmb as jm
from hard.built import Units, formulation_of, measured, mechanism_of, poses_of, seen
from hard.reference import apart_after, corrected_velocity, motion
from hard.row import Figure, cpu_time, none_of
from hard.rows import model_of
from hard.topologies import TOPOLOGIES

DRAWS = 24  # of each topology; times its builds
DURATION = 2.0  # in units of √(length/gravity): a few swings
TIMES = np.linspace(0.0, DURATION, 5)
ACCURACY = 1e-6  # of poses in units of the links' lengths, a hundred times the default tolerance
ENERGY = 1e-6  # of the balance, relative to the largest kinetic energy and the unit of energy
RIGHT = 0.99
NEAR = 1e-3  # of rows of length 1, where `simulate` begins to treat a pose as singular
CHAOS = 1e3  # growth of a difference after which the default tolerance does not leave five digits
UNIT = 1024.0  # of lengths in others: by a power of two, so that both runs round alike and differ by nothing but what knows the unit
SAME = 1e-12  # of poses in other units
HANG = 300.0  # s of CPU time for one run, compilation included
# Where all joints are constraints, kinds of joints tell, not large mechanisms: these are built in absolute coordinates too.
ABSOLUTE = (
    *("fourbar", "slider_crank", "parallelogram", "parallel_hinges", "rssr", "light_fourbar", "massless_fourbar"),
    *("slots", "sleigh", "wheel", "stewart"),
)


@dataclasses.dataclass
class Start:
    """A drawn mechanism with a state on its constraints, and its motion by the reference."""

    topology: str
    draw: int
    case: object
    model: object
    y: np.ndarray
    u: np.ndarray
    path: list | None
    units: Units

    def hard(self):
        """Whether the reference itself says that the motion is near a singular pose, or that nothing can be foretold."""
        growth, least = apart_after(self.model, self.y, self.u, TIMES, np.random.default_rng(0))
        return growth, least < NEAR or growth > CHAOS


@dataclasses.dataclass
class Verdict:
    """What became of a run."""

    start: Start
    build: str
    verdict: str
    words: str = ""
    error: float = 0.0
    energy: float = 0.0
    units: str = ""


def drawn(topology, draw, seed):
    """One mechanism, the same for a number and a seed whatever else is drawn."""
    rng = np.random.default_rng([seed, list(TOPOLOGIES).index(topology), draw])
    case = TOPOLOGIES[topology](rng).case
    model, y = model_of(case)
    u = corrected_velocity(model, 0.0, y, case.speed * rng.normal(size=model.n * len(model.columns)))
    units = Units(*10.0 ** rng.choice([-6, 0, 6], 3)) if draw % 2 else Units()
    return Start(topology, draw, case, model, y, u, motion(model, y, u, TIMES), units)


def run(start, build):
    """A motion by the package, and the poses of bodies in units of the drawn ones."""
    system = mechanism_of(start.case, start.units).build(build)
    poses, rates = poses_of(start.case, start.model, start.y, start.u, start.units)
    state = jm.as_state(system, *measured(system, poses, rates))
    times = start.units.time * TIMES
    solution = jm.simulate(system, state, times, formulation=formulation_of(start.case), throw=False)
    poses = np.array(seen(system, solution.states))
    poses[..., : start.case.dim, start.case.dim] /= start.units.length
    return system, solution, poses


def attempt(start, build):
    """The verdict on one run by the package."""
    clock = time.process_time()
    try:
        system, solution, poses = run(start, build)
        told = solution.result != jm.RESULTS.successful
        energy = jm.energy(system, solution)
    except Exception as error:  # whatever it is, it is counted
        named = isinstance(error, ValueError) and "Argument" in str(error)
        return judged(start, build, "told" if named else "crash", f"{type(error).__name__}: {error}"[:300])
    if time.process_time() - clock > HANG:
        return Verdict(start, build, "hang", f"{time.process_time() - clock:.0f} s")
    if bool(told):
        return judged(start, build, "told", jm.RESULTS[solution.result])
    return compared(start, build, poses, energy)


def same_in_other_units(start, build):
    """Whether lengths in units 1,024 times as small change neither poses nor the number of steps; else in words."""
    smaller = dataclasses.replace(start.units, length=UNIT * start.units.length)
    _, one, poses = run(start, build)
    _, other, same = run(dataclasses.replace(start, units=smaller), build)
    apart, steps = np.abs(poses - same).max(), [int(x.stats["num_steps"]) for x in (one, other)]
    alike = other.result == jm.RESULTS.successful and steps[0] == steps[1]
    if alike and (apart <= SAME or apart <= SAME * start.hard()[0]):
        return ""
    return f"poses {apart:.1e}, {steps[0]} and {steps[1]} steps, {jm.RESULTS[other.result]}"


def judged(start, build, verdict, words):
    """A run that was refused or has failed: hard, if the reference finds it hard too."""
    if verdict == "told":
        verdict = "told" if start.hard()[1] else "told, not hard"
    return Verdict(start, build, verdict, words)


def compared(start, build, poses, balance):
    """A run that calls itself successful, beside the reference."""
    if not np.isfinite(poses).all():
        return Verdict(start, build, "silent NaN")
    unit = start.units
    expected = np.stack([poses_of(start.case, start.model, *state)[0][1:] for state in start.path])
    error = float(np.abs(poses - expected).max())
    least = unit.mass * (unit.length / unit.time) ** 2
    energy = float(np.abs(balance.balance).max() / max(np.asarray(balance.kinetic).max(), least))
    verdict, words = "right", ""
    if error > ACCURACY:
        growth, _ = start.hard()
        rough = motion(start.model, start.y, start.u, TIMES, 1e-9)
        doubt = (
            np.inf
            if rough is None
            else max(np.abs(a - b).max() for a, b in zip(rough[-1], start.path[-1], strict=True))
        )
        words = f"error {error:.1e}, growth {growth:.1e}, reference in doubt by {doubt:.1e}"
        bound = ACCURACY * max(1.0, growth)
        verdict = "right" if error <= bound else ("in doubt" if doubt > 0.1 * error else "wrong and successful")
    return Verdict(start, build, verdict, words, error, energy)


def builds_of(topology):
    """The kinds of coordinates that a mechanism is built in."""
    return ("relative", "absolute") if topology in ABSOLUTE else ("relative",)


def verdicts(topologies, count, seed, report=None):
    """All runs; `report` sees each verdict that is not "right"."""
    for topology in topologies:
        for draw in range(count):
            start = drawn(topology, draw, seed)
            for build in builds_of(topology):
                found = attempt(start, build) if start.path is not None else Verdict(start, build, "no reference")
                if found.verdict == "right":
                    found.units = same_in_other_units(start, build)
                if report and (found.verdict != "right" or found.units):
                    report(found)
                yield found


def line(verdict):
    """One verdict in words."""
    start = verdict.start
    return f"{start.topology} {start.draw} {verdict.build} {start.units}: {verdict.verdict}. {verdict.words}{verdict.units}"


def figures(share, seed):
    """The row's figures. A share has fewer draws, and below a tenth fewer topologies."""
    names = list(TOPOLOGIES)[: len(TOPOLOGIES) if share >= 0.1 else 3]
    result = []
    with cpu_time(result):
        report = lambda verdict: print("mechanisms", line(verdict), flush=True)
        result += counted(list(verdicts(names, max(2, round(DRAWS * share)), seed, report)))
    return result


def counted(found):
    """Figures of verdicts."""
    kinds = len({v.start.topology for v in found})
    number, right = Counter(v.verdict for v in found), [v for v in found if v.verdict == "right"]
    unbalanced = sum(v.energy > ENERGY for v in right)
    unknown = number["in doubt"] + number["no reference"]
    total = len(found) - number["no reference"]
    none = lambda what, key: none_of("mechanisms", what, number[key], total)
    what, enough = f"runs of random mechanisms, {kinds} kinds, that are right", len(right) >= RIGHT * total
    return [
        Figure("mechanisms", what, f"≥ {RIGHT:.0%}", f"{len(right)}", total, enough),
        none("wrong and successful", "wrong and successful"),
        none("crash: an error that names no argument", "crash"),
        none(f"hang: more than {HANG:.0f} s of CPU time", "hang"),
        none("not finite and successful", "silent NaN"),
        none("told to have failed, though the reference finds nothing hard", "told, not hard"),
        Figure("mechanisms", "told to have failed, and hard by the reference", "any", f"{number['told']}", total, True),
        none_of("mechanisms", "right, and the energy off by a millionth", unbalanced, len(right)),
        none_of(
            "mechanisms",
            f"right, and in other units poses off by {SAME:g}, or another number of steps",
            sum(v.units != "" for v in right),
            len(right),
        ),
        Figure("mechanisms", "the reference does not know", "any", f"{unknown}", len(found), True),
    ]
