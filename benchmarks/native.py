"""Compiled steps beside plain ones, and beside MuJoCo on one core: microseconds per step and lane at one constant step.

    python benchmarks/native.py [--small | --full]

Each lane has a speed of its own. Derivatives are those of the last coordinates by all numbers of the system and by the velocities at the
start, in reverse mode, the run itself included.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import equinox as eqx
import jax
import jax.numpy as jnp
from lanes import CASES, Case, constant_steps
from throughput import mujoco

import jaxmb as jm

LANES = {"small": (1,), "default": (1, 4096), "full": (1, 64, 512, 4096, 65_536)}
NAMES = {"small": ("four-bar",), "default": tuple(CASES), "full": tuple(CASES)}
MOST = 512  # lanes with derivatives
STEPS = 1000  # alone, a fiftieth of it in batches; what a run of three times as many takes longer is counted


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Runs side by side, with derivatives or without, by compiled steps or plain ones."""

    case: Case
    lanes: int
    native: bool
    derivatives: bool

    def __call__(self, steps: int) -> Any:
        """Runs so many steps."""
        program, v = self.program
        return program(v, jnp.asarray(steps * self.case.step, v.dtype))

    @functools.cached_property
    def program(self) -> tuple[Callable[..., Any], jax.Array]:
        """The compiled program and the velocities at the start; one lane alone is no batch."""
        system, state = self.case.build()
        v = jnp.asarray(self.case.velocities(state.v, self.lanes), state.v.dtype)
        numbers, rest = eqx.partition(system.params, eqx.is_inexact_array)

        def run(numbers, v, end):
            own = system.with_params(eqx.combine(numbers, rest))
            start, method = eqx.tree_at(lambda s: s.v, state, v), constant_steps(self.case.step)
            return jnp.sum(jm.simulate(own, start, end[None], native=self.native, throw=False, **method).q[-1])

        each = jax.value_and_grad(run, (0, 1)) if self.derivatives else run
        fn = functools.partial(each, numbers)
        v, fn = (v[0], fn) if self.lanes == 1 else (v, jax.vmap(fn, in_axes=(0, None)))
        lowered = jax.jit(fn).lower(v, jnp.zeros((), v.dtype))
        return lowered.compile(compiler_options=jm.compiler_options()), v


def candidates(name: str, lanes: int, derivatives: bool) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Ways to do the same."""
    case = CASES[name]
    yield "jaxmb, compiled", Lanes(case, lanes, True, derivatives)
    yield "jaxmb, plain", Lanes(case, lanes, False, derivatives)
    if not derivatives and common.installed("mujoco"):
        yield "MuJoCo C, one core", next(mujoco(case, name, lanes)).call


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    given, started, rows = common.arguments("native", __doc__ or ""), time.perf_counter(), []
    for name in NAMES[given.size]:
        for what, most in (("run", LANES[given.size][-1]), ("value and gradient", MOST)):
            for lanes in (n for n in LANES[given.size] if n <= most):
                ways = dict(candidates(name, lanes, what != "run"))
                count = STEPS if lanes == 1 else STEPS // 50
                runs = {(e, n): functools.partial(call, n * count) for e, call in ways.items() for n in (1, 3)}
                found = common.in_alternation(runs, 5)
                for engine in ways:
                    short, long = found[engine, 1], found[engine, 3]
                    each = 1e6 * (long.median - short.median) / (2 * count * lanes)
                    labels = dict(mechanism=name, what=what, engine=engine, lanes=lanes)
                    rows.append(labels | dict(us_per_step_and_lane=each) | short.row())
    print(common.table(rows, ("mechanism", "what", "engine", "lanes", "us_per_step_and_lane", "first_s")))
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
