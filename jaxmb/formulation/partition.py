"""Coordinate partitioning with the projective criterion."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..foundations import Matrix, Positive, Share, Whole, contract
from ..linalg import RANK_TOL, ConstrainedFactor, independent_rows, regular_metric, row_norms, solve_spd, stiffened
from ..system import Terms
from .base import AbstractFormulation


class Partition(eqx.Module):
    """Independent and dependent velocities at one state: v = Dᵀ v_I + [0; η], v̇ = Dᵀ v̇_I + [0; ξ], M_d v̇_I = h_d.

    All arrays keep the order of v; the papers' [I; D] order is that of `independent` and its complement.

    Attributes:
        independent: mask (nv,) of v_I.
        tangent: D (nv, nv): row i is that of the independent velocity i, zero for a dependent one. D Cᵀ = 0; the entries of
            dependent columns are Aᵀ, A = −C_D⁻¹C_I.
        offset: [0; η] (nv,), η = −C_D⁻¹b.
        xi: [0; ξ] (nv,), ξ = C_D⁻¹Γ.
        mass: M_d = D M Dᵀ (nv, nv), with ones on the diagonal of dependent velocities.
        force: h_d = D (F − M [0; ξ]) (nv,).
        regular: whether the dependent velocities follow from the independent ones.
    """

    independent: Bool[Array, " nv"]
    tangent: Float[Array, "nv nv"]
    offset: Float[Array, " nv"]
    xi: Float[Array, " nv"]
    mass: Float[Array, "nv nv"]
    force: Float[Array, " nv"]
    regular: Bool[Array, ""]


class CoordinatePartition(AbstractFormulation):
    """Some velocities are chosen as independent, and the others follow from the constraints (Wehage and Haug; Voronets).

    Blajer, Schiehlen and Schirm 1994, eqs. (6)–(14), in the form M_d v̇_I = h_d; Müller, eqs. (12)–(13). The choice is made by
    the projective criterion, greedily: the velocity with the largest cos²α first, then the one with the largest part outside
    the directions that are fixed already, and so on. During a run the choice is made again at an accepted state if the present
    choice is much worse than the best one there. All coordinates are integrated, so that a switch changes no state.

    Args:
        independent: indices in v of the first choice; by the criterion if None. As many as there are degrees of freedom.
        switching: a choice is dropped if the volume that its directions span falls below this fraction of the volume spanned by the greedy
            choice; 0 keeps the first choice, values near 1 switch often.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits:
        It is enough that M is positive definite on null(C). With `switching=0`, a run ends with `RESULTS.unfit_choice` where the
        dependent velocities no longer follow from the independent ones; near such a pose accuracy is lost.
    """

    independent: tuple[Whole, ...] | None = eqx.field(static=True, default=None)
    switching: Share = eqx.field(static=True, default=0.3)
    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)
    choice: Bool[Array, " nv"] | None = None

    def choose(self, terms: Terms, present: Bool[Array, " nv"] | None = None) -> Bool[Array, " nv"]:
        """The first choice; later the present one, or the greedy one where that is much better.

        At a singular pose, where more velocities look independent than are nearby, the present choice stays.
        """
        if present is None and self.independent is not None:
            return _mask(self.independent, terms.force.shape[0])
        in_use = self.prepare(terms)
        best = self._greedy(terms, in_use)
        if present is None:
            return best
        if not self.switching:
            return present
        # The volume spanned by the chosen directions is the product of their remainders; logarithms do not overflow.
        volume = lambda mask: jnp.sum(jnp.log(jnp.where(mask, self._factor(terms, in_use, mask)[1], 1)))
        # At a singular pose more velocities look free than are nearby: a choice with fewer must not be dropped for that.
        surplus = jnp.sum(present) - jnp.sum(best)
        worse = volume(present) < jnp.log(self.switching) + volume(best)
        return jnp.where((surplus > 0) | ((surplus == 0) & worse), best, present)

    def with_choice(self, choice: Bool[Array, " nv"] | None) -> "CoordinatePartition":
        """The formulation with the mask of the independent velocities."""
        return eqx.tree_at(lambda f: f.choice, self, choice, is_leaf=lambda x: x is None)

    def unfit(self, terms: Terms, in_use: Bool[Array, " m"], degenerate: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether some velocity follows neither from the constraints nor from the choice."""
        factor, _ = self._factor(terms, in_use, self._mask_of(terms))
        # Lost rows are not in use but act again beside the pose: each of them fixes one more velocity.
        return jnp.sum(factor.in_use) + degenerate < terms.force.shape[0]

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M + Cᵀ diag(1/σ²) C."""
        return stiffened(terms.mass, terms.jacobian, terms.scale)[0]

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows, C_Dᵀ λ = (M v̇ − F)_D."""
        # The square matrix of the independent rows of C and the unit rows of v_I: solving with it gives A, η and ξ without sorting
        # columns into dependent and independent ones, whose numbers are not static.
        own, _ = self._factor(terms, factor.in_use, self._mask_of(terms))
        parts = _partition(terms, own)
        vdot = parts.tangent.T @ solve_spd(parts.mass, parts.force) + parts.xi
        # The multipliers of the unit rows are the balance along the free directions, D (M v̇ − F) = 0; those of the rows of C are λ.
        reaction = terms.mass @ vdot - terms.force
        m = terms.scale.shape[0]
        return vdot, own.solve(-reaction, jnp.zeros_like(own.scale))[1][:m]

    def partition(self, terms: Terms) -> Partition:
        """D, η, ξ, M_d and h_d at a state, for the choice that fits it."""
        self, in_use = self.with_choice(self.choose(terms)), self.prepare(terms)
        factor, _ = self._factor(terms, in_use, self._mask_of(terms))
        return _partition(terms, factor)

    def _mask_of(self, terms: Terms) -> Bool[Array, " nv"]:
        return jnp.zeros(terms.force.shape, bool) if self.choice is None else self.choice

    def _greedy(self, terms: Terms, in_use: Bool[Array, " m"]) -> Bool[Array, " nv"]:
        metric, rows, scale = _with_units(self.metric(terms), terms, in_use)
        m = in_use.shape[0]
        # Constraint rows first: unit rows, of length one in the metric, are then compared by their remainders outside of C, the cos α of
        # the criterion in this metric.
        first = jnp.arange(rows.shape[0]) < m
        return independent_rows(metric, rows, scale, self.rank_tol, first)[m:]

    def _factor(
        self, terms: Terms, in_use: Bool[Array, " m"], mask: Bool[Array, " nv"]
    ) -> tuple[ConstrainedFactor, Float[Array, " nv"]]:
        """The factors of the square matrix of constraint rows and chosen unit rows, and the remainders of the latter."""
        metric, rows, scale = _with_units(self.metric(terms), terms, in_use)
        factor = ConstrainedFactor(metric, rows, scale, jnp.concatenate([in_use, mask]), self.rank_tol)
        return factor, factor.remainders[in_use.shape[0] :]


def _with_units(
    metric: Float[Array, "nv nv"], terms: Terms, in_use: Bool[Array, " m"]
) -> tuple[Float[Array, "nv nv"], Float[Array, "r nv"], Float[Array, " r"]]:
    """The rows of C and one for each velocity, with the reference sizes by which a unit row has length one."""
    n = terms.force.shape[0]
    lengths = row_norms(metric, jnp.eye(n, dtype=metric.dtype))
    rows = jnp.where(in_use[:, None], terms.jacobian, 0)
    return metric, jnp.concatenate([rows, jnp.eye(n, dtype=rows.dtype)]), jnp.concatenate([terms.scale, lengths])


def _partition(terms: Terms, factor: ConstrainedFactor) -> Partition:
    m, n = terms.jacobian.shape
    mask = factor.in_use[m:]  # at a singular pose fewer are free than were chosen
    zero = jnp.zeros(n, terms.force.dtype)
    follow = lambda rows, chosen: factor.solve(zero, jnp.concatenate([rows, chosen]))[0]
    none = jnp.zeros(m, zero.dtype)
    tangent = jax.vmap(lambda unit: follow(none, unit))(jnp.diag(mask.astype(zero.dtype)))
    xi = follow(terms.gamma, zero)
    # Ones for dependent velocities keep the matrix regular at a static size; their right-hand sides are zero.
    mass = tangent @ terms.mass @ tangent.T + jnp.diag((~mask).astype(zero.dtype))
    return Partition(
        independent=mask,
        tangent=tangent,
        offset=follow(-terms.offset, zero),
        xi=xi,
        mass=mass,
        force=tangent @ (terms.force - terms.mass @ xi),
        regular=jnp.sum(factor.in_use) == n,
    )


class Criterion(eqx.Module):
    """How much of each velocity's direction is free, and how much is constrained; the two sum to one.

    Attributes:
        tangent: cos²α (nv,); zero for a velocity that cannot be independent.
        normal: cos²β (nv,).
    """

    tangent: Float[Array, " nv"]
    normal: Float[Array, " nv"]


@contract
def projective_criterion(terms: Terms, weight: Matrix | None = None, rank_tol: Positive = RANK_TOL) -> Criterion:
    """cos²α_i = d_iᵀ M_d⁻¹ d_i / (M⁻¹)_ii and cos²β_i = c_iᵀ (C M⁻¹Cᵀ)⁻¹ c_i / (M⁻¹)_ii.

    Blajer, Schiehlen and Schirm 1994, eq. (23), d_i and c_i columns of D and of C M⁻¹. Evaluated with orthonormal rows Q of
    C M^(−1/2), which need no choice of coordinates: with a_i the row i of M^(−1/2), cos²β_i = |Q a_i|²/|a_i|².

    Args:
        terms: the evaluated system.
        weight: the metric (nv, nv); M if None. With the identity this is the geometric criterion of a singular value
            decomposition, which does not depend on masses: cos²α_i is the squared length of row i of an orthonormal null-space basis.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
    """
    in_use = independent_rows(regular_metric(terms.mass, terms.jacobian), terms.jacobian, terms.scale, rank_tol)
    # The rank is decided in the metric of M whatever the weight, as everywhere else; the weight only measures angles.
    metric = regular_metric(terms.mass, terms.jacobian) if weight is None else weight
    factor = ConstrainedFactor(metric, terms.jacobian, terms.scale, in_use, 0.0)
    units = factor.root.T
    size = jnp.sum(units**2, axis=1)
    # Both are lengths of two orthogonal parts of one vector, so that cos²α and cos²β sum to 1 to rounding.
    normal = (units @ factor.basis.T) @ factor.basis
    tangent = units - normal
    return Criterion(jnp.sum(tangent**2, axis=1) / size, jnp.sum(normal**2, axis=1) / size)


def _mask(indices: Sequence[int], n: int) -> Bool[Array, " nv"]:
    if any(not 0 <= i < n for i in indices):
        raise ValueError(
            f"Argument `independent` must hold indices of velocities below {n}, but holds {tuple(indices)}."
        )
    return jnp.asarray(np.isin(np.arange(n), np.array(indices, int)))
