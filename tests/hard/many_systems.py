"""many systems: hundreds of different ones in one process: what memory and how many maps each of them keeps, with and without clearing.

`python -m hard.many_systems 200 0` prints both, by system.
"""

import json
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np

import jaxmb as jm
from hard.row import Figure, cpu_time

SYSTEMS = 200
LINKS = 4
MEMORY, MAPS = 5.0, 50  # MiB and maps by system, after `jax.clear_caches()`
KINDS = ("Revolute", "Prismatic")


def trees(rng):
    """Mechanisms of a few bodies on springs, each of another shape: which body hangs on which, by what joint."""
    seen = set()
    while True:
        shape = tuple((int(rng.integers(0, i + 1)), KINDS[rng.integers(2)]) for i in range(LINKS))
        if shape in seen:
            continue
        seen.add(shape)
        P, names = jm.planar, ["ground", *(f"body{i}" for i in range(LINKS))]
        bodies = [P.Body.rod(name, 1.0, 0.5, position=rng.uniform(-1, 1, 2)) for name in names[1:]]
        joints = [getattr(P, kind)(f"joint{i}", names[on], f"body{i}.a") for i, (on, kind) in enumerate(shape)]
        # The springs' ends keep apart, and prismatic joints do not run away.
        forces = [P.SpringDamper(f"spring{i}", ("ground", (3.0, 2.0)), f"body{i}", 5.0, 0.1, 1.0) for i in range(LINKS)]
        yield P.Mechanism(bodies, joints, forces=forces, gravity=(0.0, -9.81))


def held():
    """Resident memory in MiB and mapped regions of this process."""
    status = pathlib.Path("/proc/self/status").read_text()
    maps = pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
    return np.array([int(re.search(r"VmRSS:\s*(\d+)", status).group(1)) / 1024, maps])


def growth(mechanisms, count, clear):
    """By how much both grow with each system, over the last half of so many."""
    for i in range(count):
        if i == count // 2:
            before = held()
        system = next(mechanisms).build()
        jm.simulate(system, jm.assemble(system), [0.1, 0.2])
        if clear:
            jax.clear_caches()
    return ((held() - before) / (count - count // 2)).tolist()


def figures(share, seed):
    """The row's figures, of a process of its own."""
    result, count = [], max(8, round(SYSTEMS * share))
    with cpu_time(result):
        command = [sys.executable, "-m", "hard.many_systems", str(count), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (memory, maps), (cleared, left) = json.loads(done.stdout)
        kept = f"{memory:.1f} MiB, {maps:.0f} maps"
        result.append(Figure("many systems", "memory and maps that each system keeps", "any", kept, count, True))
        what = "the same with `jax.clear_caches()` after each"
        met = cleared <= MEMORY and left <= MAPS
        goal, kept = f"≤ {MEMORY:g} MiB, {MAPS} maps", f"{cleared:.1f} MiB, {left:.0f} maps"
        result.append(Figure("many systems", what, goal, kept, count, met))
    return result


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    drawn = trees(np.random.default_rng(int(sys.argv[2])))
    print(json.dumps([growth(drawn, int(sys.argv[1]), clear) for clear in (False, True)]))
