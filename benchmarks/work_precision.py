"""Accuracy against time on A01 to A05: formulations, solvers and tolerances of jaxmb beside Exudyn and MuJoCo.

    taskset -c 0 python benchmarks/work_precision.py [--small | --full]

The error is that of the answer at the end of the motion; the time is the median of later calls, all candidates of a problem in
alternation. Peers that are not installed are left out, and the results say so.
"""

import dataclasses
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
import problems
from problems import PROBLEMS, Problem, governor

import jaxmb as jm

# Errors at which candidates are compared, in the unit of the answer.
EQUAL = {"A01": 1e-8, "A02": 1e-6, "A03": 1e-6, "A04": 1e-8, "A05": 1e-8}
TOLERANCES = {
    "small": (1e-4, 1e-8),
    "default": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11),
}
TOLERANCES["full"] = (*TOLERANCES["default"], 1e-12)
EXPLICIT_OF_STIFF = (1e-4, 1e-6, 1e-8)  # steps that are bound by stability do not depend on the tolerance
DOUBLED = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)
STEPS = {"small": (1000,), "default": DOUBLED, "full": (*DOUBLED, 128_000, 256_000)}
STEPS_OF_STIFF = {"small": (40_000,), "default": (40_000, 50_000), "full": (40_000, 50_000, 100_000, 200_000)}
RATIOS = {"small": (1.0,), "default": (0.1, 0.3, 1.0, 2.0), "full": (0.1, 0.3, 1.0, 2.0)}
NAMES = {"small": ("A01", "A03"), "default": tuple(PROBLEMS), "full": tuple(PROBLEMS)}
ROUNDS = {"small": 1, "default": 3, "full": 5}
GAUSS = {"GaussProjection": jm.formulation.GaussProjection()}
FORMULATIONS = {"small": GAUSS, "default": GAUSS, "full": problems.FORMULATIONS}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to the answer.

    Attributes:
        engine: who.
        method: how.
        setting: the step or the tolerance.
        call: goes through the motion.
        read: the answer, and the number of steps, from what the call returned.
    """

    engine: str
    method: str
    setting: str
    call: Callable[[], Any]
    read: Callable[[Any], tuple[Any, int]]


def jaxmb(name: str, size: str) -> Iterator[Candidate]:
    """Formulations × solvers × tolerances; relative coordinates beside absolute ones where there are two builds."""
    builds = {"": PROBLEMS[name]} | ({", relative": problems.RELATIVE[name]} if name in problems.RELATIVE else {})
    formulations = GAUSS if name == "A05" else FORMULATIONS[size]  # A05 is a tree: without rows all are one
    for suffix, problem in builds.items():
        for label, formulation in formulations.items():
            for solver in (dfx.Tsit5(), dfx.Dopri8()):
                for tolerance in EXPLICIT_OF_STIFF if name == "A05" else TOLERANCES[size]:
                    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
                    settings = dict(formulation=formulation, solver=solver, stepsize_controller=controller)
                    settings["max_steps"] = 40_000 if name == "A05" else 10_000
                    yield run(problem, f"{label}, {type(solver).__name__}{suffix}", tolerance, settings)
    for tolerance in TOLERANCES[size] if name == "A05" else ():
        if tolerance >= 1e-9:
            yield run(PROBLEMS[name], "Kvaerno5 with Chord", tolerance, governor.implicit(tolerance))


def run(problem: Problem, method: str, tolerance: float, settings: dict[str, Any]) -> Candidate:
    """A run of jaxmb, as a user calls it: with the checks of its arguments."""
    system, state = problem.built()
    call = lambda: jm.simulate(system, state, jnp.array([problem.end]), throw=False, **settings)
    read = lambda found: (problem.answer(system, found), int(found.stats["num_steps"]))
    return Candidate("jaxmb", method, f"rtol = atol = {tolerance:.0e}", call, read)


def mujoco(name: str, size: str) -> Iterator[Candidate]:
    """RK4 with loops as soft as MuJoCo leaves them, and stiff ones; for the stiff tree its implicit integrator, too."""
    models = importlib.import_module("mujoco_models")
    problem, model = PROBLEMS[name], models.MODELS[name]()
    stiff = {f", stiff loop, ratio {ratio:g}": ratio for ratio in RATIOS[size]}
    loops = {"": None} if name in ("A01", "A05") else {", default loop": None} | stiff
    for integrator in ("RK4", "implicit") if name == "A05" else ("RK4",):
        for suffix, ratio in loops.items():
            for steps in STEPS_OF_STIFF[size] if name == "A05" else STEPS[size]:
                call = model.run(problem.end / steps, steps, ratio, integrator)
                yield at_constant_steps("MuJoCo", integrator + suffix, problem, steps, call)


def exudyn(name: str, size: str) -> Iterator[Candidate]:
    """Both implicit solvers; of A05 as a tree also explicit ones, which take no constraints."""
    models = importlib.import_module("exudyn_models")
    problem, model = PROBLEMS[name], models.MODELS[name]()
    runs = [(model, solver, "", STEPS[size]) for solver in ("GeneralizedAlpha", "TrapezoidalIndex2")]
    if name == "A05":
        tree = models.governor_tree()
        runs += [(tree, solver, ", tree", STEPS_OF_STIFF[size]) for solver in ("RK44", "RK67")]
        runs += [(tree, "GeneralizedAlpha", ", tree", STEPS[size])]
    for built, solver, suffix, sweep in runs:
        for steps in sweep:
            yield at_constant_steps("Exudyn", solver + suffix, problem, steps, built.run(solver, steps))


def at_constant_steps(engine: str, method: str, problem: Problem, steps: int, call: Callable[[], Any]) -> Candidate:
    """A run of a peer, whose call gives the answer itself."""
    return Candidate(engine, method, f"h = {problem.end / steps:.2e} s", call, lambda answer: (answer, steps))


ENGINES = {"jaxmb": jaxmb, "MuJoCo": mujoco, "Exudyn": exudyn}


def measured(name: str, size: str) -> list[dict[str, Any]]:
    """All candidates of a problem, one row each."""
    engines = [make for engine, make in ENGINES.items() if engine == "jaxmb" or common.installed(engine.lower())]
    candidates = [candidate for make in engines for candidate in make(name, size)]
    found = common.in_alternation({i: candidate.call for i, candidate in enumerate(candidates)}, ROUNDS[size])
    rows = []
    for candidate, timing in zip(candidates, found.values(), strict=True):
        answer, steps = candidate.read(timing.value)
        labels = dict(problem=name, engine=candidate.engine, method=candidate.method, setting=candidate.setting)
        rows.append(labels | dict(error=PROBLEMS[name].error(answer), steps=steps) | timing.row())
    return rows


def at_equal_error(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Of each engine the quickest run with at most the error of the problem; where there is none, its most accurate run."""
    chosen = []
    for engine in ENGINES:
        own = [row for row in rows if row["problem"] == name and row["engine"] == engine and row["error"] is not None]
        good = [row for row in own if row["error"] <= EQUAL[name]]
        if own:
            best = min(good, key=lambda row: row["median_s"]) if good else min(own, key=lambda row: row["error"])
            keys = ("problem", "engine", "method", "setting", "steps", "error", "median_s")
            chosen.append({key: best[key] for key in keys} | {"wanted": EQUAL[name], "reached": bool(good)})
    return chosen


def main() -> None:
    given = common.arguments("work_precision", __doc__)
    jax.config.update("jax_enable_x64", True)
    started, rows, equal = time.perf_counter(), [], []
    for name in NAMES[given.size]:
        rows += measured(name, given.size)
        equal += at_equal_error(rows, name)
        own = [row for row in rows if row["problem"] == name]
        print(f"\n{name}: {PROBLEMS[name].title}, error in {PROBLEMS[name].unit}\n{common.table(own)}", flush=True)
    print(f"\nThe quickest run of each engine with at most the error that is wanted\n{common.table(equal)}")
    common.write(given.output, rows, started, given.size, at_equal_error=equal)


if __name__ == "__main__":
    main()
