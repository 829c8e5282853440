"""What a simulation returns."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    RESULTS,
    Indices,
    TextInNotebooks,
    arrays_of,
    as_jax,
    contract,
    counted,
    is_concrete,
    over_leading_axes,
    program,
    table,
)
from ..system import Mode, Names, Scale, State
from .columns import frame, names_of_results
from .dataset import dataset
from .segments import Events
from .step_records import Switches
from .vector_field import VectorField


class Solution(TextInNotebooks, eqx.Module):
    """A motion, sampled at `ts`. All arrays gain leading axes under `jax.vmap`.

    Attributes:
        ts: times (T,) in s.
        q: coordinates (T, nq); NaN at times that the run did not reach.
        v: velocities (T, nv).
        work: work (T,) in J, from the start of the run, of applied forces, inputs and moving constraints, less
            what transitions take.
        u: inputs (T, nu); None without a control law.
        scale: sizes of rows, residuals and coordinates.
        stats: counts of the run: `num_steps`, `num_accepted_steps`, `num_rejected_steps`, `lowest_rank` and `highest_rank`
            over the accepted states, `largest_residual` (scaled) left by a correction, and `row_residuals` (m,), of each row.
        switches: when the formulation chose other coordinates, see `Switches`; None if it chooses nothing.
        result: how the run ended, see `jaxmb.RESULTS`.
        dense: the interpolation, if asked for.
        modes: which constraints act, at each saved time; None where all do.
        events: the events of the run; None for a run without events.
        z: the controller's own state, with an axis of times; None without a controller.
        control: the same, and what a sampled controller holds, as one vector (T, n).
        joints: names of the joint coordinates at which the inputs act; None if they are the system's own.
        names: what coordinates, velocities, inputs and constraints are called, and their units.
    """

    ts: Float[Array, "... T"]
    q: Float[Array, "... T nq"]
    v: Float[Array, "... T nv"]
    work: Float[Array, "... T"]
    u: Float[Array, "... T nu"] | None
    scale: Scale
    stats: dict[str, Array]
    switches: Switches | None
    result: RESULTS
    field: VectorField | None
    dense: PyTree
    modes: Mode | None = None
    events: Events | None = None
    z: PyTree = None
    control: Float[Array, "... T n"] | None = None
    joints: tuple[str, ...] | None = eqx.field(static=True, default=None)
    names: Names | None = eqx.field(static=True, default=None)

    def __str__(self) -> str:
        """What was run and how it ended; the representation of all fields where numbers are not known."""
        if not is_concrete(self):
            return repr(self)
        batch, ts = self.ts.shape[:-1], np.asarray(self.ts)
        runs = f" of {counted(int(np.prod(batch)), 'run')}" if batch else ""
        counts = lambda name: np.asarray(self.stats[name]).astype(int).ravel()
        over = lambda x: f"{x.min()}" if x.min() == x.max() else f"{x.min()} to {x.max()}"
        results = Counter(np.ravel(names_of_results(self.result)).tolist())
        steps = f"{over(counts('num_accepted_steps'))} accepted, {over(counts('num_rejected_steps'))} rejected"
        return table(
            f"Solution{runs}: {counted(ts.shape[-1], 'time')} from {ts.min():.6g} to {ts.max():.6g} s",
            {
                "coordinates": () if self.names is None else self.names.coordinates,
                "inputs": () if self.names is None or self.u is None else self.names.inputs,
                "steps": [steps],
                "events": () if self.events is None else [over(np.asarray(self.events.count).ravel())],
                "result": [f"{count} {name}" if batch else name for name, count in results.items()],
            },
        )

    @property
    def states(self) -> State:
        """All saved states, as one `State` with the axis of times behind those of a batch."""
        batch = self.ts.ndim - 1
        xp = arrays_of(self.ts, self.scale)
        spread = lambda x: as_jax(xp.broadcast_to(xp.expand_dims(x, batch), (*self.ts.shape, *x.shape[batch:])))
        scale = jax.tree.map(spread, self.scale)
        return State(t=self.ts, q=self.q, v=self.v, scale=scale, mode=self.modes, control=self.control)

    @contract
    def state(self, i: Indices) -> State:
        """The state at `ts[i]`, from which another run can start; for a batch, the states of all its rows.

        Raises:
            ValueError: for an index beyond the times, where it is known.
        """
        count = self.ts.shape[-1]
        if is_concrete(i) and not np.all((-count <= np.asarray(i)) & (np.asarray(i) < count)):
            raise ValueError(f"Argument `i` must be an index of {counted(count, 'saved state')}, but is {i}.")
        rows = (slice(None),) * (self.ts.ndim - 1)
        return jax.tree.map(lambda x: x[(*rows, i)], self.states)

    def evaluate(self, t: ArrayLike) -> State:
        """The state at any time between the first and the last, on the constraints.

        The integrator's own interpolation, corrected like a step.

        Args:
            t: a time, or an array of times.

        Raises:
            ValueError: if the run was made without `dense=True`.
        """
        if self.field is None:
            raise ValueError("`Solution.evaluate` needs a run made with `dense=True`.")
        return _over_times(self.field, self.dense, jnp.asarray(t, self.ts.dtype))

    @contract
    def to_xarray(self, runs: Sequence[str] | None = None, *, shared_times: bool | None = None) -> Any:
        """The motion as an `xarray.Dataset`, with names and units, of types that netCDF and Zarr hold.

        Variables `q`, `v`, `u`, `work`, `active`, `control` over `time`, and for each run `result` with its name `verdict`, `stats_…`,
        `scale_…`, `event_…`, `switch_…`; what was not reached and unused entries are NaN. An interpolation (`dense`) is left out.

        Args:
            runs: names of the leading axes of a batch; "run" by default, for several "run_0", "run_1", ….
            shared_times: whether all runs have the same times, which then are the index `time`; otherwise `time` belongs to run and
                `sample`. Found from the times by default.

        Raises:
            TypeError: under a transformation of JAX, where numbers are not known.
            ValueError: if the number of names differs from that of leading axes, and if times differ although `shared_times` is True.
            ImportError: without xarray, which `pip install jaxmb[data]` brings.
        """
        return dataset(self, runs, shared_times)

    @contract
    def to_pandas(self, runs: Sequence[str] | None = None) -> Any:
        """The motion as a `pandas.DataFrame`: a row for each time, of a batch for each run and time.

        Columns are the coordinates by name, the velocities ("x'" is the rate of coordinate "x"), inputs "u.name", `work` and
        `verdict`; `attrs["units"]` holds their units where they are known.

        Args:
            runs: as in `to_xarray`, for the levels of the index.

        Raises:
            As `to_xarray`; without pandas, which `pip install jaxmb[data]` brings, too.
        """
        return frame(self, runs)


@program
def _over_times(field: VectorField, dense: PyTree, t: Array) -> State:
    return over_leading_axes(lambda t: _interpolate(field, dense, t), t.ndim)(t)


def _interpolate(field: VectorField, dense: PyTree, t: Array) -> State:
    y = dense.evaluate(t)
    state = field.state(t, field.correct(t, y, field.independent(t, y)))
    return state if field.loop is None else dataclasses.replace(state, control=y.control)
