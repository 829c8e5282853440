"""Equations that move entries, as rearrangements of arrays of nodes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from .errors import NotScalarError
from .jaxpr import Params, shaped

if TYPE_CHECKING:
    from .scalarise import Reader

# Of more places than this, one that depends on the state is looked up in memory; of fewer it is chosen by comparisons.
FEW = 4


def _iota(reader: "Reader", equation: JaxprEqn, p: Params) -> np.ndarray:
    shape, d = p["shape"], p["dimension"]
    numbers = np.arange(shape[d]).reshape([-1 if k == d else 1 for k in range(len(shape))])
    return reader.lifted(np.broadcast_to(numbers, shape))


def _empty(reader: "Reader", equation: JaxprEqn, p: Params) -> np.ndarray:
    """What branches do not set that others do."""
    out = shaped(equation.outvars[0])
    return reader.lifted(np.zeros(out.shape, out.dtype))


def _slice(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    strides = p["strides"] or [1] * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _broadcast_in_dim(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for d, count in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[d] = count
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _pad(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    for axis, (low, high, inner) in enumerate(p["padding_config"]):
        count, interior, inside = x.shape[axis], [slice(None)] * x.ndim, [slice(None)] * x.ndim
        spread = (count - 1) * (inner + 1) + 1 if count else 0
        shape = list(x.shape)
        shape[axis] = max(low, 0) + spread + max(high, 0)
        out = np.full(shape, value)
        interior[axis] = slice(max(low, 0), max(low, 0) + spread, inner + 1)
        out[tuple(interior)] = x
        # Negative padding cuts entries off.
        inside[axis] = slice(max(-low, 0), shape[axis] - max(-high, 0))
        x = out[tuple(inside)]
    return x


def _dynamic_slice(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes = p["slice_sizes"]
    free = [d for d, start in enumerate(starts) if reader.constants(start) is None]
    if len(free) > 1:
        raise NotScalarError("it uses `dynamic_slice` with several places that depend on the state")
    begin = [
        0 if d in free else int(np.clip(reader.indices(s, "dynamic_slice"), 0, x.shape[d] - sizes[d]))
        for d, s in enumerate(starts)
    ]
    cut = lambda begin: x[tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))]
    if free and x.shape[free[0]] - sizes[free[0]] >= FEW:
        return _table_entry(reader, x, starts[free[0]], free[0], begin, sizes)
    out = cut(begin)
    for d in free:
        for k in range(1, x.shape[d] - sizes[d] + 1):
            begin[d] = k
            reached = reader.each("ge", starts[d], reader.graph.constant(k))
            out = reader.each("select", reached, cut(begin), out)
    return out


def _table_entry(
    reader: "Reader", x: np.ndarray, start: np.ndarray, axis: int, begin: Sequence[int], sizes: Sequence[int]
) -> np.ndarray:
    """A part of an array that begins at an index along an axis which depends on the state."""
    out, count = np.empty(sizes, np.int64), x.shape[axis] - sizes[axis] + 1
    for entry in np.ndindex(*sizes):
        # All entries that may be this one, depending on where the part begins.
        candidates: list[int | slice] = [b + k for b, k in zip(begin, entry, strict=True)]
        candidates[axis] = slice(entry[axis], entry[axis] + count)
        out[entry] = reader.graph.apply("lookup", int(start), *x[tuple(candidates)].tolist())
    return out


def _dynamic_update_slice(
    reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, new: np.ndarray, *starts: np.ndarray
) -> np.ndarray:
    begin = [
        int(np.clip(reader.indices(s, "dynamic_update_slice"), 0, x.shape[d] - new.shape[d]))
        for d, s in enumerate(starts)
    ]
    out = x.copy()
    out[tuple(slice(b, b + size) for b, size in zip(begin, new.shape, strict=True))] = new
    return out


def _gather(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    # As StableHLO defines it: a window of `sizes` for each row of indices, without the axes that are collapsed.
    numbers, sizes, first = p["dimension_numbers"], p["slice_sizes"], reader.indices(indices, "gather")
    absent = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [size for d, size in enumerate(sizes) if d not in absent]
    lead = first.shape[:-1]
    out = np.empty((*lead, *window), np.int64)
    fill = None
    for entry in np.ndindex(*lead):
        start = np.zeros(x.ndim, np.int64)
        start[list(numbers.start_index_map)] = first[entry]
        for d, axis in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            start[d] = entry[axis]
        inside = np.clip(start, 0, np.array(x.shape) - sizes)
        if p["mode"] == lax.GatherScatterMode.FILL_OR_DROP and np.any(inside != start):
            fill = _fill(reader, equation, p) if fill is None else fill
            out[entry] = fill
            continue
        part = x[tuple(slice(b, b + size) for b, size in zip(inside, sizes, strict=True))]
        out[entry] = part.reshape(window)
    axes, batch = list(numbers.offset_dims), iter(range(len(lead)))
    offsets = iter(range(len(lead), out.ndim))
    return out.transpose([next(offsets) if d in axes else next(batch) for d in range(out.ndim)])


def _fill(reader: "Reader", equation: JaxprEqn, p: Params) -> int:
    # JAX's own defaults: NaN, True, the smallest integer of 32 bits.
    kind = shaped(equation.outvars[0]).dtype.kind
    default = np.nan if kind == "f" else (True if kind == "b" else -(2**31))
    return reader.graph.constant(default if p["fill_value"] is None else p["fill_value"])


def _scatter(
    reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, indices: np.ndarray, new: np.ndarray
) -> np.ndarray:
    adds = equation.primitive.name != "scatter"
    numbers, first = p["dimension_numbers"], reader.indices(indices, "scatter")
    out = x.copy()
    window = list(numbers.update_window_dims)
    lead = [d for d in range(new.ndim) if d not in window]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    free = [d for d in range(x.ndim) if d not in inserted]
    sizes = np.ones(x.ndim, np.int64)
    sizes[free] = [new.shape[d] for d in window]
    for source in np.ndindex(*new.shape):
        entry = tuple(source[d] for d in lead)  # which row of indices
        start = np.zeros(x.ndim, np.int64)
        start[list(numbers.scatter_dims_to_operand_dims)] = first[entry]
        for d, axis in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            start[d] = entry[axis]
        inside = np.clip(start, 0, np.array(x.shape) - sizes)
        if np.any(inside != start):
            if p["mode"] != lax.GatherScatterMode.CLIP:
                continue
            start = inside
        start[free] += np.array([source[d] for d in window], np.int64)
        index, value = tuple(start), int(new[source])
        out[index] = reader.graph.apply("add", int(out[index]), value) if adds else value
    return out


# Names of JAX's primitives.
INDEXING: dict[str, Callable[..., np.ndarray | list[np.ndarray]]] = {
    "iota": _iota,
    "empty": _empty,
    "empty2": _empty,
    "reshape": lambda reader, equation, p, x: x.reshape(p["new_sizes"]),
    "squeeze": lambda reader, equation, p, x: x.reshape(shaped(equation.outvars[0]).shape),
    "expand_dims": lambda reader, equation, p, x: x.reshape(shaped(equation.outvars[0]).shape),
    "transpose": lambda reader, equation, p, x: x.transpose(p["permutation"]),
    "rev": lambda reader, equation, p, x: np.flip(x, p["dimensions"]),
    "concatenate": lambda reader, equation, p, *parts: np.concatenate(parts, p["dimension"]),
    "stack": lambda reader, equation, p, *parts: np.stack(parts, p["axis"]),
    "unstack": lambda reader, equation, p, x: list(map(np.asarray, np.moveaxis(x, p["axis"], 0))),
    "tile": lambda reader, equation, p, x: np.tile(x, p["reps"]),
    "split": lambda reader, equation, p, x: np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"]),
    "slice": _slice,
    "broadcast_in_dim": _broadcast_in_dim,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "scatter-add": _scatter,
}
