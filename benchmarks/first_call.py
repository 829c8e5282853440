"""What a first call costs: trace, compile and run, beside a later call with the same shapes.

    python benchmarks/first_call.py [--small | --full]

Each row is measured in a process of its own, without a persistent cache.
"""

import time
from typing import Any

import common
import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmb as jm

END = {"four-bar": 0.5, "Andrews": 0.03}
KINDS = (
    "assemble",
    "simulate",
    "reactions",
    "100 at once",
    "reverse gradient",
    "reverse gradient, checkpoints",
)
ROWS = {"small": [("four-bar", "simulate")], "default": [(name, kind) for name in END for kind in KINDS]}
ROWS["full"] = ROWS["default"]
ROUNDS = 5


def start_of(name: str) -> tuple[jm.System, Any]:
    """The system, and a function that assembles its start."""
    import problems
    from lanes import CASES

    if name == "Andrews":
        system, state = problems.A03.built()
        return system, lambda: jm.assemble(system, state.q, state.v)
    system, state = CASES[name].build()
    return system, lambda: jm.assemble(system, state.q, hold=["a1"])


def call(system: jm.System, start: Any, end: float, kind: str) -> Any:
    """What is measured."""
    state, ts, options = start(), jnp.linspace(0, end, 11)[1:], jm.compiler_options()

    def last(v, adjoint=None):
        moved = eqx.tree_at(lambda s: s.v, state, v)
        return jm.simulate(system, moved, ts, adjoint=adjoint, throw=False).q[-1, 0]

    stored = dfx.RecursiveCheckpointAdjoint(checkpoints=4096)
    longer = lambda x: jm.simulate(system, state, x * ts, throw=False).q
    batch = jax.jit(jax.vmap(longer), compiler_options=options)
    slope = jax.jit(jax.grad(last), compiler_options=options)
    by_checkpoints = jax.jit(jax.grad(lambda v: last(v, stored)), compiler_options=options)
    return {
        "assemble": start,
        "simulate": lambda: jm.simulate(system, state, ts),
        "reactions": lambda: jm.reactions(system, state),
        "100 at once": lambda: batch(jnp.linspace(0.9, 1.0, 100)),
        "reverse gradient": lambda: slope(state.v),
        "reverse gradient, checkpoints": lambda: by_checkpoints(state.v),
    }[kind]


def measured(name: str, kind: str) -> dict[str, Any]:
    """One row, in this process."""
    jax.config.update("jax_enable_x64", True)
    system, start = start_of(name)
    fn = call(system, start, END[name], kind)
    jax.clear_caches()
    cpu = time.process_time()
    spent, _ = common.seconds(fn)
    cpu = time.process_time() - cpu
    timing = common.in_alternation({kind: fn}, ROUNDS)[kind]
    return dict(
        mechanism=name, call=kind, first_s=spent, first_cpu_s=cpu, median_s=timing.median, minimum_s=timing.minimum
    )


def main() -> None:
    given = common.arguments("first_call", __doc__)
    started = time.perf_counter()
    rows = [common.in_own_process(measured, *row) for row in ROWS[given.size]]
    print(common.table(rows))
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
