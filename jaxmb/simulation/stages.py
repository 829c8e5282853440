"""The stages of an explicit Runge–Kutta step, of which the last one lies where the step ends."""

import functools
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from ..foundations import where_any
from ..kinematics import BESIDE, NEAR
from ..runge_kutta import time_of_stage
from .state_vector import StateVector
from .vector_field import Sample, VectorField


class Tableau(eqx.Module):
    """y_i = y₀ + Σ a_ij k_j, k_i = h f(t₀ + c_i h, y_i); the last row of a is that of the end, y₁ = y₀ + Σ b_j k_j.

    Where a method does not evaluate its end as a stage ("first same as last"), one that counts for nothing is added there: its
    factors are those of the correction.

    Attributes:
        a: (r, s), r being s or s + 1.
        c: (r,).
        error: weights (s,) of the error estimate.
        fsal: whether the last stage is the first one of the next step.
    """

    a: Float[Array, "r s"]
    c: Float[Array, " r"]
    error: Float[Array, " s"]
    fsal: bool = eqx.field(static=True)

    @classmethod
    def of(cls, solver: dfx.AbstractSolver, dtype: DTypeLike) -> "Tableau":
        """The tableau of an explicit Runge–Kutta solver of Diffrax."""
        a, c, error, fsal = coefficients(solver)
        return cls(jnp.asarray(a, dtype), jnp.asarray(c, dtype), jnp.asarray(error, dtype), fsal)

    @property
    def with_end(self) -> tuple[Array, Array]:
        """Rows a (s + 1, s) and c (s + 1,), the last one being that of the end, which is no stage."""
        return (jnp.concatenate([self.a, self.a[-1:]]), jnp.append(self.c, 1)) if self.fsal else (self.a, self.c)


def is_explicit(solver: dfx.AbstractSolver) -> bool:
    """Whether it is an explicit Runge–Kutta method itself: of solvers that wrap one Diffrax's `isinstance` says that they are one, too."""
    return issubclass(type(solver), dfx.AbstractERK)


def coefficients(solver: dfx.AbstractSolver) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """A, c, the weights of the error and whether the last stage is the first one of the next step, see `Tableau`."""
    assert is_explicit(solver) and isinstance(solver, dfx.AbstractERK)
    tableau = solver.tableau
    assert isinstance(tableau, dfx.ButcherTableau)
    s = tableau.num_stages
    a, c = np.zeros((s + 1, s)), np.ones(s + 1)
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    a[s], c[0], c[1:s] = tableau.b_sol, 0, tableau.c
    # With "first same as last" the last stage is at the end; of other methods the end is added, for its factors.
    rows = s if tableau.fsal else s + 1
    return a[:rows], c[:rows], np.asarray(tableau.b_error), bool(tableau.fsal)


class Stages(eqx.Module):
    """The results of the stages of a step.

    Attributes:
        raw: the end of the step before its correction.
        slopes: k (s, …).
        last: the sample at the end.
        near, tau, turns: `Sample.near`, `Sample.tau` and `Sample.turns` of each stage (r,).
    """

    raw: StateVector
    slopes: StateVector
    last: Sample
    near: Bool[Array, " r"]
    tau: Float[Array, " r"]
    turns: Bool[Array, " r"]


def combine(y0: StateVector, weights: Float[Array, " s"], slopes: StateVector) -> StateVector:
    """y₀ + Σ w_j k_j, term by term: a product of matrices would move the slopes of a batch about."""
    parts = [w * k for w, k in zip(weights, slopes.packed, strict=True)]
    return y0.like(functools.reduce(jnp.add, parts, y0.packed))


def all_stages(
    field: VectorField,
    tableau: Tableau,
    t0: Array,
    t1: Array,
    y0: StateVector,
    in_use: Bool[Array, " m"],
    first: tuple[StateVector, Bool[Array, ""]] | None = None,
) -> Stages:
    """All stages by one copy of the vector field; of a method that has use for it with the `first` slope, and whether that is known.

    Where rows of a stage are near to being dependent, all are made once more and corrected from further away.
    """
    h, (rows, s) = t1 - t0, tableau.a.shape
    slope, reuse = first if first is not None and tableau.fsal else (y0, jnp.array(False))

    def stage(
        limit: Array, carry: tuple[StateVector, Sample, StateVector], part: tuple[Array, Array, Array]
    ) -> tuple[Any, tuple[Array, Array, Array]]:
        slopes, latest, _ = carry
        i, a, c = part
        y = combine(y0, a, slopes)
        reused = (i == 0) & reuse
        # Only the last row is an end, where the corrected state is asked for too.
        evaluate = lambda: field.evaluate(time_of_stage(t0, t1, c), y, in_use, i == rows - 1, limit)
        # One predicate for the batch: with one for each row `cond` becomes a selection, which evaluates both sides.
        sample = lax.cond(eqxi.unvmap_any(~reused), evaluate, lambda: latest)
        flow = slope.where(reused, sample.flow)
        position = (np.arange(s) == i)[:, None]
        slopes = slopes.like(jnp.where(position, h * flow.packed, slopes.packed))
        return (slopes, sample, y), (sample.near & ~reused, jnp.where(reused, 0, sample.tau), sample.turns & ~reused)

    limits = jnp.asarray((NEAR, BESIDE), t0.dtype)
    # The carry of a loop has its structure from the start, before any sample is at hand.
    none = jax.eval_shape(lambda: field.evaluate(t0, y0, in_use, jnp.array(False), limits[0]))
    none = jax.tree.map(lambda x: jnp.asarray(np.zeros(x.shape, x.dtype)), none)
    slopes = y0.like(jnp.asarray(np.zeros((s, y0.packed.shape[0]), y0.packed.dtype)))
    parts = (jnp.asarray(np.arange(rows)), tableau.a, tableau.c)

    def by_limit(limit: Array) -> Stages:
        (ks, last, raw), of_each = lax.scan(functools.partial(stage, limit), (slopes, none, y0), parts)
        return Stages(raw, ks, last, *of_each)

    # Known when the program is traced: far from singular poses no stage is corrected.
    if field.smooth or not field.system.m:
        return by_limit(limits[0])

    def where_near(before: Stages, limit: Array) -> tuple[Stages, None]:
        return where_any(jnp.any(before.near), lambda: by_limit(limit), before), None

    # What a stage is off the constraints by enters its slope divided by the gap: too much for gaps above NEAR too, in a step that comes near.
    start = Stages(
        raw=y0,
        slopes=slopes,
        last=none,
        near=jnp.ones(rows, bool),
        tau=jnp.zeros(rows, t0.dtype),
        turns=jnp.zeros(rows, bool),
    )
    return lax.scan(where_near, start, limits)[0]


def last_slope(slopes: StateVector, h: Array) -> tuple[StateVector, Bool[Array, ""]]:
    """The vector field at the end of a step of length h, from its slopes k, and that it is known."""
    return jax.tree.map(lambda k: k[-1] / h, slopes), jnp.array(True)
