"""How objects show themselves in notebooks."""

import html
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from .check import counted, is_concrete, table


class TextInNotebooks:
    """What prints as a table shows the same table in notebooks, where the representation of all its fields would be long."""

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(str(self))}</pre>'


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
