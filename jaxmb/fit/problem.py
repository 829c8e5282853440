"""From unknowns to residuals."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..foundations import RESULTS
from ..mechanism import AbstractMechanism
from ..simulation import Solution, simulate
from ..system import State, System
from .lane import Lane, over_lanes
from .parameter import Unknowns
from .start import started
from .target import Setup


class Runs(eqx.Module):
    """What the runs of all experiments share.

    Attributes:
        model: a mechanism, or a system, with its nominal numbers.
        build: from a model to a system.
        unknowns: the parameters.
        options: of `simulate`.
    """

    model: Any
    build: Callable[[Any], System] = eqx.field(static=True)
    unknowns: Unknowns
    options: dict[str, Any]

    def setup(self, lane: Lane, x: Float[Array, " n"]) -> Setup:
        """The lane's setup with the parameters of a vector."""
        setup = Setup(self.model, lane.control, lane.events)
        return self.unknowns.applied(setup, self.unknowns.values(x))

    def run(
        self, lane: Lane, x: Float[Array, " n"], start: Float[Array, " s"], adjoint: dfx.AbstractAdjoint | None
    ) -> tuple[System, Solution]:
        """The run of a lane with these parameters and independent coordinates and velocities at its start.

        Where it fails the result of the solution says so.
        """
        setup = self.setup(lane, x)
        system, state, fine = self.build(setup.model), lane.start, True
        if lane.moved:
            count = len(lane.held)
            state, fine = started(system, state, lane.held, lane.held_velocities, start[:count], start[count:])
        found = simulate(
            system,
            state,
            lane.ts,
            control=setup.control,
            events=setup.events,
            adjoint=adjoint,
            throw=False,
            **self.options,
        )
        failed = RESULTS.where(found.result == RESULTS.successful, RESULTS.inconsistent_state, found.result)
        return system, eqx.tree_at(lambda s: s.result, found, RESULTS.where(fine, found.result, failed))


def adjoint_of(forward: bool) -> dfx.AbstractAdjoint | None:
    """How `simulate` is differentiated in forward mode, or in reverse mode."""
    return dfx.ForwardMode() if forward else None


def built(model: Any) -> System:
    """The system of a model, with the joints' relative coordinates where it is a mechanism."""
    return model.build() if isinstance(model, AbstractMechanism) else model


def known_start(lane: Lane) -> Float[Array, "... s"]:
    """The independent coordinates and velocities at the nominal start."""
    at = lambda values, held: values[..., np.array(held, int)]
    return jnp.concatenate([at(lane.start.q, lane.held), at(lane.start.v, lane.held_velocities)], axis=-1)


def independent_values(lane: Lane, motion: State) -> Float[Array, " s"]:
    """The independent coordinates and velocities of a state."""
    return jnp.concatenate([motion.q[np.array(lane.held, int)], motion.v[np.array(lane.held_velocities, int)]])


class Problem(eqx.Module):
    """Residuals of all experiments as a function of all unknowns y: parameters, then starts and biases, over their scales.

    Attributes:
        runs: what the runs share.
        groups: the lanes.
        scale, low, high: scales and bounds (N,) of the unknowns; of the parameters 1, since they are scaled themselves.
        forward: whether Jacobians are found in forward mode.
        bounded: whether any unknown has a bound.
    """

    runs: Runs
    groups: tuple[Lane, ...]
    scale: Float[Array, " N"]
    low: Float[Array, " N"]
    high: Float[Array, " N"]
    forward: bool = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Number of residuals R, those of missing samples included."""
        return sum(sum(x.size for x in group.values) + group.following.size for group in self.groups)

    @property
    def lanes(self) -> int:
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

    def start(self, group: Lane, lane: int, y: Float[Array, " N"]) -> State:
        """Where a lane of a group starts."""
        one: Lane = jax.tree.map(lambda x: x[lane] if eqx.is_array(x) else x, group)
        if not one.moved:
            return one.start
        z, count = self._of(group, y)[lane], len(one.held)
        setup = self.runs.setup(one, z[: self.count])
        free = z[self.count :]
        return started(
            self.runs.build(setup.model), one.start, one.held, one.held_velocities, free[:count], free[count:]
        )[0]

    def residuals(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], RESULTS]:
        """Residuals, NaN where a run fails, and the result of each lane."""
        adjoint = adjoint_of(self.forward)
        found, results = [], []
        for group in self.groups:
            head, tail, result = over_lanes(
                lambda lane, z: self._predicted(lane, z, adjoint), group, self._of(group, y)
            )
            found += self._compared(group, y, head, tail)
            results.append(result)
        return jnp.concatenate(found), joined(results)

    def linear(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], Float[Array, "R N"], RESULTS]:
        """Residuals, their Jacobian, and the result of each lane."""
        adjoint = adjoint_of(self.forward)
        found, rows, results = [], [], []
        for group in self.groups:
            of = self._of(group, y)

            def both(lane: Lane, z: Array) -> Any:
                def outputs(z: Array) -> Any:
                    head, tail, result = self._predicted(lane, z, adjoint)
                    return (head, tail), (head, tail, result)

                return (jax.jacfwd if self.forward else jax.jacrev)(outputs, has_aux=True)(z)

            (slope, tail_slope), (head, tail, result) = over_lanes(both, group, of)
            found += self._compared(group, y, head, tail)
            rows += self._spread(group, slope, tail_slope)
            results.append(result)
        return jnp.concatenate(found), jnp.concatenate(rows) * self.scale, joined(results)

    def _of(self, group: Lane, y: Float[Array, " N"]) -> Float[Array, "n z"]:
        """What the lanes depend on: parameters, and starts where these are looked for."""
        y = y * self.scale
        x = jnp.broadcast_to(y[: self.count], (group.ts.shape[0], self.count))
        start = jnp.where(group.slots >= 0, y[group.slots], known_start(group))
        return jnp.concatenate([x, start], axis=1)

    def _predicted(
        self, lane: Lane, z: Float[Array, " z"], adjoint: dfx.AbstractAdjoint | None
    ) -> tuple[tuple[Array, ...], Array, RESULTS]:
        """The signals over time, the independent coordinates and velocities at the end, and what the run reports."""
        system, motion = self.runs.run(lane, z[: self.count], z[self.count :], adjoint)
        fine = motion.result == RESULTS.successful
        shown = [jnp.reshape(read(system, motion), (lane.ts.shape[0], -1)) for read in lane.readings]
        for name, width, found in zip(lane.names, lane.widths, shown, strict=True):
            if width not in (None, found.shape[1]):
                raise ValueError(
                    f"Argument `values` of signal '{name}' must have {found.shape[1]} components, as the model gives, but has {width}."
                )
        tail = independent_values(lane, motion.state(-1))
        head = tuple(jnp.where(fine, x, jnp.nan) for x in shown)
        return head, jnp.where(fine, tail, jnp.nan), motion.result

    def _compared(self, group: Lane, y: Array, head: tuple[Array, ...], tail: Array) -> list[Array]:
        """Residuals of the samples, signal by signal, and of the gaps between windows."""
        y = y * self.scale
        found = []
        for shown, values, weights, bias in zip(head, group.values, group.weights, group.biases, strict=True):
            if bias is not None:
                shown = shown + y[bias][:, None, :]
            off = jnp.where(weights > 0, shown - values, 0.0) * weights
            found.append(off.ravel())
        if self._has_windows(group):
            gap = jnp.where(group.following >= 0, tail - y[group.following], 0.0) / group.gap
            found.append(gap.ravel())
        return found

    def _spread(self, group: Lane, slope: tuple[Array, ...], tail_slope: Array) -> list[Array]:
        """The rows of the Jacobian for all unknowns, before their scales."""
        count, rows = group.ts.shape[0], []
        parameters = jnp.broadcast_to(jnp.arange(self.count), (count, self.count))
        columns = jnp.concatenate([parameters, group.slots], axis=1)

        def placed(block: Float[Array, "n k z"], extra: Int[Array, "n k"] | None, sign: float) -> Array:
            """Rows (n, k) of the lanes in the columns of all unknowns, and a number in one more column each."""

            def one(block: Array, columns: Array, extra: Array | None) -> Array:
                out = jnp.zeros((block.shape[0], self.size), block.dtype)
                out = out.at[:, jnp.where(columns >= 0, columns, self.size)].add(block, mode="drop")
                if extra is None:
                    return out
                at = jnp.where(extra >= 0, extra, self.size)
                return out.at[jnp.arange(block.shape[0]), at].add(sign, mode="drop")

            if extra is None:
                return jax.vmap(lambda b, c: one(b, c, None))(block, columns)
            return jax.vmap(one)(block, columns, extra)

        for block, weights, bias in zip(slope, group.weights, group.biases, strict=True):
            width, times = block.shape[2], block.shape[1]
            flat = block.reshape(count, times * width, -1)
            extra = None if bias is None else jnp.tile(bias, (1, times))
            weight = jnp.broadcast_to(weights, (count, times, width)).reshape(count, -1, 1)
            rows.append((jnp.where(weight > 0, placed(flat, extra, 1.0), 0.0) * weight).reshape(-1, self.size))
        if self._has_windows(group):
            joined = (group.following >= 0)[..., None]
            gap = jnp.where(joined, placed(tail_slope, group.following, -1.0), 0.0) / group.gap[..., None]
            rows.append(gap.reshape(-1, self.size))
        return rows

    def _has_windows(self, group: Lane) -> bool:
        return group.following.shape[-1] > 0


def joined(results: list[RESULTS]) -> RESULTS:
    """The results of all lanes along one axis."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), *results)
