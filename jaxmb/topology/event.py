"""What may happen during a run."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import as_function, as_parameters, default_float, listing
from ..system import Coordinate, LockRow, System

Scalar = Float[Array, ""]


class AbstractEvent(eqx.Module):
    """Something that happens at a time, or when a guard reaches zero.

    Attributes:
        name: its name.
        at: the time in s.
        when: the guard `when(t, q, v, reaction, params)` → a number; `reaction` gives the multipliers (k,) of constraints by
            name, and costs a solution of the equations of motion where it is read.
        direction: 1 for a guard that rises to zero, −1 for one that falls. A guard that is beyond zero already when the
            event is armed acts at once; one that only touches zero does not act.
        repeat: whether it may happen again, once its guard has left zero and if it would change anything; a hit, which
            reverses the velocity by which its guard rises, may happen again at once.
        consistent: whether momentum is conserved along the free directions. If not, velocities change as little as
            possible, without regard to masses: an error that is common and easily made, for comparison.
    """

    name: str = eqx.field(static=True)
    at: Scalar | None
    when: Any
    direction: int = eqx.field(static=True)
    repeat: bool = eqx.field(static=True)
    consistent: bool = eqx.field(static=True)


class Lock(AbstractEvent):
    """A coordinate, a joint coordinate, or any function of the pose, is frozen at the value that it has.

    Args:
        what: name or index of a coordinate, name of a joint coordinate of a mechanism, or `fn(t, q, params)`.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        name: name of the lock's row; "lock " and the coordinate by default. Locks that share a name share a row.
        repeat: whether it may happen again, see `AbstractEvent`.
        consistent: see `AbstractEvent`.
    """

    what: Any = eqx.field(static=True)

    def __init__(
        self,
        what: Any,
        *,
        at: Any = None,
        when: Any = None,
        direction: int = 1,
        name: str | None = None,
        repeat: bool = False,
        consistent: bool = True,
    ):
        self.name, self.what = _place(what, name, "Lock")
        self.at, self.when, self.direction = _trigger(self.name, at, when, direction, repeat)
        self.repeat, self.consistent = repeat, consistent

    def row(self, system: System) -> LockRow:
        """The row of the lock."""
        return _row(self.name, self.what, system)


class Activate(AbstractEvent):
    """Constraints begin to act.

    Args:
        names: names of constraints of the system, or of locks.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        restitution: e; then the velocity residual of the constraints is reversed, times e, and they do not act afterwards:
            the hit of a unilateral contact.
        assemble: whether positions that do not fit the constraints are moved to them, the shortest way in the metric of M;
            if not, they are refused with their amount.
        repeat: whether it may happen again, see `AbstractEvent`.
        consistent: see `AbstractEvent`.
        name: of the event; made of the names by default.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    restitution: Scalar | None
    assemble: bool = eqx.field(static=True)

    def __init__(
        self,
        names: str | Sequence[str],
        *,
        at: Any = None,
        when: Any = None,
        direction: int = 1,
        restitution: Any = None,
        assemble: bool = False,
        repeat: bool = False,
        consistent: bool = True,
        name: str | None = None,
    ):
        self.names = (names,) if isinstance(names, str) else tuple(names)
        self.name = name or f"activate {', '.join(self.names)}"
        self.at, self.when, self.direction = _trigger(self.name, at, when, direction, repeat)
        self.restitution = None if restitution is None else jnp.asarray(restitution, default_float())
        self.assemble, self.repeat, self.consistent = assemble, repeat, consistent


class Release(AbstractEvent):
    """Constraints, or locks, cease to act. Velocities do not jump.

    Args:
        names: names of constraints of the system, or of locks.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        repeat: whether it may happen again, see `AbstractEvent`.
        name: of the event; made of the names by default.
    """

    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        names: str | Sequence[str],
        *,
        at: Any = None,
        when: Any = None,
        direction: int = 1,
        repeat: bool = False,
        name: str | None = None,
    ):
        self.names = (names,) if isinstance(names, str) else tuple(names)
        self.name = name or f"release {', '.join(self.names)}"
        self.at, self.when, self.direction = _trigger(self.name, at, when, direction, repeat)
        self.repeat, self.consistent = repeat, True


class Brake(AbstractEvent):
    """A brake that is applied: it slides with a force against the motion, and holds where the motion ends.

    Sliding it exerts −`sliding` sign(ṡ) along s. Where ṡ reaches zero it holds s as long as the force that this takes does
    not exceed `holding`, which is seen to at that instant too; when it does, the brake slides again, the way it is drawn.

    Args:
        what: what it acts on, as of `Lock`.
        sliding: force in N, or torque in N m, while it slides.
        holding: the largest while it holds; that of sliding by default, and not less.
        at: time in s at which it is applied; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        name: of the brake and its row; "brake " and the coordinate by default.
    """

    what: Any = eqx.field(static=True)
    sliding: Scalar
    holding: Scalar

    def __init__(
        self,
        what: Any,
        sliding: Any,
        holding: Any = None,
        *,
        at: Any = None,
        when: Any = None,
        direction: int = 1,
        name: str | None = None,
    ):
        self.name, self.what = _place(what, name, "Brake")
        self.at, self.when, self.direction = _trigger(self.name, at, when, direction, False)
        self.sliding = jnp.asarray(sliding, default_float())
        self.holding = self.sliding if holding is None else jnp.asarray(holding, default_float())
        self.repeat, self.consistent = False, True

    def row(self, system: System) -> LockRow:
        """The row by which it holds."""
        return _row(self.name, self.what, system)


def _place(what: Any, name: str | None, kind: str) -> tuple[str, Any]:
    if callable(what):
        if name is None:
            raise TypeError(f"Argument `name` must be given to a `{kind}` of a function.")
        fn = as_function(what, f"what of '{name}'")
        if jax.tree.leaves(fn):
            raise TypeError(f"Argument `what` of '{name}' must be a function without numbers of its own; use `params`.")
        return name, fn
    return name or f"{kind.lower()} {what}", what


def _trigger(name: str, at: Any, when: Any, direction: int, repeat: bool) -> tuple[Array | None, Any, int]:
    if (at is None) == (when is None):
        raise TypeError(f"Event '{name}' must have either `at`, a time, or `when`, a guard.")
    if repeat and when is None:
        raise ValueError(f"Argument `repeat` of event '{name}' must be False for a known time, which comes once.")
    if direction not in (1, -1):
        raise ValueError(f"Argument `direction` of event '{name}' must be 1 or -1, but is {direction!r}.")
    at = None if at is None else jnp.asarray(at, default_float())
    return at, as_parameters(as_function(when, f"when of event '{name}'")), direction


def _row(name: str, what: Any, system: System) -> LockRow:
    if callable(what):
        return LockRow(name, what)
    if isinstance(what, int) and 0 <= what < system.nq:
        return LockRow(name, Coordinate(what))
    if what in system.coordinates:
        return LockRow(name, Coordinate(system.coordinates.index(what)))
    known = list(system.coordinates)
    if isinstance(what, str) and system.joints is not None:
        known += system.joints.names
        if what.partition(".")[0] in known:
            return LockRow(name, system.joints.coordinate(what))
    raise ValueError(f"'{name}' must act on a function or a coordinate out of {listing(known)}, but acts on {what!r}.")
