"""batches: a row that fails, in a batch of 64: the others are what they are without it, to the last bit, and take no longer."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from hard.row import Figure, cpu_time

ROWS = 64
TIMES = jnp.linspace(0.0, 1.0, 3)
SLOWER = 1.5
REPEATS = 9  # the quickest counts


def crank(rod):
    """A slider-crank with a rod of any length and a motor."""
    P = jm.planar
    return P.Mechanism(
        [
            P.Body.rod("crank", mass=2.0, length=0.3),
            P.Body.rod("rod", mass=1.0, length=rod, position=(0.3, 0.0)),
            P.Body("slider", mass=3.0, inertia=0.1, position=(1.1, 0.0)),
        ],
        [
            P.Revolute("O", "ground", "crank.a"),
            P.Revolute("A", "crank.b", "rod.a"),
            P.Revolute("B", "rod.b", "slider"),
            P.Prismatic("guide", "ground", "slider"),
        ],
        actuators=[P.Motor("motor", "O")],
        gravity=(0.0, -9.81),
    )


def swing(numbers):
    """One run; all that may be wrong with it is in its numbers."""
    system = crank(numbers["rod"]).replace("slider", mass=numbers["mass"]).build()
    state = jm.assemble(system, {"O": 0.4}, {"O": numbers["speed"]}, hold=["O"], hold_velocity=["O"], throw=False)
    state = dataclasses.replace(state, q=state.q + numbers["shift"], v=state.v + numbers["kick"])
    push = lambda t, q, v, p: numbers["gain"] * jnp.sqrt(numbers["until"] - t)[None]
    solution = jm.simulate(system, state, TIMES, control=push, throw=False)
    return {"q": solution.q, "v": solution.v, "work": solution.work, "result": solution.result._value}


# What makes a run fail, and results that say so.
BAD = {
    "a coordinate is NaN": {"shift": np.nan},
    "a coordinate is infinite": {"shift": np.inf},
    "a velocity is NaN": {"kick": np.nan},
    "a velocity is huge": {"kick": 1e200},
    "a mass is NaN": {"mass": np.nan},
    "a mass is negative": {"mass": -20.0},
    "a length is NaN": {"rod": np.nan},
    "off the constraints": {"shift": 0.1},
    "a rod too short to close": {"rod": 0.05},
    "an input fails on the way": {"until": 0.5},
    "an input is NaN": {"gain": np.nan},
    "an input is infinite": {"gain": np.inf},
}


def batch(rng):
    numbers = {"rod": 0.8, "mass": 3.0, "speed": 3.0, "shift": 0.0, "kick": 0.0, "gain": 1.0, "until": 2.0}
    spread = {"rod": 0.1, "mass": 1.0, "speed": 3.0, "gain": 2.0}
    return {name: value + spread.get(name, 0.0) * rng.uniform(-1, 1, ROWS) for name, value in numbers.items()}


def timed(fn, numbers):
    """Results and the least CPU time of some calls."""
    clocks = []
    for _ in range(REPEATS):
        start = time.process_time()
        found = jax.block_until_ready(fn(numbers))
        clocks.append(time.process_time() - start)
    return jax.tree.map(np.asarray, found), min(clocks)


def figures(share, seed):
    """The row's figures: each kind of failure at some rows of a batch."""
    rng = np.random.default_rng(seed)
    fn = jax.jit(jax.vmap(swing), compiler_options=jm.compiler_options())
    places = rng.choice(ROWS, max(1, round(4 * share)), replace=False)
    spoilt, untold, slowest, cases, result = 0, 0, 0.0, 0, []
    with cpu_time(result):
        for what, changes in BAD.items():
            for place in places:
                good = batch(np.random.default_rng([seed, int(place)]))
                bad = {name: np.where(np.arange(ROWS) == place, changes.get(name, x), x) for name, x in good.items()}
                fn(bad)  # what the failure needs is compiled
                (expected, usual), (found, taken) = timed(fn, good), timed(fn, bad)
                others = np.arange(ROWS) != place
                same = all(np.array_equal(expected[k][others], found[k][others], equal_nan=True) for k in found)
                told = found["result"][place] != 0
                if not (same and told and taken <= SLOWER * usual):
                    print(
                        f"batches {what}, row {place}: same {same}, told {told}, {1e3 * taken:.1f} ms in place of {1e3 * usual:.1f}",
                        flush=True,
                    )
                spoilt, untold, cases = spoilt + (not same), untold + (not told), cases + 1
                slowest = max(slowest, taken / usual)
        result += [
            Figure(
                "batches",
                f"batches of {ROWS} in which a row that fails changes a bit of another",
                "0",
                f"{spoilt}",
                cases,
                spoilt == 0,
            ),
            Figure("batches", "rows that fail and are not told", "0", f"{untold}", cases, untold == 0),
            Figure(
                "batches",
                "CPU time over that of the batch without the row, largest",
                f"≤ {SLOWER}",
                f"{slowest:.2f}",
                cases,
                slowest <= SLOWER,
            ),
        ]
    return result
