"""How objects print, and show themselves in notebooks."""

import dataclasses
import html
import inspect
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from .check import counted, is_concrete, table
from .result import RESULTS, codes, verdicts

NUMBERS = jax.Array | np.ndarray | float | int
# Arrays of no more numbers are printed, of others their shapes.
PRINTED = 9


class TextInNotebooks:
    """What prints as a table shows the same table in notebooks, where the representation of all its fields would be long."""

    def __str__(self) -> str:
        """Its fields, of each a line; the representation where numbers are not known."""
        name = getattr(self, "name", None)
        return outline(self, type(self).__name__ + (f" '{name}'" if isinstance(name, str) and name else ""))

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(str(self))}</pre>'


def outline(shown: object, title: str) -> str:
    """A table of the public fields of an object; its representation where it is traced."""
    return table(title, {name: _words(x) for name, x in _fields(shown)}) if is_concrete(shown) else repr(shown)


def _fields(shown: object) -> list[tuple[str, object]]:
    """What an object holds, but for its name, which is in the title."""
    names = [x.name for x in dataclasses.fields(shown)] if dataclasses.is_dataclass(shown) else []
    return [(name, getattr(shown, name)) for name in names if name != "name" and not name.startswith("_")]


def _words(x: object) -> list[str]:
    """A value in words: numbers, names, and what is within containers."""
    if isinstance(x, Mapping):
        return [f"{name} {', '.join(_words(of))}" if np.ndim(of) < 2 else str(name) for name, of in x.items()]
    if isinstance(x, tuple | list):
        return [word for entry in x for word in _words(entry)]
    return _values(x) if x is None or isinstance(x, NUMBERS | str) else _object(x)


def _object(x: object) -> list[str]:
    """The title of what prints as a table of its own; of any other object its class and single numbers."""
    if isinstance(x, RESULTS):
        counts = Counter(verdicts()[int(code)][0] for code in np.ravel(codes(x)))
        return [f"{count} {name}" if codes(x).ndim else name for name, count in counts.items()]
    if inspect.isclass(x) or inspect.isroutine(x):
        return [x.__name__]
    if type(x).__str__ not in (object.__str__, TextInNotebooks.__str__):
        return [str(x).splitlines()[0]]
    single = [f"{name} {_values(of)[0]}" for name, of in _fields(x) if isinstance(of, NUMBERS) and np.size(of) == 1]
    return [type(x).__name__ + (f" ({', '.join(single)})" if single else "")]


def _values(x: ArrayLike | str | None) -> list[str]:
    """Numbers, of many their shape; text as it is."""
    if x is None or isinstance(x, str):
        return [] if x is None else [x]
    if isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        return ["a key"]
    x = np.asarray(x)
    if x.dtype == bool:
        return [f"{np.sum(x)} of {x.size}" if x.ndim else str(bool(x))]
    return [f"{number + 0.0:.6g}" for number in np.ravel(x)] if x.size <= PRINTED else [f"numbers {x.shape}"]


def summary(shown: PyTree, axes: int, rows: Mapping[str, Any]) -> str:
    """A table of what an object holds of one state, or along leading axes the least and the largest; its representation where it is traced.

    Args:
        shown: the object.
        axes: number of leading axes.
        rows: by label numbers behind these axes, or such by name.
    """
    if not is_concrete(shown):
        return repr(shown)
    count = counted(int(np.prod(jax.tree.leaves(rows)[0].shape[:axes])), "state")
    title = f"{type(shown).__name__} of {count}, least to largest" if axes else type(shown).__name__
    named = lambda x: [f"{name} {', '.join(_spans(of, axes))}" for name, of in x.items()]
    return table(title, {label: named(x) if isinstance(x, Mapping) else _spans(x, axes) for label, x in rows.items()})


def _spans(x: ArrayLike, axes: int) -> list[str]:
    """Each number behind the leading axes; along these the least and the largest, NaN left out."""
    parts = np.asarray(x).reshape(int(np.prod(np.shape(x)[:axes])), -1).T
    if not axes:
        return [f"{part[0]:.6g}" for part in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NaN alone
        return [f"{np.nanmin(part):.6g} to {np.nanmax(part):.6g}" for part in parts if part.size]
