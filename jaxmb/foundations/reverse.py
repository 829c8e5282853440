"""A message to those who ask for a derivative in forward mode where there is none."""

from typing import NoReturn

import equinox as eqx
import jax
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

from .check import is_concrete


def reverse_only(tree: PyTree, message: str) -> PyTree:
    """The tree; a derivative in forward mode through its floating-point numbers raises a TypeError with the message.

    In reverse mode tangents are never computed, only transposed, and the refusal is never reached.
    """
    if is_concrete(tree):
        return tree
    return jax.tree.map(
        lambda x: _value.bind(x, message=message) if isinstance(x, Tracer) and eqx.is_inexact_array(x) else x, tree
    )


def _raise(*_: object, message: str) -> NoReturn:
    raise TypeError(message)


# Two primitives: the tangent's is evaluated in forward mode only, in reverse mode it is transposed before.
_value, _tangent = Primitive("reverse_only"), Primitive("tangent_of_reverse_only")
for _primitive in (_value, _tangent):
    _primitive.def_abstract_eval(lambda x, message: x)
_value.def_impl(lambda x, message: x)
mlir.register_lowering(_value, lambda _, x, message: [x])
ad.primitive_jvps[_value] = lambda primals, tangents, message: (
    _value.bind(*primals, message=message),
    tangents[0] if isinstance(tangents[0], ad.Zero) else _tangent.bind(*tangents, message=message),
)
batching.primitive_batchers[_value] = lambda args, axes, message: (_value.bind(*args, message=message), axes[0])
_tangent.def_impl(_raise)
mlir.register_lowering(_tangent, _raise)
ad.deflinear2(_tangent, lambda cotangent, x, message: [cotangent])
batching.primitive_batchers[_tangent] = _raise
