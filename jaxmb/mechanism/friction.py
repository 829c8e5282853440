"""Forces that depend on reactions."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial
from jaxtyping import Array, Float, PyTree

from ..formulation import KKT
from ..foundations import square_root
from ..linalg import solve_square
from ..system import System, evaluate_at
from .joint_rows import connection_slot, joint_terms, wrench_map
from .linkage import AbstractLinkage
from .structure import Numbers
from .systems import system_of

Scalar = Float[Array, ""]
# Steps of Newton's method. They converge quadratically from the loads without friction; loads that have not settled by then have
# no solution near these, and the residual below turns them into NaN.
ITERATIONS = 10
# The largest residual of accepted loads, as a part of the largest load: above rounding of the linear solves behind it, below
# anything that friction could show. In float32 a hundred units of rounding.
LOAD_TOLERANCE, LOAD_ROUNDING = 1e-9, 1e2


def complete_system(linkage: AbstractLinkage, numbers: Numbers, guess: Float[Array, " nq"] | None = None) -> System:
    """The system of a linkage with all its forces."""
    return system_of(
        linkage, numbers, guess, Partial(resistance, linkage) if linkage.connectivity.load_joints else None
    )


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
    absolute = linkage.absolute
    # In absolute coordinates, where joints of the tree have rows and multipliers too: their reactions are loads as
    # well.
    system, free = system_of(linkage, numbers), system_of(absolute, numbers)
    there, rows = joint_terms(system, free, t, q, v)
    terms = evaluate_at(free, t, there.q, there.v, rows.scale, free.applied_force(t, there.q, there.v, u))
    names = linkage.connectivity.load_joints
    slots = [connection_slot(linkage, name) for name in names]
    # Only forces count as loads, the first rows of a wrench; on the body of B, or of A where B is the ground.
    maps = jnp.stack(
        [
            wrench_map(free, rows.jacobian, rows.poses, name, 1 if slot.b else 0, "world")[0][: linkage.dim]
            for name, slot in zip(names, slots, strict=True)
        ]
    )

    def forces(applied: Float[Array, " n"]) -> Float[Array, "k d"]:
        return maps @ KKT().acceleration(dataclasses.replace(terms, force=applied)).multipliers

    motion = absolute.motion(there.t, there.q, there.v, numbers)
    # Friction is linear in the loads at a given motion, and reactions are affine in applied forces: one solve for
    # each load gives the whole map, and Newton's method then works on k numbers.
    columns = jax.jacfwd(lambda n: absolute.loaded_force(motion, n))(jnp.zeros(len(names), q.dtype))
    start = forces(terms.force)
    changes = jax.vmap(lambda column: forces(terms.force + column) - start, in_axes=1, out_axes=2)(columns)
    return _fixed_point(lambda n, at: _size(at[0] + at[1] @ n), (start, changes), _size(start))


def _fixed_point(fn: Callable[[Array, PyTree], Array], at: PyTree, guess: Float[Array, " k"]) -> Float[Array, " k"]:
    """The solution n of fn(n, at) = n by Newton's method; its derivative is that of the equation."""

    def step(n: Array, at: PyTree) -> Array:
        residual = lambda n: n - fn(n, at)
        return n - solve_square(jax.jacfwd(residual)(n), residual(n))

    # The loop has no derivative: reverse mode could not pass it, and need not. The one step behind it, at the
    # solution, changes the value by rounding and has the derivative of the equation (implicit function theorem).
    constants, guess = lax.stop_gradient((at, guess))
    loads = lax.stop_gradient(lax.fori_loop(0, ITERATIONS, lambda _, n: step(n, constants), guess))
    loads = step(loads, at)
    error = jnp.max(jnp.abs(lax.stop_gradient(loads - fn(loads, at))))
    tolerance = max(LOAD_TOLERANCE, LOAD_ROUNDING * float(jnp.finfo(error.dtype).eps))
    return jnp.where(error <= tolerance * jnp.max(jnp.maximum(loads, guess)), loads, jnp.nan)


def _size(forces: Float[Array, "k d"]) -> Float[Array, " k"]:
    """Euclidean lengths, whose derivative is set to zero at zero."""
    return square_root(jnp.sum(forces**2, axis=-1))
