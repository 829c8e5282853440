"""Explicit closures: dependent coordinates as functions of independent ones."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    Check,
    as_function,
    contract,
    default_float,
    enforce,
    expect_available,
    function_of,
    over_leading_axes,
    positive_or_one,
    shape_of,
)
from ..system import (
    AbstractInertia,
    Pfaffian,
    Rate,
    State,
    System,
    as_state,
    in_turn,
    jacobi_energy,
)
from .closing import consistency

Scalar = Float[Array, ""]


class Closure(eqx.Module):
    """The solution of all position constraints for some coordinates: q_D = g(t, q_I).

    Blajer, Schiehlen and Schirm 1993, eq. (5). A function describes one branch of the inverse kinematics; name the closure after the branch.

    Args:
        name: the branch, for messages.
        independent: names of the independent coordinates q_I, in the order in which `fn` takes them.
        fn: `fn(t, q_independent, params)` returns the other coordinates, in the system's order.
    """

    name: str = eqx.field(static=True)
    independent: tuple[str, ...] = eqx.field(static=True)
    fn: Callable[..., Array]

    @contract
    def __init__(self, name: str, independent: Sequence[str], fn: Annotated[Any, function_of("t, y, params")]):
        self.name = name
        self.independent = (independent,) if isinstance(independent, str) else tuple(independent)
        self.fn = as_function(fn, f"fn of closure '{name}'")


class Kinematics(eqx.Module):
    """q_D = g(t, q_I) and its derivatives, q̇_D = A q̇_I + η, q̈_D = A q̈_I + ξ.

    Attributes:
        matrix: A (nD, nI), ∂g/∂q_I.
        eta: η (nD,), ∂g/∂t.
        xi: ξ (nD,), Ȧ q̇_I + η̇.
    """

    matrix: Float[Array, "nD nI"]
    eta: Float[Array, " nD"]
    xi: Float[Array, " nD"]


class _Embedding(eqx.Module):
    """The embedding of a closure into a system's coordinates."""

    closure: Closure
    independent: tuple[int, ...] = eqx.field(static=True)
    dependent: tuple[int, ...] = eqx.field(static=True)

    def position(self, t: Scalar, q: Array, params: PyTree) -> Array:
        """All coordinates from q_I."""
        full = (
            jnp.zeros(len(self.independent) + len(self.dependent), q.dtype).at[np.array(self.independent, int)].set(q)
        )
        return full.at[np.array(self.dependent, int)].set(self.closure.fn(t, q, params))

    def motion(self, t: Scalar, q: Array, v: Array, params: PyTree) -> tuple[Array, Array]:
        """All coordinates and their rates from q_I and its rates."""
        return jax.jvp(lambda t, q: self.position(t, q, params), (t, q), (jnp.ones_like(t), v))

    def drift(self, t: Scalar, q: Array, v: Array, params: PyTree) -> Array:
        """The acceleration [0; ξ] (n,): q̈ at q̈_I = 0."""
        # The rate of q̇ along the motion with q̇_I held fixed: Ȧ q̇_I + η̇ in the dependent coordinates, zero in the others.
        return jax.jvp(lambda t, q: self.motion(t, q, v, params)[1], (t, q), (jnp.ones_like(t), v))[1]

    def reduced_force(self, t: Scalar, q: Array, params: PyTree, force: Array) -> Array:
        """D (nI, n) times a force (n,)."""
        # Transposed by reverse mode: D, of as many columns as there are coordinates, is never made.
        return jax.vjp(lambda q: self.position(t, q, params), q)[1](force)[0]

    def tangent(self, t: Scalar, q: Array, params: PyTree) -> Array:
        """Dᵀ (n, nI)."""
        return jax.jacfwd(lambda q: self.position(t, q, params))(q)


class _Reduced(AbstractInertia):
    """M_d = D M Dᵀ and h_d = D (h − M [0; ξ]) (Blajer, Schiehlen and Schirm 1993, eq. 12)."""

    system: System
    embedding: _Embedding

    def with_numbers(self, params: PyTree) -> System:
        """The system with parameters, of which it holds none."""
        return eqx.tree_at(lambda system: system.params, self.system, params, is_leaf=lambda x: x is None)

    def mass(self, t: Scalar, q: Array, params: PyTree, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """M_d."""
        tangent = self.embedding.tangent(t, q, params)
        return tangent.T @ self.with_numbers(params).mass(t, self.embedding.position(t, q, params)) @ tangent

    def force(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Float[Array, " nv"]:
        """h_d without applied forces."""
        system, (full, speed) = self.with_numbers(params), self.embedding.motion(t, q, v, params)
        force = system.intrinsic_force(t, full, speed)
        force = force - system.mass(t, full) @ self.embedding.drift(t, q, v, params)
        return self.embedding.reduced_force(t, q, params, force)

    def lagrangian(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Scalar:
        """L of the whole system."""
        system, (full, speed) = self.with_numbers(params), self.embedding.motion(t, q, v, params)
        return system.inertia.lagrangian(t, full, speed, params, None)

    def energy(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """Jacobi's energy, which differs from that of the whole system where the closure depends on time."""
        return jacobi_energy(lambda v: self.lagrangian(t, q, v, params, rate), v)


class _Force(eqx.Module):
    """D times forces of the whole system: of (t, q, v, params), or of the inputs too."""

    fn: Callable[..., Array]
    embedding: _Embedding

    def __call__(self, t: Array, q: Array, v: Array, params: PyTree, *u: Array | None) -> Array:
        full, speed = self.embedding.motion(t, q, v, params)
        return self.embedding.reduced_force(t, q, params, self.fn(t, full, speed, params, *u))


class _Actuation(eqx.Module):
    fn: Callable[..., Array]
    embedding: _Embedding

    def __call__(self, t: Array, q: Array, params: PyTree) -> Array:
        matrix = self.fn(t, self.embedding.position(t, q, params), params)
        return self.embedding.tangent(t, q, params).T @ matrix


class _Rows(eqx.Module):
    fn: Callable[..., Array]
    embedding: _Embedding

    def __call__(self, t: Array, q: Array, v: Array, params: PyTree) -> Array:
        return self.fn(t, *self.embedding.motion(t, q, v, params), params)


@contract
def reduce(system: System, closure: Closure) -> System:
    """The system in the independent coordinates of a closure, which satisfies the position constraints by construction.

    M_d q̈_I = h_d, with D, η and ξ by automatic differentiation of the closure. Velocity constraints are kept, expressed in
    q_I. Parameters are the system's.

    Args:
        system: a system with q̇ = v.
        closure: the solution of all its position constraints.

    Returns:
        A system in q_I; `restrict` and `embed` convert states.

    Raises:
        ValueError: for names or shapes that do not fit the system.
    """
    if system.rate is not None:
        raise ValueError(
            "Argument `system` must have velocities that are derivatives of its coordinates, but has a `rate`."
        )
    embedding = _embedding_of(system, closure)
    reduced = lambda kind, fn: None if fn is None else kind(fn, embedding)
    # Parameters are those that the new system hands over: a second copy within would get no derivatives.
    bare = eqx.tree_at(lambda system: system.params, system, None, is_leaf=lambda x: x is None)
    return System(
        closure.independent,
        inertia=_Reduced(bare, embedding),
        force=reduced(_Force, system.force_fn),
        constraints=[
            Pfaffian(c.name, _Rows(c.fn, embedding), None if c.parts is None else dict(c.parts))
            for c in system.constraints
            if isinstance(c, Pfaffian)
        ],
        actuation=reduced(_Actuation, system.actuation_fn),
        resistance=reduced(_Force, system.resistance_fn),
        params=system.params,
    )


@contract
def restrict(system: System, closure: Closure, state: State) -> State:
    """The state of the reduced system that belongs to a state of the system.

    Raises:
        ValueError: if the state is not on the closure's branch; whole turns of 2π make no difference.
    """
    reduced, embedding = reduce(system, closure), _embedding_of(system, closure)
    q, v = (x[..., np.array(embedding.independent, int)] for x in (state.q, state.v))
    full, speed = over_leading_axes(lambda t, q, v: embedding.motion(t, q, v, system.params), state.t.ndim)(
        state.t, q, v
    )
    off = jnp.abs(full - state.q)
    off = jnp.minimum(off, jnp.abs(in_turn(off)))
    tol = float(jnp.finfo(q.dtype).eps) ** 0.5
    # Relative to how far each coordinate reaches, and how fast it is: units do not matter.
    reach, rate = positive_or_one(state.scale.reach), positive_or_one(state.scale.rate)[..., None]
    off, gaps = off / reach, jnp.abs(speed - state.v) / (reach * rate)
    checks = []
    for i in embedding.dependent:
        text = f"Closure '{closure.name}' must give WHAT '{system.coordinates[i]}' of the state, but is off by {{}} of its size: another branch?"
        checks.append(Check(jnp.max(off[..., i]), tol, text.replace("WHAT", "coordinate")))
        checks.append(Check(jnp.max(gaps[..., i]), tol, text.replace("WHAT", "the rate of coordinate")))
    return enforce(_sized(reduced, state.t, q, v), checks)


@contract
def embed(system: System, closure: Closure, state: State) -> State:
    """The states of the system that belong to states of the reduced system.

    Args:
        system: the system.
        closure: as in `reduce`.
        state: of the reduced system, such as `Solution.states`; leading axes are kept.

    Raises:
        ValueError: if the closure does not satisfy the system's constraints; the message names the constraint.
    """
    embedding = _embedding_of(system, closure)
    q, v = over_leading_axes(lambda t, q, v: embedding.motion(t, q, v, system.params), state.t.ndim)(
        state.t, state.q, state.v
    )
    state = _sized(system, state.t, q, v)
    verb = f"is not satisfied by closure '{closure.name}'"
    checks = over_leading_axes(lambda state: consistency(system, state, verb), state.t.ndim)(state)
    return enforce(state, jax.tree.map(jnp.max, checks))


@contract
def closure_kinematics(system: System, closure: Closure, state: State) -> Kinematics:
    """A (nD, nI), η (nD,) and ξ (nD,) of a closure at a state of the reduced system, by differentiating it.

    Blajer, Schiehlen and Schirm 1993, eqs. (6)–(7). Raises a ValueError for a closure that does not fit the system.
    """
    embedding, t, q, v = _embedding_of(system, closure), state.t, state.q, state.v
    rows = np.array(embedding.dependent, int)
    return Kinematics(
        embedding.tangent(t, q, system.params)[rows],
        embedding.motion(t, q, jnp.zeros_like(v), system.params)[1][rows],
        embedding.drift(t, q, v, system.params)[rows],
    )


def _embedding_of(system: System, closure: Closure) -> _Embedding:
    expect_available(
        f"Closure '{closure.name}' must name independent coordinates", closure.independent, system.coordinates
    )
    independent = tuple(system.coordinates.index(name) for name in closure.independent)
    dependent = tuple(i for i in range(system.nq) if i not in independent)
    t, q = (jax.ShapeDtypeStruct(shape, default_float()) for shape in ((), (len(independent),)))
    label = f"fn of closure '{closure.name}'"
    shape_of(label, closure.fn, (t, q, system.params), (len(dependent),))
    return _Embedding(closure, independent, dependent)


def _sized(system: System, t: Array, q: Array, v: Array) -> State:
    """States as they are, of any leading axes, with their sizes."""
    return over_leading_axes(lambda t, q, v: as_state(system, q, v, t=t), t.ndim)(t, q, v)
