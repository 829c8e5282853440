"""Every formulation on the same problems: error at the end against time per step.

    taskset -c 0 python benchmarks/formulations.py [--small | --full]

Each motion is integrated with the same solver and tolerance (Dopri8, 1e-10); times are medians of later calls, in alternation.
"""

import dataclasses
import functools
import time
from typing import Any

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
from problems import FORMULATIONS, PROBLEMS, Problem, reference, slider_crank

import jaxmb as jm

TOLERANCE = 1e-10
ROUNDS = 5


def crank() -> tuple[jm.System, jm.State]:
    system = slider_crank.slider_crank()
    return system, jm.assemble(system, [0.0, 0.0], [5.0, -10.0], hold_velocity=["q1"])


def three_loops() -> tuple[jm.System, jm.State]:
    """A slider-crank of no special lengths whose loop is closed three times, in other units."""
    loop = lambda t, q, p: jnp.stack([jnp.sin(q[0]) + 1.7 * jnp.sin(q[0] + q[1])])
    system = jm.System(
        ("q1", "q2"),
        mass=lambda t, q, p: slider_crank.mass(t, q, {"m": 1.0, "l": 1.0}),
        potential=lambda t, q, p: 9.81 * jnp.sin(q[0]),
        constraints=[jm.Holonomic(f"slider {f}", lambda t, q, p, f=f: f * loop(t, q, p)) for f in (1.0, 1e3, 1e-3)],
    )
    return system, jm.assemble(system, [0.3, -0.5], [2.0, 0.0], hold=["q1"], hold_velocity=["q1"])


def cases() -> dict[str, Problem]:
    """The problems; the answer of the last by `KKT` at 1e-13."""
    angle = dict(end=10.0, unit="rad", answer=lambda system, found: found.q[-1, 0])
    known = reference("slidercrank_singular")["q1_spin"][-1]
    thrice = Problem("slider-crank, its loop closed three times", exact=0.0, build=three_loops, **angle)
    exact = float(run(thrice, jm.formulation.KKT(), 1e-13).q[-1, 0])
    return {name: PROBLEMS[name] for name in ("A01", "A02", "A03", "A04")} | {
        "slider-crank": Problem(
            "slider-crank with equal links, eight singular passages", exact=known, build=crank, **angle
        ),
        "three loops": dataclasses.replace(thrice, exact=exact),
    }


def run(problem: Problem, formulation: jm.formulation.AbstractFormulation, tolerance: float = TOLERANCE) -> jm.Solution:
    """The motion, saved at its end."""
    system, state = problem.built()
    return jm.simulate(
        system,
        state,
        jnp.array([problem.end]),
        formulation=formulation,
        solver=dfx.Dopri8(),
        stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
        throw=False,
    )


def measured(name: str, problem: Problem) -> list[dict[str, Any]]:
    """One row for each formulation."""
    system, _ = problem.built()
    calls = {label: functools.partial(run, problem, formulation) for label, formulation in FORMULATIONS.items()}
    rows = []
    for label, timing in common.in_alternation(calls, ROUNDS).items():
        found = timing.value
        steps = int(found.stats["num_steps"])
        labels = dict(problem=name, formulation=label, error=problem.error(problem.answer(system, found)), steps=steps)
        verdict = "" if bool(found.result == jm.RESULTS.successful) else jm.RESULTS[found.result]
        rows.append(labels | dict(us_per_step=1e6 * timing.median / steps) | timing.row() | dict(failed=verdict))
    for row in rows:
        row["relative"] = row["us_per_step"] / rows[0]["us_per_step"]
    return rows


def main() -> None:
    given = common.arguments("formulations", __doc__)
    jax.config.update("jax_enable_x64", True)
    started, rows = time.perf_counter(), []
    for name, problem in cases().items() if given.size != "small" else [("A01", PROBLEMS["A01"])]:
        found = measured(name, problem)
        print(f"\n{name}: {problem.title}, error in {problem.unit}\n{common.table(found)}", flush=True)
        rows += found
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
