"""What a row of the table consists of."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator


@dataclasses.dataclass
class Figure:
    """One figure: what is counted, what it should be, what it is, of how many cases, whether it is met, and the CPU time in s."""

    row: str
    what: str
    goal: str
    result: str
    cases: int
    met: bool
    seconds: float = 0.0


def none_of(row: str, what: str, number: int, cases: int) -> Figure:
    """A count that should be zero."""
    return Figure(row, what, "0", f"{number}", cases, number == 0)


@contextlib.contextmanager
def cpu_time(figures: list) -> Iterator[None]:
    """Shares the CPU time of a block, that of processes that it waited for included, among its figures."""
    start = sum(os.times()[:4])
    yield
    for figure in figures:
        figure.seconds = (sum(os.times()[:4]) - start) / len(figures)
