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
from typing import Any

import numpy as np

from .code import Compilable, Shaped, entries
from .graph import CONSTANT, INPUT, Graph
from .jit import width_of
from .module import EACH, Called, Handler, Lane, Part, Period

# Arrays of so many numbers that stand in memory one behind the other are passed to functions where they stand, and copied by loops.
LONG = 16


@dataclasses.dataclass(frozen=True)
class Operand:
    """An operand of the module, which stays where it is."""

    number: int


@dataclasses.dataclass(frozen=True)
class Output:
    """A result of the module that is written row by row."""

    number: int


Value = np.ndarray | Operand | Output


class Queue(Lane):
    """The module.

    Args:
        dtype: of numbers.
        own: how many operands, the first ones, belong to a run; the others are parameters.
        operands, results: shapes and types.
        periods: see `Period`, of each operand.
        lanes: how many runs there are.
    """

    def __init__(
        self,
        dtype: Any,
        own: int,
        operands: Sequence[Shaped],
        results: Sequence[Shaped],
        periods: Sequence[Period],
        lanes: int,
    ):
        if lanes == 1:  # its functions are those of several lanes
            periods = tuple(EACH if k < own else period for k, period in enumerate(periods))
        super().__init__(dtype, width_of(dtype, lanes), lanes, operands, results, periods, ())
        self.ins = {k: f"%in{k}" for k in range(len(operands))}
        self.graph = Graph(np.dtype(dtype) == np.float32)
        self.names: list[dict[int, str]] = [{}]
        self.masks: list[str] = []
        self._read: set[int] = set()
        self._called: dict[Any, tuple[Compilable, Called]] = {}
        self._entry_lines: list[str] = []
        self._fill_lines: list[str] = []
        width = self.types.width
        self.busy, self.free, self.fresh, self.chosen = (self.room(self.types, 1) for _ in range(4))
        self.jobs, self.following = self.counters(width), self.counters(1)
        with self.section(self._entry_lines):
            self.put("0", self.following)
            self.store(self.types, self.types.constant(1.0), self.free, 0)
            self.each(width, lambda k: self.put("0", self.jobs, k))
        with self.section(self._fill_lines):
            self.lane_jobs = [self.whole(self.jobs, k) for k in range(width)]

    # The whole text

    def open(self, operands: int, results: int) -> tuple[list[str], list[str]]:
        """The operands are opened last, when it is known which are read."""
        return [], [f"%out{k}" for k in range(results)]

    def write(self, work: Callable[[], Sequence[Value]]) -> None:
        """The whole function; `work` writes what becomes of a run, and returns its results."""
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
        self.used = tuple(sorted(self._read))
        given, outs = Handler.open(self, len(self.used), len(self.results))
        for name, x in zip((*(self.ins[k] for k in self.used), *self.outs), (*given, *outs), strict=True):
            self.do(f"{name} = getelementptr i8, ptr {x}, i64 0")
        self.lines += self._entry_lines + lines

    def _take(self, k: str) -> None:
        """The next run into a lane that is free."""
        one, yes, no = self.one, self.one.constant(1.0), self.one.constant(0.0)
        free = self.let(f"fcmp une {one.number} {self.load(one, self.free, k)}, {no}")
        self.store(one, self.load(one, self.free, k), self.fresh, k)

        def begin() -> None:
            job = self.whole(self.following)
            self.put(self.let(f"add nuw nsw i64 {job}, 1"), self.following)
            self.put(job, self.jobs, k)
            self.store(one, yes, self.busy, k)

        more = lambda: self.let(f"icmp ult i64 {self.whole(self.following)}, {self.lanes}")
        none = lambda: self.store(one, no, self.busy, k)
        self.either(free, lambda: self.either(more(), begin, none), lambda: None)

    def _finish(self, values: Sequence[Value]) -> None:
        """The results of runs that are over, whose lanes are free then."""
        over, places = self.masks[-1], []
        self.store(self.types, self.operate(self.types, "number", [over]), self.free, 0)
        for k, value in enumerate(values):
            if isinstance(value, Output):
                assert value.number == k
            else:
                places.append((k, *self.placed(self.nodes(value))))

        def one(k: str) -> None:
            job = self.whole(self.jobs, k)
            for result, place, first in places:
                self.each(
                    entries(self.results[result].shape),
                    lambda e, r=result, p=place, f=first: self.give_job(
                        r, job, e, self.of_lane(p, self.behind(f, e), k)
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

    def named(self, i: int) -> str:
        """The name of a node's numbers; what they are made of is written where they are first needed."""
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

    def number_of(self, i: int) -> str:
        """Likewise, 1 or 0 of a truth value."""
        return self.operate(self.types, "number", [self.named(i)]) if self.graph.is_truth(i) else self.named(i)

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
            place, first = self.placed(np.array(table))
            base = self.entry(types.number, place, first)
            self.names[-1][i] = self.lookup(types, self.named(which), base, types.width, len(table))
        else:
            self.names[-1][i] = self.operate(types, operation, [self.named(a) for a in graph.arguments[i]])

    def gathered(self, numbers: list[str], operand: int, entry: int | str) -> str:
        """An entry of an operand in some lanes, side by side."""
        self._read.add(operand)
        return super().gathered(numbers, operand, entry)

    # Arrays

    def nodes(self, value: Value) -> np.ndarray:
        """An array as nodes."""
        if isinstance(value, Operand):
            return self.stored(value.number, 0, self.operands[value.number])
        assert isinstance(value, np.ndarray), "what is only written is read"
        return value

    def stored(self, place: str | int, first: int, shaped: Shaped) -> np.ndarray:
        """The nodes of an array that stands in memory, or of an operand."""
        numbers: list[Any] = [(place, first + e) for e in range(entries(shaped.shape))]
        nodes = [self.graph.input(number) for number in numbers]
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

    def placed(self, nodes: np.ndarray) -> tuple[str, int]:
        """Memory where an array stands, brought there if it does not yet."""
        region = self.region(nodes)
        if region is None:
            region = self.room(self.types, nodes.size), 0
            self.put_nodes(nodes, region[0])
        return region

    def put_nodes(self, nodes: np.ndarray, place: str, first: int = 0, where: str | None = None) -> None:
        """An array into memory, in all lanes or where a truth value holds."""
        for k, i in enumerate(nodes.ravel().tolist()):
            x = self.number_of(i)
            if where is not None:
                x = self.operate(self.types, "select", [where, x, self.load(self.types, place, first + k)])
            self.store(self.types, x, place, first + k)

    # Functions

    def call(self, program: Compilable, values: Sequence[Value]) -> list[np.ndarray]:
        """A scalar program in all lanes; operands of the module are its parameters, which lanes without one of their own share."""
        of = tuple(value.number if isinstance(value, Operand) else None for value in values)
        regions = {
            k: region
            for k, value in enumerate(values)
            if isinstance(value, np.ndarray) and value.size >= LONG and (region := self.region(value)) is not None
        }
        called = self._prepared(program, of, tuple(regions))
        for (operand, entry), place in called.part.places.items():
            value = values[operand]
            if isinstance(value, np.ndarray):
                self.store(self.types, self.number_of(int(value.ravel()[entry])), called.given, place)
        place = self.room(self.types, len(called.part.moving.outputs))
        references = [self.entry(self.types.number, *region) for region in regions.values()]
        self.do(called.text(place, *references))
        out, first = [], 0
        for shaped in program.results:
            out.append(self.stored(place, first, shaped))
            first += entries(shaped.shape)
        return out

    def _prepared(self, program: Compilable, of: tuple[int | None, ...], referred: tuple[int, ...]) -> Called:
        key = id(program), of, referred
        if key not in self._called:
            part = Part.make(program.code, program.operands, of, self.periods, referred)
            self._read |= part.used
            with self.section(self._entry_lines):
                called = self.prepared(part, program.thorough, program.brief)
            with self.section(self._fill_lines):
                self.fill(called, self.lane_jobs)
            self._called[key] = program, called
        return self._called[key][1]

    # Memory, also of single lanes

    def room(self, types: Any, count: int) -> str:
        """Memory for so many numbers."""
        with self.section(self._entry_lines):
            return super().room(types, count)

    def counters(self, count: int) -> str:
        """Memory for so many whole numbers."""
        with self.section(self._entry_lines):
            return self.let(f"alloca i64, i64 {count}, align 64")

    def whole(self, place: str, k: str | int = 0) -> str:
        """A whole number from memory."""
        return self.let(f"load i64, ptr {self.entry('i64', place, k)}")

    def put(self, x: str, place: str, k: str | int = 0) -> None:
        """A whole number to memory."""
        self.do(f"store i64 {x}, ptr {self.entry('i64', place, k)}")

    def at(self, row: str, size: int, entry: str) -> str:
        """Where an entry of a row of so many stands."""
        return self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {row}, {size}')}, {entry}")

    def own(self, entry: str, k: str) -> str:
        """Where an entry of a place stands in one of the lanes side by side."""
        return self.at(entry, self.types.width, k)

    def of_lane(self, place: str, entry: str, k: str) -> str:
        """An entry of a place in one lane."""
        return self.load(self.one, place, self.own(entry, k))

    def of_job(self, operand: int, job: str, entry: str) -> str:
        """An entry of an operand of a run."""
        self._read.add(operand)
        shaped = self.operands[operand]
        own = entries(shaped.shape)
        place = self.at(self.repeated(operand, job), own, entry) if self.periods[operand] is not None else entry
        return self.number(shaped, self.ins[operand], place)

    def give_job(self, result: int, job: str, entry: str, x: str) -> None:
        """An entry of a result of a run."""
        shaped = self.results[result]
        self.write_number(shaped, x, self.outs[result], self.at(job, entries(shaped.shape), entry))

    def copy(self, source: str, first: int, target: str, size: int) -> None:
        """So many numbers of all lanes from one place to another."""
        self.each(
            size, lambda e: self.store(self.types, self.load(self.types, source, self.behind(first, e)), target, e)
        )

    def truth(self, x: str) -> str:
        """Whether numbers are not zero."""
        return self.let(f"fcmp une {self.types.number} {x}, {self.types.constant(0.0)}")

    def where(self, truth: str, work: Callable[[], None]) -> None:
        """Something, where one truth value says so."""
        self.either(truth, work, lambda: None)

    def each_where(self, truth: str, work: Callable[[str], None]) -> None:
        """For each lane of which something is true."""
        self.store(self.types, self.operate(self.types, "number", [truth]), self.chosen, 0)

        def one(k: str) -> None:
            x = self.load(self.one, self.chosen, k)
            self.where(self.let(f"fcmp une {self.one.number} {x}, 0.0"), lambda: work(k))

        self.each(self.types.width, one)

    def place_of(self, i: int, count: int) -> str:
        """Memory of a whole number of each lane, made of a node, as a place in so many; the first one where it is no number."""
        types, place = self.types, self.room(self.types, 1)
        low, high = types.constant(0.0), types.constant(float(count - 1))
        x = self.number_of(i)
        x = self.operate(types, "select", [self.operate(types, "gt", [x, low]), x, low])
        x = self.operate(types, "select", [self.operate(types, "lt", [x, high]), x, high])
        self.store(types, x, place, 0)
        return place

    def index(self, place: str, k: str) -> str:
        """Such a number of one lane."""
        return self.let(f"fptosi {self.one.scalar} {self.load(self.one, place, k)} to i64")
