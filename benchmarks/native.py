"""Compiled steps beside plain ones, beside MuJoCo on one core, and beside the four-bar in C by hand: microseconds per step and lane at one constant step.

    python benchmarks/native.py [--small | --full]

Each lane has a speed of its own. A gradient is that of the sum of the last coordinates by all numbers of the system and by the velocities at the
start, in reverse mode, a Jacobian that of the last coordinates by the first four numbers, in forward mode; both with the run itself.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from ceiling import by_hand
from jax.flatten_util import ravel_pytree
from lanes import CASES, Case, constant_steps
from throughput import mujoco

import jaxmb as jm

LANES = {"small": (1,), "default": (1, 4096), "full": (1, 64, 512, 4096, 65_536)}
NAMES = {"small": ("four-bar",), "default": tuple(CASES), "full": tuple(CASES)}
RUN, GRADIENT, JACOBIAN = "run", "value and gradient", "Jacobian, forward"
MOST = 512  # lanes with derivatives
STEPS = 1000  # alone, a fiftieth of it in batches; what a run of three times as many takes longer is counted


def steps_of(lanes: int) -> int:
    """How many steps the shorter run has."""
    return STEPS if lanes == 1 else STEPS // 50


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Runs side by side, with derivatives or without (`what`), by compiled steps or plain ones."""

    case: Case
    lanes: int
    native: bool
    what: str

    def __call__(self, steps: int) -> Any:
        """Runs so many steps."""
        program, v = self.program
        return program(v, jnp.asarray(steps * self.case.step, v.dtype))

    @functools.cached_property
    def program(self) -> tuple[Callable[..., Any], jax.Array]:
        """The compiled program and the velocities at the start; one lane alone is no batch."""
        system, state = self.case.build()
        v = jnp.asarray(self.case.velocities(state.v, self.lanes), state.v.dtype)
        numbers, rest = eqx.partition(jax.tree.map(jnp.asarray, system.params), eqx.is_inexact_array)
        flat, unravel = ravel_pytree(numbers)
        forward = dfx.ForwardMode() if self.what == JACOBIAN else None
        method = constant_steps(self.case.step) | dict(
            max_steps=4 * steps_of(self.lanes)
        )  # the tape has room for so many

        def run(first, v, end):
            own = system.with_params(eqx.combine(unravel(flat.at[: first.size].set(first)), rest))
            start = eqx.tree_at(lambda s: s.v, state, v)
            options = dict(engine=jm.Compiled() if self.native else jm.XLA(), adjoint=forward, throw=False) | method
            return jm.simulate(own, start, end[None], **options).q[-1]

        total = lambda *at: jnp.sum(run(*at))
        each = {RUN: run, GRADIENT: jax.value_and_grad(total, (0, 1)), JACOBIAN: jax.jacfwd(run)}[self.what]
        fn = functools.partial(each, flat[:4] if self.what == JACOBIAN else flat)
        v, fn = (v[0], fn) if self.lanes == 1 else (v, jax.vmap(fn, in_axes=(0, None)))
        lowered = jax.jit(fn).lower(v, jnp.zeros((), v.dtype))
        return lowered.compile(compiler_options=jm.compiler_options()), v


def candidates(name: str, lanes: int, what: str) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Ways to do the same."""
    case = CASES[name]
    yield "jaxmb, compiled", Lanes(case, lanes, True, what)
    yield "jaxmb, plain", Lanes(case, lanes, False, what)
    if what == RUN and common.installed("mujoco"):
        yield "MuJoCo C, one core", next(mujoco(case, name, lanes)).call
    if what == RUN and name == "four-bar" and (hand := by_hand(case, lanes)):
        yield "C by hand, one core", hand


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    given, started, rows = common.arguments("native", __doc__ or ""), time.perf_counter(), []
    for name in NAMES[given.size]:
        for what, most in ((RUN, LANES[given.size][-1]), (GRADIENT, MOST), (JACOBIAN, MOST)):
            for lanes in sorted({min(n, most) for n in LANES[given.size]}):
                ways = dict(candidates(name, lanes, what))
                count = steps_of(lanes)
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
