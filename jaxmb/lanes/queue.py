"""A module of LLVM for lanes side by side, each of which takes the next run of a batch as soon as its own is over.

Blocks of the function that XLA calls:

    entry     memory, and what is the same in all lanes
    fill      lanes that are free take the next run; their operands are read
    work      what stands before the loop of a run
    loop      whether each run goes on; if one does not: finish, else: body, and again
    finish    the results of runs that are over; then fill again
    done      no run is left

A program without a loop goes from work to finish. Memory of a lane is a vector of all lanes side by side; the k-th number of lane i stands at k·width + i.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import DTypeLike

from .code import Shaped, Subprogram, entries
from .graph import CONSTANT, INPUT, OperationGraph
from .jit import width_of
from .module import CallSite, LaneLoop, Part
from .scalarise import ArrayReference, Value
from .text import Types

if TYPE_CHECKING:
    from .program import Program

# Arrays of so many numbers that stand in memory one behind the other are passed to functions where they stand.
LONG = 16
# Those that a module reads are copied so if at least one of so many entries is used.
USED = 4


@dataclasses.dataclass(frozen=True)
class Operand(ArrayReference):
    """An operand of the module, which stays where it is."""

    number: int


@dataclasses.dataclass(frozen=True)
class ResultRows(ArrayReference):
    """A result of the module that is written row by row."""

    number: int


class Queue(LaneLoop):
    """The module.

    Args:
        dtype: of numbers.
        own: how many operands, the first ones, belong to a run; the others are parameters.
        operands, results: shapes and types.
        per_lane: see `LaneLoop`.
        lanes: how many runs there are.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        own: int,
        operands: Sequence[Shaped],
        results: Sequence[Shaped],
        per_lane: Sequence[bool],
        lanes: int,
    ):
        # A single lane has its own numbers of all operands of a run, so that its functions are those of several lanes.
        if lanes == 1:
            per_lane = [k < own or differs for k, differs in enumerate(per_lane)]
        super().__init__(dtype, width_of(dtype, lanes), lanes, operands, results, per_lane)
        self.graph = OperationGraph(np.dtype(dtype) == np.float32)
        self.names: list[dict[int, str]] = [{}]
        self.masks: list[str] = []
        # By identity, with the program beside so that the identity stays its own.
        self._sites: dict[
            tuple[int, tuple[int | None, ...], tuple[int, ...]], tuple[Program | Subprogram, CallSite]
        ] = {}
        self._gathered: dict[int, str] = {}  # memory of operands that are passed by address
        self._entry_lines: list[str] = []
        self._fill_lines: list[str] = []
        width = self.types.width
        self.busy, self.free, self.fresh, self.selected = (self.allocate(self.types, 1) for _ in range(4))
        self.jobs, self.next_job = self.allocate_integers(width), self.allocate_integers(1)
        with self.section(self._entry_lines):
            self.store_integer("0", self.next_job)
            self.store(self.types, self.types.constant(1.0), self.free, 0)
            self.each(width, lambda k: self.store_integer("0", self.jobs, k))
        with self.section(self._fill_lines):
            self.lane_jobs = [self.load_integer(self.jobs, k) for k in range(width)]

    # The text

    def write(self, work: Callable[[], Sequence[Value]]) -> None:
        """All of the function; `work` writes what becomes of a run, and returns its results."""
        self.do("br label %fill")
        self.label("fill")
        self.each(self.types.width, self._take)
        mark = len(self.lines)
        busy = self.truth(self.load(self.types, self.busy, 0))
        self.do(f"br i1 {self.joined(self.types, 'or', busy)}, label %work, label %done")
        self.label("work")
        self.masks.append(busy)
        self._finish(work())
        self.label("done")
        self.do("ret ptr null")
        self.lines[mark:mark] = self._fill_lines
        lines, self.lines = self.lines, []
        # Opened last, as only now is it clear which operands are read. The text above has names for them already: the addresses get these by an
        # offset of nothing.
        inputs, outs = self.open(len(self.used), len(self.results))
        for name, x in zip((*(self.ins[k] for k in self.used), *self.outs), (*inputs, *outs), strict=True):
            self.do(f"{name} = getelementptr i8, ptr {x}, i64 0")
        self.lines += self._entry_lines + lines

    def _take(self, k: str) -> None:
        """The next run into a lane that is free."""
        one, yes, no = self.one, self.one.constant(1.0), self.one.constant(0.0)
        free = self.let(f"fcmp une {one.number} {self.load(one, self.free, k)}, {no}")
        self.store(one, self.load(one, self.free, k), self.fresh, k)

        def begin() -> None:
            job = self.load_integer(self.next_job)
            self.store_integer(self.let(f"add nuw nsw i64 {job}, 1"), self.next_job)
            self.store_integer(job, self.jobs, k)
            self.store(one, yes, self.busy, k)

        more = lambda: self.let(f"icmp ult i64 {self.load_integer(self.next_job)}, {self.lanes}")
        none = lambda: self.store(one, no, self.busy, k)
        self.either(free, lambda: self.either(more(), begin, none), lambda: None)

    def _finish(self, values: Sequence[Value]) -> None:
        """The results of runs that are over, whose lanes are free then."""
        over, buffers = self.masks[-1], []
        self.store(self.types, self.operate(self.types, "to_number", [over]), self.free, 0)
        for k, value in enumerate(values):
            if isinstance(value, ResultRows):
                assert value.number == k
            else:
                buffers.append((k, *self.in_memory(self.nodes(value))))

        def one(k: str) -> None:
            job = self.load_integer(self.jobs, k)
            for result, buffer, first in buffers:
                self.each(
                    entries(self.results[result].shape),
                    lambda e, r=result, b=buffer, f=first: self.store_result(
                        r, job, e, self.load_of_lane(b, self.offset(f, e), k)
                    ),
                )

        self.each_where(over, one)
        self.do("br label %fill")

    @contextlib.contextmanager
    def section(self, lines: list[str]) -> Iterator[None]:
        """What is written goes to these lines."""
        before, self.lines = self.lines, lines
        yield
        self.lines = before

    @contextlib.contextmanager
    def scope(self, mask: str | None = None) -> Iterator[None]:
        """A part of the text whose names hold in it alone, for the lanes of a mask."""
        self.names.append({})
        self.masks.append(self.masks[-1] if mask is None else mask)
        yield
        self.names.pop()
        self.masks.pop()

    # Numbers of all lanes

    def value(self, i: int) -> str:
        """The name of a node's numbers; the operations behind it are written where they are first needed."""
        stack, missing = [i], set()
        while stack:
            k = stack.pop()
            if k not in missing and self._name(k) is None:
                missing.add(k)
                stack.extend(self.graph.arguments[k])
        for k in sorted(missing):
            self._write_node(k)
        name = self._name(i)
        assert name is not None
        return name

    def number_value(self, i: int) -> str:
        """Likewise, 1 or 0 of a truth value."""
        return self.operate(self.types, "to_number", [self.value(i)]) if self.graph.is_truth(i) else self.value(i)

    def _name(self, i: int) -> str | None:
        return next((names[i] for names in reversed(self.names) if i in names), None)

    def _write_node(self, i: int) -> None:
        graph, types, operation = self.graph, self.types, self.graph.operations[i]
        if operation == CONSTANT:
            self.names[0][i] = types.constant(graph.values[i])
        elif operation == INPUT and isinstance(graph.values[i][0], int):
            with self.section(self._fill_lines):
                self.names[0][i] = self.gathered(self.lane_jobs, *graph.values[i])
        elif operation == INPUT:
            self.names[-1][i] = self.load(types, *graph.values[i])
        elif operation == "lookup":
            which, *table = graph.arguments[i]
            buffer, first = self.in_memory(np.array(table))
            base = self.entry(types.number, buffer, first)
            self.names[-1][i] = self.lookup(types, self.value(which), base, types.width, len(table))
        else:
            self.names[-1][i] = self.operate(types, operation, [self.value(a) for a in graph.arguments[i]])

    # Arrays

    def nodes(self, value: Value) -> np.ndarray:
        """An array as nodes."""
        if isinstance(value, Operand):
            return self.stored(value.number, 0, self.operands[value.number])
        assert isinstance(value, np.ndarray), "rows of a result are read"
        return value

    def stored(self, buffer: str | int, first: int, shaped: Shaped) -> np.ndarray:
        """The nodes of an array that stands in memory, or of an operand."""
        nodes = [self.graph.input((buffer, first + e)) for e in range(entries(shaped.shape))]
        if np.dtype(shaped.dtype) == bool:
            nodes = [self.graph.apply("ne", i, self.graph.constant(0.0)) for i in nodes]
        return np.array(nodes, np.int64).reshape(shaped.shape)

    def region(self, nodes: np.ndarray) -> tuple[str, int] | None:
        """Where an array stands in memory, one number behind the other; None if it does not."""
        graph, out = self.graph, None
        for k, i in enumerate(nodes.ravel().tolist()):
            if graph.operations[i] == "ne" and graph.is_truth(i):
                i = graph.arguments[i][0]
            own = graph.values[i] if graph.operations[i] == INPUT else None
            if own is None or isinstance(own[0], int):
                return None
            out = own if out is None else out
            if own != (out[0], out[1] + k):
                return None
        return out

    def in_memory(self, nodes: np.ndarray) -> tuple[str, int]:
        """Memory where an array stands, brought there if it does not yet."""
        region = self.region(nodes)
        if region is None:
            region = self.allocate(self.types, nodes.size), 0
            self.put_nodes(nodes, region[0])
        return region

    def put_nodes(self, nodes: np.ndarray, buffer: str, first: int = 0, where: str | None = None) -> None:
        """An array into memory, in all lanes or where a truth value holds."""
        for k, i in enumerate(nodes.ravel().tolist()):
            x = self.number_value(i)
            if where is not None:
                x = self.operate(self.types, "select", [where, x, self.load(self.types, buffer, first + k)])
            self.store(self.types, x, buffer, first + k)

    # Functions

    def call(self, program: "Program | Subprogram", values: Sequence[Value]) -> list[np.ndarray]:
        """A scalar program in all lanes; operands of the module are its parameters, which lanes without one of their own share."""
        sources = tuple(value.number if isinstance(value, Operand) else None for value in values)
        regions = {k: region for k, value in enumerate(values) if (region := self._long(program, k, value)) is not None}
        site = self._call_site(program, sources, tuple(regions))
        for (operand, entry), slot in site.part.slots.items():
            value = values[operand]
            if isinstance(value, np.ndarray):
                self.store(self.types, self.number_value(int(value.ravel()[entry])), site.varying, slot)
        buffer = self.allocate(self.types, len(site.part.varying.outputs))
        references = [self.entry(self.types.number, *region) for region in regions.values()]
        self.do(site.text(buffer, *references))
        out, first = [], 0
        for shaped in program.results:
            out.append(self.stored(buffer, first, shaped))
            first += entries(shaped.shape)
        return out

    def _long(self, program: "Program | Subprogram", k: int, value: Value) -> tuple[str, int] | None:
        """Where a long operand of a program stands in memory; None if it is short, or few of its entries are used: these are passed then.

        Whatever makes it, so that all modules call one and the same function.
        """
        size = entries(program.operands[k].shape)
        if size < LONG or USED * program.code.counts[k] < size:
            return None
        if isinstance(value, np.ndarray):
            return self.in_memory(value)
        assert isinstance(value, Operand)
        if not self.per_lane[value.number]:
            return None
        if value.number not in self._gathered:
            buffer = self._gathered[value.number] = self.allocate(self.types, size)
            with self.section(self._fill_lines):
                self.each(
                    size,
                    lambda e: self.store(self.types, self.gathered(self.lane_jobs, value.number, e), buffer, e),
                )
        return self._gathered[value.number], 0

    def _call_site(
        self, program: "Program | Subprogram", sources: tuple[int | None, ...], references: tuple[int, ...]
    ) -> CallSite:
        key = id(program), sources, references
        if key not in self._sites:
            part = Part.make(program.code, sources, self.per_lane, references)
            with self.section(self._entry_lines):
                site = self.prepared(part, program.thorough, program.brief)
            with self.section(self._fill_lines):
                self.fill(site, self.lane_jobs)
            self._sites[key] = program, site
        return self._sites[key][1]

    # Memory, also of single lanes

    def allocate(self, types: Types, count: int) -> str:
        """Memory for so many numbers, at the entry: within a loop it would be taken anew at each turn, and never given back."""
        with self.section(self._entry_lines):
            return super().allocate(types, count)

    def allocate_integers(self, count: int) -> str:
        """Memory for so many whole numbers."""
        with self.section(self._entry_lines):
            return self.let(f"alloca i64, i64 {count}, align 64")

    def load_integer(self, buffer: str, k: str | int = 0) -> str:
        """A whole number from memory."""
        return self.let(f"load i64, ptr {self.entry('i64', buffer, k)}")

    def store_integer(self, x: str, buffer: str, k: str | int = 0) -> None:
        """A whole number to memory."""
        self.do(f"store i64 {x}, ptr {self.entry('i64', buffer, k)}")

    def index_in_row(self, row: str, size: int, entry: str) -> str:
        """The number of an entry of a row of so many."""
        return self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {row}, {size}')}, {entry}")

    def index_in_lane(self, entry: str, k: str) -> str:
        """The number of an entry in one of the lanes side by side."""
        return self.index_in_row(entry, self.types.width, k)

    def load_of_lane(self, buffer: str, entry: str, k: str) -> str:
        """An entry in one lane."""
        return self.load(self.one, buffer, self.index_in_lane(entry, k))

    def load_operand(self, operand: int, job: str, entry: str) -> str:
        """An entry of an operand of a run."""
        if self.per_lane[operand]:
            entry = self.index_in_row(job, entries(self.operands[operand].shape), entry)
        return self.operand(operand, entry)

    def store_result(self, result: int, job: str, entry: str, x: str) -> None:
        """An entry of a result of a run."""
        shaped = self.results[result]
        self.write_number(shaped, x, self.outs[result], self.index_in_row(job, entries(shaped.shape), entry))

    def truth(self, x: str) -> str:
        """Whether numbers are not zero."""
        return self.let(f"fcmp une {self.types.number} {x}, {self.types.constant(0.0)}")

    def where(self, truth: str, work: Callable[[], None]) -> None:
        """Something, where one truth value says so."""
        self.either(truth, work, lambda: None)

    def each_where(self, truth: str, work: Callable[[str], None]) -> None:
        """For each lane of which something is true."""
        self.store(self.types, self.operate(self.types, "to_number", [truth]), self.selected, 0)

        def one(k: str) -> None:
            x = self.load(self.one, self.selected, k)
            self.where(self.let(f"fcmp une {self.one.number} {x}, 0.0"), lambda: work(k))

        self.each(self.types.width, one)

    def row_numbers(self, i: int, count: int) -> str:
        """Memory of a whole number of each lane, a node's, clamped to the number of one of so many rows; the first one of NaN."""
        buffer = self.allocate(self.types, 1)
        self.store(self.types, self.clamped(self.types, self.number_value(i), count), buffer, 0)
        return buffer

    def row_number(self, buffer: str, k: str) -> str:
        """Such a number of one lane."""
        return self.let(f"fptosi {self.one.scalar} {self.load(self.one, buffer, k)} to i64")
