"""How far a sweep is."""

import sys
import time
from collections.abc import Callable


class Meter:
    """What a sweep says of each shard.

    Args:
        shards: number of shards to compute.
        rows: number of rows in them.
        say: takes the words.
    """

    def __init__(self, shards: int, rows: int, say: Callable[[str], None]):
        # Rows, not shards, measure the time that is left: the last shard is shorter.
        self.shards, self.rows = shards, rows
        self.say = say
        self.done, self.rows_done, self.begun = 0, 0, time.monotonic()

    def add(self, shard: int, rows: int, note: str = "") -> None:
        """Another shard is done."""
        self.done, self.rows_done = self.done + 1, self.rows_done + rows
        seconds = time.monotonic() - self.begun
        remaining = seconds / self.rows_done * (self.rows - self.rows_done)
        rate = self.rows_done / max(seconds, 1e-9)
        self.say(f"shard {shard}{note}: {self.done} of {self.shards} done, {rate:.3g} rows/s, {_clock(remaining)} left")


def on_a_line(text: str) -> None:
    """Prints to the error stream, which may be a log."""
    print(text, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
