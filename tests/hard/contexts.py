"""A plugin of pytest: which test runs which line, by coverage.py, and how long it takes."""

import os
import pathlib
import time

import coverage
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    start = time.perf_counter()
    # What runs before the first test and between two, by import, belongs to none.
    coverage.Coverage.current().switch_context(item.nodeid)
    yield
    coverage.Coverage.current().switch_context("")
    # Workers write to files of their own.
    with pathlib.Path(os.environ["JAXMB_TIMES"], f"{os.getpid()}.txt").open("a") as file:
        file.write(f"{time.perf_counter() - start:.3f} {item.nodeid}\n")
