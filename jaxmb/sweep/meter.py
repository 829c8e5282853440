"""How far a sweep is."""

import sys
import time


class Meter:
    """A line for each shard on the error stream.

    Args:
        shards: number of shards to compute.
        rows: number of rows in them.
        shown: whether to print; by default where the stream is a terminal.
    """

    def __init__(self, shards: int, rows: int, shown: bool | None):
        # Rows, not shards, measure the time that is left: the last shard is shorter.
        self.shards, self.rows = shards, rows
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.done, self.rows_done, self.begun = 0, 0, time.monotonic()

    def add(self, shard: int, rows: int, note: str = "") -> None:
        """Another shard is done."""
        self.done, self.rows_done = self.done + 1, self.rows_done + rows
        if not self.shown:
            return
        seconds = time.monotonic() - self.begun
        remaining = seconds / self.rows_done * (self.rows - self.rows_done)
        print(
            f"shard {shard}: {self.done} of {self.shards} done, {self.rows_done / max(seconds, 1e-9):.3g} rows/s, {_clock(remaining)} left{note}",
            file=sys.stderr,
            flush=True,
        )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
