"""Identifies when a brake was applied, how it slides and how much it holds, from the joint angles of a pendulum of three links.

The brake of the last joint slides until the joint stops, holds, comes loose when the other two links pull too hard, and slides until
the joint stops again. The cost is differentiated through all these events: their times and jumps move with the parameters.
"""

import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

MASS, INERTIA = 108.0, 9.36  # of a link of 1 m, its centre in the middle: the pendulum of locking.py
TRUE = {"at": 0.5, "sliding": 800.0, "holding": 5000.0}
GUESS = {"at": 0.55, "sliding": 650.0, "holding": 5500.0}
PRECISE = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=1e-10, atol=1e-10), "max_events": 6}


def centres(q):
    """Centres of the links (3, 2); each angle is one against the link before."""
    angle = jnp.cumsum(q)
    links = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return jnp.cumsum(links, axis=0) - links / 2


def mass(t, q, p):
    jac, spin = jax.jacfwd(centres)(q), jnp.tril(jnp.ones((3, 3)))
    return MASS * jnp.einsum("iab,iac->bc", jac, jac) + INERTIA * spin.T @ spin


def pendulum():
    """The pendulum, and its start 30° apart above the horizontal."""
    system = jm.System(("q1", "q2", "q3"), mass=mass, potential=lambda t, q, p: 9.81 * MASS * centres(q)[:, 1].sum())
    return system, jm.assemble(system, jnp.full(3, np.pi / 6))


def brake(values):
    return jm.Brake("q3", values["sliding"], values["holding"], at=values["at"], name="brake")


def draw(ts, runs, path):
    """The angle and the rate of the braked joint."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    for (name, run), line in zip(runs.items(), ("k-", "C1:", "C0--"), strict=True):
        axes[0].plot(ts, run.q[:, 2], line, label=name)
        axes[1].plot(ts, run.v[:, 2], line, label=name)
    axes[0].set_ylabel("angle of joint 3 in rad")
    axes[1].set(xlabel="t in s", ylabel="rate in rad/s")
    for ax in axes:
        ax.legend()
        ax.grid(alpha=0.3)
    fig.savefig(path / "identify_brake.png", dpi=120)
    plt.close(fig)


def main():
    (system, state), ts = pendulum(), jnp.linspace(0.0, 1.5, 151)

    @jax.jit
    def run(values):
        return jm.simulate(system, state, ts, events=[brake(values)], throw=False, **PRECISE)

    record, wrong = run(TRUE), run(GUESS)
    print(f"the record, without noise\n{record.events}\nthe guess\n{wrong.events}")
    signals = [jm.fit.Signal(name, record.q[:, i], sigma=1e-3) for i, name in enumerate(system.coordinates)]
    seen = jm.fit.Experiment(ts, state, signals, events=[brake(GUESS)], name="stop")
    parameters = [jm.fit.Parameter(f"events.brake.{name}", min_value=0.0) for name in TRUE]
    begin = time.perf_counter()
    found = jm.fit.identify(system, parameters, seen, **PRECISE)
    print(f"{found}\nfirst call {time.perf_counter() - begin:.0f} s")

    first = jm.fit.identify(system, parameters, seen, max_iterations=1, **PRECISE)
    slopes = first.jacobian.T @ jnp.concatenate([x.residual.ravel() for x in first.signals["stop"].values()])
    cost = lambda values: 0.5 * jnp.sum((run(values).q - record.q) ** 2) / 1e-3**2
    h, rows = 1e-4, []
    for name, slope in zip(TRUE, slopes, strict=True):
        rows.append((f"{name}, off by", abs(found.estimates[f"events.brake.{name}"] / TRUE[name] - 1)))
        near, far = (
            (cost({**GUESS, name: (1 + x) * GUESS[name]}) - cost({**GUESS, name: (1 - x) * GUESS[name]})) / (2 * x)
            for x in (h, 2 * h)
        )
        rows.append(("  gradient, from central differences", abs(slope * 3 / (4 * near - far) - 1)))
    for label, value in rows:
        print(f"  {label:<40}{float(value):>9.1e}   at most 1e-06")
        assert value < 1e-6, label
    pathlib.Path("output").mkdir(exist_ok=True)
    best = run({name: found.estimates[f"events.brake.{name}"] for name in TRUE})
    draw(ts, {"record": record, "guess": wrong, "found": best}, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
