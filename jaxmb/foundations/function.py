"""Callables as fields of modules."""

import contextlib
import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, PyTree


class Function(eqx.Module):
    """A plain Python function as a static part of a pytree.

    Two of them are equal when they wrap the same function object; a program is compiled anew for a new function, not for
    new numbers.
    """

    fn: Callable[..., PyTree] = eqx.field(static=True)

    def __str__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def __call__(self, *args: PyTree) -> PyTree:
        """Calls the function."""
        return self.fn(*args)


class TracedClosure(eqx.Module):
    """A plain Python function that closes over traced values, with these as leaves.

    Attributes:
        fn: the function, with a `_Gap` in place of each traced value.
        values: the traced values.
    """

    fn: Callable[..., PyTree] = eqx.field(static=True)
    values: list[Array | Tracer]

    def __call__(self, *args: PyTree) -> PyTree:
        """Calls the function with the values that the leaves have here."""
        values: Iterator[object] = iter(self.values)
        return _replaced(self.fn, lambda x: next(values) if isinstance(x, _Gap) else x, {})(*args)


class _Gap:
    """Where a traced value was."""


class PartitionedFunction(eqx.Module):
    """A callable pytree, such as a network, whose leaves are not all numbers: activations are part of the structure."""

    numbers: PyTree
    rest: PyTree = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> PyTree:
        """What it returns."""
        return eqx.combine(self.numbers, self.rest)(*args)


def text_digest(fn: Callable[..., Any]) -> str:
    """A fingerprint of the text of a function, which does not reach what it calls."""
    try:
        return hashlib.sha256(inspect.getsource(inspect.unwrap(fn)).encode()).hexdigest()
    except (OSError, TypeError):
        return "unknown"


@contextlib.contextmanager
def calling(argument: str, owner: str = "") -> Iterator[None]:
    """Where a function of the user is called: what JAX says of one that needs known numbers names it.

    Raises:
        TypeError: for a function that makes Python numbers, NumPy arrays or decisions of Python of its traced arguments.
    """
    try:
        yield
    except jax.errors.JAXTypeError as error:
        first = str(error).splitlines()[0]
        raise TypeError(
            f"Argument `{argument}`{owner} must compute with `jax.numpy` alone, without `float`, `if` or NumPy of what it is given, as its "
            f"numbers are traced; it raised {type(error).__name__}: {first}"
        ) from error


def as_function(fn: object, argument: str) -> Any:
    """Returns `fn` as a field of a module: a plain function becomes static, a callable pytree keeps its leaves.

    Traced values that a plain function closes over, also in containers, in other functions and as defaults, become leaves, so
    that it may be called inside loops, batches and derivatives like any other.
    """
    if fn is None:
        return None
    if not callable(fn):
        raise TypeError(f"Argument `{argument}` must be a function, but is {fn!r}.")
    leaves = jax.tree_util.tree_leaves(fn)
    if not (len(leaves) == 1 and leaves[0] is fn):
        return (
            fn
            if all(eqx.is_array_like(leaf) for leaf in leaves)
            else PartitionedFunction(*eqx.partition(fn, eqx.is_array_like))
        )
    values: list[Array | Tracer] = []

    def gap(x: object) -> object:
        if not isinstance(x, Tracer):
            return x
        values.append(x)
        return _Gap()

    emptied = _replaced(fn, gap, {})
    return TracedClosure(emptied, values) if values else Function(fn)


def _replaced(x: PyTree, leaf: Callable[[object], object], copies: dict[int, types.FunctionType]) -> Any:
    """A copy of x with `leaf` applied to the leaves of all that it consists of or closes over, always in one order."""
    if isinstance(x, functools.partial):
        fn, args, keywords = _replaced((x.func, x.args, x.keywords), leaf, copies)
        return functools.partial(fn, *args, **keywords)
    if isinstance(x, types.FunctionType):
        return copies[id(x)] if id(x) in copies else _copied(x, leaf, copies)
    try:
        leaves, structure = jax.tree_util.tree_flatten(x)
    except (TypeError, ValueError):  # a container whose keys have no order
        return leaf(x)
    if len(leaves) == 1 and leaves[0] is x:
        return leaf(x)
    return jax.tree_util.tree_unflatten(structure, [_replaced(part, leaf, copies) for part in leaves])


def _copied(
    fn: types.FunctionType, leaf: Callable[[object], object], copies: dict[int, types.FunctionType]
) -> types.FunctionType:
    cells = tuple(types.CellType() for _ in fn.__closure__ or ())
    # Before its cells are: a function may close over itself.
    copy = copies[id(fn)] = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, cells)
    copy.__dict__.update(fn.__dict__)
    copy.__qualname__ = fn.__qualname__
    copy.__defaults__, copy.__kwdefaults__ = (_replaced(x, leaf, copies) for x in (fn.__defaults__, fn.__kwdefaults__))
    for old, new in zip(fn.__closure__ or (), cells, strict=True):
        if old != types.CellType():  # of a variable that has a value
            new.cell_contents = _replaced(old.cell_contents, leaf, copies)
    return copy
