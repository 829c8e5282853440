"""surroundings: the same numbers on one core, in other folders, locales and processes, and on a lesser processor.

`python -m hard.surroundings spawn` prints them, as a process that another one spawned finds them.
"""

import json
import locale
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np

from hard.row import cpu_time, none_of

SAME = 1e-12  # relative to the largest number of each result
PATIENCE = 300.0  # s


def numbers():
    """A motion and a batch of a slider-crank."""
    import jax
    import jax.numpy as jnp

    import jaxmb as jm
    from hard.batches import crank

    jax.config.update("jax_enable_x64", True)
    times = jnp.linspace(0.0, 1.0, 5)

    def end(rod):
        system = crank(rod).build()
        state = jm.assemble(system, {"O": 0.4}, {"O": 3.0}, hold=["O"], hold_velocity=["O"], throw=False)
        return jm.simulate(system, state, times, control=lambda t, q, v, p: -0.1 * v[:1], throw=False).q

    found = {"motion": end(0.8), "batch": jax.jit(jax.vmap(end))(jnp.linspace(0.7, 0.9, 20))}
    return {name: np.ravel(x).tolist() for name, x in found.items()}


def in_thread():
    """Two threads at once: what both found, one after the other."""
    found = [None, None]
    target = lambda k: found.__setitem__(k, numbers())
    threads = [threading.Thread(target=target, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {f"{name} of thread {k}": x for k in range(2) for name, x in found[k].items()}


def in_process(method):
    """A process that was started so, before JAX was used in this one."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply(numbers)


def in_locale():
    """Numbers are written with a comma, if the machine has such a locale."""
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
            break
        except locale.Error:
            continue
    return numbers()


WAYS = {
    "plain": numbers,
    "thread": in_thread,
    "fork": lambda: in_process("fork"),
    "spawn": lambda: in_process("spawn"),
    "locale": in_locale,
}


def places(folder):
    """Ways, words before the command, and changes of the environment, by name; homes cannot be written to."""
    spaced, home = folder / "a folder with spaces", folder / "home"
    spaced.mkdir()
    home.mkdir(mode=0o500)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    root = pathlib.Path(__file__).parents[2]
    for name in ("jaxmb", "tests"):
        (spaced / name).symlink_to(root / name)
    within = os.pathsep.join([str(spaced), str(spaced / "tests"), *paths])
    yield "one core", "plain", ["taskset", "-c", "0"], {}
    yield "a home that cannot be written to", "plain", [], {"HOME": str(home), "XDG_CACHE_HOME": str(home / "none")}
    yield "a path with spaces", "plain", ["env", "-C", str(spaced)], {"PYTHONPATH": within}
    yield "two threads", "thread", [], {}
    yield "a fork", "fork", [], {}
    yield "a spawned process", "spawn", [], {}
    yield "another locale", "locale", [], {"LC_ALL": "C", "LANG": "C"}
    yield "XLA without AVX-512", "plain", [], {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}


def found(way, before, changes):
    """What a process found, by name, or what it died of."""
    command = [*before, sys.executable, "-m", "hard.surroundings", way]
    try:
        done = subprocess.run(
            command, env=os.environ | changes, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return f"{type(error).__name__}: {str(error.stderr)[-500:]}"
    return json.loads(done.stdout.splitlines()[-1])


def apart(numbers, expected):
    """The largest difference of a result, relative to its largest number."""
    worst = 0.0
    for name, x in numbers.items():
        y = np.array(expected[name.split(" of ")[0]])
        worst = max(worst, float(np.abs(x - y).max() / np.abs(y).max()))
    return worst


def figures(share, seed):
    """The row's figures; all of it, whatever the share."""
    result, off, cases = [], 0, 0
    with cpu_time(result), tempfile.TemporaryDirectory() as name:
        expected = found("plain", [], {})
        for what, way, before, changes in places(pathlib.Path(name)):
            there = found(way, before, changes)
            good = isinstance(there, dict) and apart(there, expected) <= SAME
            print(f"surroundings {what}: {apart(there, expected) if isinstance(there, dict) else there}", flush=True)
            off, cases = off + (not good), cases + 1
        result.append(
            none_of("surroundings", f"in which numbers differ by more than {SAME:g}, or none come", off, cases)
        )
    return result


if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]]()))
