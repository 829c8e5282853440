"""Mechanisms that run in batches of many lanes at constant steps: the four-bar and Andrews' squeezer, each lane with a speed of its own."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
from jax.typing import ArrayLike
from problems import andrews_model

import jaxmb as jm


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism whose lane 0 has a reference solution.

    Attributes:
        title: in a few words.
        build: makes the system and a state whose crank turns at 1 rad/s.
        speeds: of the cranks at the start, first and last lane, in rad/s.
        step: in s.
        checked: steps after which lane 0 is compared.
        exact: the crank's angle of lane 0 then, in rad.
    """

    title: str
    build: Callable[[], tuple[jm.System, jm.State]]
    speeds: tuple[float, float]
    step: float
    checked: int
    exact: float

    def velocities(self, unit: ArrayLike, lanes: int) -> np.ndarray:
        """Velocities (lanes, nv); at one pose they are proportional to the crank's speed `unit`."""
        return np.linspace(*self.speeds, lanes)[:, None] * np.asarray(unit)


def fourbar() -> tuple[jm.System, jm.State]:
    return problems.fourbar(1.0)


def andrews() -> tuple[jm.System, jm.State]:
    system, rest = andrews_model.build()
    turning = jnp.zeros(7).at[0].set(1.0)
    return system, jm.assemble(system, rest.q, turning, hold=["beta"], hold_velocity=["beta"])


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
}


def constant_steps(step: float) -> dict[str, Any]:
    """Settings of runs at constant steps.

    At such short steps one correction brings the residual to rounding; the default of three is for steps as long as they can be.
    """
    return dict(
        drift=jm.Projection(iterations=1), dt0=step, stepsize_controller=dfx.ConstantStepSize(), max_steps=100_000
    )


def runner(
    case: Case, lanes: int, settings: dict[str, Any], read: Callable[[jm.Solution], Any]
) -> Callable[[float], Any]:
    """A compiled function of the duration in s: all lanes, of each what is read off its solution."""
    system, state = case.build()
    dtype = state.q.dtype
    v = jnp.asarray(case.velocities(state.v, lanes), dtype)

    def run(v, end):
        start = eqx.tree_at(lambda s: s.v, state, v)
        return read(jm.simulate(system, start, end[None], throw=False, **settings))

    compiled = jax.jit(jax.vmap(run, in_axes=(0, None)), compiler_options=jm.compiler_options())
    return lambda duration: compiled(v, jnp.asarray(duration, dtype))
