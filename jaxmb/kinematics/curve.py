"""The curve of all poses that a mechanism of one degree of freedom can take, and the events on it."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..foundations import TextInNotebooks, counted, table
from ..system import State


class CurveEvent(eqx.Module):
    """A pose of a curve where something happens.

    Attributes:
        kind: "dead centre", where the input stands still and cannot drive the others; "limit position", where another watched coordinate
            turns back; or "branch point", where rows become dependent and branches may meet.
        name: the coordinate that stands still; empty for a branch point.
        index: number of the pose on the curve.
        state: the pose; its velocity points along the curve.
        values: the coordinates that are watched, by name.
        branches: for a branch point, the pose once for each branch through it (k,), with a velocity along the branch, from which
            `trace_motion` follows that branch; none (0,) where motions of more than one freedom meet. None for other events.
    """

    kind: str = eqx.field(static=True)
    name: str = eqx.field(static=True)
    index: int = eqx.field(static=True)
    state: State
    values: dict[str, Float[Array, ""]]
    branches: State | None

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {float(value):.9g}" for name, value in self.values.items())
        k = None if self.branches is None else self.branches.t.shape[0]
        count = "" if k is None else f", of {counted(k, 'branch', 'branches')}" if k else ", of more than one freedom"
        return f"{self.kind}{f' of {self.name}' * bool(self.name)}{count} at pose {self.index}: {where}"


class MotionCurve(TextInNotebooks, eqx.Module):
    """Poses along a curve, in order; `print` shows ranges and events.

    Attributes:
        input: name of the coordinate that is the input.
        values: the input and the other coordinates that are watched (n,), by name, angles without jumps.
        states: the poses (n,). Their velocities lead along the curve, with a kinetic energy of ½ J (½ in units of your own), so that
            ratios of `jaxmb.rate` are velocity ratios. `jaxmb.position` and the like read them.
        gap: how far (n,) the rows are from being dependent: their smallest singular value that is not zero throughout, see
            `jaxmb.linalg`. Zero at branch points.
        events: what happens, in order.
        start: number of the pose from which the curve was followed.
        ends: how it ends on both sides: "closed" if it has returned to its start, "limit" at a bound of `between`, "unfinished" if
            `max_points` were not enough, or "stuck" if no further pose was found.
    """

    input: str = eqx.field(static=True)
    values: dict[str, Float[Array, " n"]]
    states: State
    gap: Float[Array, " n"]
    events: tuple[CurveEvent, ...]
    start: int = eqx.field(static=True)
    ends: tuple[str, str] = eqx.field(static=True)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and largest value of each watched coordinate; exact, since poses at which it turns back belong to the curve."""
        return {name: (float(np.min(x)), float(np.max(x))) for name, x in self.values.items()}

    @property
    def closed(self) -> bool:
        """Whether the curve returns to its start."""
        return self.ends == ("closed", "closed")

    def of_kind(self, kind: str) -> tuple[CurveEvent, ...]:
        """The events of one kind."""
        return tuple(event for event in self.events if event.kind == kind)

    def __str__(self) -> str:
        ends = "closed" if self.closed else f"from '{self.ends[0]}' to '{self.ends[1]}'"
        rows = {name: [f"{low:.9g} to {high:.9g}"] for name, (low, high) in self.ranges.items()}
        lines = [table(f"Curve of motion by '{self.input}', {len(self.gap)} poses, {ends}", rows)]
        return "\n".join([*lines, *(f"  {event}" for event in self.events)])
