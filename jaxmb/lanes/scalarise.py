"""A function of small arrays, given as a jaxpr, as a scalar program."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from .code import Shaped, entries
from .graph import Graph
from .jaxpr import body, is_literal, opened, scan_counts
from .operations import OPERATIONS
from .uncompiled import plainly

# Beyond so many operations compiling takes long; where it takes the place of what takes longer, more are allowed.
LARGEST = 25_000


class NotScalarError(Exception):
    """Why a function is not made a scalar program."""


# Of more places than this, one that depends on the state is looked up in memory; of fewer it is chosen by comparisons.
FEW = 4

# Equations that change no numbers.
_SAME = (
    "copy",
    "copy_p",
    "device_put",
    "stop_gradient",
    "optimization_barrier",
    "unvmap_any",
    "unvmap_all",
    "unvmap_max",
)
_ELEMENTWISE = {name: name for name in OPERATIONS} | {"add_any": "add"}
_REDUCTIONS: dict[str, tuple[str, Any]] = {
    "reduce_sum": ("add", 0.0),
    "reduce_prod": ("mul", 1.0),
    "reduce_max": ("max", -np.inf),
    "reduce_min": ("min", np.inf),
    "reduce_or": ("or", False),
    "reduce_and": ("and", True),
}


def scalarise(graph: Graph, jaxpr: Any, arguments: Sequence[np.ndarray], largest: int = LARGEST) -> list[np.ndarray]:
    """Adds a closed jaxpr to a graph of at most so many operations: arrays of nodes for its results from those for its arguments.

    Raises:
        NotScalarError: with the reason.
    """
    return Reader(graph, largest).closed(jaxpr, list(arguments))


class Reader:
    """Goes through the equations; arrays are arrays of nodes, those of known numbers included."""

    def __init__(self, graph: Graph, largest: int):
        self.graph, self.largest = graph, largest

    def closed(self, jaxpr: Any, arguments: list[Any]) -> list[Any]:
        """Nodes of the results of a closed jaxpr, or of one without constants."""
        program, constants = opened(jaxpr)
        known: dict[Any, np.ndarray] = {}
        read = lambda v: self.lifted(v.val) if is_literal(v) else known[v]
        for v, c in zip(program.constvars, constants, strict=True):
            known[v] = self.lifted(c)
        known.update(zip(program.invars, map(self.array, arguments), strict=True))
        for equation in program.eqns:
            self.measure()
            out = self._equation(equation, [read(v) for v in equation.invars])
            known.update(zip(equation.outvars, map(self.array, out), strict=True))
        return [read(v) for v in program.outvars]

    def array(self, x: Any) -> Any:
        """What goes from one equation to the next: arrays, not NumPy's scalars."""
        return np.asarray(x)

    def measure(self) -> None:
        """There may not be too many operations."""
        if len(self.graph.operations) > self.largest:
            raise NotScalarError(f"it has more than {self.largest:,} operations")

    # Nodes and numbers

    def lifted(self, x: Any) -> np.ndarray:
        """Known numbers as nodes."""
        if isinstance(x, Tracer):
            raise NotScalarError("it closes over an array that is not known when it is traced")
        x = np.asarray(x)
        if x.dtype.kind not in "fiub":
            raise NotScalarError(f"it has an array of type {x.dtype}")
        return np.array([self.graph.constant(v) for v in x.ravel().tolist()], np.int64).reshape(x.shape)

    def known(self, x: np.ndarray) -> np.ndarray | None:
        """The numbers of nodes, None if there is one that is not known."""
        graph, nodes = self.graph, x.ravel().tolist()
        if not all(graph.is_constant(i) for i in nodes):
            return None
        return np.array([graph.values[i] for i in nodes]).reshape(x.shape)

    def places(self, x: np.ndarray, what: str) -> np.ndarray:
        """Known whole numbers."""
        found = self.known(x)
        if found is None:
            raise NotScalarError(f"`{what}` has places that depend on the state")
        return found.astype(np.int64)

    def each(self, operation: str, *operands: Any) -> np.ndarray:
        """An operation on each entry."""
        parts = np.broadcast_arrays(*operands)
        apply = self.graph.apply
        flat = [apply(operation, *a) for a in zip(*(p.ravel().tolist() for p in parts), strict=True)]
        return np.array(flat, np.int64).reshape(parts[0].shape)

    def chosen(self, predicate: int, yes: Sequence[np.ndarray], no: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Where a predicate holds these, else those."""
        return [self.each("select", predicate, a, b) for a, b in zip(yes, no, strict=True)]

    # Equations

    def _within(self, equation: Any) -> Any:
        """What a program within this one does."""
        shapes = (Shaped(v.aval.shape, v.aval.dtype) for v in equation.invars)
        return jax.make_jaxpr(lambda *xs: plainly(*xs, **equation.params))(*shapes)

    def _equation(self, equation: Any, ins: list[Any]) -> list[np.ndarray]:
        name, p = equation.primitive.name, equation.params
        if name in _ELEMENTWISE and name != "round":
            if name in ("and", "or", "xor", "not") and equation.invars[0].aval.dtype != bool:
                raise NotScalarError(f"`{name}` of whole numbers")
            if name in ("max", "min", "gt", "lt", "ge", "le") and equation.invars[0].aval.dtype == bool:
                raise NotScalarError(f"`{name}` of truth values")
            if name in ("div", "rem") and not _floating(equation):
                return [self._whole_division(name, *ins)]
            return [self.each(_ELEMENTWISE[name], *ins)]
        if name in _SAME:
            return ins
        inner = self._within(equation) if name == "scalar_program" else body(equation)
        if inner is not None:
            return self.closed(inner, ins)
        if name in _REDUCTIONS:
            return [self._reduced(*_REDUCTIONS[name], ins[0], p["axes"])]
        method = getattr(self, "_" + name.replace("-", "_"), None)
        if method is None:
            raise NotScalarError(f"it uses `{name}`")
        try:
            out = method(equation, p, *ins)
        except (
            AttributeError,
            IndexError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # as another version of JAX has it
            raise NotScalarError(f"it uses `{name}` in a way that is not understood: {error}") from error
        return out if isinstance(out, list) else [out]

    def _whole_division(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Towards zero; by what is no power of two, where rounding could lead to another number, only of known numbers."""
        b = self.places(y, name)
        if self.known(x) is None and np.all(np.frexp(np.abs(b))[0] == 0.5):
            share = self.each("mul", x, self.lifted(1 / b))
            low, high = self.each("floor", share), self.each("ceil", share)
            quotient = self.each("select", self.each("lt", share, self.graph.constant(0.0)), high, low)
            return quotient if name == "div" else self.each("sub", x, self.each("mul", quotient, y))
        a = self.places(x, name)
        quotient = np.trunc(a / b)
        return self.lifted(quotient if name == "div" else a - quotient * b)

    def _convert_element_type(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        old, new = equation.invars[0].aval.dtype, np.dtype(p["new_dtype"])
        if new == np.bool_ and old != np.bool_:
            return self.each("ne", x, self.graph.constant(0.0))
        if old == np.bool_ and new != np.bool_:
            return self.each("number", x)
        if new.kind == old.kind == "f" and new != old and x.size:
            raise NotScalarError("it has numbers of several precisions")
        if new.kind in "iu" and old.kind == "f":
            numbers = self.known(x)
            if numbers is None:
                raise NotScalarError("it makes whole numbers of others")
            return self.lifted(np.trunc(numbers))
        return x

    def _rsqrt(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self.each("reciprocal", self.each("sqrt", x))

    def _logistic(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        one = self.graph.constant(1.0)
        return self.each("reciprocal", self.each("add", one, self.each("exp", self.each("neg", x))))

    def _sign(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        number, zero = self.graph.constant, self.graph.constant(0.0)
        negative = self.each("select", self.each("lt", x, zero), number(-1.0), x)  # zero and NaN stay
        return self.each("select", self.each("gt", x, zero), number(1.0), negative)

    def _is_finite(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self.each("lt", self.each("abs", x), self.graph.constant(np.inf))

    def _lt_to(self, equation: Any, p: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """By an order of all numbers, NaN behind all others, of which searches for places in tables make use."""
        behind = self.each("and", self.each("eq", x, x), self.each("ne", y, y))
        return self.each("or", self.each("lt", x, y), behind)

    def _le_to(self, equation: Any, p: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.each("or", self.each("le", x, y), self.each("ne", y, y))

    def _square(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self.each("mul", x, x)

    def _round(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        if p["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
            return self.each("round", x)
        number, size = self.graph.constant, self.each("abs", x)
        below = self.each("floor", size)  # exact, which |x| + ½ is not
        far = self.each("ge", self.each("sub", size, below), number(0.5))
        away = self.each("select", far, self.each("add", below, number(1.0)), below)
        return self.each("select", self.each("lt", x, number(0.0)), self.each("neg", away), away)

    def _polynomial(self, equation: Any, p: Any, x: np.ndarray, *coefficients: np.ndarray) -> np.ndarray:
        out = coefficients[-1]
        for c in coefficients[-2::-1]:
            out = self.each("add", self.each("mul", out, x), c)
        return out

    def _one_minus_square(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        one = self.graph.constant(1.0)
        return self.each("mul", self.each("add", one, x), self.each("sub", one, x))

    def _log2(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self.each("mul", self.each("log", x), self.graph.constant(1 / np.log(2.0)))

    def _integer_pow(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        power, base, out = abs(p["y"]), x, None
        while power:
            if power & 1:
                out = base if out is None else self.each("mul", out, base)
            power >>= 1
            base = self.each("mul", base, base) if power else base
        out = np.full(x.shape, self.graph.constant(1.0)) if out is None else out
        return self.each("reciprocal", out) if p["y"] < 0 else out

    def _select_n(self, equation: Any, p: Any, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
        if equation.invars[0].aval.dtype == bool:
            return self.each("select", which, cases[1], cases[0])
        out = cases[0]
        for k, case in enumerate(cases[1:], 1):
            out = self.each("select", self.each("eq", which, self.graph.constant(k)), case, out)
        return out

    def _clamp(self, equation: Any, p: Any, low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
        return self.each("min", self.each("max", x, low), high)

    def _reduced(self, operation: str, first: Any, x: np.ndarray, axes: Any) -> np.ndarray:
        kept = [d for d in range(x.ndim) if d not in axes]
        shape = [x.shape[d] for d in kept]
        rows = x.transpose(kept + list(axes)).reshape(entries(shape), entries([x.shape[d] for d in axes]))
        out = []
        for row in rows.tolist():
            total = self.graph.constant(first)
            for i in row:
                total = self.graph.apply(operation, total, i)
            out.append(total)
        return np.array(out, np.int64).reshape(shape)

    def _cumsum(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        x = np.moveaxis(x, p["axis"], 0)
        rows = list(x[::-1] if p["reverse"] else x)
        for k in range(1, len(rows)):
            rows[k] = self.each("add", rows[k - 1], rows[k])
        out = np.stack(rows[::-1] if p["reverse"] else rows) if rows else x
        return np.moveaxis(out, 0, p["axis"])

    def _argmax(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self._extreme(x, p["axes"][0], "gt")

    def _argmin(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return self._extreme(x, p["axes"][0], "lt")

    def _extreme(self, x: np.ndarray, axis: int, better: str) -> np.ndarray:
        rows = np.moveaxis(x, axis, 0)
        best, place = rows[0], np.full(rows[0].shape, self.graph.constant(0))
        for k, row in enumerate(rows[1:], 1):
            first = self.each(
                "and", self.each("ne", row, row), self.each("eq", best, best)
            )  # the first NaN, if there is one
            ahead = self.each("or", self.each(better, row, best), first)
            best = self.each("select", ahead, row, best)
            place = self.each("select", ahead, self.graph.constant(k), place)
        return place

    def _dot_general(self, equation: Any, p: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        (ca, cb), (ba, bb) = p["dimension_numbers"]
        fa = [d for d in range(a.ndim) if d not in (*ca, *ba)]
        fb = [d for d in range(b.ndim) if d not in (*cb, *bb)]
        size = lambda x, axes: entries([x.shape[d] for d in axes])
        batch, inner = size(a, ba), size(a, ca)
        shape = [a.shape[d] for d in (*ba, *fa)] + [b.shape[d] for d in fb]
        rows = a.transpose([*ba, *fa, *ca]).reshape(batch, size(a, fa), inner)
        columns = b.transpose([*bb, *fb, *cb]).reshape(batch, size(b, fb), inner)
        out = [
            self._inner(row, column)
            for block, others in zip(rows.tolist(), columns.tolist(), strict=True)
            for row in block
            for column in others
        ]
        return np.array(out, np.int64).reshape(shape)

    def _inner(self, row: list[int], column: list[int]) -> int:
        apply = self.graph.apply
        total = self.graph.constant(0.0)
        for x, y in zip(row, column, strict=True):
            total = apply("add", total, apply("mul", x, y))
        return total

    # Equations that move entries

    def _iota(self, equation: Any, p: Any) -> np.ndarray:
        shape, d = p["shape"], p["dimension"]
        along = np.arange(shape[d]).reshape([-1 if k == d else 1 for k in range(len(shape))])
        return self.lifted(np.broadcast_to(along, shape))

    def _empty(self, equation: Any, p: Any) -> np.ndarray:
        """What branches do not set that others do."""
        aval = equation.outvars[0].aval
        return self.lifted(np.zeros(aval.shape, aval.dtype))

    _empty2 = _empty

    def _reshape(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return x.reshape(p["new_sizes"])

    def _squeeze(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return x.reshape(equation.outvars[0].aval.shape)

    _expand_dims = _squeeze

    def _transpose(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return x.transpose(p["permutation"])

    def _rev(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return np.flip(x, p["dimensions"])

    def _concatenate(self, equation: Any, p: Any, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, p["dimension"])

    def _stack(self, equation: Any, p: Any, *parts: np.ndarray) -> np.ndarray:
        return np.stack(parts, p["axis"])

    def _unstack(self, equation: Any, p: Any, x: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(row) for row in np.moveaxis(x, p["axis"], 0)]

    def _tile(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        return np.tile(x, p["reps"])

    def _split(self, equation: Any, p: Any, x: np.ndarray) -> list[np.ndarray]:
        return np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"])

    def _slice(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        strides = p["strides"] or [1] * x.ndim
        return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]

    def _broadcast_in_dim(self, equation: Any, p: Any, x: np.ndarray) -> np.ndarray:
        shape = [1] * len(p["shape"])
        for d, count in zip(p["broadcast_dimensions"], x.shape, strict=True):
            shape[d] = count
        return np.broadcast_to(x.reshape(shape), p["shape"])

    def _pad(self, equation: Any, p: Any, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        for axis, (low, high, inner) in enumerate(p["padding_config"]):
            count, place, kept = x.shape[axis], [slice(None)] * x.ndim, [slice(None)] * x.ndim
            spread = (count - 1) * (inner + 1) + 1 if count else 0
            shape = list(x.shape)
            shape[axis] = max(low, 0) + spread + max(high, 0)
            out = np.full(shape, value)
            place[axis] = slice(max(low, 0), max(low, 0) + spread, inner + 1)
            out[tuple(place)] = x
            kept[axis] = slice(max(-low, 0), shape[axis] - max(-high, 0))  # negative padding cuts
            x = out[tuple(kept)]
        return x

    def _dynamic_slice(self, equation: Any, p: Any, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        sizes = p["slice_sizes"]
        free = [d for d, start in enumerate(starts) if self.known(start) is None]
        if len(free) > 1:
            raise NotScalarError("it uses `dynamic_slice` with several places that depend on the state")
        begin = [
            0 if d in free else int(np.clip(self.places(s, "dynamic_slice"), 0, x.shape[d] - sizes[d]))
            for d, s in enumerate(starts)
        ]
        cut = lambda begin: x[tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))]
        if free and x.shape[free[0]] - sizes[free[0]] >= FEW:
            return self._looked_up(x, starts[free[0]], free[0], begin, sizes)
        out = cut(begin)
        for d in free:
            for k in range(1, x.shape[d] - sizes[d] + 1):
                begin[d] = k
                reached = self.each("ge", starts[d], self.graph.constant(k))
                out = self.each("select", reached, cut(begin), out)
        return out

    def _looked_up(
        self, x: np.ndarray, start: np.ndarray, axis: int, begin: Sequence[int], sizes: Sequence[int]
    ) -> np.ndarray:
        """A part of an array that begins at a place along an axis which depends on the state."""
        out, count = np.empty(sizes, np.int64), x.shape[axis] - sizes[axis] + 1
        for place in np.ndindex(*sizes):
            of: list[Any] = [b + k for b, k in zip(begin, place, strict=True)]
            of[axis] = slice(place[axis], place[axis] + count)
            out[place] = self.graph.apply("lookup", int(start), *x[tuple(of)].tolist())
        return out

    def _dynamic_update_slice(
        self, equation: Any, p: Any, x: np.ndarray, new: np.ndarray, *starts: np.ndarray
    ) -> np.ndarray:
        begin = [
            int(np.clip(self.places(s, "dynamic_update_slice"), 0, x.shape[d] - new.shape[d]))
            for d, s in enumerate(starts)
        ]
        out = x.copy()
        out[tuple(slice(b, b + size) for b, size in zip(begin, new.shape, strict=True))] = new
        return out

    def _gather(self, equation: Any, p: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        numbers, sizes, where = p["dimension_numbers"], p["slice_sizes"], self.places(indices, "gather")
        dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        kept = [size for d, size in enumerate(sizes) if d not in dropped]
        lead = where.shape[:-1]
        out = np.empty((*lead, *kept), np.int64)
        fill = None
        for place in np.ndindex(*lead):
            start = np.zeros(x.ndim, np.int64)
            start[list(numbers.start_index_map)] = where[place]
            for d, of in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
                start[d] = place[of]
            inside = np.clip(start, 0, np.array(x.shape) - sizes)
            if p["mode"] == lax.GatherScatterMode.FILL_OR_DROP and np.any(inside != start):
                fill = self._fill(equation, p) if fill is None else fill
                out[place] = fill
                continue
            part = x[tuple(slice(b, b + size) for b, size in zip(inside, sizes, strict=True))]
            out[place] = part.reshape(kept)
        axes, others = list(numbers.offset_dims), iter(range(len(lead)))
        offsets = iter(range(len(lead), out.ndim))
        return out.transpose([next(offsets) if d in axes else next(others) for d in range(out.ndim)])

    def _fill(self, equation: Any, p: Any) -> int:
        kind = equation.outvars[0].aval.dtype.kind
        default = np.nan if kind == "f" else (True if kind == "b" else -(2**31))
        return self.graph.constant(default if p["fill_value"] is None else p["fill_value"])

    def _scatter(self, equation: Any, p: Any, x: np.ndarray, indices: np.ndarray, new: np.ndarray) -> np.ndarray:
        return self._scattered(p, x, indices, new, lambda old, value: value)

    def _scatter_add(self, equation: Any, p: Any, x: np.ndarray, indices: np.ndarray, new: np.ndarray) -> np.ndarray:
        return self._scattered(p, x, indices, new, lambda old, value: self.graph.apply("add", old, value))

    def _scattered(
        self, p: Any, x: np.ndarray, indices: np.ndarray, new: np.ndarray, merge: Callable[..., int]
    ) -> np.ndarray:
        numbers, where = p["dimension_numbers"], self.places(indices, "scatter")
        out = x.copy()
        window = list(numbers.update_window_dims)
        lead = [d for d in range(new.ndim) if d not in window]
        inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        moving = [d for d in range(x.ndim) if d not in inserted]
        sizes = np.ones(x.ndim, np.int64)
        sizes[moving] = [new.shape[d] for d in window]
        for place in np.ndindex(*new.shape):
            entry = tuple(place[d] for d in lead)
            start = np.zeros(x.ndim, np.int64)
            start[list(numbers.scatter_dims_to_operand_dims)] = where[entry]
            for d, of in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
                start[d] = entry[of]
            inside = np.clip(start, 0, np.array(x.shape) - sizes)
            if np.any(inside != start):
                if p["mode"] != lax.GatherScatterMode.CLIP:
                    continue
                start = inside
            start[moving] += np.array([place[d] for d in window], np.int64)
            out[tuple(start)] = merge(int(out[tuple(start)]), int(new[place]))
        return out

    # Equations that hold several jaxprs

    def _custom_linear_solve(self, equation: Any, p: Any, *ins: np.ndarray) -> list[np.ndarray]:
        lengths = p["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        constants, rhs = ins[first : first + lengths.solve], ins[sum(lengths) :]
        return self.closed(p["jaxprs"].solve, [*constants, *rhs])

    def _cond(self, equation: Any, p: Any, which: np.ndarray, *operands: Any) -> list[np.ndarray]:
        branches, index = p["branches"], self.known(which)
        if index is not None:
            return self.closed(branches[int(np.clip(index, 0, len(branches) - 1))], list(operands))
        found = [self.closed(branch, list(operands)) for branch in branches]
        out = found[0]
        for k, other in enumerate(found[1:], 1):
            out = self.chosen(self.graph.apply("ge", int(which), self.graph.constant(k)), other, out)
        return out

    def _platform_index(self, equation: Any, p: Any) -> np.ndarray:
        """Which branch is meant for a CPU, or for any device."""
        found = [k for k, names in enumerate(p["platforms"]) if names is None or "cpu" in names]
        return self.lifted(found[0])

    def _scan(self, equation: Any, p: Any, *ins: Any) -> list[np.ndarray]:
        fixed, carried = scan_counts(p)
        constants, carry, xs = list(ins[:fixed]), list(ins[fixed : fixed + carried]), ins[fixed + carried :]
        rows = []
        order = range(p["length"])
        for k in reversed(order) if p["reverse"] else order:
            out = self.closed(p["jaxpr"], constants + carry + [np.asarray(x[k]) for x in xs])
            carry = out[:carried]
            rows.append(out[carried:])
        rows = rows[::-1] if p["reverse"] else rows
        shapes = [v.aval.shape for v in equation.outvars[carried:]]
        ys = [np.array([row[j] for row in rows], np.int64).reshape(shape) for j, shape in enumerate(shapes)]
        return carry + ys

    def _while(self, equation: Any, p: Any, *ins: np.ndarray) -> list[np.ndarray]:
        a, b = p["cond_nconsts"], p["body_nconsts"]
        carry = list(ins[a + b :])
        while True:
            going = self.known(self.closed(p["cond_jaxpr"], [*ins[:a], *carry])[0])
            if going is None:
                raise NotScalarError("it has a loop whose length depends on the state")
            if not going:
                return carry
            self.measure()
            carry = self.closed(p["body_jaxpr"], [*ins[a : a + b], *carry])


def _floating(equation: Any) -> bool:
    return jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
