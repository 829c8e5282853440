"""killed: searches and sweeps that are killed at random moments and go on: bit for bit what they are without.

`python -m hard.killed identify FOLDER` is such a search.
"""

import hashlib
import pathlib
import subprocess
import sys
import tempfile
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxmb as jm
from hard.row import cpu_time, none_of

KILLS = 12  # of each job
PATIENCE = 300.0  # s for one process
TIMES = np.linspace(0.0, 2.0, 41)
PENDULUM = jm.System(
    ("angle",),
    mass=lambda t, q, p: jnp.eye(1),
    potential=lambda t, q, p: -p["pull"] * jnp.cos(q[0]),
    force=lambda t, q, v, p: -p["damping"] * v,
    actuation=lambda t, q, p: jnp.ones((1, 1)),
    params={"pull": 9.81, "damping": 0.2},
)


class Waves(eqx.Module):
    """A torque as a Fourier series."""

    sines: jax.Array

    def __call__(self, t, q, v, p):
        return jnp.sum(self.sines * jnp.sin(jnp.arange(1, 4) * t))[None]


def tell(progress):
    """A search says that it is on its way, and takes its time."""
    if progress.iteration == 1:
        print("begun", flush=True)
    time.sleep(0.02)


SEARCH = {"optimiser": optax.adam(0.02), "progress": tell}


def identify(folder):
    """Two numbers from noisy angles, by many steps."""
    still, start = Waves(jnp.zeros(3)), jm.assemble(PENDULUM, [1.0])
    seen = np.cos(3.0 * TIMES) + 0.05 * np.random.default_rng(0).normal(size=len(TIMES))
    experiment = jm.fit.Experiment(TIMES, start, jm.fit.Signal("angle", seen, 0.05), control=still)
    looked_for = [jm.fit.Parameter("pull"), jm.fit.Parameter("damping")]
    steps = {"max_iterations": 150, "checkpoint": folder / "search"}
    return jm.fit.identify(PENDULUM, looked_for, experiment, **steps, **SEARCH).estimates


def tune(folder):
    """A torque for an aim, by many steps."""
    experiment = jm.fit.Experiment(TIMES, jm.assemble(PENDULUM, [1.0]), control=Waves(jnp.array([1.0, 0.5, 0.1])))
    miss = lambda system, motion: jnp.mean((motion.q[:, 0] - 0.5) ** 2)
    steps = {"steps": 150, "checkpoint": folder / "search"}
    found = jm.fit.tune(PENDULUM, [jm.fit.Parameter("control.sines")], experiment, miss, **steps, **SEARCH)
    return found.estimates, found.history


def swing(row):
    idle = lambda t, q, v, p: jnp.zeros(1)
    return jm.simulate(PENDULUM, jm.as_state(PENDULUM, row["angle"][None]), TIMES[:3], control=idle, throw=False)


def sweep(folder):
    """Runs from many starts, in shards."""
    print("begun", flush=True)
    jm.sweep.run(swing, jm.sweep.grid({"angle": np.linspace(-1.0, 1.0, 400)}), folder / "data", rows_per_shard=4)
    data = jm.sweep.open(folder / "data").load()
    return [np.asarray(data[name]) for name in ("q", "v", "angle")]


JOBS = {"identify": identify, "tune": tune, "sweep": sweep}


def job(name, folder):
    """A process that does it, and says "begun" first and the digest of all numbers last."""
    command = [sys.executable, "-m", "hard.killed", name, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole(name, folder):
    """What a process says last that is left alone, and how long it took from its first word on."""
    process = job(name, folder)
    first, start = process.stdout.readline(), time.monotonic()
    rest, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(errors[-2000:])
    return (first + rest).splitlines()[-1], time.monotonic() - start


def killed(name, folder, after):
    """Whether a process was killed so many seconds after its first word, not being over by then."""
    process = job(name, folder)
    process.stdout.readline()
    time.sleep(after)
    process.kill()
    process.communicate(timeout=PATIENCE)
    return process.returncode < 0


def figures(share, seed):
    """The row's figures: each job is killed again and again on its way."""
    rng, result, others, cases = np.random.default_rng(seed), [], 0, 0
    kills = max(2, round(KILLS * share))
    with cpu_time(result), tempfile.TemporaryDirectory() as name:
        for kind in JOBS:
            folders = [pathlib.Path(name) / kind / way for way in ("whole", "killed")]
            for folder in folders:
                folder.mkdir(parents=True)
            expected, seconds = whole(kind, folders[0])
            moments = rng.uniform(0.0, 1.5 * seconds / kills, kills)
            count = sum(killed(kind, folders[1], after) for after in moments)
            found, _ = whole(kind, folders[1])
            print(f"killed {kind}: {count} times, {'the same' if found == expected else 'another result'}", flush=True)
            others, cases = others + (found != expected), cases + count
        what = f"of {len(JOBS)} searches and sweeps, killed and resumed, not the same to the last bit"
        result.append(none_of("killed", what, others, cases))
    return result


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    numbers = jax.tree.leaves(JOBS[sys.argv[1]](pathlib.Path(sys.argv[2])))
    print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in numbers)).hexdigest())
