"""Mechanisms that run in batches of many lanes at constant steps: four-bar, Andrews' squeezer, and an arm; each lane with a speed of its own."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
from jax.typing import ArrayLike
from problems import andrews_model, puma

import jaxmb as jm


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism whose lane 0 has a reference solution.

    Attributes:
        title: in a few words.
        build: makes the system and a state whose first joint turns at 1 rad/s.
        speeds: of the first joints at the start, first and last lane, in rad/s.
        step: in s.
        checked: steps after which lane 0 is compared.
        exact: the first joint's angle of lane 0 then, in rad.
    """

    title: str
    build: Callable[[], tuple[jm.System, jm.State]]
    speeds: tuple[float, float]
    step: float
    checked: int
    exact: float

    def velocities(self, unit: ArrayLike, lanes: int) -> np.ndarray:
        """Velocities (lanes, nv); at one pose they are proportional to those for 1 rad/s, `unit`."""
        return np.linspace(*self.speeds, lanes)[:, None] * np.asarray(unit)


def fourbar() -> tuple[jm.System, jm.State]:
    return problems.fourbar(1.0)


def andrews() -> tuple[jm.System, jm.State]:
    system, rest = andrews_model.build()
    turning = jnp.zeros(7).at[0].set(1.0)
    return system, jm.assemble(system, rest.q, turning, hold=["beta"], hold_velocity=["beta"])


def arm() -> tuple[jm.System, jm.State]:
    system = puma.puma().build()
    return system, puma.start(system)


CASES = {
    "four-bar": Case(
        title="three relative angles, two rows",
        build=fourbar,
        speeds=(12.0, 13.0),
        step=1e-3,
        checked=1000,
        exact=float(problems.reference("fourbar_blajer")["alpha_spin"][100, 0]),
    ),
    "Andrews": Case(
        title="seven angles, six rows",
        build=andrews,
        speeds=(0.0, 1.0),
        step=3e-5,
        checked=1000,
        exact=float(problems.reference("A03_andrews_ivp")["Y"][-1, 0]),
    ),
    "Puma": Case(
        title="six angles, falling freely",
        build=arm,
        speeds=(1.0, 1.1),
        step=3e-4,
        checked=1000,
        exact=0.2394109758987,  # Newton's and Euler's equations by DOP853 at 1e-13
    ),
}


def constant_steps(step: float) -> dict[str, Any]:
    """Settings of runs at constant steps.

    At such short steps one correction brings the residual to rounding; the default of three is for steps as long as they can be.
    """
    return dict(
        drift=jm.Projection(iterations=1), dt0=step, stepsize_controller=dfx.ConstantStepSize(), max_steps=100_000
    )


@dataclasses.dataclass(frozen=True)
class Batch:
    """All lanes of a case in one program, compiled when it is first needed; of each lane what is read off its solution.

    Attributes:
        case: the mechanism and its starts.
        lanes: how many.
        settings: of `simulate`.
        read: what is kept of a solution.
    """

    case: Case
    lanes: int
    settings: dict[str, Any]
    read: Callable[[jm.Solution], Any]

    def __call__(self, duration: float) -> Any:
        """Runs for a duration in s."""
        program, v = self.program
        return program(v, jnp.asarray(duration, v.dtype))

    @functools.cached_property
    def program(self) -> tuple[Any, jax.Array]:
        """The compiled program and the velocities at the start."""
        system, state = self.case.build()
        v = jnp.asarray(self.case.velocities(state.v, self.lanes), state.v.dtype)

        def run(v, end):
            start = eqx.tree_at(lambda s: s.v, state, v)
            return self.read(jm.simulate(system, start, end[None], throw=False, **self.settings))

        lowered = jax.jit(jax.vmap(run, in_axes=(0, None))).lower(v, jnp.zeros((), v.dtype))
        return lowered.compile(compiler_options=jm.compiler_options()), v

    @property
    def bytes(self) -> int:
        """Memory that the program takes: what goes in, what comes out, and what is needed between."""
        found = self.program[0].memory_analysis()
        return found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
