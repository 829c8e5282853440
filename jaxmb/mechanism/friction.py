"""Forces that depend on reactions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..formulation import KKT
from ..linalg import solve_square
from ..system import System, evaluate_at
from .joint_rows import connection_place, joint_terms, wrench_map
from .linkage import AbstractLinkage
from .structure import Numbers
from .systems import system_of

Scalar = Float[Array, ""]
ITERATIONS = 10


def complete_system(linkage: AbstractLinkage, numbers: Numbers, guess: Float[Array, " nq"] | None = None) -> System:
    """The system of a linkage with all its forces."""
    return system_of(linkage, numbers, guess, Partial(resistance, linkage) if linkage.skeleton.loaded else None)


def resistance(
    linkage: AbstractLinkage,
    t: Scalar,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    numbers: Numbers,
    u: Float[Array, " nu"] | None,
) -> Float[Array, " nv"]:
    """The generalised force of the elements that are proportional to reactions."""
    loads = joint_loads(linkage, t, q, v, numbers, u)
    return linkage.loaded_force(linkage.motion(t, q, v, numbers), loads)


def joint_loads(
    linkage: AbstractLinkage,
    t: Scalar,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    numbers: Numbers,
    u: Float[Array, " nu"] | None,
) -> Float[Array, " k"]:
    """The sizes n_j = |F_j| of the reaction forces that force elements are proportional to.

    The reactions are affine in the applied forces and these linear in n, so that n_j = |a_j + Σ_k A_jk n_k|, which is
    solved by Newton's method. NaN where that has no solution near the reactions without friction: the joint jams.

    Args:
        linkage: the structure.
        t: time.
        q: coordinates of `linkage`.
        v: its velocities.
        numbers: its numbers.
        u: inputs.
    """
    untied = linkage.untied
    system, free = system_of(linkage, numbers), system_of(untied, numbers)
    there, rows = joint_terms(system, free, t, q, v)
    terms = evaluate_at(free, t, there.q, there.v, rows.scale, free.applied_force(t, there.q, there.v, u))
    names = linkage.skeleton.loaded
    places = [connection_place(linkage, name) for name in names]
    maps = jnp.stack(
        [
            wrench_map(free, rows.jacobian, rows.poses, name, 1 if place.b else 0, "world")[0][: linkage.dim]
            for name, place in zip(names, places, strict=True)
        ]
    )

    def forces(applied: Float[Array, " n"]) -> Float[Array, "k d"]:
        return maps @ KKT().acceleration(eqx.tree_at(lambda x: x.force, terms, applied)).multipliers

    motion = untied.motion(there.t, there.q, there.v, numbers)
    columns = jax.jacfwd(lambda n: untied.loaded_force(motion, n))(jnp.zeros(len(names), q.dtype))
    start = forces(terms.force)
    changes = jax.vmap(lambda column: forces(terms.force + column) - start, in_axes=1, out_axes=2)(columns)
    return _fixed_point(lambda n, at: _size(at[0] + at[1] @ n), (start, changes), _size(start))


def _fixed_point(fn: Callable[..., Array], at: Any, guess: Float[Array, " k"]) -> Float[Array, " k"]:
    """N with fn(n, at) = n by Newton's method; its derivative is that of the equation."""

    def step(n: Array, at: Any) -> Array:
        residual = lambda n: n - fn(n, at)
        return n - solve_square(jax.jacfwd(residual)(n), residual(n))

    still, guess = lax.stop_gradient((at, guess))
    found = lax.stop_gradient(lax.fori_loop(0, ITERATIONS, lambda _, n: step(n, still), guess))
    found = step(found, at)
    error = jnp.max(jnp.abs(lax.stop_gradient(found - fn(found, at))))
    return jnp.where(
        error <= max(1e-9, 1e2 * float(jnp.finfo(error.dtype).eps)) * jnp.max(jnp.maximum(found, guess)), found, jnp.nan
    )


def _size(forces: Float[Array, "k d"]) -> Float[Array, " k"]:
    """Euclidean lengths, with derivative zero at zero."""
    squares = jnp.sum(forces**2, axis=-1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
