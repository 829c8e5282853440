"""Derivatives of what a computation did not reach."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool, Float, PyTree


def with_nan_derivatives(tree: PyTree, *sources: PyTree) -> PyTree:
    """The tree, whose numbers that are NaN have NaN for a derivative by all floating-point numbers of the sources.

    A number that is put in for what was not reached is a constant, and its derivative zero: a search would take it for an optimum. In
    reverse mode a cotangent of zero stays zero, so that results which nobody uses spoil nothing.
    """
    link = sum(jnp.sum(x) for x in jax.tree.leaves(sources) if eqx.is_inexact_array(x))
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    link = jnp.asarray(link)
    marked = jax.tree.map(lambda x: _marked(x, jax.lax.stop_gradient(jnp.isnan(x)), link.astype(x.dtype)), floats)
    return eqx.combine(marked, rest)


@jax.custom_jvp
def _marked(x: Array, missing: Array, link: Array) -> Array:
    return x


@_marked.defjvp
def _marked_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    (x, missing, _), (x_dot, _, link_dot) = primals, tangents
    return x, _spoiled.bind(missing, x_dot, link_dot)


# NaN where `missing`, else x; linear in x and `link`, whose axes are the leading ones of x.
_spoiled = Primitive("spoiled")


def _spoil(missing: Bool[Array, "..."], x: Float[Array, "..."], link: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(missing, jnp.nan, x)


def _jvp(primals: Sequence[Array], tangents: Sequence[Array | ad.Zero]) -> tuple[Array, Array]:
    missing, *linear = primals
    dots = [ad.instantiate_zeros(dot) for dot in tangents[1:]]
    return _spoiled.bind(missing, *linear), _spoiled.bind(missing, *dots)


def _transpose(
    bar: Array | ad.Zero, missing: Array, x: Array | ad.UndefinedPrimal, link: Array | ad.UndefinedPrimal
) -> list[Array | None]:
    if isinstance(bar, ad.Zero):
        return [None, None, None]
    # Where a cotangent is zero, nobody uses the number: NaN times zero must not spoil the rest.
    spoiled = missing & (bar != 0)
    axes = tuple(range(link.aval.ndim if isinstance(link, ad.UndefinedPrimal) else link.ndim, bar.ndim))
    link_bar = jnp.where(jnp.any(spoiled, axis=axes), jnp.nan, jnp.zeros((), bar.dtype))
    bars = jnp.where(missing, 0, bar), link_bar
    return [None, *(b if ad.is_undefined_primal(a) else None for a, b in zip((x, link), bars, strict=True))]


def _batch(args: Sequence[Array], axes: Sequence[int | None]) -> tuple[Array, int]:
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    args = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(args, axes, strict=True)
    ]
    return _spoiled.bind(*args), 0


_spoiled.def_impl(_spoil)
_spoiled.def_abstract_eval(lambda missing, x, link: x)
mlir.register_lowering(_spoiled, mlir.lower_fun(_spoil, multiple_results=False))
ad.primitive_jvps[_spoiled] = _jvp
ad.primitive_transposes[_spoiled] = _transpose
batching.primitive_batchers[_spoiled] = _batch
