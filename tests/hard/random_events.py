"""random events: random mechanisms whose joints are locked, released and braked on the way, against the dense integrator."""

import dataclasses
from collections import Counter

import diffrax as dfx
import numpy as np

import jaxmb as jm
from hard.built import Units, measured, mechanism_of, poses_of, seen
from hard.random_mechanisms import ABSOLUTE
from hard.reference import Unsolved, corrected_velocity
from hard.reference_events import Happening, Hinge, Switched
from hard.row import Figure, cpu_time, none_of
from hard.rows import model_of
from hard.topologies import TOPOLOGIES

DRAWS = 8  # of each topology
TIMES = np.array([0.0, 0.15, 0.35, 0.55, 0.65, 0.8, 1.0])
TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)
ACCURACY = 1e-6  # of poses in units of the links' lengths, and of energies lost in units of those
KINDS = ("lock", "locks", "at once", "release", "brake", "braked and locked", "guard", "guard and release")


def happenings(kind, one, other, rng, mass, way):
    """Of one joint, and another one, which may be the same."""
    lock, force, reach = (
        lambda joint, at: Happening("lock", joint, at),
        mass * 10 ** rng.uniform(-1.5, 0.7),
        10 ** rng.uniform(-2, -0.3),
    )
    brake, guard = Happening("brake", one, 0.2, force), Happening("lock", one, way=reach * way)
    return {
        "lock": [lock(one, 0.4)],
        "locks": [lock(one, 0.3), lock(other, 0.6)],
        "at once": [lock(one, 0.3), lock(other, 0.3)],
        "release": [lock(one, 0.3), lock(other, 0.5), Happening("release", one, 0.7)],
        "brake": [brake],
        "braked and locked": [brake, lock(other, 0.5)],
        "guard": [guard],
        "guard and release": [guard, Happening("release", one, 0.8)],
    }[kind][: None if one != other else 1]


@dataclasses.dataclass
class Start:
    """A drawn mechanism with a state on its constraints, what happens to it, its motion and the energy lost by the reference; None without one."""

    case: object
    model: object
    y: np.ndarray
    u: np.ndarray
    kind: str
    happenings: list
    units: Units
    path: list | None
    lost: float


def drawn(topology, draw, seed):
    """One mechanism; None if no joint of it can be locked."""
    number = list(TOPOLOGIES).index(topology)
    rng = np.random.default_rng([seed, number, draw])
    case = TOPOLOGIES[topology](rng).case
    driven = {joint for joint, _ in case.drives}
    hinges = [i for i, c in enumerate(case.connections) if c.kind in ("Revolute", "Prismatic") and i not in driven]
    if not hinges or min(link.mass for link in case.links) <= 0:
        return None
    model, y = model_of(case)
    u = corrected_velocity(model, 0.0, y, 2 * case.speed * rng.normal(size=model.n * len(model.columns)))
    one, *rest = (int(i) for i in rng.permutation(hinges))
    kind = KINDS[(draw + number) % len(KINDS)]
    way = np.sign(Hinge(case, model, one).rate(y) @ u)
    what = happenings(kind, one, rest[0] if rest else one, rng, np.mean([link.mass for link in case.links]), way)
    units, motion = (
        Units(*10.0 ** rng.choice([-6, 0, 6], 3)) if draw % 2 else Units(),
        Switched(case, model, y, u, what),
    )
    try:
        path = motion.run(TIMES)
    except Unsolved:
        path = None
    return Start(case, model, y, u, kind, what, units, path, motion.lost)


def events_of(start, system, q):
    """The same by the package, in its units."""
    units, events = start.units, []
    for h in start.happenings:
        joint, turns = f"j{h.joint}", start.case.connections[h.joint].kind == "Revolute"
        at = None if h.at is None else units.time * h.at
        length = 1.0 if turns else units.length
        if h.kind == "release":
            events.append(jm.Release(f"held {h.joint}", at=at))
        elif h.kind == "brake":
            events.append(jm.Brake(joint, units.mass * units.length**2 / units.time**2 / length * h.force, at=at))
        elif h.at is not None:
            events.append(jm.Lock(joint, at=at, name=f"held {h.joint}"))
        else:
            k = system.coordinates.index(joint)
            gone = lambda t, q, v, reaction, p, k=k, h=h, first=q[k], length=length: (
                np.sign(h.way) * (q[k] - first) / length - abs(h.way)
            )
            events.append(jm.Lock(joint, when=gone, name=f"held {h.joint}"))
    return events


def attempt(start, build):
    """The verdict on a run by the package, and words."""
    units, case = start.units, start.case
    try:
        system = mechanism_of(case, units).build(build)
        if not {f"j{h.joint}" for h in start.happenings if h.at is None} <= set(system.coordinates):
            return "no reference", "of a guard outside the tree"
        q, v = measured(system, *poses_of(case, start.model, start.y, start.u, units))
        options = {"events": events_of(start, system, np.asarray(q)), "stepsize_controller": TIGHT, "max_steps": 20_000}
        solution = jm.simulate(system, jm.as_state(system, q, v), units.time * TIMES, throw=False, **options)
    except Exception as error:  # whatever it is, it is counted
        return "raised", f"{type(error).__name__}: {error}"[:300]
    if solution.result != jm.RESULTS.successful:
        return "told", jm.RESULTS[solution.result]
    poses = np.array(seen(system, solution.states))
    poses[..., : case.dim, case.dim] /= units.length
    expected = np.stack([poses_of(case, start.model, *state)[0][1:] for state in start.path])
    error, energy = np.abs(poses - expected).max(), units.mass * (units.length / units.time) ** 2
    lost = abs(float(np.nansum(solution.events.loss)) / energy - start.lost)
    right = error <= ACCURACY and lost <= ACCURACY * max(1.0, start.lost)
    return "right" if right else "wrong and successful", f"error {error:.1e}, energy lost off by {lost:.1e}"


def figures(share, seed):
    """The row's figures."""
    result, number = [], Counter()
    with cpu_time(result):
        for topology in TOPOLOGIES:
            for draw in range(max(1, round(DRAWS * share))):
                start = drawn(topology, draw, seed)
                if start is None:
                    continue
                for build in ("relative", "absolute") if topology in ABSOLUTE and draw % 4 == 0 else ("relative",):
                    verdict, words = attempt(start, build) if start.path is not None else ("no reference", "")
                    number[verdict] += 1
                    if verdict not in ("right", "no reference"):
                        print(
                            f"random events {topology} {draw} {start.kind} {build} {start.units}: {verdict}. {words}",
                            flush=True,
                        )
        row, total = "random events", number.total() - number["no reference"]
        result += [
            Figure(row, f"runs of random mechanisms, {len(KINDS)} kinds of events, that are right", "any", f"{number['right']}", total, True),
            none_of(row, "wrong, or not finite, and successful", number["wrong and successful"], total),
            none_of(row, "that raise an error", number["raised"], total),
            Figure(row, "told to have failed", "any", f"{number['told']}", total, True),
        ]  # fmt: skip
    return result
