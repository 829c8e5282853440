"""Programs with loops: written in JAX, with calls of scalar programs, and compiled as a whole."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.typing import ArrayLike
from jaxtyping import Array

from .code import Shaped, Subprogram, entries
from .control_flow import cond, scan
from .errors import NotScalarError
from .jaxpr import body, contains, is_literal, opened, pruned, scan_counts, shaped, traced
from .module import LaneLoop
from .program import Program, lanes_p
from .queue import Operand, Queue, ResultRows
from .scalarise import ArrayReference, Reader, Value

# What stands between the calls of a program may have so many operations.
MOST = 500_000

# A scalar program, as what is called in its place.
Call = Callable[[Program], Callable[..., list[Array]]]


def compiled(program: Program | Subprogram) -> Callable[..., list[Array]]:
    """A call that is compiled."""
    return lambda *operands: lanes_p.bind(*operands, program=program, lanes=())


@dataclasses.dataclass(frozen=True, eq=False)
class LoopProgram(abc.ABC):
    """A program that calls scalar programs, in loops whose lengths depend on the state.

    One `while` that stands outermost is the loop of a run: a lane whose loop has ended takes the next run of a batch. In it arrays may be written row by
    row, `x.at[i].set(row)`, that start as one number or as `lax.empty`, are not read and become results; operands may be read row by row.
    """

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype:
        """The type of its numbers."""

    @property
    @abc.abstractmethod
    def thorough(self) -> bool:
        """See `Program`."""

    @property
    @abc.abstractmethod
    def own(self) -> int:
        """How many operands, the first ones, belong to a run; the others are parameters."""

    @property
    @abc.abstractmethod
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""

    @property
    @abc.abstractmethod
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""

    @abc.abstractmethod
    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions of the programs."""
        return functools.partial(self.definition, lambda program: program.fn)

    @property
    def by_numbers(self) -> Callable[..., list[Array]]:
        """The same, by the operations of the programs' code."""
        return functools.partial(self.definition, lambda program: program.by_numbers)

    def __call__(self, *operands: ArrayLike) -> list[Array]:
        """The results."""
        return lanes_p.bind(*operands, program=self, lanes=())

    def reads(self, operand: int) -> bool:
        """Which operands it does without is not looked for."""
        return True

    def tangent(self, moving: tuple[bool, ...]) -> None:
        """There is none as one program: it is differentiated by its functions."""
        return None

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:
        """What it does, with calls of scalar programs."""
        return pruned(traced(functools.partial(self.definition, compiled), *self.operands))

    def inlined(self, reader: Reader, operands: Sequence[Value]) -> list[Value]:
        """The results, written into another program in place of a call."""
        return reader.closed(self.jaxpr, operands)

    def module(self, per_lane: Sequence[bool], lanes: int) -> LaneLoop:
        """What is compiled for so many lanes, in which operands differ or not."""
        out = Queue(
            dtype=self.dtype, own=self.own, operands=self.operands, results=self.results, per_lane=per_lane, lanes=lanes
        )
        writer = _Writer(out, self.jaxpr)
        out.write(lambda: writer.closed(self.jaxpr, [Operand(k) for k in range(len(self.operands))]))
        return out


class _Unset(ArrayReference):
    """An array whose entries are not set, and are not read before they are."""


class _Writer(Reader):
    """Goes through the equations, and writes what is no operation on numbers into a module."""

    def __init__(self, module: Queue, jaxpr: ClosedJaxpr):
        super().__init__(module.graph, MOST)
        self.module, self.program = module, opened(jaxpr)[0]
        self.outermost = next((e for e in self.program.eqns if e.primitive.name == "while"), None)

    def array(self, x: Value) -> Value:
        """What goes from one equation to the next."""
        return x if isinstance(x, ArrayReference) else super().array(x)

    def nodes(self, x: Value) -> np.ndarray:
        """An array as nodes, also of an operand."""
        return self.module.nodes(x)

    def equation(self, equation: JaxprEqn, ins: Sequence[Value]) -> Sequence[Value]:
        """The results of an equation, whose text is written if it is more than operations on numbers."""
        name, p = equation.primitive.name, equation.params
        if name == "scalar_program":
            return self.module.call(p["program"], [x if isinstance(x, Operand) else self.nodes(x) for x in ins])
        if name == "while":
            write = self._run if equation is self.outermost else self._loop
            return write(equation, ins)
        if name == "scatter" and isinstance(ins[0], ResultRows):
            return [self._write_row(ins[0], *map(self.nodes, ins[1:]))]
        if name == "dynamic_slice" and isinstance(ins[0], Operand):
            return [self._read_row(p["slice_sizes"], ins[0], *map(self.nodes, ins[1:]))]
        if name == "empty":
            return [_Unset()]
        if name == "scan":
            first = sum(scan_counts(p))
            return scan(self, equation, p, *ins[:first], *map(self.nodes, ins[first:]))
        if name == "cond":
            return self._branch(equation, self.nodes(ins[0]), *ins[1:])
        if body(equation) is None:
            ins = [self.nodes(x) for x in ins]
        return super().equation(equation, ins)

    def _branch(self, equation: JaxprEqn, which: np.ndarray, *operands: Value) -> Sequence[Value]:
        """A choice: by jumps where branches call programs, else by selecting numbers."""
        branches = equation.params["branches"]
        if self.constants(which) is not None or not any(contains(x, "scalar_program", "while") for x in branches):
            return cond(self, equation, equation.params, which, *operands)
        if len(branches) > 2:
            raise NotScalarError("it has a choice of more than two branches with calls")
        module, truth = self.module, self.graph.apply("ge", int(which), self.graph.constant(1))
        out = []
        for branch, holds in ((branches[1], truth), (branches[0], self.graph.apply("not", truth))):
            shapes = [Shaped(v.shape, v.dtype) for v in branch.out_avals]
            buffers = [module.allocate(module.types, entries(s.shape)) for s in shapes]
            mask = module.operate(module.types, "and", [module.masks[-1], module.value(holds)])

            def work(branch: ClosedJaxpr = branch, buffers: list[str] = buffers, mask: str = mask) -> None:
                with module.scope(mask):
                    for x, buffer in zip(self.closed(branch, operands), buffers, strict=True):
                        module.put_nodes(self.nodes(x), buffer)

            module.where(module.joined(module.types, "or", mask), work)
            out.append([module.stored(buffer, 0, s) for buffer, s in zip(buffers, shapes, strict=True)])
        return self.select(truth, *out)

    # Rows in memory

    def _read_row(self, sizes: Sequence[int], operand: Operand, *starts: np.ndarray) -> np.ndarray:
        """A row of an operand, in each lane another one."""
        module, shape = self.module, self.module.operands[operand.number]
        others = [self.constants(start) for start in starts[1:]]
        if sizes[0] != 1 or tuple(sizes[1:]) != shape.shape[1:] or any(x is None or x != 0 for x in others):
            raise NotScalarError("it reads more than a row of an operand")
        size = entries(shape.shape[1:])
        row, numbers = module.allocate(module.types, size), module.row_numbers(int(starts[0]), shape.shape[0])

        def one(k: str) -> None:
            job, number = module.load_integer(module.jobs, k), module.row_number(numbers, k)
            read = lambda e: module.load_operand(operand.number, job, module.index_in_row(number, size, e))
            module.each(size, lambda e: module.store(module.one, read(e), row, module.index_in_lane(e, k)))

        module.each(module.types.width, one)
        return module.stored(row, 0, Shaped((1, *shape.shape[1:]), shape.dtype))

    def _write_row(self, output: ResultRows, indices: np.ndarray, new: np.ndarray) -> ResultRows:
        """A row of a result, in the lanes that are in question, if there is such a row."""
        module, shape = self.module, self.module.results[output.number].shape
        count, size = shape[0], entries(shape[1:])
        if new.shape != shape[1:] or indices.size != 1:
            raise NotScalarError("it writes more than a row of a result")
        i, number, apply = int(indices.ravel()[0]), self.graph.constant, self.graph.apply
        inside = apply("and", apply("ge", i, number(0.0)), apply("lt", i, number(float(count))))
        buffer, first = module.in_memory(new)
        numbers = module.row_numbers(i, count)

        def one(k: str) -> None:
            job, row = module.load_integer(module.jobs, k), module.row_number(numbers, k)
            read = lambda e: module.load_of_lane(buffer, module.offset(first, e), k)
            write = lambda e: module.store_result(output.number, job, module.index_in_row(row, size, e), read(e))
            module.each(size, write)

        module.each_where(module.operate(module.types, "and", [module.masks[-1], module.value(inside)]), one)
        return output

    # Loops

    def _parts(
        self, equation: JaxprEqn, ins: Sequence[Value]
    ) -> tuple[Callable[[list[Value]], int], Callable[[list[Value]], list[Value]], list[Value]]:
        """Of a loop the node that tells whether it goes on, the next turn, and what it begins with."""
        p = equation.params
        a, b = p["cond_nconsts"], p["body_nconsts"]
        going = lambda carry: int(self.nodes(self.closed(p["cond_jaxpr"], [*ins[:a], *carry])[0]))
        turn = lambda carry: self.closed(p["body_jaxpr"], [*ins[a : a + b], *carry])
        return going, turn, list(ins[a + b :])

    def _loop(self, equation: JaxprEqn, ins: Sequence[Value]) -> list[Value]:
        """A loop within a run, which each lane leaves at its time."""
        module, types = self.module, self.module.types
        going, turn, init = self._parts(equation, ins)
        carry, buffers = [], []
        for x, shape in zip(init, map(shaped, equation.outvars), strict=True):
            buffer = None if isinstance(x, ResultRows) else module.allocate(types, entries(shape.shape))
            if buffer is not None:
                module.put_nodes(self.nodes(x), buffer)
            buffers.append(buffer)
            carry.append(x if buffer is None else module.stored(buffer, 0, shape))
        n = module.unique()
        module.do(f"br label %loop{n}")
        module.label(f"loop{n}")
        with module.scope():
            active = module.operate(types, "and", [module.masks[-1], module.value(going(carry))])
            module.do(f"br i1 {module.joined(types, 'or', active)}, label %turn{n}, label %after{n}")
            module.label(f"turn{n}")
            with module.scope(active):
                self._hand_on(turn(carry), buffers, active)
            module.do(f"br label %loop{n}")
        module.label(f"after{n}")
        return carry

    def _run(self, equation: JaxprEqn, ins: Sequence[Value]) -> list[Value]:
        """The loop of a run; what stands behind it is written where runs are over."""
        module, types = self.module, self.module.types
        going, turn, init = self._parts(equation, ins)
        carry: list[Value] = []
        buffers: list[str | None] = []
        fresh = module.truth(module.load(types, module.fresh, 0))
        for k, x in enumerate(init):
            output = self._output(equation, k, x)
            buffer = None
            if output is None:
                shape = shaped(equation.outvars[k])
                buffer = module.allocate(types, entries(shape.shape))
                module.put_nodes(self.nodes(x), buffer, 0, fresh)
                carry.append(module.stored(buffer, 0, shape))
            else:
                carry.append(output)
                if not isinstance(x, _Unset):
                    self._fill(output, float(self.graph.values[int(self.nodes(x).ravel()[0])]), fresh)
            buffers.append(buffer)
        module.do("br label %loop")
        module.label("loop")
        module.names.append({})
        busy = module.masks[-1]
        ends = module.operate(types, "not", [module.value(going(carry))])
        over = module.operate(types, "and", [busy, ends])
        module.do(f"br i1 {module.joined(types, 'or', over)}, label %finish, label %body")
        module.label("body")
        with module.scope():
            self._hand_on(turn(carry), buffers)
            module.do("br label %loop")
        module.label("finish")
        module.names.append({})
        module.masks.append(over)
        return carry

    def _hand_on(self, new: list[Value], buffers: list[str | None], where: str | None = None) -> None:
        """What goes to the next turn, in all lanes or where a truth value holds."""
        stores = [(self.nodes(x), b) for x, b in zip(new, buffers, strict=True) if b is not None]
        # It is computed from this turn's numbers: all of it before any of these is overwritten.
        for nodes, _ in stores:
            for i in nodes.ravel().tolist():
                self.module.value(i)
        for nodes, buffer in stores:
            if self.module.region(nodes) != (buffer, 0):
                self.module.put_nodes(nodes, buffer, 0, where)

    def _output(self, equation: JaxprEqn, k: int, init: Value) -> ResultRows | None:
        """The result that an array of the loop of a run becomes if nothing reads it; None if it is carried in memory."""
        out = equation.outvars[k]
        same = [r for r, v in enumerate(self.program.outvars) if v is out]
        if not same or not shaped(out).shape:
            return None
        constant = isinstance(init, _Unset) or (
            isinstance(init, np.ndarray) and self.constants(init) is not None and len(set(init.ravel().tolist())) == 1
        )
        turn = opened(equation.params["body_jaxpr"])[0]
        first = equation.params["body_nconsts"]
        return ResultRows(same[0]) if constant and _is_write_only(turn, first + k, k) else None

    def _fill(self, output: ResultRows, number: float, fresh: str) -> None:
        """One number in all of a result."""
        module = self.module
        size, x = entries(module.results[output.number].shape), module.one.constant(number)

        def one(k: str) -> None:
            job = module.load_integer(module.jobs, k)
            module.each(size, lambda e: module.store_result(output.number, job, e, x))

        module.each_where(module.operate(module.types, "and", [module.masks[-1], fresh]), one)


def _is_write_only(program: Jaxpr, argument: int, result: int) -> bool:
    """Whether rows of an argument of a program are set, and nothing else is done with it, until it is a result."""
    x = program.invars[argument]
    for equation in program.eqns:
        positions = [k for k, v in enumerate(equation.invars) if not is_literal(v) and v is x]
        if not positions:
            continue
        if len(positions) > 1:
            return False
        name, k = equation.primitive.name, positions[0]
        if name == "scatter" and k == 0:
            x = equation.outvars[0]
        elif name == "while":
            p = equation.params
            own = k - p["cond_nconsts"] - p["body_nconsts"]
            turn = opened(p["body_jaxpr"])[0]
            unread = own >= 0 and not _reads(opened(p["cond_jaxpr"])[0], p["cond_nconsts"] + own)
            if not (unread and _is_write_only(turn, p["body_nconsts"] + own, own)):
                return False
            x = equation.outvars[own]
        else:
            return False
    return program.outvars[result] is x


def _reads(program: Jaxpr, argument: int) -> bool:
    x = program.invars[argument]
    return any(v is x for e in program.eqns for v in e.invars) or any(v is x for v in program.outvars)
