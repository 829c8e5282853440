"""A function over many rows, as many at a time as memory allows."""

import os
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
from jax import dtypes
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ..foundations import Count, Positive, compiler_options, contract, counted, function_of

# Rows of the first attempt where no size is demanded: more lanes gain nothing on a CPU, whose caches they leave and where they wait
# for each other; a GPU is filled by so many.
FIRST = {"cpu": 256}
OTHERS = 2**17
# The part of a device's memory that a program may take by default.
SHARE = 0.5


@contract
def batched(
    fn: Annotated[Any, function_of("row")],
    *,
    size: Count | None = None,
    memory: Positive | None = None,
    mesh: Mesh | None = None,
    cost: Annotated[Any, function_of("row")] | None = None,
) -> Callable[[Any], Any]:
    """Applies `fn` over the leading axis of all arrays of its argument, in groups of rows that fit into memory.

    Each group is one call of one compiled program; the last one is filled up with its last row. With a mesh the rows of a
    group are spread over its devices, which work independently, without communication. Results are gathered in the memory
    of the host. A row's result depends on the size of the groups by rounding only, and not on other rows. `fn` should report
    failures, as `simulate` does with `throw=False`: an error that it raises ends the whole call.

    A group takes as long as its slowest row. With `cost`, rows that take equally long form a group; results keep the order of
    the rows.

    Args:
        fn: a function of one row; it may return any pytree, such as a `Solution`.
        size: rows in a group, on all devices together, also if there are fewer rows; by default as many as there are and as `memory` allows,
            at most 256 on a CPU and 131,072 on another device.
        memory: budget in bytes on each device for arguments, results and temporaries of a program, as XLA states them; half of the
            device's memory by default. A program that exceeds it is compiled once more, for fewer rows.
        mesh: devices, in a mesh with one axis, such as `jax.make_mesh((4,), ("rows",))`; with several processes, the devices of this one. One
            device by default.
        cost: `cost(row)` returns a number that grows with the time that a row takes, such as its largest speed, or `num_steps` of
            a run with loose tolerances.

    Returns:
        A function of a pytree of arrays with a leading axis, which returns NumPy arrays with one
        (``jax.tree.map(jnp.asarray, …)`` takes them back to a device). It keeps its program for rows of the same shapes.

    Raises:
        ValueError: for arguments that do not fit, arrays without a common leading axis, and where not even one row for each device fits
            into `memory`.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> pendulum = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), potential=lambda t, q, p: -p["g"] * jnp.cos(q[0]), params={"g": 9.81})
        >>> ts = jnp.linspace(0, 1, 3)
        >>> swing = lambda x: jm.simulate(pendulum, jm.as_state(pendulum, x[None]), ts, throw=False).q
        >>> jm.batched(swing, size=64)(jnp.linspace(0.1, 1.0, 100)).shape
        (100, 3, 1)
    """
    if mesh is not None and len(mesh.axis_names) != 1:
        raise ValueError(
            f"Argument `mesh` must have one axis, but has {counted(len(mesh.axis_names), 'axis', 'axes')}."
        )
    many = _Batched(fn, size, memory, mesh)
    return many if cost is None else _sorted_by(_Batched(cost, size, memory, mesh), many)


def _sorted_by(cost: Annotated[Any, function_of("row")], fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function of rows that are sorted by their cost, with results in the order of the rows."""

    def call(rows: PyTree) -> Any:
        # Stable, so that rows of equal cost stay in order and groups are the same in every call.
        order = np.argsort(np.ravel(cost(rows)), kind="stable")
        inverse = np.argsort(order)
        results = fn(jax.tree.map(lambda x: np.asarray(x)[order], rows))
        return jax.tree.map(lambda x: x[inverse] if isinstance(x, np.ndarray) else x, results)

    return call


class _Program:
    """The compiled function of `size` rows."""

    def __init__(self, fn: Callable[[Any], Any], rows: PyTree, size: int, mesh: Mesh | None):
        self.size, self.is_largest = size, False
        structure: list[Any] = []

        def arrays_of_results(rows: PyTree) -> Any:
            arrays, rest = eqx.partition(fn(rows), eqx.is_array)
            structure.append(rest)
            return arrays

        many, self.sharding = jax.vmap(arrays_of_results), None
        if mesh is not None:
            spread = PartitionSpec(mesh.axis_names[0])
            # `jit` over a sharded axis would reduce the loop condition of all devices in each step; under `shard_map` each device stops
            # by itself.
            many = jax.shard_map(many, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False)
            self.sharding = NamedSharding(mesh, spread)
        # Compiled from shapes before any data is moved: the memory that it takes is known first.
        shape = lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype, sharding=self.sharding)
        shapes = jax.tree.map(shape, rows)
        self.call = jax.jit(many).lower(shapes).compile(compiler_options=compiler_options())
        self.rest = structure[-1]

    @property
    def memory(self) -> int:
        """Bytes on each device."""
        usage = self.call.memory_analysis()
        sizes = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return 0 if usage is None else sum(getattr(usage, size) for size in sizes)

    def __call__(self, rows: PyTree, start: int, stop: int) -> Any:
        """Results of some rows."""
        # Filled up with the last row: a real row takes no longer than the one that it repeats, whereas zeros might be no state at all.
        index = np.minimum(np.arange(start, start + self.size), stop - 1)
        part = jax.device_put(jax.tree.map(lambda x: x[index], rows), self.sharding)
        arrays = jax.tree.map(lambda x: np.asarray(x)[: stop - start], self.call(part))
        return eqx.combine(arrays, self.rest)


class _Batched:
    """The function of many rows, and its programs by the shapes of a row."""

    def __init__(self, fn: Callable[[Any], Any], size: int | None, memory: float | None, mesh: Mesh | None):
        self.fn, self.size, self.mesh = fn, size, mesh
        self.devices = [jax.devices()[0]] if mesh is None else list(mesh.devices.flat)
        self.memory = _memory(self.devices[0]) if memory is None else memory
        self.programs: dict[Any, _Program] = {}
        self.first = FIRST.get(self.devices[0].platform, OTHERS) * len(self.devices)

    def __call__(self, rows: PyTree) -> Any:
        count = _common_length(rows)
        rows = jax.tree.map(_on_host, rows)
        # Not the number of rows: calls with more or fewer of them share one program.
        key = jax.tree.structure(rows), *((x.shape[1:], x.dtype) for x in jax.tree.leaves(rows))
        program = self.programs.get(key)
        target = self.size or min(count, self.first)
        if program is None or (program.size < target and not program.is_largest):
            program = self.programs[key] = self._compiled(rows, target)
        parts = [program(rows, start, min(start + program.size, count)) for start in range(0, count, program.size)]
        joined = lambda *parts: np.concatenate(parts) if isinstance(parts[0], np.ndarray) else parts[0]
        return jax.tree.map(joined, *parts)

    def _compiled(self, rows: PyTree, size: int) -> _Program:
        """The program for at most so many rows within the budget."""
        least = len(self.devices)
        # Equal parts for all devices of a mesh.
        size = -(-size // least) * least
        program = _Program(self.fn, rows, size, self.mesh)
        while self.size is None and program.memory > self.memory:
            if size == least:
                raise ValueError(
                    f"Argument `memory` must be enough for one row on each device, {program.memory / 1e6:.3g} MB, but is "
                    f"{self.memory / 1e6:.3g} MB."
                )
            # Memory grows with the rows, from a part that every program needs.
            size = max(least, int(0.9 * size * self.memory / program.memory) // least * least)
            program = _Program(self.fn, rows, size, self.mesh)
            program.is_largest = True
        program.is_largest |= self.size is not None
        return program


def _common_length(rows: PyTree) -> int:
    """The length of the leading axis of all arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    lengths = {}
    for path, x in leaves:
        if not np.ndim(x):
            raise ValueError(
                f"Argument `rows` must hold arrays with a leading axis, but {_named(path)} is a single number."
            )
        lengths[_named(path)] = np.shape(x)[0]
    if len(set(lengths.values())) != 1 or not min(lengths.values()):
        report = ", ".join(f"{name} has {length}" for name, length in lengths.items()) or "it holds none"
        raise ValueError(f"Argument `rows` must hold arrays with one number of rows, one at least, but {report}.")
    return next(iter(lengths.values()))


def _on_host(x: ArrayLike) -> np.ndarray:
    """As NumPy's array, of the precision that JAX is set to."""
    array = np.asarray(x)
    return array.astype(dtypes.canonicalize_dtype(array.dtype), copy=False)


def _named(path: tuple[object, ...]) -> str:
    return f"`rows{jax.tree_util.keystr(path)}`"


def _memory(device: PyTree) -> float:
    """The bytes that a program may take."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return SHARE * stats["bytes_limit"]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4e9
