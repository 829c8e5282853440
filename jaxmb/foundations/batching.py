"""Functions over batches, and work that only some rows of a batch need."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, PyTree

# Size of a group: at least as many rows as fill vector registers (eight numbers of double precision in 512 bits), and this part of the
# batch, so that a batch that needs it in all rows has no more than 32 turns.
FEWEST, PART = 8, 32
T = TypeVar("T")


def over_leading_axes(fn: Callable[..., PyTree], count: int) -> Callable[..., PyTree]:
    """`fn` over that many leading axes of all its arguments."""
    for _ in range(count):
        fn = jax.vmap(fn)
    return fn


def tree_where(condition: Bool[Array, "..."], a: T, b: T) -> T:
    """`jnp.where` of the leaves of two trees."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def where_needed(
    needed: Bool[Array, ""], fn: Callable[..., PyTree], arguments: tuple[PyTree, ...], otherwise: PyTree
) -> PyTree:
    """`fn(*arguments)` where `needed`, else `otherwise`.

    Under `vmap` the rows that need it are gathered and worked on by groups, so that the others cost nothing. Derivatives
    are those of `fn`; to find them, all rows of a batch are worked on if one needs it.

    Args:
        needed: whether.
        fn: a function without arrays of its own.
        arguments: a tuple of its arguments; all arrays that it uses.
        otherwise: a result of the same structure.
    """
    return _compacted((needed, arguments, otherwise), fn)


def where_any(needed: Bool[Array, ""], fn: Callable[[], PyTree], otherwise: PyTree) -> PyTree:
    """`fn()` where `needed`, else `otherwise`; of a batch all rows are worked on if one needs it.

    `fn` may close over arrays. Where rows that do not need it must cost nothing, see `where_needed`.
    """
    result = lax.cond(eqxi.unvmap_any(needed), fn, lambda: otherwise)
    return tree_where(needed, result, otherwise)


@eqx.filter_custom_jvp
def _compacted(operands: tuple[PyTree, ...], fn: Callable[..., PyTree]) -> PyTree:
    """`where_needed`, whose batching gathers the rows that need it."""
    needed, arguments, otherwise = operands
    arrays, rest = eqx.partition(arguments, eqx.is_array)

    @custom_vmap
    def one(needed: Array, arrays: PyTree, otherwise: PyTree) -> PyTree:
        return lax.cond(needed, lambda: fn(*eqx.combine(arrays, rest)), lambda: otherwise)

    @one.def_vmap
    def _many(size: int, batched: PyTree[bool], *operands: PyTree) -> tuple[PyTree, PyTree[bool]]:
        spread = lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (size, *jnp.shape(x)))
        needed, arrays, otherwise = jax.tree.map(spread, operands, tuple(batched))
        group, count = min(max(FEWEST, size // PART), size), jnp.sum(needed)

        def work() -> PyTree:
            # Rows that need it first. The last group is filled up with others, whose results are dropped.
            order = jnp.argsort(~needed)

            def add(i: Array, out: PyTree) -> PyTree:
                positions = i * group + jnp.arange(group)
                rows = order[jnp.minimum(positions, size - 1)]
                results = jax.vmap(lambda arrays: fn(*eqx.combine(arrays, rest)))(
                    jax.tree.map(lambda x: x[rows], arrays)
                )
                target = jnp.where(positions < count, rows, size)
                return jax.tree.map(lambda o, x: o.at[target].set(x, mode="drop"), out, results)

            return lax.fori_loop(0, (count + group - 1) // group, add, otherwise)

        out = lax.cond(count > 0, work, lambda: otherwise)
        return out, jax.tree.map(lambda _: True, out)

    return one(needed, arrays, otherwise)


@_compacted.def_jvp
def _jvp_of_all(primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
    (needed, arguments, otherwise), fn = primals
    _, argument_tangents, other = tangents[0]

    def both(arguments: tuple[PyTree, ...], otherwise: PyTree) -> PyTree:
        return where_any(needed, lambda: eqx.filter_checkpoint(fn)(*arguments), otherwise)

    return eqx.filter_jvp(both, (arguments, otherwise), (argument_tangents, other))
