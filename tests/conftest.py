import os
import pathlib

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


SLOW = frozenset(pathlib.Path(__file__).with_name("slow.txt").read_text().splitlines())


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """What is listed as slow is; tests that share the assembled systems come first: one after the other, and so on one worker."""
    for item in items:
        if item.nodeid in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: vars(getattr(item, "module", item)).keys().isdisjoint({"states", "evaluated"}))


@pytest.fixture(autouse=True)
def few_programs_at_a_time():
    """Compiled programs are mapped into memory in many parts; Linux grants a process 65,530 of them."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 35_000:
        jax.clear_caches()
