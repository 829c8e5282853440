"""Equilibrium at a given pose: the efforts that hold it, and the reactions in its joints."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import (
    RESULTS,
    SUCCESS,
    Check,
    TextInNotebooks,
    Vector,
    all_hold,
    arrays_of,
    as_jax,
    contract,
    enforce,
    floats_or_none,
    is_concrete,
    positive_or_one,
)
from ..linalg import minimum_norm_multipliers
from ..mechanism import AbstractLinkage
from ..reaction import ReactionReport, analyse_reactions
from ..system import Mode, State, System, angles, as_state, check_state, extent, lock_coordinates, rows_at
from ..topology import Lock
from .quantities import inputs_of, over_states
from .wrench import Frame, Wrench, wrenches_at_rest


class Statics(TextInNotebooks, eqx.Module):
    """Forces at rest; `print` shows them as a table.

    Attributes:
        state: the pose, v = 0, with the rows that hold it.
        efforts: by name of a coordinate that is held, or of a driver, the force in N or torque in N m along it that balances all loads; of
            least norm if it is not unique.
        joints: the wrench of each joint on the body of its B, by name; empty without a mechanism.
        multipliers: λ by constraint name (k,), of least norm.
        residual: v̇ (nv,) from rest, zero where the pose is held.
        result: `RESULTS.no_equilibrium` where it is not.
        report: which of these a rigid model determines; None where numbers are traced.
    """

    state: State
    efforts: dict[str, Float[Array, ""]]
    joints: dict[str, Wrench]
    multipliers: dict[str, Float[Array, " k"]]
    residual: Float[Array, " nv"]
    result: RESULTS
    report: ReactionReport | None = eqx.field(static=True)

    @property
    def unique(self) -> dict[str, bool]:
        """By name of each joint and effort, whether a rigid model determines it; for a held joint of the same name, whether both are determined."""
        joints, efforts = self._unique
        return {name: joints.get(name, True) and efforts.get(name, True) for name in (*joints, *efforts)}

    @property
    def _unique(self) -> tuple[dict[str, bool], dict[str, bool]]:
        """The same of joints, and of efforts."""
        if self.report is None:
            return {}, {}
        groups = self.report.groups
        row = lambda name: _row(name) if _row(name) in groups else name
        return {name: groups[name].unique for name in self.joints}, {n: groups[row(n)].unique for n in self.efforts}

    def __str__(self) -> str:
        joints, efforts = self._unique
        words = lambda name, unique: "" if unique.get(name, True) else "   not unique"
        # Beside the largest component of the same vector rounding is none; of a torque neither beside what the force makes from joint to joint.
        points = np.stack([np.asarray(w.point) for w in self.joints.values()]) if self.joints else np.zeros((1, 1))
        size = np.linalg.norm(np.ptp(points, axis=0))
        largest = lambda x: np.abs(x).max(initial=0)
        clean = lambda x, least=0.0: np.where(np.abs(x) <= 16 * np.finfo(x.dtype).eps * max(largest(x), least), 0.0, x)
        numbers = lambda x, least=0.0: " ".join(f"{y:>12.6g}" for y in clean(np.ravel(np.asarray(x)), least))
        wrench = lambda w: f"{numbers(w.force)} {numbers(w.torque, size * largest(np.asarray(w.force)))}"
        lines = [f"Forces at rest, t = {float(self.state.t):g} s; in joints force and torque on the body of B"]
        lines += [f"  {n:<18}{wrench(w)}{words(n, joints)}" for n, w in self.joints.items()]
        lines += [f"  {f'effort at {n}':<18}{numbers(x)}{words(n, efforts)}" for n, x in self.efforts.items()]
        clusters = () if self.report is None else self.report.clusters
        return "\n".join([*lines, *(f"  trade against each other: {', '.join(names)}" for names in clusters)])


@contract
def statics(
    system: System,
    state: State,
    hold: Sequence[str] = (),
    *,
    u: Vector | None = None,
    frame: Frame = "world",
    formulation: AbstractFormulation | None = None,
    throw: bool = True,
) -> Statics:
    """The forces that hold a mechanism at rest at a pose, under gravity and all its loads: F(t, q, 0, u) + Cᵀλ + Σ f_i ∂s_i/∂q = 0.

    f_i is the effort at a held coordinate s_i, for example of a motor or a clamp; a driver holds its own coordinate, whatever its
    velocity. Reactions in joints follow from the equilibrium of the bodies. To find a pose that needs no holding, use `jaxmb.equilibrium`.

    Args:
        system: the system.
        state: one assembled pose; its velocity is ignored.
        hold: names of coordinates, or of joint coordinates, that are held.
        u: inputs (nu,); none by default.
        frame: axes of the wrenches in joints, as in `joint_reaction`.
        formulation: gives metric and cut-off; `GaussProjection()` by default.
        throw: whether to raise where the pose cannot be held; `result` reports it in any case.

    Raises:
        ValueError: for a pose that these coordinates cannot hold, naming the velocity along which forces are most out of balance, and for
            unknown names.

    Example:
        >>> import jaxmb as jm
        >>> P = jm.planar
        >>> arm = P.Mechanism([P.Body.rod("arm", mass=2.0, length=1.0)], [P.Revolute("pivot", "ground", "arm.a")],
        ...                   gravity=(0.0, -10.0)).build()
        >>> rest = jm.statics(arm, jm.assemble(arm, {"pivot": 0.0}), hold=["pivot"])
        >>> round(float(rest.efforts["pivot"]), 9), rest.joints["pivot"].force.round(9).tolist()
        (10.0, [0.0, 20.0])
    """
    check_state(system, state)
    u = inputs_of(system, state, u)
    mode = _holding(system, state, hold)
    locked = as_state(system, state.q, t=state.t, mode=mode)
    formulation = formulation_at(formulation, system, locked)
    u = floats_or_none(u)
    residual, by_name, off = over_states(_Balance(formulation), system, locked, u)
    # 4e-11 in float64: forces at a state that is on the constraints to eps^(2/3) are exact to as much.
    tol = float(jnp.finfo(off.dtype).eps) ** (2 / 3)
    text = (
        "Argument `hold` must hold the pose, but does not: along '{name}' forces are out of balance by {}, relative to what acts "
        "there. Hold a coordinate for each degree of freedom, or look for a pose by `equilibrium`."
    )
    # One velocity stands for all: one cause puts most of them out of balance, and one name tells more than all.
    worst = Check(off, tol, text, system.velocities)
    if throw:
        residual = enforce(residual, [worst])
    result = RESULTS.where(all_hold([worst]), SUCCESS, RESULTS.no_equilibrium)
    drivers = () if system.joints is None else system.joints.drivers(system.params)
    joints = isinstance(system.joints, AbstractLinkage)
    return Statics(
        state=locked,
        efforts={name: by_name[name][0] for name in drivers} | {name: by_name[_row(name)][0] for name in hold},
        joints=wrenches_at_rest(system, locked, frame, formulation, result, u) if joints else {},
        multipliers={name: by_name[name] for name in (*system.rows, *(lock.name for lock in mode.locks))},
        residual=residual,
        result=result,
        report=analyse_reactions(system, locked) if is_concrete(system, locked) else None,
    )


def _row(name: str) -> str:
    """The name of the row that holds a coordinate."""
    return f"hold {name}"


def _holding(system: System, state: State, hold: Sequence[str]) -> Mode:
    """The mode at rest, with a row that acts for each coordinate that is held."""
    # Rows are added like those of locks, so that efforts are multipliers and share by least norm like all others.
    old, none = state.mode, np.zeros(len(hold), state.q.dtype)
    active = np.ones(system.m, bool) if old is None else old.active
    join = lambda a, b: as_jax(b if a is None else arrays_of(a).append(a, b))
    mode = Mode(
        locks=(
            *(() if old is None else old.locks),
            *(Lock(name, at=0.0, name=_row(name)).row(system) for name in hold),
        ),
        active=join(active, np.ones(len(hold), bool)),
        lock_values=join(None if old is None else old.lock_values, none),
        drag=join(None if old is None else 0 * old.drag, none),  # a sliding brake exerts nothing at rest
        armed=as_jax(np.zeros(0, bool)),
    )
    values = lock_coordinates(system.in_mode(mode), state.t, state.q)
    own = slice(len(values) - len(hold), None)
    return dataclasses.replace(mode, lock_values=mode.lock_values.at[own].set(values[own]))


class _Balance(eqx.Module):
    formulation: AbstractFormulation

    def __call__(self, system: System, state: State, u: Array | None) -> tuple[Array, dict[str, Array], Array]:
        """v̇ from rest with rows that stay, λ of least norm by constraint, and how far forces are from balance (nv,), zero but for the largest."""
        t, q, v = state.t, state.q, jnp.zeros_like(state.v)
        force = lambda q: system.intrinsic_force(t, q, v) + system.applied_force(t, q, v, u)
        # By how much each coordinate would change the forces if it moved by its own size, an angle by one: where all that acts is rounding, as on
        # a pendulum that hangs straight down, it is compared with that.
        own_size = extent(system, q)
        way = jnp.maximum(jnp.where(angles(system), jnp.maximum(own_size, 1), own_size), state.scale.reach)
        acting, changes = force(q), jax.vmap(lambda d: jax.jvp(force, (q,), (system.qdot(q, d),))[1])(jnp.diag(way))
        # b and Γ are zero: moving constraints count as if they stood still.
        terms = dataclasses.replace(rows_at(system, t, q, state.scale.row), force=acting)
        factor = self.formulation.factorise(terms, self.formulation.prepare(terms))
        # v̇ from rest by Gauss's principle is the residual: zero where rows balance all forces, else it tells along which velocity the
        # pose gives way.
        vdot, own = factor.solve(acting, jnp.zeros(system.m, q.dtype))
        multipliers = minimum_norm_multipliers(factor, terms.jacobian, own) if system.m else own
        unit = jnp.sqrt(jnp.diagonal(factor.metric))  # forces divided by it may be compared
        size = jnp.abs(acting) + jnp.sum(jnp.abs(changes), axis=0) + jnp.abs(terms.jacobian).T @ jnp.abs(own)
        size = jax.lax.stop_gradient(size / unit)
        # A velocity along which nothing acts is judged by a part of the largest load: rounding beside zero would be out of balance by all of itself.
        size = jnp.maximum(size, 1e-3 * jnp.max(size))
        off = jnp.abs(factor.metric @ vdot) / unit / positive_or_one(size)
        off = jnp.where(jnp.arange(off.shape[0]) == jnp.argmax(off), off, 0)
        return vdot, {name: multipliers[part] for name, part in system.rows.items()}, off
