"""Programs with loops: written in JAX, with calls of scalar programs, and compiled as a whole."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from .code import Compilable, Shaped, entries
from .jaxpr import body, is_literal, opened, pruned, scan_counts
from .module import Lane, Period
from .program import Program, lanes_p
from .queue import LONG, Operand, Output, Queue
from .scalarise import NotScalarError, Reader

# What stands between the calls of a program may have so many operations.
MOST = 500_000

# A scalar program, as what is called in its place.
Call = Callable[[Any], Callable[..., list[Array]]]


def plain(program: Any) -> Callable[..., list[Array]]:
    """The function as it was given."""
    return program.fn


def compiled(program: Compilable) -> Callable[..., list[Array]]:
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
    def dtype(self) -> Any:
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
    def written(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return functools.partial(self.written, plain)

    @property
    def by_numbers(self) -> "LoopProgram":
        """The same, whose function calls those of `Program.by_numbers`."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: x.by_numbers for k, x in parts.items() if isinstance(x, Program)})

    def __call__(self, *operands: Any) -> list[Array]:
        """The results."""
        return lanes_p.bind(*operands, program=self, lanes=())

    def tangent(self, moving: tuple[bool, ...]) -> None:
        """There is none as one program: it is differentiated by its functions."""
        return None

    @functools.cached_property
    def jaxpr(self) -> Any:
        """What it does, with calls of scalar programs."""
        return pruned(jax.make_jaxpr(functools.partial(self.written, compiled))(*self.operands))

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = Queue(self.dtype, self.own, self.operands, self.results, periods, lanes)
        writer = _Writer(out, self.jaxpr)
        out.write(lambda: writer.closed(self.jaxpr, [Operand(k) for k in range(len(self.operands))]))
        return out


class _Unset:
    """An array of which nothing is known, nor will be asked."""


class _Writer(Reader):
    """Goes through the equations, and writes what is no operation on numbers into a module."""

    def __init__(self, module: Queue, jaxpr: Any):
        super().__init__(module.graph, MOST)
        self.module, self.whole = module, opened(jaxpr)[0]
        self.outermost = next((e for e in self.whole.eqns if e.primitive.name == "while"), None)

    def array(self, x: Any) -> Any:
        """What goes from one equation to the next."""
        return x if isinstance(x, Operand | Output | _Unset) else super().array(x)

    def _equation(self, equation: Any, ins: list[Any]) -> list[Any]:
        name, p = equation.primitive.name, equation.params
        if name == "scalar_program":
            return self.module.call(p["program"], [x if isinstance(x, Operand) else self.module.nodes(x) for x in ins])
        if name == "while":
            write = self._run if equation is self.outermost else self._loop
            return write(equation, ins)
        if name == "scatter" and isinstance(ins[0], Output):
            return [self._write_row(ins[0], *map(self.module.nodes, ins[1:]))]
        if name == "dynamic_slice" and isinstance(ins[0], Operand):
            return [self._read_row(p["slice_sizes"], ins[0], *map(self.module.nodes, ins[1:]))]
        if name == "empty":
            return [_Unset()]
        if body(equation) is None and name not in ("scan", "cond"):
            ins = [self.module.nodes(x) for x in ins]
        return super()._equation(equation, ins)

    def _scan(self, equation: Any, p: Any, *ins: Any) -> list[np.ndarray]:
        first = sum(scan_counts(p))
        return super()._scan(equation, p, *ins[:first], *map(self.module.nodes, ins[first:]))

    def _cond(self, equation: Any, p: Any, which: Any, *operands: Any) -> list[np.ndarray]:
        which, branches = self.module.nodes(which), p["branches"]
        if self.known(which) is not None or not any(map(_calls, branches)):
            return super()._cond(equation, p, which, *operands)
        if len(branches) > 2:
            raise NotScalarError("it has a choice of more than two branches with calls")
        module, truth = self.module, self.graph.apply("ge", int(which), self.graph.constant(1))
        out = []
        for branch, holds in ((branches[1], truth), (branches[0], self.graph.apply("not", truth))):
            shapes = [Shaped(v.shape, v.dtype) for v in branch.out_avals]
            places = [module.room(module.types, entries(s.shape)) for s in shapes]
            mask = module.operate(module.types, "and", [module.masks[-1], module.named(holds)])

            def work(branch: Any = branch, places: list[str] = places, mask: str = mask) -> None:
                with module.scope(mask):
                    for x, place in zip(self.closed(branch, list(operands)), places, strict=True):
                        module.put_nodes(module.nodes(x), place)

            module.where(module.joined(module.types, "or", mask), work)
            out.append([module.stored(place, 0, s) for place, s in zip(places, shapes, strict=True)])
        return self.chosen(truth, *out)

    # Rows in memory

    def _read_row(self, sizes: Sequence[int], operand: Operand, *starts: np.ndarray) -> np.ndarray:
        """A row of an operand, in each lane another one."""
        module, shaped = self.module, self.module.operands[operand.number]
        others = [self.known(start) for start in starts[1:]]
        if sizes[0] != 1 or tuple(sizes[1:]) != shaped.shape[1:] or any(x is None or x != 0 for x in others):
            raise NotScalarError("it reads more than a row of an operand")
        size = entries(shaped.shape[1:])
        row, index = module.room(module.types, size), module.place_of(int(starts[0]), shaped.shape[0])

        def one(k: str) -> None:
            job, at = module.whole(module.jobs, k), module.index(index, k)
            read = lambda e: module.of_job(operand.number, job, module.at(at, size, e))
            module.each(size, lambda e: module.store(module.one, read(e), row, module.own(e, k)))

        module.each(module.types.width, one)
        return module.stored(row, 0, Shaped((1, *shaped.shape[1:]), shaped.dtype))

    def _write_row(self, output: Output, indices: np.ndarray, new: np.ndarray) -> Output:
        """A row of a result, in the lanes that are in question, if there is such a row."""
        module, shaped = self.module, self.module.results[output.number]
        count, size = shaped.shape[0], entries(shaped.shape[1:])
        if new.shape != shaped.shape[1:] or indices.size != 1:
            raise NotScalarError("it writes more than a row of a result")
        i, number, apply = int(indices.ravel()[0]), self.graph.constant, self.graph.apply
        inside = apply("and", apply("ge", i, number(0.0)), apply("lt", i, number(float(count))))
        place, first = module.placed(new)
        index = module.place_of(i, count)

        def one(k: str) -> None:
            job, at = module.whole(module.jobs, k), module.index(index, k)
            read = lambda e: module.of_lane(place, module.behind(first, e), k)
            module.each(size, lambda e: module.give_job(output.number, job, module.at(at, size, e), read(e)))

        module.each_where(module.operate(module.types, "and", [module.masks[-1], module.named(inside)]), one)
        return output

    # Loops

    def _parts(self, equation: Any, ins: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """Whether a loop goes on, its next turn, and what it begins with."""
        p = equation.params
        a, b = p["cond_nconsts"], p["body_nconsts"]
        going = lambda carry: int(self.closed(p["cond_jaxpr"], [*ins[:a], *carry])[0])
        turn = lambda carry: self.closed(p["body_jaxpr"], [*ins[a : a + b], *carry])
        return going, turn, list(ins[a + b :])

    def _loop(self, equation: Any, ins: Sequence[Any]) -> list[Any]:
        """A loop within a run, which each lane leaves at its time."""
        module, types = self.module, self.module.types
        going, turn, init = self._parts(equation, ins)
        carry, places = [], []
        for x, v in zip(init, equation.outvars, strict=True):
            place = None if isinstance(x, Output) else module.room(types, entries(v.aval.shape))
            if place is not None:
                module.put_nodes(module.nodes(x), place)
            places.append(place)
            carry.append(x if place is None else module.stored(place, 0, Shaped(v.aval.shape, v.aval.dtype)))
        n = module.unique()
        module.do(f"br label %loop{n}")
        module.label(f"loop{n}")
        with module.scope():
            active = module.operate(types, "and", [module.masks[-1], module.named(going(carry))])
            module.do(f"br i1 {module.joined(types, 'or', active)}, label %turn{n}, label %left{n}")
            module.label(f"turn{n}")
            with module.scope(active):
                stores = [(module.nodes(x), p) for x, p in zip(turn(carry), places, strict=True) if p is not None]
                for nodes, _ in stores:  # all is known before anything is overwritten
                    for i in nodes.ravel().tolist():
                        module.named(i)
                for nodes, place in stores:
                    module.put_nodes(nodes, place, 0, active)
            module.do(f"br label %loop{n}")
        module.label(f"left{n}")
        return carry

    def _run(self, equation: Any, ins: Sequence[Any]) -> list[Any]:
        """The loop of a run; what stands behind it is written where runs are over."""
        module, types = self.module, self.module.types
        going, turn, init = self._parts(equation, ins)
        carry, places = [], []
        fresh = module.truth(module.load(types, module.fresh, 0))
        for k, x in enumerate(init):
            v = equation.outvars[k]
            output = self._output(equation, k, x)
            place = None
            if output is None:
                place = module.room(types, entries(v.aval.shape))
                module.put_nodes(module.nodes(x), place, 0, fresh)
                carry.append(module.stored(place, 0, Shaped(v.aval.shape, v.aval.dtype)))
            else:
                carry.append(output)
                if not isinstance(x, _Unset):
                    self._begin(output, float(self.graph.values[int(x.ravel()[0])]), fresh)
            places.append(place)
        module.do("br label %loop")
        module.label("loop")
        module.names.append({})
        busy = module.masks[-1]
        ends = module.operate(types, "not", [module.named(going(carry))])
        over = module.operate(types, "and", [busy, ends])
        module.do(f"br i1 {module.joined(types, 'or', over)}, label %finish, label %body")
        module.label("body")
        with module.scope():
            self._hand_on(turn(carry), places)
            module.do("br label %loop")
        module.label("finish")
        module.names.append({})
        module.masks.append(over)
        return carry

    def _hand_on(self, new: list[Any], places: list[str | None]) -> None:
        """What goes to the next turn: what is already in memory is copied, if it is long, all else known before anything is overwritten."""
        module, copies, stores = self.module, [], []
        for x, place in zip(new, places, strict=True):
            if place is None:
                continue
            nodes = module.nodes(x)
            region = module.region(nodes) if nodes.size else None
            if region == (place, 0) or not nodes.size:
                continue
            if region is not None and nodes.size >= LONG and region[0] not in places:
                copies.append((*region, place, nodes.size))
            else:
                stores.append((place, [module.number_of(i) for i in nodes.ravel().tolist()]))
        for copy in copies:
            module.copy(*copy)
        for place, names in stores:
            for k, name in enumerate(names):
                module.store(module.types, name, place, k)

    def _output(self, equation: Any, k: int, init: Any) -> Output | None:
        """The result that an array of the loop of a run becomes if it is only written; None if it is carried in memory."""
        out = equation.outvars[k]
        same = [r for r, v in enumerate(self.whole.outvars) if v is out]
        if not same or not out.aval.shape:
            return None
        constant = isinstance(init, _Unset) or (
            isinstance(init, np.ndarray) and self.known(init) is not None and len(set(init.ravel().tolist())) == 1
        )
        turn = opened(equation.params["body_jaxpr"])[0]
        first = equation.params["body_nconsts"]
        return Output(same[0]) if constant and _only_written(turn, first + k, k) else None

    def _begin(self, output: Output, number: float, fresh: str) -> None:
        """One number in all of a result."""
        module = self.module
        size, x = entries(module.results[output.number].shape), module.one.constant(number)

        def one(k: str) -> None:
            job = module.whole(module.jobs, k)
            module.each(size, lambda e: module.give_job(output.number, job, e, x))

        module.each_where(module.operate(module.types, "and", [module.masks[-1], fresh]), one)


def _calls(program: Any) -> bool:
    """Whether a program calls others, or has loops."""
    for equation in opened(program)[0].eqns:
        if equation.primitive.name in ("scalar_program", "while"):
            return True
        inner = body(equation)
        if inner is None and equation.primitive.name == "scan":
            inner = equation.params["jaxpr"]
        parts = equation.params["branches"] if equation.primitive.name == "cond" else [inner]
        if any(part is not None and _calls(part) for part in parts):
            return True
    return False


def _only_written(program: Any, given: int, result: int) -> bool:
    """Whether an argument of a program is written row by row, and nothing else, until it is a result."""
    x = program.invars[given]
    for equation in program.eqns:
        places = [k for k, v in enumerate(equation.invars) if not is_literal(v) and v is x]
        if not places:
            continue
        if len(places) > 1:
            return False
        name, k = equation.primitive.name, places[0]
        if name == "scatter" and k == 0:
            x = equation.outvars[0]
        elif name == "while":
            p = equation.params
            own = k - p["cond_nconsts"] - p["body_nconsts"]
            turn = opened(p["body_jaxpr"])[0]
            unread = own >= 0 and not _reads(opened(p["cond_jaxpr"])[0], p["cond_nconsts"] + own)
            if not (unread and _only_written(turn, p["body_nconsts"] + own, own)):
                return False
            x = equation.outvars[own]
        else:
            return False
    return program.outvars[result] is x


def _reads(program: Any, given: int) -> bool:
    x = program.invars[given]
    return any(v is x for e in program.eqns for v in e.invars) or any(v is x for v in program.outvars)
