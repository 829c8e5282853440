"""Steps of a five-bar by a policy, lane by lane: first call, and time per step, with and without what the library looks at.

    python benchmarks/stepping.py [--small | --full]

A network of two layers of 32 moves both motors. Beside it the same without the network, one run of `simulate` by the same steps, which has
no network either, and MuJoCo's `rollout` on all cores by its RK4, where it is installed.
"""

import functools
import importlib
import os
import time
from typing import Any

import common
import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from fivebar_control import GUESS, fivebar

import jaxmb as jm

LANES = {"small": 4, "default": 1024, "full": 1024}
STEPS = {"small": 10, "default": 200, "full": 200}
DT, ROUNDS = 0.002, 3


def rollout(step: jm.Stepper, network: Any, state: jm.State, count: int) -> Any:
    """The last state of a loop; without a network motors do nothing."""

    def one(state, _):
        u = None if network is None else network(jnp.concatenate([state.q, state.v]))
        return step(state, u), None

    return jax.lax.scan(one, state, length=count)[0]


def simulated(system: jm.System, state: jm.State, count: int) -> Any:
    """The same as one run."""
    steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": DT, "max_steps": 2 * count}
    return jm.simulate(system, state, DT * count * jnp.ones(1), throw=False, **steps)


def mujoco_rollout(start: jm.State, lanes: int, count: int) -> Any:
    """MuJoCo's threads over the same linkage."""
    try:
        engine, rollout, models = map(importlib.import_module, ("mujoco", "mujoco.rollout", "mujoco_models"))
    except ImportError:
        return None
    model = models.fivebar(start, 1.0).compile(DT, None)
    data, kind = engine.MjData(model), engine.mjtState.mjSTATE_FULLPHYSICS
    data.qpos[:] = start.q
    states = np.empty((lanes, engine.mj_stateSize(model, kind)))
    for state in states:
        engine.mj_getState(model, data, state, kind)
    threads = [engine.MjData(model) for _ in range(os.cpu_count() or 1)]
    return lambda: rollout.rollout(model, threads, states, nstep=count)[0][:, -1]


def main() -> None:
    """Prints a table and keeps it."""
    options, started = common.arguments("stepping", __doc__), time.perf_counter()
    size = options.size
    lanes, count = LANES[size], STEPS[size]
    system = fivebar().build()
    start = jm.assemble(system, GUESS)
    network = eqx.nn.MLP(8, 2, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), lanes)
    rows = []
    for name, solver in (("Tsit5", dfx.Tsit5()), ("Midpoint", dfx.Midpoint())):
        step = jm.stepper(system, start, DT, solver=solver)
        starts = jax.block_until_ready(jax.vmap(functools.partial(step.reset, spread=0.05))(keys))
        batch = lambda net, step=step: eqx.filter_jit(jax.vmap(lambda state: rollout(step, net, state, count)))
        candidates = {f"{name}, steps with a network": batch(network), f"{name}, steps": batch(None)}
        if name == "Tsit5":
            candidates["Tsit5, one run of simulate"] = jax.jit(jax.vmap(lambda s: simulated(system, s, count)))
        calls = {label: functools.partial(fn, starts) for label, fn in candidates.items()}
        if name == "Midpoint" and (other := mujoco_rollout(start, lanes, count)) is not None:
            calls["MuJoCo RK4, threads"] = other
        for label, timing in common.in_alternation(calls, ROUNDS).items():
            each = timing.minimum / (lanes * count) * 1e6
            rows.append({"candidate": label, "first_s": timing.first, "us_per_step": each})
            print(f"{label:32s} first call {timing.first:6.1f} s, {each:8.3f} µs per lane and step", flush=True)
    common.write(options.output, rows, started, size, lanes=lanes, steps=count)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
