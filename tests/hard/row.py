"""What a row of the table consists of."""

import contextlib
import dataclasses
import time
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


@contextlib.contextmanager
def cpu_time(figures: list) -> Iterator[None]:
    """Shares the CPU time of a block among its figures."""
    start = time.process_time()
    yield
    for figure in figures:
        figure.seconds = (time.process_time() - start) / len(figures)
