"""Runs of tests in a folder, each in a fork of one process that has imported what they import: most of a short run is imports."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile

PATIENCE = 600  # in s, until tests hang, and fail
# What the engine and most tests import. The engine itself is that of the folder as it is when tests run.
LIBRARIES = (
    "beartype", "diffrax", "equinox.internal", "jax.experimental.sparse", "jaxtyping", "lineax", "llvmlite.binding",
    "matplotlib.pyplot", "numpy", "optimistix", "pytest", "scipy.integrate", "scipy.optimize", "scipy.sparse.csgraph",
    "scipy.spatial.transform",
)  # fmt: skip


@contextlib.contextmanager
def forks(folder, environment):
    """A function that tells whether tests pass in a folder, and the last line of what is said if they do not."""
    command = [sys.executable, "-m", "hard.forks"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def passes(tests):
            print(json.dumps(tests), file=process.stdin, flush=True)
            code, said = json.loads(process.stdout.readline())
            if code == -signal.SIGALRM:
                return False, "takes too long"
            failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
            return code == 0, failed[-1] if failed else said[-200:]

        yield passes


def in_fork(tests):
    """The exit code of pytest, and what it says."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.setsid()  # a group of its own, which ends as a whole: tests start processes too
            signal.alarm(PATIENCE)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(said.fileno(), stream.fileno())
            code = pytest.ExitCode.INTERNAL_ERROR
            try:
                code = pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests])
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        said.seek(0)
        return code, said.read()


if __name__ == "__main__":
    import pytest

    for name in LIBRARIES:
        importlib.import_module(name)
    from jax._src import xla_bridge

    # XLA runs threads, which a fork leaves behind.
    assert not xla_bridge.backends_are_initialized() and "jaxmb" not in sys.modules
    for line in sys.stdin:
        print(json.dumps(in_fork(json.loads(line))), flush=True)
