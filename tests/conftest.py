import ctypes
import gc
import importlib.machinery
import mmap
import os
import pathlib
import sys

import jax
import pytest

# The time goes into compiling small programs, which takes half as long with little optimisation. A flag that XLA does not know ends the process.
FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if tuple(map(int, jax.__version__.split(".")[:3])) < (0, 11, 1):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
jax.config.update("jax_enable_x64", True)
# One folder per worker: a program that another process is still writing must not be read.
cache = pathlib.Path(os.environ.get("JAXMB_TEST_CACHE", pathlib.Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", str(cache / os.environ.get("PYTEST_XDIST_WORKER", "alone")))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# What is traced lives long: by default 7 % of the CPU time of three files of tests went into looking for what does not.
gc.set_threshold(200_000, 20, 100)

# A worker that has more forgets the programs of earlier tests.
MEMORY = 2.5 * 2**30


class Unshaped:
    """Finds modules that name no shapes of arrays, so that jaxtyping's hook does not see them in the default tests.

    The linter knows what else it checks. Among these modules are those that write programs by a call for each operation on numbers:
    their checks took a third of the time of all tests. `make slow` checks them too.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] != "jaxmb":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        named = spec is None or spec.origin is None or "jaxtyping" in pathlib.Path(spec.origin).read_text()
        return None if named else spec


def pytest_configure(config):
    if config.option.markexpr == "not slow":
        sys.meta_path.insert(0, Unshaped)


def slow_ones(name, marks, cases):
    """Which of a test's cases are slow by its marks `slow_cases` and `slow_except`."""
    found = set()
    for mark in marks:
        unknown = set(mark.args) - cases
        if unknown:
            raise pytest.UsageError(f"{name}: {mark.name} names cases that there are not: {sorted(unknown)}")
        found |= set(mark.args) if mark.name == "slow_cases" else cases - set(mark.args)
    return found


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config, items):
    """Marks cases as slow; tests that share the assembled systems come first: one after the other, and so on one worker."""
    tests = {}
    for item in items:
        if hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    for name, own in tests.items():
        marks = [mark for mark in own[0].iter_markers() if mark.name in ("slow_cases", "slow_except")]
        # Of a test of which cases are asked for by name the others are not here.
        named = any(f"{name}[" in argument for argument in config.args)
        chosen = {case for mark in marks for case in mark.args} if named else set()
        slow = slow_ones(name, marks, {item.callspec.id for item in own} | chosen)
        for item in own:
            if item.callspec.id in slow:
                item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: vars(getattr(item, "module", item)).keys().isdisjoint({"states", "evaluated"}))


@pytest.fixture(autouse=True)
def few_programs_at_a_time():
    """Compiled programs stay in memory, in many parts, of which Linux grants a process 65,530: some five per MiB."""
    yield
    used = pathlib.Path("/proc/self/statm")
    if used.exists() and int(used.read_text().split()[1]) * mmap.PAGESIZE > MEMORY:
        jax.clear_caches()
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc keeps what is freed
            trim(0)
