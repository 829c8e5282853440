"""Functions over batches, and work that only some rows of a batch need."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

# Size of a group: at least as many rows as fill vector registers, and this part of the batch.
FEWEST, PART = 8, 32


def over_leading_axes(fn: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`fn` over that many leading axes of all its arguments."""
    for _ in range(count):
        fn = jax.vmap(fn)
    return fn


def where_needed(needed: Bool[Array, ""], fn: Callable[..., Any], arguments: Any, otherwise: Any) -> Any:
    """`fn(*arguments)` where `needed`, else `otherwise`.

    Under `vmap` the rows that need it are gathered and worked on by groups, so that the others cost nothing. Derivatives
    are those of `fn`; to find them, all rows of a batch are worked on if one needs it.

    Args:
        needed: whether.
        fn: a function without arrays of its own.
        arguments: a tuple of its arguments; all arrays that it uses.
        otherwise: a result of the same structure.
    """
    return _chosen((needed, arguments, otherwise), fn)


def where_any(needed: Bool[Array, ""], fn: Callable[[], Any], otherwise: Any) -> Any:
    """`fn()` where `needed`, else `otherwise`; of a batch all rows are worked on if one needs it.

    `fn` may close over arrays. Where rows that do not need it must cost nothing, see `where_needed`.
    """
    found = lax.cond(eqxi.unvmap_any(needed), fn, lambda: otherwise)
    return jax.tree.map(lambda a, b: jnp.where(needed, a, b), found, otherwise)


@eqx.filter_custom_jvp
def _chosen(operands: Any, fn: Callable[..., Any]) -> Any:
    needed, arguments, otherwise = operands
    arrays, rest = eqx.partition(arguments, eqx.is_array)

    @custom_vmap
    def one(needed: Array, arrays: Any, otherwise: Any) -> Any:
        return lax.cond(needed, lambda: fn(*eqx.combine(arrays, rest)), lambda: otherwise)

    @one.def_vmap
    def _many(size: int, batched: Any, *operands: Any) -> Any:
        spread = lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (size, *jnp.shape(x)))
        needed, arrays, otherwise = jax.tree.map(spread, operands, tuple(batched))
        group, count = min(max(FEWEST, size // PART), size), jnp.sum(needed)

        def work() -> Any:
            order = jnp.argsort(~needed)

            def add(i: Array, out: Any) -> Any:
                places = i * group + jnp.arange(group)
                rows = order[jnp.minimum(places, size - 1)]
                found = jax.vmap(lambda arrays: fn(*eqx.combine(arrays, rest)))(jax.tree.map(lambda x: x[rows], arrays))
                target = jnp.where(places < count, rows, size)
                return jax.tree.map(lambda o, x: o.at[target].set(x, mode="drop"), out, found)

            return lax.fori_loop(0, (count + group - 1) // group, add, otherwise)

        out = lax.cond(count > 0, work, lambda: otherwise)
        return out, jax.tree.map(lambda _: True, out)

    return one(needed, arrays, otherwise)


@_chosen.def_jvp
def _by_all(primals: Any, tangents: Any) -> Any:
    (needed, arguments, otherwise), fn = primals
    _, moved, other = tangents[0]

    def both(arguments: Any, otherwise: Any) -> Any:
        work = lambda: jax.tree.map(
            lambda a, b: jnp.where(needed, a, b), eqx.filter_checkpoint(fn)(*arguments), otherwise
        )
        return lax.cond(eqxi.unvmap_any(needed), work, lambda: otherwise)

    return eqx.filter_jvp(both, (arguments, otherwise), (moved, other))
