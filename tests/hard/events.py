"""events: a ball above a plane, in all the ways that are awkward for events, against closed formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from test_events import CONTACT, PLANE, exact, on_plane

import jaxmb as jm
from hard.row import Figure, cpu_time

TIMES = 13
EVENTS = 40  # granted to a run
ACCURACY = 1e-6  # of heights, in units of how far the ball gets
CLOSES = 1.5e-8  # rebounds lower than this part of the mechanism's size close the contact, docs/topology.md
COUNT = 40  # balls of each kind


@dataclasses.dataclass
class Ball:
    """Height, velocity, restitution, gravity and duration."""

    kind: str
    height: float
    speed: float
    restitution: float
    gravity: float
    duration: float

    def fall(self):
        """The time and speed of the first hit."""
        hit = np.sqrt(self.speed**2 + 2 * self.gravity * self.height)
        return (self.speed + hit) / self.gravity, hit

    def at(self, ts):
        """Heights, and how many hits there are until a rebound is lower than the contact closes at, or the run ends."""
        (start, hit), count = self.fall(), 0
        heights = np.array([self.height + self.speed * t - self.gravity * t * t / 2 if t < start else 0.0 for t in ts])
        size = max(self.height, hit**2 / (2 * self.gravity)) or 1.0
        while start <= self.duration:
            count, hit = count + 1, self.restitution * hit
            rises = hit**2 / (2 * self.gravity) > CLOSES * size
            if not rises:
                break
            end = start + 2 * hit / self.gravity
            inside = (ts >= start) & (ts < end)
            heights[inside] = (hit * (ts - start) - self.gravity * (ts - start) ** 2 / 2)[inside]
            start = end
        return heights, count, size


def balls(rng, count):
    """Of each kind so many."""
    fall = lambda h, g: np.sqrt(2 * h / g)
    for _ in range(count):
        h, g, e = 10.0 ** rng.uniform(-2, 2), 10.0 ** rng.uniform(-1, 1), rng.uniform(0.0, 0.6)
        once = fall(h, g)
        zeno = once * (1 + e) / (1 - e)
        yield Ball("rebounds without end", h, 0.0, e, g, 1.5 * zeno)
        yield Ball("hit and stay", h, 0.0, 0.0, g, 2 * once)
        yield Ball("hit at the last time", h, 0.0, e, g, once)
        yield Ball("hit just before the last time", h, 0.0, e, g, once * (1 + 1e-6))
        yield Ball("hit just after the first time", h * 1e-6, -np.sqrt(2 * g * h), e, g, once)
        yield Ball("at the plane, moving into it", 0.0, -np.sqrt(2 * g * h), e, g, once)
        yield Ball("at the plane, at rest", 0.0, 0.0, e, g, once)
        yield Ball("at the plane, moving off", 0.0, np.sqrt(2 * g * h), e, g, 3 * once)
        yield Ball("a thousand times too fast", h, -1000 * np.sqrt(2 * g * h), 0.0, g, once)
        yield Ball("more hits than are granted", h, 0.0, rng.uniform(0.85, 0.95), g, 100 * once)


@jax.jit
@jax.vmap
def bounce(start, restitution, gravity, ts):
    """The run of a ball."""
    gap = lambda t, q, v, reaction, p: q[0]
    hits = jm.Activate("plane", when=gap, direction=-1, restitution=restitution, repeat=True, name="hits")
    system = PLANE.with_params(PLANE.params | {"A": 0.0, "g": gravity})
    solution = jm.simulate(system, start, ts, events=[hits], max_events=EVENTS, throw=False)
    return solution.q[:, 0], solution.result._value, solution.events.count


@jax.jit
@jax.vmap
def lifted(start, params, ts):
    """The run of a mass under a periodic force."""
    solution = jm.simulate(PLANE.with_params(params), start, ts, events=CONTACT, max_events=EVENTS, throw=False)
    return solution.q[:, 0], solution.result._value, solution.events.count


def starts(heights, speeds):
    """States above the plane, which does not act yet."""
    one = on_plane(1.0, 1.0)
    spread = lambda x: jnp.broadcast_to(x, (len(heights), *jnp.shape(x)))
    many = jax.tree.map(spread, one)
    return dataclasses.replace(many, q=jnp.asarray(heights)[:, None], v=jnp.asarray(speeds)[:, None])


def verdict(found, result, expected, size, told):
    """Of one run."""
    if result != 0:
        return "right" if told else "told"
    if not np.isfinite(found).all():
        return "not finite"
    if found.min() < -ACCURACY * size:
        return "fallen through"
    return "right" if np.abs(found - expected).max() <= ACCURACY * size and not told else "wrong"


def of_balls(rng, count):
    """(kind, verdict) of each."""
    some = list(balls(rng, count))
    ts = np.array([np.linspace(0.0, b.duration, TIMES) for b in some])
    column = lambda name: np.array([getattr(b, name) for b in some])
    found, result, _ = map(
        np.asarray, bounce(starts(column("height"), column("speed")), column("restitution"), column("gravity"), ts)
    )
    for i, ball in enumerate(some):
        heights, hits, size = ball.at(ts[i])
        yield ball, verdict(found[i], result[i], heights, size, hits > EVENTS), np.abs(found[i] - heights).max() / size


def of_masses(rng, count):
    """Masses that lift off and land, from rest and from above."""
    numbers = [
        {"A": rng.uniform(0.5, 3.0), "w": rng.uniform(1.0, 5.0), "a": rng.uniform(-3, 3), "g": rng.uniform(0.5, 2.0)}
        for _ in range(count)
    ]
    heights, ends = rng.uniform(0.05, 1.0, count), rng.uniform(2.0, 6.0, count)
    ts = np.linspace(0.0, ends, TIMES, axis=1)
    params = {name: np.array([x[name] for x in numbers]) for name in numbers[0]}
    found, result, hits = map(np.asarray, lifted(starts(heights, 0 * heights), params, ts))
    for i, p in enumerate(numbers):
        happened, _ = exact(heights[i], 0.0, p, ends[i])
        expected = np.array([heights[i], *(exact(heights[i], 0.0, p, t)[1] for t in ts[i, 1:])])
        size = max(1.0, expected.max())
        one = verdict(found[i], result[i], expected, size, len(happened) > EVENTS)
        if one == "right" and hits[i] != len(happened):
            one = "wrong"
        yield (numbers[i], heights[i], ends[i]), one, np.abs(found[i] - expected).max() / size


def figures(share, seed):
    """The row's figures."""
    rng, result = np.random.default_rng(seed), []
    count = max(2, round(COUNT * share))
    with cpu_time(result):
        every = [*of_balls(rng, count), *of_masses(rng, 5 * count)]
        for what, one, error in every:
            if one != "right":
                print(f"events {what}: {one}, error {error:.1e}", flush=True)
        number = lambda *names: sum(one in names for _, one, _ in every)
        for what, goal, value in (
            ("runs with events that fall through a plane", "0", number("fallen through")),
            ("wrong, or not finite, and successful", "0", number("wrong", "not finite")),
            ("told to have failed where a formula goes on", "0", number("told")),
        ):
            result.append(Figure("events", what, goal, f"{value}", len(every), value == 0))
    return result
