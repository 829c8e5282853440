"""Some lanes side by side, each of which takes the next run of a batch as soon as its own is over."""

import abc
from collections.abc import Callable, Sequence

from .code import entries
from .driver import Driver, Functions, Stepping
from .module import EACH, Period


class Queue(Driver, abc.ABC):
    """A module that goes from attempt to attempt until all runs are over.

    Args:
        program: the program, of which each lane is a run.
        functions, read, periods, lanes: as of `Driver`; what is read belongs to the lane.
    """

    def __init__(
        self,
        program: Stepping,
        functions: Functions,
        read: Sequence[int],
        periods: Sequence[Period],
        lanes: int,
    ):
        if lanes == 1:  # its functions are those of several lanes
            periods = tuple(EACH if k in read else period for k, period in enumerate(periods))
        super().__init__(program, functions, read, periods, lanes)
        self.busy, self.chosen = (self.room(self.types, 1) for _ in range(2))
        self.jobs, self.next = self.counters(self.types.width), self.counters(1)

    # What belongs to a kind of run

    @abc.abstractmethod
    def clear(self) -> None:
        """Numbers for lanes without a run, with which nothing goes wrong."""

    @abc.abstractmethod
    def load_lane(self, k: str, job: str) -> None:
        """The start of a run into a lane."""

    @abc.abstractmethod
    def attempt_all(self, busy: str) -> str:
        """One attempt in all lanes; which of those that are busy are over after it."""

    @abc.abstractmethod
    def give_lane(self, k: str, job: str) -> None:
        """The results of a run from a lane."""

    # What they have in common

    def write_all(self) -> None:
        """The whole function."""
        width = self.types.width
        self.store(self.types, self.types.constant(0.0), self.busy, 0)
        self.put(str(min(width, self.lanes)), self.next)
        self.clear()

        def begin(k: str) -> None:
            self.put(k, self.jobs, k)
            self.where(self.let(f"icmp ult i64 {k}, {self.lanes}"), lambda: self._begin(k, k))

        self.each(width, begin)
        self._fill()
        self.repeat(self._attempt)
        self.do("ret ptr null")

    def _begin(self, k: str, job: str) -> None:
        self.put(job, self.jobs, k)
        self.store(self.one, self.one.constant(1.0), self.busy, k)
        self.load_lane(k, job)

    def _fill(self) -> None:
        """What functions are given of the parameters of each lane's run."""
        numbers = []
        for k in range(self.types.width):
            job = self.whole(self.jobs, k)
            valid = self.let(f"icmp ult i64 {job}, {self.lanes}")
            numbers.append(self.let(f"select i1 {valid}, i64 {job}, i64 {self.lanes - 1}"))
        for part in self.called:
            self.fill(part, numbers)

    def _attempt(self) -> str:
        over = self.attempt_all(self.truth(self.load(self.types, self.busy, 0)))
        self.where(self.joined(self.types, "or", over), lambda: self._relieve(over))
        return self.joined(self.types, "or", self.truth(self.load(self.types, self.busy, 0)))

    def _relieve(self, over: str) -> None:
        """Gives the results of runs that are over, and takes the next ones."""
        self.each_where(over, self._relieve_lane)
        self._fill()

    def _relieve_lane(self, k: str) -> None:
        self.give_lane(k, self.whole(self.jobs, k))
        following = self.whole(self.next)
        self.put(self.let(f"add nuw nsw i64 {following}, 1"), self.next)
        none = lambda: self.store(self.one, self.one.constant(0.0), self.busy, k)
        more = self.let(f"icmp ult i64 {following}, {self.lanes}")
        self.either(more, lambda: self._begin(k, following), none)

    # Whole numbers, and numbers of one lane

    def counters(self, count: int) -> str:
        """Memory for so many whole numbers."""
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
        shaped = self.operands[operand]
        own = entries(shaped.shape)
        place = self.at(self.repeated(operand, job), own, entry) if self.periods[operand] is not None else entry
        return self.number(shaped, self.ins[operand], place)

    def give_job(self, result: int, job: str, entry: str, x: str) -> None:
        """An entry of a result of a run."""
        shaped = self.results[result]
        self.write(shaped, x, self.outs[result], self.at(job, entries(shaped.shape), entry))

    def copy(self, source: str, target: str, size: int) -> None:
        """So many numbers of all lanes from one place to another."""
        self.each(size, lambda e: self.store(self.types, self.load(self.types, source, e), target, e))

    def where(self, truth: str, work: Callable[[], None]) -> None:
        """Something, where it is to be done."""
        self.either(truth, work, lambda: None)

    def each_where(self, truth: str, work: Callable[[str], None]) -> None:
        """For each lane of which something is true."""
        self.store(self.types, self.operate(self.types, "number", [truth]), self.chosen, 0)

        def one(k: str) -> None:
            x = self.load(self.one, self.chosen, k)
            self.where(self.let(f"fcmp une {self.one.number} {x}, 0.0"), lambda: work(k))

        self.each(self.types.width, one)
