"""Inertia by a mass matrix with a potential, or by a Lagrangian."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..linalg import solve_spd

# All derivatives of a dense M cost as many evaluations as there are coordinates, the two that are needed about five.
SMALL = 4

Scalar = Float[Array, ""]
Rate = Callable[[Array, Array], Array]


def rate_matrix(rate: Rate, q: Array, nv: int) -> Float[Array, "nq nv"]:
    """N of q̇ = N(q) v."""
    return jax.jacfwd(lambda v: rate(q, v))(jnp.zeros(nv, q.dtype))


def rate_transposed(rate: Rate, q: Array, v: Array, covector: Array) -> Float[Array, " nv"]:
    """Nᵀ times a covector of the coordinates."""
    return jax.vjp(lambda v: rate(q, v), v)[1](covector)[0]


class AbstractInertia(eqx.Module):
    """The inertial and potential part of a system.

    `rate` is None where q̇ = v, or the function (q, v) ↦ N(q) v.
    """

    @abc.abstractmethod
    def mass(self, t: Scalar, q: Array, params: PyTree, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """M of shape (nv, nv)."""

    def products(
        self, t: Scalar, q: Array, directions: Float[Array, "k nv"], params: PyTree, rate: Rate | None
    ) -> Float[Array, "k nv"]:
        """M times several vectors."""
        return directions @ self.mass(t, q, params, rate, directions.shape[1])

    @abc.abstractmethod
    def force(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Float[Array, " nv"]:
        """Inertia and potential forces on the right-hand side: M v̇ = force + applied + reaction."""

    def solve(self, t: Scalar, q: Array, force: Float[Array, " nv"], params: PyTree) -> Float[Array, " nv"] | None:
        """M⁻¹ f, where that takes fewer operations without M; None where it does not."""
        return None

    @abc.abstractmethod
    def energy(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """Kinetic and potential energy; their sum is Jacobi's energy q̇·∂L/∂q̇ − L."""

    def lagrangian(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Scalar:
        """L = T − V."""
        kinetic, potential = self.energy(t, q, v, params, rate)
        return kinetic - potential

    def unrolled(self, count: int) -> "AbstractInertia":
        """The same for so many coordinates, whose functions take the fewest operations on numbers: for compiled code of our own."""
        return self

    def explicit_power(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Scalar:
        """−∂L/∂t, the rate at which explicit time dependence changes the energy."""
        return -jax.jvp(lambda t: self.lagrangian(t, q, v, params, rate), (t,), (jnp.ones_like(t),))[1]


class MassInertia(AbstractInertia):
    """T = ½ vᵀ M(t,q) v and V(t,q); inertia forces by differentiating M.

    With p = M v and z = N (NᵀN)⁻¹ p the equations of Boltzmann and Hamel give

        M v̇ = −Ṁ v + ½ Nᵀ ∂(vᵀMv)/∂q − Nᵀ (∂(N v)/∂q)ᵀ z + Ṅᵀ z − Nᵀ ∂V/∂q,

    whose third and fourth terms are the gyroscopic forces of velocities that are no derivatives of coordinates; they
    vanish for N = I.
    """

    mass_fn: Callable[[Array, Array, PyTree], Array]
    potential_fn: Callable[[Array, Array, PyTree], Array] | None

    def unrolled(self, count: int) -> AbstractInertia:
        """M is symmetric, and small matrices are differentiated entry by entry."""
        return EntrywiseInertia(self.mass_fn, self.potential_fn) if count <= SMALL else self

    def mass(self, t: Scalar, q: Array, params: PyTree, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """M(t, q)."""
        return self.mass_fn(t, q, params)

    def force(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Float[Array, " nv"]:
        """The right-hand side above."""
        qdot = v if rate is None else rate(q, v)
        p, pdot, slope = self._changes(t, q, v, params, qdot)
        if rate is None:
            # N = I: the terms of Boltzmann and Hamel vanish, and Lagrange's equations are left.
            return slope - pdot
        matrix = rate_matrix(rate, q, v.shape[0])
        # The z of range(N) with Nᵀz = p; NᵀN is regular, as N has full column rank.
        z = matrix @ solve_spd(matrix.T @ matrix, p)
        # −(∂(N v)/∂q)ᵀ z as one product: the derivative of N, of shape (nq, nv, nq), is never formed.
        slope = slope - jax.vjp(lambda q: rate(q, v), q)[1](z)[0]
        # Ṅᵀ z: with z fixed the derivative of Nᵀ z along q̇.
        turning = jax.jvp(lambda q: rate_transposed(rate, q, v, z), (q,), (qdot,))[1]
        return matrix.T @ slope + turning - pdot

    def _changes(self, t: Scalar, q: Array, v: Array, params: PyTree, qdot: Array) -> tuple[Array, Array, Array]:
        """p, Ṁ v and ∂(½ vᵀMv − V)/∂q."""

        # M v with v held: its derivative along (1, q̇) is Ṁ v, without the matrix Ṁ.
        def momentum(t: Array, q: Array) -> Array:
            return self.mass_fn(t, q, params) @ v

        def action(q: Array) -> Array:
            # ½ vᵀMv and V by one reverse pass, since only their difference is differentiated by q.
            energy = 0.5 * jnp.dot(v, momentum(t, q))
            return energy if self.potential_fn is None else energy - self.potential_fn(t, q, params)

        p, pdot = jax.jvp(momentum, (t, q), (jnp.ones_like(t), qdot))
        return p, pdot, jax.grad(action)(q)

    def energy(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """½ vᵀ M v and V."""
        kinetic = 0.5 * jnp.dot(v, self.mass_fn(t, q, params) @ v)
        return kinetic, jnp.zeros_like(kinetic) if self.potential_fn is None else self.potential_fn(t, q, params)


class EntrywiseInertia(MassInertia):
    """The same from ∂M/∂q, of whose entries below the diagonal those above are copies."""

    def _changes(self, t: Scalar, q: Array, v: Array, params: PyTree, qdot: Array) -> tuple[Array, Array, Array]:
        def own(t: Array, q: Array) -> Array:
            below = jnp.tril(self.mass_fn(t, q, params))
            return below + jnp.tril(below, -1).T

        mass, mass_t = jax.jvp(lambda t: own(t, q), (t,), (jnp.ones_like(t),))
        # (∂M_ab/∂q_k) v_b serves twice: times q̇ it is Ṁ v, and ½ v of it is the slope of the kinetic energy. Compiled code shares the
        # entries.
        turned = jnp.einsum("abk,b->ak", jax.jacfwd(own, 1)(t, q), v)
        slope = 0.5 * (v @ turned)
        if self.potential_fn is not None:
            slope = slope - jax.grad(self.potential_fn, 1)(t, q, params)
        return mass @ v, turned @ qdot + mass_t @ v, slope


class LagrangianInertia(AbstractInertia):
    """Everything from L(t, q, q̇): M = Nᵀ L_q̇q̇ N, force = Nᵀ (L_q − L_q̇q q̇ − L_q̇t − L_q̇q̇ Ṅ v)."""

    lagrangian_fn: Callable[[Array, Array, Array, PyTree], Array]

    def mass(self, t: Scalar, q: Array, params: PyTree, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """Nᵀ L_q̇q̇ N at zero velocity; L must be quadratic in q̇."""
        # L is quadratic in q̇, so that the Hessian is the same at any velocity; terms linear in q̇ (gyroscopic ones) drop out of it.
        hessian = jax.hessian(lambda qdot: self.lagrangian_fn(t, q, qdot, params))(jnp.zeros_like(q))
        if rate is None:
            return hessian
        matrix = rate_matrix(rate, q, nv)
        return matrix.T @ hessian @ matrix

    def force(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Float[Array, " nv"]:
        """The total time derivative of ∂L/∂q̇ with v held fixed covers all terms but the first."""
        qdot = v if rate is None else rate(q, v)

        def momentum(t: Array, q: Array) -> Array:
            # Within the differentiated function: with v held q̇ = N(q) v changes with q, which gives the term L_q̇q̇ Ṅ v.
            qdot = v if rate is None else rate(q, v)
            return jax.grad(lambda x: self.lagrangian_fn(t, q, x, params))(qdot)

        slope = jax.grad(lambda q: self.lagrangian_fn(t, q, qdot, params))(q)
        balance = slope - jax.jvp(momentum, (t, q), (jnp.ones_like(t), qdot))[1]
        return balance if rate is None else rate_transposed(rate, q, v, balance)

    def energy(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """Potential = −L(t, q, 0); kinetic = q̇·∂L/∂q̇ − L minus that."""
        return jacobi_energy(lambda qdot: self.lagrangian_fn(t, q, qdot, params), v if rate is None else rate(q, v))

    def lagrangian(self, t: Scalar, q: Array, v: Array, params: PyTree, rate: Rate | None) -> Scalar:
        """L."""
        return self.lagrangian_fn(t, q, v if rate is None else rate(q, v), params)


def jacobi_energy(lagrangian: Callable[[Array], Array], qdot: Array) -> tuple[Scalar, Scalar]:
    """q̇·∂L/∂q̇ − L + L(0) and −L(0): kinetic and potential energy of a Lagrangian that is quadratic in q̇."""
    # Jacobi's energy, whose balance is −∂L/∂t: with a moving frame T + V would not be conserved. A term linear in q̇ has no part in it.
    value, momentum = jax.value_and_grad(lagrangian)(qdot)
    potential = -lagrangian(jnp.zeros_like(qdot))
    return jnp.dot(qdot, momentum) - value - potential, potential
