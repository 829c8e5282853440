"""What long work says on a terminal."""

import contextlib
import io
import os
import sys
import time

import jax.numpy as jnp
import pytest

import jaxmb as jm
from jaxmb.foundations import working

pty = pytest.importorskip("pty")
MODULE = sys.modules["jaxmb.foundations.terminal"]


@contextlib.contextmanager
def terminal():
    """A function that tells what has been written to a terminal that is the error stream meanwhile."""
    master, slave = pty.openpty()

    os.set_blocking(master, False)

    def written():
        parts = []
        with contextlib.suppress(BlockingIOError):
            while True:  # a terminal hands out some thousand bytes at a time
                parts.append(os.read(master, 2**16))
        return b"".join(parts).decode()

    with os.fdopen(slave, "w") as stream, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        patched.setattr(MODULE, "PATIENCE", 0.05)
        patched.setattr(MODULE, "PERIOD", 0.01)
        yield written
    os.close(master)


def until(written, words):
    """What has been written when these words are there."""
    text, end = "", time.monotonic() + 20.0
    while words not in text:
        assert time.monotonic() < end, text
        text += written()
    return text


def is_clean(text):
    """Whether a line was wiped out: blanks over all of it, and back to where it began."""
    *_, blanks, rest = text.split("\r")
    return rest == "" and blanks.strip() == "" and len(blanks) > 3


def test_a_line_says_what_is_done_and_is_wiped_out():
    with terminal() as written:
        with working("search") as say:
            say("iteration 3 of 50, cost 0.25")
            text = until(written, "iteration 3 of 50, cost 0.25, 0 s")
            with working("running"):
                text += until(written, "cost 0.25, running, ")
                MODULE.compiling()
                text += until(written, "cost 0.25, compiling, ")
        assert is_clean(text + written()) and "search" not in text


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_half_line_is_left_by_an_error(error):
    with terminal() as written:
        with pytest.raises(error), working("running"):
            text = until(written, "running")
            raise error
        assert is_clean(text + written())


def test_nothing_is_said_of_what_is_quick_or_silent():
    """Nor within work without words, such as that which has a meter of its own, nor where the switch is off."""
    with terminal() as written:
        with working("running"):
            pass
        with working(""), working("running"):
            time.sleep(0.1)
        jm.show_progress(False)
        with working("running"):
            time.sleep(0.1)
        jm.show_progress(True)
        assert written().strip() == ""


def test_a_run_says_that_it_is_compiled(monkeypatch):
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: -(q**3) - 0.017 * q)
    with terminal() as written:
        monkeypatch.setattr(
            MODULE, "PERIOD", 0.1
        )  # a terminal that is not read holds no more than some ten thousand bytes
        jm.simulate(system, jm.as_state(system, [1.0]), [0.1])
        text = written()
    assert "compiling, " in text and is_clean(text)


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_elsewhere_nothing_is_said(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(MODULE, "PATIENCE", 0.0)
    with working("running") as say:
        say("on")
        time.sleep(0.05)
    assert stream is None or stream.getvalue() == ""
