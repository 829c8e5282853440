"""A mechanical system as pure functions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..foundations import (
    Count,
    TextInNotebooks,
    Vector,
    as_function,
    as_parameters,
    contract,
    counted,
    default_float,
    expect_different,
    expect_numbers,
    listing,
    remembered,
    shape_of,
    strong,
    table,
)
from ..linalg import BlockMatrix, Layout
from .actuation import JointDirections, joint_names
from .constants import Constants
from .constraint import AbstractConstraint, Holonomic
from .inertia import AbstractInertia, LagrangianInertia, MassInertia, Rate, rate_matrix
from .joints import AbstractJoints
from .mode import BrakeForce, LockResidual, Mode, PoseFunctions
from .scalar import F, scalar
from .state import State

Scalar = Float[Array, ""]


def inertial(fn: F) -> F:
    """A function of a system that reads neither its rows nor its forces: it is the same whichever rows act, and whatever brakes do."""
    none: dict[str, Any] = dict(
        row_counts=(), constraints=(), active=None, force_fn=None, resistance_fn=None, actuation_fn=None
    )
    return scalar(fn, lambda system: system._with(none))


class System(TextInNotebooks, eqx.Module):
    """M(t,q) v̇ = F(t,q,v) + Cᵀλ with φ(t,q) = 0, ψ(t,q,v) = 0 and q̇ = N(q) v.

    All functions must be pure and written in JAX. Everything else (inertia forces, Jacobians, Γ) comes from automatic differentiation.
    Shapes and names are checked here, without values.

    Args:
        coordinates: names of the coordinates q, or their number nq.
        mass: `mass(t, q, params)` returns M of shape (nv, nv), symmetric and positive definite on null(C).
        force: `force(t, q, v, params)` returns the applied forces (nv,), conjugate to v; no inertia forces.
        potential: `potential(t, q, params)` returns the potential energy V, a scalar.
        constraints: `Holonomic` and `Pfaffian` constraints with different names; rows may be redundant.
        params: any pytree of numbers and arrays; put what you want to differentiate or batch here.
        velocities: names of the velocities v, or their number nv; the coordinates' if `rate` is None.
        rate: `rate(q, v, params)` returns q̇ = N(q) v of shape (nq,), linear in v; q̇ = v if None.
        normalise: `normalise(q)` restores conditions on the coordinates that `rate` conserves and no constraint states, such as the unit
            length of quaternions. Needed if there are such conditions; `lambda q: q` if nothing has to be restored.
        actuation: `actuation(t, q, params)` returns B of shape (nv, nu); inputs u act as the forces B u.
        resistance: `resistance(t, q, v, params, u)` returns forces (nv,) that depend on the inputs in another way than B u, such as friction
            that grows with reactions; u is None or (nu,).
        guess: coordinates (nq,) from which `assemble` starts if none are given; zeros if None.
        breaks: times (k,) at which a function of the system is not smooth; integrators step to them and restart there.
        joints: the interface to the mechanism that the system was built from, if it was.

    Raises:
        TypeError, ValueError: for an argument of the wrong kind, shape or name.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> pendulum = jm.System(
        ...     coordinates=("x", "y"),
        ...     mass=lambda t, q, p: p["m"] * jnp.eye(2),
        ...     potential=lambda t, q, p: p["m"] * 9.81 * q[1],
        ...     constraints=(jm.Holonomic("rod", lambda t, q, p: q @ q - p["l"] ** 2),),
        ...     params={"m": 1.0, "l": 1.0},
        ... )
        >>> pendulum.nq, pendulum.nv, pendulum.m
        (2, 2, 1)
    """

    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    row_counts: tuple[int, ...] = eqx.field(static=True)
    nu: int = eqx.field(static=True)
    inertia: AbstractInertia
    force_fn: Callable[..., Array] | None
    constraints: tuple[AbstractConstraint, ...]
    params: PyTree
    rate_fn: Callable[..., Array] | None
    normalise_fn: Callable[..., Array] | None
    actuation_fn: Callable[..., Array] | None
    resistance_fn: Callable[..., Array] | None
    guess: Float[Array, " nq"]
    breaks: Float[Array, " k"] | None
    joints: AbstractJoints | None
    active: Bool[Array, " m"] | None
    layout: Layout | None = eqx.field(static=True)
    constants: Constants | None = eqx.field(static=True)

    @contract
    def __init__(
        self,
        coordinates: Count | Sequence[str],
        mass: Callable[..., Array] | None = None,
        force: Callable[..., Array] | None = None,
        potential: Callable[..., Array] | None = None,
        constraints: Sequence[Any] = (),
        params: PyTree = None,
        velocities: Count | Sequence[str] | None = None,
        rate: Callable[..., Array] | None = None,
        normalise: Callable[..., Array] | None = None,
        actuation: Callable[..., Array] | None = None,
        *,
        resistance: Callable[..., Array] | None = None,
        guess: Vector | None = None,
        breaks: Vector | None = None,
        inertia: AbstractInertia | None = None,
        joints: AbstractJoints | None = None,
    ):
        if inertia is None:
            if mass is None:
                raise TypeError("Argument `mass` must be a function (t, q, params) -> (nv, nv), but is missing.")
            inertia = MassInertia(as_function(mass, "mass"), as_function(potential, "potential"))
        self.coordinates = _names(coordinates, "coordinates", "q")
        if velocities is None:
            if rate is not None:
                raise TypeError("Argument `velocities` must be given, as names or a number, along with `rate`.")
            self.velocities = self.coordinates
        else:
            self.velocities = _names(velocities, "velocities", "v")
        if rate is None and len(self.velocities) != len(self.coordinates):
            raise ValueError(
                f"Argument `velocities` must have as many entries as `coordinates` ({len(self.coordinates)}) where `rate` "
                f"is None, but has {len(self.velocities)}."
            )
        self.inertia = inertia
        self.force_fn = as_function(force, "force")
        self.constraints = tuple(constraints)
        expect_numbers("params", params)
        self.params = as_parameters(params)
        self.rate_fn = as_function(rate, "rate")
        self.normalise_fn = as_function(normalise, "normalise")
        self.actuation_fn = as_function(actuation, "actuation")
        self.resistance_fn = as_function(resistance, "resistance")
        self.guess = jnp.zeros(self.nq) if guess is None else jnp.asarray(guess, default_float())
        self.breaks = None if breaks is None else jnp.ravel(jnp.asarray(breaks, default_float()))
        self.joints, self.active, self.layout, self.constants = joints, None, None, None
        if self.guess.shape != (self.nq,):
            raise ValueError(f"Argument `guess` must have shape ({self.nq},), but has shape {self.guess.shape}.")
        self.row_counts, self.nu = _check_shapes(self)

    @classmethod
    @contract
    def from_lagrangian(
        cls, lagrangian: Callable[..., Array], coordinates: Count | Sequence[str], **arguments: Any
    ) -> "System":
        """A system from L(t, q, q̇, params), quadratic in q̇, which `assemble` and `simulate` check.

        M = Nᵀ L_q̇q̇ N and F = Nᵀ (L_q − L_q̇q q̇ − L_q̇t − L_q̇q̇ Ṅ v) + applied. Convenient, but more expensive to compile and to run than
        a mass matrix.

        Args:
            lagrangian: `lagrangian(t, q, qdot, params)` returns a scalar.
            coordinates: as in `System`.
            **arguments: the other arguments of `System` except `mass` and `potential`.
        """
        return cls(coordinates, inertia=LagrangianInertia(as_function(lagrangian, "lagrangian")), **arguments)

    @contract
    def with_params(self, params: PyTree) -> "System":
        """The system with other parameters. Nothing is compiled again if they have the same shapes.

        Raises:
            ValueError: for parameters with other names than those of the system.
        """
        _check_params(self.params, params)
        return self._with({"params": as_parameters(params), "layout": self.layout, "constants": None})

    def in_mode(self, mode: Mode | None) -> "System":
        """The system with the rows of locks added; of these and its own rows, only those act that are active in a mode."""
        if mode is None:
            return self
        # Rows that do not act are masked and not removed: shapes stay static, and one compiled program serves all modes.
        rows = [
            Holonomic(lock.name, LockResidual(lock.fn, mode.lock_values[..., i], lock.wraps))
            for i, lock in enumerate(mode.locks)
        ]
        values = PoseFunctions(tuple(lock.fn for lock in mode.locks))
        brakes = BrakeForce(None, None, values, mode.drag) if rows else None
        return self.with_locks(mode.active, rows, [1] * len(rows), brakes)

    def in_mode_of(self, other: "System") -> "System":
        """The system in the mode that another system with the same coordinates, constraints and inputs is in.

        Raises:
            ValueError: if it has others.
        """
        names = tuple(self.rows.items())
        alike = (self.coordinates, self.velocities, self.nu) == (other.coordinates, other.velocities, other.nu)
        if not alike or names != tuple(other.rows.items())[: len(names)]:
            raise ValueError(
                "Argument `model` must be a system with the coordinates, constraints and inputs of the plant, but has others."
            )
        count = len(self.constraints)
        brakes = other.resistance_fn if len(other.constraints) > count else None
        assert brakes is None or isinstance(brakes, BrakeForce)  # as `in_mode` makes it, along with the rows of locks
        return self.with_locks(other.active, other.constraints[count:], other.row_counts[count:], brakes)

    def with_locks(
        self,
        active: Bool[Array, "... m"] | None,
        rows: Sequence[AbstractConstraint],
        row_counts: Sequence[int],
        brakes: BrakeForce | None,
    ) -> "System":
        """The system with the rows of locks, and the forces of brakes beside its own; of all rows, only those act that are active."""
        fields: dict[str, Any] = {
            "active": active,
            "constraints": (*self.constraints, *rows),
            "row_counts": (*self.row_counts, *row_counts),
        }
        if brakes is not None:
            fields["resistance_fn"] = BrakeForce(self.resistance_fn, self.rate_fn, brakes.fn, brakes.drag)
        return self._with(fields)

    def with_constraints(self, constraints: Sequence[AbstractConstraint], row_counts: Sequence[int]) -> "System":
        """The coordinates of the system under other constraints, all of which act."""
        return self._with({"constraints": tuple(constraints), "row_counts": tuple(row_counts), "active": None})

    def acting_at(self, joints: str | Sequence[str] | None) -> "System":
        """The system whose inputs are torques or forces at coordinates of joints, in place of its own inputs; with None, the system as it is.

        `simulate` makes it for a controller with `joints`; `jaxmb.control.Plant.at` and the reports take it.

        Raises:
            ValueError: for a system that was not built from a mechanism, one in which friction grows with the load of a joint
                (which is computed for its own actuators), and names that are unknown or come twice.
        """
        names = joint_names(joints)
        if names is None:
            return self
        if self.joints is None:
            raise ValueError(
                "A controller with `joints` needs a system built from a mechanism; give `actuation` instead."
            )
        if self.resistance_fn is not None:
            raise ValueError(
                "A controller with `joints` must not act where forces depend on the inputs, as friction that grows with reactions "
                "does; use actuators."
            )
        fns = tuple(self.joints.coordinate(name) for name in names)
        return self._with({"actuation_fn": JointDirections(names, fns, self.rate_fn, self.nv), "nu": len(fns)})

    @property
    def acting(self) -> Bool[Array, " m"]:
        """Mask (m,) of the rows that act."""
        return jnp.asarray(np.ones(self.m, bool)) if self.active is None else self.active

    def with_constants(self) -> "System":
        """The system with the entries of its parameters that are zero or one as known values."""
        return self._with({"constants": Constants.of(self.params), "layout": self.layout})

    @property
    def specialised(self) -> "System":
        """The system with known entries of its parameters as constants."""
        if self.constants is None:
            return self
        return self._with({"params": self.constants.substituted(self.params), "layout": self.layout})

    @property
    def unrolled(self) -> "System":
        """The system whose inertia and joints, wherever its functions have them, take the fewest operations on numbers."""
        system = self._with_joints(lambda joints: joints.unrolled())
        return system._with({"inertia": system.inertia.unrolled(self.nq), "layout": self.layout})

    @property
    def for_search(self) -> "System":
        """The system with rows of joints that vanish only where these are the right way round."""
        return self._with_joints(lambda joints: joints.for_search())

    def _with_joints(self, fn: Callable[[AbstractJoints], AbstractJoints]) -> "System":
        of_joints = lambda x: isinstance(x, AbstractJoints)
        return jax.tree.map(lambda x: fn(x) if of_joints(x) else x, self, is_leaf=of_joints)

    def with_layout(self, layout: Layout | None) -> "System":
        """The system with the layout of the entries of M and C that may not be zero."""
        return self._with({"layout": layout})

    def _with(self, fields: dict[str, Any]) -> "System":
        """A copy with other fields; without the layout of M and C, unless that is among the fields."""
        # Entries of M and C that may not be zero depend on the functions: only a copy that says so keeps them.
        fields = {"layout": None} | fields
        # Past `__init__`, whose checks trace every function: copies are made within programs, and often.
        system = object.__new__(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(system, field.name, fields.get(field.name, getattr(self, field.name)))
        return system

    def __str__(self) -> str:
        rows = {"holonomic": [], "Pfaffian": []}
        for constraint, count in zip(self.constraints, self.row_counts, strict=True):
            kind = "holonomic" if isinstance(constraint, Holonomic) else "Pfaffian"
            rows[kind] += [f"{name} ({size})" for name, size in constraint.parts or ((constraint.name, count),)]
        velocities = () if self.velocities == self.coordinates else self.velocities
        numbers = [x for x in jax.tree.leaves(self.params) if isinstance(x, jax.Array)]
        return table(
            f"System: {counted(self.nq, 'coordinate')}, {counted(self.nv, 'velocity', 'velocities')}, "
            f"{counted(self.m, 'constraint row')}, {counted(self.nu, 'input')}",
            {
                "coordinates": self.coordinates,
                "velocities": velocities,
                **rows,
                "params": [f"{counted(sum(x.size for x in numbers), 'number')} in {counted(len(numbers), 'array')}"],
            },
        )

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return len(self.velocities)

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return sum(self.row_counts)

    @property
    def rows(self) -> dict[str, slice]:
        """The rows of each constraint, or of each of its parts, by name, in the order in which they were given."""
        slices, start = {}, 0
        for constraint, count in zip(self.constraints, self.row_counts, strict=True):
            for name, size in constraint.parts or ((constraint.name, count),):
                slices[name] = slice(start, start + size)
                start += size
        return slices

    def largest(self, values: Float[Array, " m"]) -> Float[Array, " k"]:
        """The largest of the values (not negative) of the rows of each constraint, in the order of `rows`."""
        parts = list(self.rows.values())
        width = max((part.stop - part.start for part in parts), default=0)
        index = [[*range(part.start, part.stop), *[self.m] * (width - part.stop + part.start)] for part in parts]
        # One gather for all constraints, filled up by a zero at the end: a maximum for each would be as many operations as there are
        # constraints.
        padded = jnp.concatenate([values, jnp.zeros(1, values.dtype)])
        return jnp.max(padded[jnp.array(index, int)], axis=1) if parts else jnp.zeros(0, values.dtype)

    @property
    def holonomic(self) -> Bool[Array, " m"] | None:
        """Mask of the holonomic rows; None where all rows are."""
        # None rather than a mask of ones: programs of holonomic systems contain nothing of the distinction.
        if all(isinstance(c, Holonomic) for c in self.constraints):
            return None
        pairs = zip(self.constraints, self.row_counts, strict=True)
        return jnp.array([isinstance(c, Holonomic) for c, count in pairs for _ in range(count)], bool)

    @property
    def rate(self) -> Rate | None:
        """None where q̇ = v, or the function (q, v) ↦ N(q) v."""
        rate = self.rate_fn
        return None if rate is None else lambda q, v: rate(q, v, self.params)

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""
        return v if self.rate_fn is None else self.rate_fn(q, v, self.params)

    def by_velocities(self, q: Float[Array, " nq"], rows: Float[Array, "k nq"]) -> Float[Array, "k nv"]:
        """Rows of derivatives by the coordinates as those by the velocities: rows · N(q)."""
        return rows if self.rate is None else rows @ rate_matrix(self.rate, q, self.nv)

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The coordinates with unit quaternions and the like restored."""
        return q if self.normalise_fn is None else self.normalise_fn(jnp.asarray(q))

    def displaced(self, q: Float[Array, " nq"], displacement: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """Coordinates displaced by d: q + N(q) d, normalised."""
        if self.rate_fn is None and self.normalise_fn is None:
            return q + displacement
        return self._displaced(q, displacement)

    @inertial
    def _displaced(self, q: Float[Array, " nq"], displacement: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return self.normalise(q + self.qdot(q, displacement))

    @inertial
    def mass(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
        """M(t, q)."""
        if self.layout is not None:
            return self.sparse_mass(self.layout, t, q).dense()
        return self.inertia.mass(t, q, self.params, self.rate, self.nv)

    def sparse_mass(self, layout: Layout, t: Scalar, q: Float[Array, " nq"]) -> BlockMatrix:
        """M(t, q), from its products with few vectors."""
        return BlockMatrix.of(layout, self.mass_products(t, q, jnp.asarray(layout.seeds, q.dtype)))

    def mass_products(
        self, t: Scalar, q: Float[Array, " nq"], directions: Float[Array, "k nv"]
    ) -> Float[Array, "k nv"]:
        """M times several vectors."""
        return self.inertia.products(t, q, directions, self.params, self.rate)

    @inertial
    def intrinsic_force(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """Inertia and potential forces."""
        return self.inertia.force(t, q, v, self.params, self.rate)

    @scalar
    def applied_force(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], u: Float[Array, " nu"] | None = None
    ) -> Float[Array, " nv"]:
        """Applied forces and those of the inputs, force(t, q, v) + B u + resistance(t, q, v, u)."""
        total = jnp.zeros_like(v) if self.force_fn is None else self.force_fn(t, q, v, self.params)
        if self.resistance_fn is not None:
            total = total + self.resistance_fn(t, q, v, self.params, u)
        return total if u is None else total + self.actuation(t, q) @ u

    def actuation(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "nv nu"]:
        """B(t, q)."""
        if self.actuation_fn is None:
            return jnp.zeros((self.nv, 0), q.dtype)
        return self.actuation_fn(t, q, self.params)

    def energies(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> tuple[Scalar, Scalar]:
        """Kinetic and potential energy in J."""
        return self.inertia.energy(t, q, v, self.params, self.rate)

    def explicit_power(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Scalar:
        """−∂L/∂t in W."""
        return self.inertia.explicit_power(t, q, v, self.params, self.rate)


def _check_params(old: PyTree, new: PyTree) -> None:
    """Refuses parameters with other names than those that a system was made with."""
    expect_numbers("params", new)
    paths = lambda params: {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]}
    before, after = paths(old), paths(new)
    if before != after:
        missing, unknown = sorted(before - after), sorted(after - before)
        # Those of a mechanism lie deeper, beside the numbers of its elements, whose paths tell the user nothing.
        if isinstance(old, eqx.Module) and not isinstance(new, type(old)):
            own = {path.removeprefix(".params"): path for path in sorted(before) if path.startswith(".params")}
            one = next((path for name, path in own.items() if name in unknown), next(iter(own.values()), None))
            hint = f", and `equinox.tree_at(lambda s: s.params{one}, system, value)` changes one alone" if one else ""
            names = listing([name.strip("[]'") for name in own]) or "none"
            raise ValueError(
                f"Argument `params` must be a `{type(old).__name__}` with the numbers of all elements, as `params` of a system of a mechanism is, but "
                f"is a {type(new).__name__}; the mechanism's own parameters are {names}{hint}."
            )
        words = [f"lacks {listing(missing)}"] * bool(missing) + [f"has {listing(unknown)} besides"] * bool(unknown)
        raise ValueError(
            f"Argument `params` must hold the parameters that the system was made with, {listing(sorted(before)) or 'none'}, but "
            f"{' and '.join(words)}."
        )


def check_state(system: System, state: object, argument: str = "state") -> None:
    """Raises a TypeError or ValueError for what is no single state of the system."""
    if not isinstance(state, State):
        raise TypeError(
            f"Argument `{argument}` must be a `State`, as `assemble` and `solution.state(i)` return, but is a {type(state).__name__}."
        )
    axes = state.t.shape or state.q.shape[:-1]
    if axes:
        raise ValueError(
            f"Argument `{argument}` must be a single state, but has leading axes {axes}; use `jax.vmap`, or index it, for example by "
            "`solution.state(i)`."
        )
    for name, values, count in (("coordinates", state.q, system.nq), ("velocities", state.v, system.nv)):
        if values.shape != (count,):
            raise ValueError(
                f"Argument `{argument}` must have {name} of shape ({count},), but has shape {values.shape}; does it belong to another "
                "system?"
            )
    # Sizes of one row would pass for those of several.
    rows, sizes = system.m if state.mode is None else state.mode.active.shape[-1], state.scale.row.shape[-1]
    if rows != sizes:
        raise ValueError(
            f"Argument `{argument}` must have sizes of {rows} constraint rows, but has those of {sizes}: another system's, or those of a "
            "run with events, whose states are `solution.state(i)`."
        )
    # Mixed precisions would be promoted without a word, and rank decisions depend on the precision.
    if state.q.dtype != default_float() or state.v.dtype != default_float():
        raise ValueError(
            f"Argument `{argument}` must hold {default_float()} numbers, as JAX is configured here, but holds "
            f"{jnp.promote_types(state.q.dtype, state.v.dtype)}. Make it where it is used, with or without "
            "`jax.config.update('jax_enable_x64', True)` and within or outside of `jax.enable_x64(False)`."
        )


@remembered
def canonical(system: System) -> System:
    """The system with explicit types, and with the known entries of its parameters."""
    return strong(system).with_constants()


def apply_mode(system: System, state: State) -> tuple[System, State]:
    """The system in the mode of a state, and the state without its mode; a single state of the system is all that is accepted."""
    check_state(system, state)
    return system.in_mode(state.mode), dataclasses.replace(state, mode=None)


def _names(names: int | Sequence[str], argument: str, letter: str) -> tuple[str, ...]:
    if isinstance(names, int):
        return tuple(f"{letter}{i}" for i in range(names))
    if not len(names):
        raise ValueError(f"Argument `{argument}` must be a number or a sequence of names, but is {names!r}.")
    expect_different(f"`{argument}`", names)
    return tuple(names)


def _check_shapes(system: System) -> tuple[tuple[int, ...], int]:
    """Checks every function's shape and returns the row counts of the constraints and the number of inputs."""
    # Shapes only: nothing is computed, so that a system may be built from traced parameters, and in any precision.
    t, q, v = (jax.ShapeDtypeStruct(s, default_float()) for s in ((), (system.nq,), (system.nv,)))
    params, nq, nv = system.params, system.nq, system.nv
    if system.rate_fn is not None:
        shape_of("rate", system.rate_fn, (q, v, params), (nq,))
    if system.normalise_fn is not None:
        shape_of("normalise", system.normalise_fn, (q,), (nq,))
    if isinstance(system.inertia, MassInertia):
        shape_of("mass", system.inertia.mass_fn, (t, q, params), (nv, nv))
        if system.inertia.potential_fn is not None:
            shape_of("potential", system.inertia.potential_fn, (t, q, params), ())
    elif isinstance(system.inertia, LagrangianInertia):
        shape_of("lagrangian", system.inertia.lagrangian_fn, (t, q, q, params), ())
    if system.force_fn is not None:
        shape_of("force", system.force_fn, (t, q, v, params), (nv,))
    if system.resistance_fn is not None:
        shape_of("resistance", system.resistance_fn, (t, q, v, params, None), (nv,))
    nu = 0
    if system.actuation_fn is not None:
        nu = shape_of("actuation", system.actuation_fn, (t, q, params), (nv, "nu"))[1]
    return _row_counts(system, t, q, v), nu


def _row_counts(
    system: System, t: jax.ShapeDtypeStruct, q: jax.ShapeDtypeStruct, v: jax.ShapeDtypeStruct
) -> tuple[int, ...]:
    counts = []
    for i, constraint in enumerate(system.constraints):
        if not isinstance(constraint, AbstractConstraint):
            raise TypeError(
                f"Argument `constraints[{i}]` must be a `Holonomic` or `Pfaffian` constraint, but is {constraint!r}."
            )
        names = [name for c in system.constraints[: i + 1] for name in (dict(c.parts) if c.parts else (c.name,))]
        expect_different("`constraints`", names)
        arguments = (t, q) if isinstance(constraint, Holonomic) else (t, q, v)
        label = f"fn of constraint '{constraint.name}'"
        shape = shape_of(label, constraint.fn, (*arguments, system.params), ("k",), ())
        counts.append(shape[0] if shape else 1)
        if constraint.parts is not None and sum(size for _, size in constraint.parts) != counts[-1]:
            raise ValueError(
                f"Argument `parts` of constraint '{constraint.name}' must count {counts[-1]} rows, as `fn` returns, but counts "
                f"{sum(size for _, size in constraint.parts)}."
            )
    return tuple(counts)
