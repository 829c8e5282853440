"""What derivatives of a run cost: time and memory beside the run itself, by adjoint, numbers of parameters and of runs at once.

    python benchmarks/gradients.py [--small | --full]

A chain of ten rods swings for 0.25 s; the cost is the mean square of its angles at 26 times, the parameters are masses, moments of
inertia and centres of the rods. Memory is what XLA sets aside for temporaries.
"""

import functools
import time
from typing import Any

import common
import diffrax as dfx
import jax
import jax.numpy as jnp

import jaxmb as jm
from jaxmb.fit.target import Setup, locate

P = jm.planar
LINKS = 10
NAMES = [f"rod{i}.{field}" for i in range(LINKS) for field in ("mass", "inertia", "com.x", "com.y")]
COUNTS = {"small": (5,), "default": (1, 5, 10, 40), "full": (1, 5, 10, 40)}
RUNS = {"small": (1,), "default": (1, 16), "full": (1, 16, 256)}
ROUNDS = 3
ADJOINTS = {
    "reverse, tape": None,
    "reverse, checkpoints": dfx.RecursiveCheckpointAdjoint(checkpoints=64),
    "forward": dfx.ForwardMode(),
}


def chain() -> P.Mechanism:
    """Ten rods of 0.2 m and 0.2 kg, one hanging on the other."""
    rods = [P.Body.rod(f"rod{i}", mass=0.2, length=0.2) for i in range(LINKS)]
    above = ["ground"] + [f"rod{i}.b" for i in range(LINKS - 1)]
    joints = [P.Revolute(f"joint{i}", place, f"rod{i}.a") for i, place in enumerate(above)]
    return P.Mechanism(rods, joints, gravity=(0.0, -9.81))


def cost(start: jm.State, changes: jax.Array, adjoint: dfx.AbstractAdjoint | None) -> jax.Array:
    """The mean square of the angles for changes of the first parameters."""
    setup = Setup(chain())
    for name, value in zip(NAMES, changes, strict=False):
        at = locate(setup, name)
        setup = at.replaced(setup, at.read(setup) + value)
    found = jm.simulate(setup.model.build(), start, jnp.linspace(0.0, 0.25, 26), adjoint=adjoint, throw=False)
    return jnp.mean(found.q**2)


def kinds(start: jm.State) -> dict[str, Any]:
    """The run and its derivatives, by name."""
    made = {"run": functools.partial(cost, start, adjoint=None)}
    for name, adjoint in ADJOINTS.items():
        derivative = jax.jacfwd if name == "forward" else jax.grad
        made[name] = derivative(functools.partial(cost, start, adjoint=adjoint))
    return made


def measured(start: jm.State, runs: int, count: int) -> list[dict[str, Any]]:
    """One row for the run and for each of its derivatives."""
    # Moments of inertia are 7e-4 kg m²: larger changes would make some negative.
    changes = 1e-4 * jax.random.normal(jax.random.PRNGKey(0), (runs, count))
    calls, compiled = {}, {}
    for name, fn in kinds(start).items():
        program = jax.jit(jax.vmap(fn))
        spent, compiled[name] = common.seconds(
            lambda program=program: program.lower(changes).compile(compiler_options=jm.compiler_options())
        )
        calls[name] = functools.partial(compiled[name], changes), spent
    found = common.in_alternation({name: call for name, (call, _) in calls.items()}, ROUNDS)
    worst = float(jnp.abs(found["forward"].value / found["reverse, tape"].value - 1).max())
    assert worst < 1e-4, f"Forward and reverse derivatives differ by {worst:.1e}."
    rows = []
    for name, timing in found.items():
        labels = dict(runs=runs, parameters=count, derivative=name, times_the_run=timing.median / found["run"].median)
        memory = compiled[name].memory_analysis().temp_size_in_bytes / 1e6
        rows.append(labels | dict(temporary_mb=memory, compile_s=calls[name][1]) | timing.row())
    return rows


def main() -> None:
    given = common.arguments("gradients", __doc__)
    jax.config.update("jax_enable_x64", True)
    started, rows = time.perf_counter(), []
    start = jm.assemble(chain().build(), {"joint0": 0.5})
    for runs in RUNS[given.size]:
        for count in COUNTS[given.size]:
            found = measured(start, runs, count)
            print(f"\n{common.table(found)}", flush=True)
            rows += found
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
