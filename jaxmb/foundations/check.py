"""Refusals: an error at once where the values are known, one from inside the compiled program where they are traced."""

import collections
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .function import calling

T = TypeVar("T")

# How many names a message lists: two lines of it.
MOST = 12


class Check(eqx.Module):
    """A quantity that must not exceed a limit, or one for each of several names, and the sentence to say if it does.

    Attributes:
        amount: the measured quantity, or one for each name (k,); a value that is not a number fails.
        limit: the largest admissible amount.
        text: what must be; `{}` stands for the amount, which is left out where it is traced, `{name}` for the name, and
            `{note}` for what `enforce` is told of it.
        names: the names.
    """

    amount: Float[Array | np.ndarray, "*k"]
    limit: float = eqx.field(static=True)
    text: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, default=())

    def sentences(self, notes: Mapping[str, str]) -> list[str]:
        """The sentence for each amount, if known with its figure."""
        with_name = lambda name: self.text.replace("{name}", name).replace("{note}", notes.get(name, ""))
        texts = [with_name(name) for name in self.names] or [self.text]
        if not is_concrete(self.amount):
            return [text.replace("{}", "too large") for text in texts]
        amounts = np.ravel(self.amount)
        return [text.replace("{}", f"{float(x):.3g}") for text, x in zip(texts, amounts, strict=True)]


def all_hold(checks: Sequence[Check]) -> Array:
    """Whether every check holds."""
    if is_concrete(checks):
        return jnp.asarray(np.array(all(np.all(np.asarray(c.amount) <= c.limit) for c in checks)), bool)
    return jnp.all(_within(checks))


def _within(checks: Sequence[Check]) -> Array:
    """Which amounts of all checks are within their limits."""
    return jnp.concatenate([jnp.ravel(c.amount) <= c.limit for c in checks])


def enforce(value: T, checks: Sequence[Check], notes: Mapping[str, str] | None = None) -> T:
    """Returns `value` if all checks hold and raises otherwise, with all that fail in one message.

    Args:
        value: what is returned.
        checks: the checks.
        notes: by name, what more there is to say where a check asks for it.

    Raises:
        ValueError: at once, where the amounts are known; otherwise the compiled program raises Equinox's run-time error.
    """
    checks = [c for c in checks if c.amount.size]
    concrete = [c for c in checks if is_concrete(c.amount)]
    # "not above" would let NaN pass.
    within = [np.ravel(np.asarray(c.amount)) <= c.limit for c in concrete]
    if not all(map(np.all, within)):
        sentences = [c.sentences(notes or {}) for c in concrete]
        failed = [
            text
            for texts, ok in zip(sentences, within, strict=True)
            for text, x in zip(texts, ok, strict=True)
            if not x
        ]
        raise ValueError("\n".join(failed))
    traced = [c for c in checks if not is_concrete(c.amount)]
    if traced:  # one error for all, as each takes a call of the host into the program
        failures = ~_within(traced)
        sentences = [text for c in traced for text in c.sentences(notes or {})]
        value = eqx.branched_error_if(value, jnp.any(failures), jnp.argmax(failures), sentences)
    return value


def is_concrete(*trees: PyTree) -> bool:
    """Whether all leaves have values: none is a tracer, or a mere shape."""
    return not any(isinstance(x, Tracer | jax.ShapeDtypeStruct) for x in jax.tree_util.tree_leaves(trees))


def expect_concrete(**arguments: PyTree) -> None:
    """Refuses arguments with traced numbers, by name.

    Raises:
        TypeError: where a number has no value.
    """
    for name, value in arguments.items():
        if not is_concrete(value):
            raise TypeError(
                f"Argument `{name}` must hold known numbers, but is traced: call this with what `jit`, `vmap` or `grad` returns."
            )


def expect_numbers(argument: str, tree: PyTree) -> None:
    """Refuses a pytree that holds something else than numbers, such as text, by its place.

    Raises:
        TypeError: naming what is none.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not (eqx.is_array_like(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)):
            raise TypeError(
                f"Argument `{argument}{jax.tree_util.keystr(path)}` must be a number or an array of numbers, but is {leaf!r}."
            )


def arrays_of(*trees: PyTree) -> ModuleType:
    """NumPy where all leaves have values, which compiles nothing, else `jax.numpy`."""
    return np if is_concrete(trees) else jnp


def listing(items: Iterable[object]) -> str:
    """'a', 'b' and 'c'; of many the first and how many more there are."""
    words = [repr(str(x)) for x in items]
    if len(words) > MOST:
        words = [*words[: MOST - 1], f"{len(words) - MOST + 1} others"]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"


def expect_different(argument: str, names: Iterable[str]) -> None:
    """Refuses names of which one comes twice; `argument` is what they are of, as it stands in the message.

    Raises:
        ValueError: naming those that repeat.
    """
    # Of a mapping the keys: its values would be taken for counts.
    repeated = [name for name, count in collections.Counter(list(names)).items() if count > 1]
    if repeated:
        raise ValueError(f"Argument {argument} must hold different names, but repeats {listing(repeated)}.")


def expect_available(subject: str, names: Iterable[object], available: Collection[object]) -> None:
    """Refuses names that are not available; `subject` is how the message begins, "Argument `cut` must hold names of joints".

    Raises:
        ValueError: with those that are not.
    """
    unknown = [name for name in names if name not in available]
    if unknown:
        verb = "names" if "must name" in subject else "holds"
        raise ValueError(f"{subject} out of {listing(available)}, but {verb} {listing(unknown)}.")


def expect_shape(argument: str, value: PyTree, *shapes: tuple[int, ...]) -> None:
    """Refuses an array that has none of some shapes; `argument` is what it is, as it stands in the message.

    Raises:
        ValueError: naming it.
    """
    shape = np.shape(value)
    if shape not in shapes:
        number = ["be a number"] if () in shapes else []
        others = [f"have shape {' or '.join(str(x) for x in shapes if x)}"] if any(shapes) else []
        raise ValueError(f"Argument {argument} must {' or '.join(number + others)}, but has shape {shape}.")


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 joint, 2 joints."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of a table whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def table(title: str, rows: Mapping[str, Iterable[str]]) -> str:
    """A title and a row for each label that has any words, of three lines at most."""
    lines, width = [title], max([13, *map(len, rows)])
    for label, words in rows.items():
        text = ", ".join(words)
        if text:
            start = f"  {label:<{width}} "
            lines.append(
                textwrap.fill(
                    text, 110, initial_indent=start, subsequent_indent=" " * len(start), max_lines=3, placeholder=" …"
                )
            )
    return "\n".join(lines)


def shape_of(
    argument: str, fn: Callable[..., PyTree], args: Sequence[PyTree], *expected: tuple[int | str, ...]
) -> tuple[int, ...]:
    """The shape of the array that ``fn(*args)`` returns, found without values.

    Args:
        argument: what the function is called in messages.
        fn: the function.
        args: arrays, or their shapes, and parameters.
        *expected: shapes that it may have; a string stands for any number.

    Raises:
        ValueError: if it cannot be called, or returns anything but an array of floating-point numbers of such a shape.
    """
    try:
        with calling(argument):
            result = jax.eval_shape(fn, *args)
    except Exception as error:
        if isinstance(error.__cause__, jax.errors.JAXTypeError):  # `calling` has named it
            raise
        kind = lambda x: type(x).__name__ if isinstance(x, eqx.Module) else "params"
        shapes = ", ".join(str(getattr(x, "shape", kind(x))) for x in args)
        raise ValueError(
            f"Argument `{argument}` must be callable with arguments of shapes {shapes}, but raised "
            f"{type(error).__name__}: {error}"
        ) from error
    expect_returned(argument, result, *expected)
    return result.shape


def expect_returned(argument: str, result: Any, *expected: tuple[int | str, ...]) -> None:
    """Refuses what a function of the user returns if it is no array of floating-point numbers of one of some shapes, or a number of Python for ().

    Args:
        argument: what the function is called in messages.
        result: what it returns, or its shape and type.
        *expected: shapes that it may have; a string stands for any number.

    Raises:
        ValueError: naming the function, what it must return and what it does.
    """
    result = np.asarray(result) if type(result) is float else result
    shapes = " or ".join(str(shape).replace("'", "") for shape in expected)
    requirement = f"Argument `{argument}` must return an array of shape {shapes}"
    if not hasattr(result, "shape"):
        kind = type(result).__name__
        raise ValueError(f"{requirement}, but returns {f'a {kind}' if result is not None else kind}.")
    fits = lambda shape: (
        len(shape) == len(result.shape)
        and all(isinstance(a, str) or a == b for a, b in zip(shape, result.shape, strict=True))
    )
    if not any(fits(shape) for shape in expected):
        raise ValueError(f"{requirement}, but returns shape {result.shape}.")
    if not jnp.issubdtype(result.dtype, jnp.floating):
        raise ValueError(f"{requirement} of floating-point numbers, but returns {result.dtype} numbers.")
