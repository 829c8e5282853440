"""Lanes whose runs give numbers at times that are asked for."""

import abc
from collections.abc import Callable

import numpy as np

from .module import Called
from .queue import Queue


class Saving(Queue, abc.ABC):
    """A queue of runs that give numbers at times within their steps."""

    def save_by(self, between: Called, times: int, result: int, count: int, size: int) -> None:
        """Says how.

        Args:
            between: the function, whose first operand is the time.
            times: the operand that has the times.
            result: what its numbers are written to.
            count: how many times there are.
            size: how many numbers belong to each.
        """
        self.between = between
        self._times, self._saved, self._moments, self._size = times, result, count, size
        self.due, self.index = self.room(self.types, 1), self.counters(self.types.width)

    def begin_saving(self, k: str, job: str) -> None:
        """Of a lane that takes a run."""
        self.put("0", self.index, k)
        self._look(k, job)

    def save(self, t1: str, busy: str, prepare: Callable[[], None]) -> None:
        """Writes all numbers at times up to t₁ of busy lanes; `prepare` gives the function its other operands, if there are any."""
        types = self.types

        def due() -> str:
            late = self.let(f"fcmp ole {types.number} {self.load(types, self.due, 0)}, {t1}")
            return self.operate(types, "and", [busy, late])

        def write() -> str:
            self.store(types, self.load(types, self.due, 0), self.argument(self.between, 0), 0)
            self.do(self.between.text)
            self.each_where(due(), self._write_saved)
            return self.joined(types, "or", due())

        def all_of_them() -> None:
            prepare()
            self.repeat(write)

        self.where(self.joined(types, "or", due()), all_of_them)

    def fill_up(self, k: str, job: str, value: float) -> None:
        """Numbers at times that a run did not reach."""
        self.fill_rows(self.whole(self.index, k), job, value, self._moments, self._size, self._saved)

    def fill_rows(self, first: str, job: str, value: float, count: int, size: int, result: int) -> None:
        """One number in all entries of the rows of a result from the first one on."""
        number = self.one.constant(value)

        def row(i: str) -> None:
            put = lambda e: self.give_job(result, job, self.at(i, size, e), number)
            self.where(self.let(f"icmp uge i64 {i}, {first}"), lambda: self.each(size, put))

        self.each(count, row)

    def _look(self, k: str, job: str) -> None:
        """At the next time of a lane."""
        index, one = self.whole(self.index, k), self.one
        last = self.let(f"icmp uge i64 {index}, {self._moments}")
        read = lambda: self.store(one, self.of_job(self._times, job, index), self.due, k)
        self.either(last, lambda: self.store(one, one.constant(np.inf), self.due, k), read)

    def _write_saved(self, k: str) -> None:
        index, job = self.whole(self.index, k), self.whole(self.jobs, k)
        number = lambda e: self.of_lane(self.between.found, e, k)
        self.each(self._size, lambda e: self.give_job(self._saved, job, self.at(index, self._size, e), number(e)))
        self.put(self.let(f"add nuw nsw i64 {index}, 1"), self.index, k)
        self._look(k, job)
