"""Emergency stop of a Puma 560 arm: brakes slide, stick and hold; when and where it comes to rest.

All six brakes are applied at one time while the arm swings. Each slides with its torque against the motion until its joint
stops, and holds from then on as long as the required torque does not exceed what it can hold. The naive model locks all
joints at once. The script then runs 1,000 stops with different times and brake torques in one batch.
"""

import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import puma

import jaxmb as jm

# Torques in N m while the brakes slide; holding they bear a fifth more.
TORQUES = np.array([60.0, 120.0, 60.0, 0.5, 0.5, 0.5])
HOLDING = 1.2
END = 1.0
HAND = "link6.end"
SETTINGS = {"solver": dfx.Tsit5(), "stepsize_controller": dfx.PIDController(rtol=1e-7, atol=1e-9), "max_steps": 512}


def brakes(at, factor=1.0):
    """The six brakes, applied at a time, their torques scaled."""
    return [
        jm.Brake(joint, torque * factor, HOLDING * torque * factor, at=at)
        for joint, torque in zip(puma.JOINTS, TORQUES, strict=True)
    ]


def stop(system, state, ts, at, factor=1.0):
    """A run with an emergency stop."""
    return jm.simulate(system, state, ts, events=brakes(at, factor), max_events=14, throw=False, **SETTINGS)


def rest(solution):
    """When the last joint came to rest, NaN if some joint slides at the end, and whether the run is sound."""
    last = jnp.max(jnp.where(jnp.isnan(solution.events.t), -jnp.inf, solution.events.t))
    at_rest = jnp.all(solution.modes.active[-1])
    return jnp.where(at_rest, last, jnp.nan), solution.result == jm.RESULTS.successful


def batch(system, state, at, factor):
    """Stopping time and the way of the hand in the meantime, for many stops."""

    def one(at, factor):
        solution = stop(system, state, jnp.stack([at, jnp.asarray(END)]), at, factor)
        place = jm.position(system, solution, HAND)
        when, sound = rest(solution)
        return when - at, jnp.linalg.norm(place[1] - place[0]), sound

    return jax.jit(jax.vmap(one))(at, factor)


def draw(ts, solution, at, times, factors, distance, path):
    """Joint rates of one stop, and a map of the stopping distance."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for i, joint in enumerate(puma.JOINTS):
        axes[0].plot(ts, solution.v[:, i], label=joint, linewidth=1.3)
    axes[0].axvline(at, color="0.6", linestyle="--", linewidth=0.9)
    axes[0].set_xlabel("t in s")
    axes[0].set_ylabel("joint rates in rad/s")
    axes[0].legend(fontsize=8)
    axes[0].grid(alpha=0.3)
    picture = axes[1].pcolormesh(times, factors, 1e3 * distance, shading="nearest")
    fig.colorbar(picture, ax=axes[1], label="way of the hand until rest in mm")
    axes[1].set_xlabel("time of the stop in s")
    axes[1].set_ylabel("brake torque, relative")
    fig.savefig(path / "emergency_stop.png", dpi=120)
    plt.close(fig)


def main(count=(40, 25)):
    system = puma.puma().build()
    state = puma.start(system)
    at, ts = 0.3, jnp.linspace(0.0, END, 301)
    solution = jax.jit(lambda: stop(system, state, ts, at))()
    assert solution.result == jm.RESULTS.successful
    print(solution.events)
    when, _ = rest(solution)
    place = jm.position(system, solution, HAND)
    start = place[jnp.searchsorted(ts, at)]
    way = float(jnp.linalg.norm(place[-1] - start))
    print(
        f"at rest at {float(when):.4f} s, {float(when) - at:.4f} s after the stop; the hand moves by {1e3 * way:.1f} mm meanwhile"
    )
    energy = jm.energy(system, solution)
    kinetic = float(energy.kinetic[jnp.searchsorted(ts, at)])
    print(f"locked at once, the naive model, it would stay where it is and lose all of its {kinetic:.1f} J in no time")
    drift = float(jnp.abs(energy.balance).max())
    print(f"energy balance {drift:.1e} J of {float(jnp.ptp(energy.total)):.1f} J")
    assert drift < 1e-3 and not bool(solution.events.doubtful.any())
    assert np.abs(solution.v[-1]).max() < 1e-9

    times, factors = np.linspace(0.05, 0.6, count[0]), np.linspace(0.5, 2.0, count[1])
    grid = [jnp.asarray(x.ravel()) for x in np.meshgrid(times, factors)]
    begin = time.perf_counter()
    duration, distance, sound = jax.block_until_ready(batch(system, state, *grid))
    print(f"{grid[0].size} stops, compiled and run in {time.perf_counter() - begin:.0f} s: "
          f"{int(sound.sum())} well, {int(jnp.isnan(duration).sum())} not at rest after {END} s; "
          f"way of the hand {1e3 * float(distance.min()):.0f} to {1e3 * float(distance.max()):.0f} mm")  # fmt: skip
    assert bool(sound.all())
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(ts, solution, at, times, factors, np.asarray(distance).reshape(len(factors), -1), pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
