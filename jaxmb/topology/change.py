"""The change of a system by the events of one instant, before velocities are computed."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..system import Mode, State


class Change(eqx.Module):
    """The change made by events before velocities are computed; each method returns a change with one effect more.

    Rows are given as masks (m + k,), those of the system's constraints first, then those of locks.

    Attributes:
        mode: the mode from then on.
        hit: rows that act at that instant only.
        restitution: e of each row.
        assembled: rows to which positions are to be moved.
        stuck: rows of locks that have come to rest and hold from then on, unless `resolve` of an event releases them.
        loose: rows of locks whose load is more than they hold: they act until `resolve` releases them, by the load that they have then.
        yielding: rows that bear no impulse, as their forces are limited.
        impulse: U (nv,) from outside, in N s or N m s.
        consistent: whether momentum is conserved.
        doubtful: whether an event was decided by a reaction that a rigid model does not determine.
    """

    mode: Mode
    hit: Bool[Array, " m"]
    restitution: Float[Array, " m"]
    assembled: Bool[Array, " m"]
    stuck: Bool[Array, " m"]
    loose: Bool[Array, " m"]
    yielding: Bool[Array, " m"]
    impulse: Float[Array, " nv"]
    consistent: Bool[Array, ""]
    doubtful: Bool[Array, ""]

    @classmethod
    def none(cls, mode: Mode, state: State) -> "Change":
        """No change."""
        no = jnp.zeros_like(mode.active)
        true, false = jnp.array(True), jnp.array(False)
        return cls(
            mode=mode,
            hit=no,
            restitution=jnp.zeros_like(state.scale.row),
            assembled=no,
            stuck=no,
            loose=no,
            yielding=no,
            impulse=jnp.zeros_like(state.v),
            consistent=true,
            doubtful=false,
        )

    @property
    def acting(self) -> Mode:
        """The mode at that instant, with the rows that are hit."""
        return dataclasses.replace(self.mode, active=self.mode.active | self.hit)

    @property
    def impulsive(self) -> Mode:
        """That mode without the rows that bear no impulse."""
        return dataclasses.replace(self.mode, active=self.acting.active & ~self.yielding)

    def activate(self, rows: Bool[Array, " m"]) -> "Change":
        """Rows begin to act."""
        return self._in_mode(active=self.mode.active | rows)

    def release(self, rows: Bool[Array, " m"]) -> "Change":
        """Rows cease to act, or to slide, and have neither come to rest nor loose."""
        # A released lock neither holds nor drags.
        released = self._in_mode(active=self.mode.active & ~rows, drag=jnp.where(self._locks(rows), 0, self.mode.drag))
        return dataclasses.replace(released, stuck=self.stuck & ~rows, loose=self.loose & ~rows)

    def hold(self, rows: Bool[Array, " m"], values: Float[Array, " k"]) -> "Change":
        """Locks hold their functions at given values."""
        lock_values, drag = (
            jnp.where(self._locks(rows), a, b) for a, b in ((values, self.mode.lock_values), (0, self.mode.drag))
        )
        return self._in_mode(active=self.mode.active | rows, lock_values=lock_values, drag=drag)

    def slide(self, rows: Bool[Array, " m"], force: Float[Array, ""]) -> "Change":
        """Locks exert a force, in N or N m, along their functions."""
        return self._in_mode(drag=jnp.where(self._locks(rows), force, self.mode.drag))

    def rest(self, rows: Bool[Array, " m"]) -> "Change":
        """Locks have come to rest."""
        return dataclasses.replace(self, stuck=self.stuck | rows)

    def loosen(self, rows: Bool[Array, " m"]) -> "Change":
        """Locks have come loose."""
        return dataclasses.replace(self, loose=self.loose | rows)

    def limit(self, rows: Bool[Array, " m"]) -> "Change":
        """Rows bear no impulse."""
        return dataclasses.replace(self, yielding=self.yielding | rows)

    def bounce(self, rows: Bool[Array, " m"], restitution: Float[Array, ""]) -> "Change":
        """Rows are hit: their velocity residual is reversed, times e."""
        return dataclasses.replace(
            self, hit=self.hit | rows, restitution=jnp.where(rows, restitution, self.restitution)
        )

    def assemble(self, rows: Bool[Array, " m"]) -> "Change":
        """Positions are to be moved to rows."""
        return dataclasses.replace(self, assembled=self.assembled | rows)

    def push(self, impulse: Float[Array, " nv"]) -> "Change":
        """An impulse acts from outside."""
        return dataclasses.replace(self, impulse=self.impulse + impulse)

    def doubt(self, doubtful: Bool[Array, ""]) -> "Change":
        """Something may be decided by a reaction that a rigid model does not determine."""
        return dataclasses.replace(self, doubtful=self.doubtful | doubtful)

    def where(self, happens: Bool[Array, ""], other: "Change") -> "Change":
        """Itself where `happens`, else `other`."""
        # What neither changes is passed on as it is: events that touch few fields leave small programs.
        return jax.tree.map(lambda a, b: a if a is b else jnp.where(happens, a, b), self, other)

    def differs(self, other: "Change") -> Bool[Array, ""]:
        """Whether other rows act, are hit or slide, or another impulse acts."""
        # `lock_values` are not compared: holding what is held already sets it to the present value, which differs by rounding, and a lock would
        # seem to change something for ever.
        parts = lambda c: (c.mode.active, c.mode.drag, c.hit, c.impulse)
        pairs = [(a, b) for a, b in zip(parts(self), parts(other), strict=True) if a is not b]
        return jnp.any(jnp.array([jnp.any(a != b) for a, b in pairs], bool))

    def _in_mode(self, **fields: Array) -> "Change":
        return dataclasses.replace(self, mode=dataclasses.replace(self.mode, **fields))

    def _locks(self, rows: Bool[Array, " m"]) -> Bool[Array, " k"]:
        # Locks have the last rows, see `Mode.active`.
        return rows[rows.shape[0] - self.mode.lock_values.shape[0] :]
