"""Stands in for `jaxmb.batch`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np


def batched(
    fn: Callable[[Any], Any], *, size: int | None = None, memory: float | None = None, mesh: Any = None
) -> Callable[[Any], Any]:
    """`fn` over the leading axis."""
    many = eqx.filter_jit(eqx.filter_vmap(fn))
    return lambda rows: jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, many(rows))
