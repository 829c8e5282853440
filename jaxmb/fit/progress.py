"""How far a search is."""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple, SupportsFloat


class Progress(NamedTuple):
    """The progress of a search, reported after each iteration.

    Attributes:
        iteration: how many there were.
        most: how many there may be.
        cost: the least so far.
        trial: that of the last trial; not finite where a run failed.
        seconds: since the search began.
        done: whether it was the last one.
    """

    iteration: int
    most: int
    cost: float
    trial: float
    seconds: float
    done: bool


def reporter(
    progress: bool | Callable[[Progress], None],
) -> Callable[[int, int, SupportsFloat, SupportsFloat, bool], None]:
    """A function that tells what `Progress` holds in the way that is wanted."""
    report_to = progress if callable(progress) else _line if progress else None
    began = time.perf_counter()

    def report(iteration: int, most: int, cost: SupportsFloat, trial: SupportsFloat, done: bool) -> None:
        if report_to is not None:
            report_to(
                Progress(
                    iteration=iteration,
                    most=most,
                    cost=float(cost),
                    trial=float(trial),
                    seconds=time.perf_counter() - began,
                    done=done,
                )
            )

    return report


def _line(progress: Progress) -> None:
    """One line on the screen, which is written anew."""
    part = min(progress.iteration / max(progress.most, 1), 1.0)
    bar = "#" * round(20 * part) + "." * (20 - round(20 * part))
    text = f"[{bar}] {progress.iteration}/{progress.most}  cost {progress.cost:.6g}  {progress.seconds:.0f} s"
    sys.stderr.write("\r" + text.ljust(78) + "\n" * progress.done)
    sys.stderr.flush()
