"""A line on a terminal while something takes long."""

import contextlib
import functools
import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

import jax

from .contract import contract

# So long nothing is said, and so often the line is written anew, in s.
PATIENCE, PERIOD = 2.0, 0.1

_shown = True
_doing: list[str] = []  # what is being done, the innermost last


@contract
def show_progress(on: bool) -> None:
    """Whether work that takes more than two seconds reports its progress on a terminal. Without a terminal nothing is ever printed.

    Example:
        >>> import jaxmb as jm
        >>> jm.show_progress(False)
        >>> jm.show_progress(True)
    """
    global _shown
    _shown = on


def shows_progress() -> bool:
    """Whether it does: by the switch, and as the error stream is a terminal."""
    try:
        return _shown and sys.stderr.isatty()
    # None where a program has no console, and closed streams raise.
    except (AttributeError, ValueError):
        return False


@contextlib.contextmanager
def working(words: str) -> Iterator[Callable[[str], None]]:
    """Says what is being done while it is; what it gives takes other words on the way. Without words nothing is said, of what is within neither."""
    if threading.current_thread() is not threading.main_thread() or not shows_progress():
        yield lambda words: None
        return
    _listen()
    level, line = len(_doing), None if _doing else _Line(daemon=True, name="jaxmb progress")
    _doing.append(words)

    def say(words: str) -> None:
        _doing[level] = words

    try:
        if line is not None:
            line.start()
        yield say
    finally:
        del _doing[level:]
        if line is not None:
            line.over.set()
            line.join()


def compiling() -> None:
    """The innermost work has come to be compiled; JAX tells when it is."""
    if _doing and threading.current_thread() is threading.main_thread():
        _doing[-1] = _doing[-1] and "compiling"


@functools.cache
def _listen() -> None:
    def over(event: str, *_: object, **__: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration" and _doing and _doing[-1] == "compiling":
            _doing[-1] = "running"

    jax.monitoring.register_event_duration_secs_listener(over)


class _Line(threading.Thread):
    """The line, which is written anew until work is over, and then wiped out."""

    def __init__(self, **options: object):
        super().__init__(**options)  # pyright: ignore[reportArgumentType]
        self.over = threading.Event()

    def run(self) -> None:
        """Writes."""
        began, width = time.monotonic(), 0
        if self.over.wait(PATIENCE):
            return
        for sign in itertools.cycle("|/-\\"):
            words = list(_doing)
            text = f"{sign} {', '.join(words)}, {time.monotonic() - began:.0f} s" if all(words) else ""
            text = text[: shutil.get_terminal_size().columns - 1]
            _write("\r" + text.ljust(width))
            width = len(text)
            if self.over.wait(PERIOD):
                break
        _write("\r" + " " * width + "\r")


def _write(text: str) -> None:
    # Whoever has closed the terminal does not want to know, and a run must not end by it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
