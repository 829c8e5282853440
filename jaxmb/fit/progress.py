"""How far a search is."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, SupportsFloat

from ..foundations import working


class Progress(NamedTuple):
    """The progress of a search, reported after each iteration.

    Attributes:
        iteration: how many there were.
        most: how many there may be.
        cost: the least so far.
        trial: the cost of the last trial; not finite if a run failed.
        seconds: since the search began.
        done: whether it was the last one.
    """

    iteration: int
    most: int
    cost: float
    trial: float
    seconds: float
    done: bool


Report = Callable[[int, int, SupportsFloat, SupportsFloat, bool], None]


@contextlib.contextmanager
def reporting(progress: Callable[[Progress], None] | None) -> Iterator[Report]:
    """While a search goes on: a function that tells a terminal, and whoever asks, what `Progress` holds."""
    began = time.perf_counter()
    with working("search") as say:

        def report(iteration: int, most: int, cost: SupportsFloat, trial: SupportsFloat, done: bool) -> None:
            say(f"iteration {iteration} of {most}, cost {float(cost):.6g}")
            if progress is not None:
                seconds = time.perf_counter() - began
                progress(
                    Progress(
                        iteration=iteration,
                        most=most,
                        cost=float(cost),
                        trial=float(trial),
                        seconds=seconds,
                        done=done,
                    )
                )

        yield report
