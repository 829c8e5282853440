"""From unknowns to residuals."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..foundations import RESULTS, calling
from ..mechanism import AbstractMechanism
from ..simulation import Solution, simulate
from ..system import State, System, in_turn
from .parameter import Unknowns
from .residuals import AbstractResiduals
from .shot import Shot, over_shots
from .start import independent_values, state_with
from .target import Setup

# With so few unknowns a gradient is found in forward mode: a pass of reverse mode costs about four runs.
FORWARD_LIMIT = 4
DerivativeMode = Literal["forward", "reverse"]


class Runs(eqx.Module):
    """What the runs of all experiments share.

    Attributes:
        model: a mechanism, or a system, with its nominal numbers.
        build: from a model to a system.
        unknowns: the parameters.
        options: of `simulate`.
    """

    model: PyTree
    build: Callable[[PyTree], System] = eqx.field(static=True)
    unknowns: Unknowns
    options: dict[str, PyTree]

    def setup(self, shot: Shot, x: Float[Array, " n"]) -> Setup:
        """The shot's setup with the parameters of a vector."""
        setup = Setup(self.model, shot.control, shot.events)
        return self.unknowns.applied(setup, self.unknowns.values(x))

    def system(self, setup: Setup) -> System:
        """The system of a setup."""
        with calling("build"):
            system: Any = self.build(setup.model)
        if not isinstance(system, System):
            raise TypeError(f"Argument `build` must return a System, but returns a {type(system).__name__}.")
        return system

    def run(
        self, shot: Shot, x: Float[Array, " n"], start: Float[Array, " s"], forward: bool = False
    ) -> tuple[System, Solution]:
        """The run of a shot with these parameters and independent coordinates and velocities at its start.

        Where it fails the result of the solution says so.
        """
        setup = self.setup(shot, x)
        system, state, is_consistent = self.system(setup), shot.start, True
        if shot.reassembled:
            state, is_consistent = state_with(system, state, shot.independents, start)
        solution = simulate(
            system,
            state,
            shot.ts,
            control=setup.control,
            events=setup.events,
            # With its value beside it a derivative in forward mode makes one run by this adjoint, by default two.
            adjoint=dfx.ForwardMode() if forward else None,
            throw=False,
            **self.options,
        )
        # A run's own failure says more than that of its start; only where it has none the start's counts.
        failed = RESULTS.where(solution.result == RESULTS.successful, RESULTS.inconsistent_state, solution.result)
        return system, dataclasses.replace(solution, result=RESULTS.where(is_consistent, solution.result, failed))


def build_system(model: PyTree) -> System:
    """The system of a model, with the joints' relative coordinates where it is a mechanism."""
    return model.build() if isinstance(model, AbstractMechanism) else model


def nominal_start(shot: Shot) -> Float[Array, "... s"]:
    """The independent coordinates and velocities at the nominal start."""
    return independent_values(shot.start, shot.independents)


class Problem(AbstractResiduals):
    """Residuals of all experiments as a function of all unknowns y: parameters, then starts and biases, over their scales.

    Attributes:
        runs: what the runs share.
        groups: the shots.
        scale, low, high: scales and bounds (N,) of the unknowns; of the parameters 1, since they are scaled themselves.
        forward: whether Jacobians are found in forward mode.
        bounded: whether any unknown has a bound.
    """

    runs: Runs
    groups: tuple[Shot, ...]
    scale: Float[Array, " N"]
    low: Float[Array, " N"]
    high: Float[Array, " N"]
    forward: bool = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Number of residuals R, those of missing samples included."""
        return sum(sum(x.values.size for x in group.channels) + group.following.size for group in self.groups)

    @property
    def shots(self) -> int:
        """Number of runs."""
        return sum(group.ts.shape[0] for group in self.groups)

    @property
    def count(self) -> int:
        """The number of parameters n, which come first."""
        return self.runs.unknowns.scale.shape[0]

    @property
    def size(self) -> int:
        """Number of all unknowns N."""
        return self.scale.shape[0]

    def for_gradient(self, mode: DerivativeMode | None) -> "Problem":
        """With a mode, "forward" or "reverse", for the gradient of one number; by default the cheaper one."""
        return dataclasses.replace(self, forward=self.size <= FORWARD_LIMIT if mode is None else mode == "forward")

    def start(self, group: Shot, shot: int, y: Float[Array, " N"]) -> State:
        """The state at the start of a shot of a group."""
        one, z = group[shot], self._arguments(group, y)[shot]
        if not one.reassembled:
            return one.start
        system = self.runs.system(self.runs.setup(one, z[: self.count]))
        return state_with(system, one.start, one.independents, z[self.count :])[0]

    def solutions(self, group: Shot, y: Float[Array, " N"]) -> tuple[System, Solution]:
        """The system of a group of shots, and their runs along a leading axis."""
        run = lambda shot, z: self.runs.run(shot, z[: self.count], z[self.count :])[1]
        system = self.runs.system(self.runs.setup(group[0], (y * self.scale)[: self.count]))
        return system, over_shots(run, group, self._arguments(group, y))

    def residuals(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], RESULTS]:
        """Residuals, NaN where a run fails, and the result of each shot."""
        rows, results = [], []
        for group in self.groups:
            head, tail, result = over_shots(self._predicted, group, self._arguments(group, y))
            rows += self._compared(group, y, head, tail)
            results.append(result)
        return jnp.concatenate(rows), concatenated(results)

    def linear(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], Float[Array, "R N"], RESULTS]:
        """Residuals, their Jacobian, and the result of each shot."""
        residuals, rows, results = [], [], []
        for group in self.groups:
            of = self._arguments(group, y)

            def both(shot: Shot, z: Array) -> Any:
                def outputs(z: Array) -> Any:
                    head, tail, result = self._predicted(shot, z)
                    return (head, tail), (head, tail, result)

                # The values come along with the Jacobian, so that no run is made twice.
                return (jax.jacfwd if self.forward else jax.jacrev)(outputs, has_aux=True)(z)

            (slope, tail_slope), (head, tail, result) = over_shots(both, group, of)
            residuals += self._compared(group, y, head, tail)
            rows += self._rows(group, slope, tail_slope)
            results.append(result)
        return jnp.concatenate(residuals), jnp.concatenate(rows) * self.scale, concatenated(results)

    def _arguments(self, group: Shot, y: Float[Array, " N"]) -> Float[Array, "n z"]:
        """What the shots depend on: parameters, and starts where these are looked for."""
        y = y * self.scale
        x = jnp.broadcast_to(y[: self.count], (group.ts.shape[0], self.count))
        start = jnp.where(group.slots >= 0, y[group.slots], nominal_start(group))
        return jnp.concatenate([x, start], axis=1)

    def _predicted(self, shot: Shot, z: Float[Array, " z"]) -> tuple[tuple[Array, ...], Array, RESULTS]:
        """The signals over time, the independent coordinates and velocities at the end, and what the run reports."""
        system, motion = self.runs.run(shot, z[: self.count], z[self.count :], self.forward)
        succeeded = motion.result == RESULTS.successful
        signals = []
        for channel in shot.channels:
            with calling("of", f" of signal '{channel.name}'"):
                values = channel.read(system, motion)
            if not (isinstance(values, Array) and values.ndim in (1, 2) and len(values) == len(shot.ts)):
                returned = f"shape {values.shape}" if isinstance(values, Array) else f"a {type(values).__name__}"
                raise ValueError(
                    f"Argument `of` of signal '{channel.name}' must return an array of shape ({len(shot.ts)},) or ({len(shot.ts)}, k), but "
                    f"returns {returned}."
                )
            signals.append(jnp.reshape(values, (len(shot.ts), -1)))
        for channel, values in zip(shot.channels, signals, strict=True):
            if channel.width not in (None, values.shape[1]):
                raise ValueError(
                    f"Argument `values` of signal '{channel.name}' must have {values.shape[1]} components, as the model gives, but has "
                    f"{channel.width}."
                )
        tail = independent_values(motion.state(-1), shot.independents)
        # A failed run has saved states up to where it failed; NaN keeps a search from taking them for a good fit.
        head = tuple(jnp.where(succeeded, x, jnp.nan) for x in signals)
        return head, jnp.where(succeeded, tail, jnp.nan), motion.result

    def _compared(self, group: Shot, y: Array, head: tuple[Array, ...], tail: Array) -> list[Array]:
        """Residuals of the samples, signal by signal, and of the gaps between windows."""
        y = y * self.scale
        residuals = []
        for predicted, channel in zip(head, group.channels, strict=True):
            if channel.bias is not None:
                predicted = predicted + y[channel.bias][:, None, :]
            elif channel.wraps:
                # Turns that nobody counts are those of the record. A bias finds its own.
                predicted = in_turn(predicted, channel.values)
            # `where` first: a NaN of a failed run must pass only where a sample counts.
            residual = jnp.where(channel.weights > 0, predicted - channel.values, 0.0) * channel.weights
            residuals.append(residual.ravel())
        if self._has_windows(group):
            gap = jnp.where(group.following >= 0, tail - y[group.following], 0.0) / group.gap
            residuals.append(gap.ravel())
        return residuals

    def _rows(self, group: Shot, slope: tuple[Array, ...], tail_slope: Array) -> list[Array]:
        """The rows of the Jacobian for all unknowns, before their scales."""
        count, rows = group.ts.shape[0], []
        parameters = jnp.broadcast_to(jnp.arange(self.count), (count, self.count))
        columns = jnp.concatenate([parameters, group.slots], axis=1)

        # Jacobians of runs are dense in the unknowns of their own; those of others are zero columns.
        def placed(block: Float[Array, "n k z"], extra: Int[Array, "n k"] | None, sign: float) -> Array:
            """Rows (n, k) of the shots in the columns of all unknowns, and a number in one more column each."""
            inside = lambda columns: jnp.where(columns >= 0, columns, self.size)
            none = jnp.zeros((block.shape[1], self.size), block.dtype)
            out = jax.vmap(lambda b, c: none.at[:, inside(c)].add(b, mode="drop"))(block, columns)
            if extra is None:
                return out
            return jax.vmap(lambda o, e: o.at[jnp.arange(len(e)), inside(e)].add(sign, mode="drop"))(out, extra)

        for block, channel in zip(slope, group.channels, strict=True):
            width, times = block.shape[2], block.shape[1]
            flat = block.reshape(count, times * width, -1)
            extra = None if channel.bias is None else jnp.tile(channel.bias, (1, times))
            weight = jnp.broadcast_to(channel.weights, (count, times, width)).reshape(count, -1, 1)
            rows.append((jnp.where(weight > 0, placed(flat, extra, 1.0), 0.0) * weight).reshape(-1, self.size))
        if self._has_windows(group):
            follows = (group.following >= 0)[..., None]
            gap = jnp.where(follows, placed(tail_slope, group.following, -1.0), 0.0) / group.gap[..., None]
            rows.append(gap.reshape(-1, self.size))
        return rows

    def _has_windows(self, group: Shot) -> bool:
        return group.following.shape[-1] > 0


def concatenated(results: list[RESULTS]) -> RESULTS:
    """The results of all shots along one axis."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), *results)
