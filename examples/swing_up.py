"""A pole on the block of a slider-crank is swung up by a weak motor, and balanced against a blow, by a plan that is updated 50 times a second.

The crank hangs, and so does the pole on the block; the motor at the crank moves both, within its limits and across the
rail's short stroke. The first plan of 1.2 s is made at rest. Then each sample updates the plan from the present state.
It starts from the last plan shifted by a step, whose inputs react to deviations, so that one iteration at each sample
is enough. The mechanism itself has a heavier pole than the plan knows, moves by shorter steps, and is hit when it
stands.
"""

import dataclasses
import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gallery import check

import jaxmb as jm

DT, HORIZON, LIMIT = 0.02, 60, 4.0  # s, steps, N m
CRANK, ROD, POLE = 0.3, 0.8, 0.5  # m
DURATION, BLOW_AT, BLOW = 5.0, 3.0, 1.0  # s, s, rad/s


def slider_crank(pole=0.3):
    """A crank with a motor, a rod, and a block on a horizontal rail that carries a pole of so many kilograms."""
    P = jm.planar
    return P.Mechanism(
        bodies=[
            P.Body.rod("crank", 0.3, CRANK),
            P.Body.rod("rod", 0.2, ROD),
            P.Body("block", 0.5, 0.01),
            P.Body.rod("pole", pole, POLE),
        ],
        joints=[
            P.Revolute("axle", "ground", "crank.a"),
            P.Revolute("knee", "crank.b", "rod.a"),
            P.Revolute("pin", "rod.b", "block"),
            P.Prismatic("rail", "ground", "block"),
            P.Revolute("hinge", "block", "pole.a"),
        ],
        actuators=[P.Motor("motor", "axle")],
        gravity=(0.0, -9.81),
    ).build()


def hanging(system):
    """Crank and pole hang."""
    knee = np.pi / 2 + np.arcsin(CRANK / ROD)
    guess = {"axle": -np.pi / 2, "knee": knee, "rail": np.sqrt(ROD**2 - CRANK**2), "hinge": -np.pi / 2}
    return jm.assemble(system, guess, hold=["axle", "hinge"])


def planner(system):
    """`plan(state, guess, changes)`, whose program is compiled once."""
    axle, hinge = (system.coordinates.index(name) for name in ("axle", "hinge"))
    step = jm.stepper(system, hanging(system), DT, solver=dfx.Midpoint())

    def cost(state, u):
        pole, crank = 1 - jnp.sin(state.q[hinge]), state.q[axle] + jnp.pi / 2
        return DT * (pole + 0.1 * crank**2 + 0.01 * (state.v @ state.v) + 0.002 * (u @ u))

    def final(state):
        pole, crank = 1 - jnp.sin(state.q[hinge]), state.q[axle] + jnp.pi / 2
        return 10 * pole + 0.3 * state.v[hinge] ** 2 + 2 * crank**2 + 0.3 * state.v[axle] ** 2

    def plan(state, guess, changes):
        return jm.control.trajectory(
            step, state, cost, HORIZON, final=final, guess=guess, upper=LIMIT, max_iterations=changes
        )

    return jax.jit(plan, compiler_options=jm.compiler_options()), hinge


def loop(plan, first, plant, hinge):
    """The mechanism under plans that are made anew at each sample: its states, inputs, times of the plans in s."""
    state, guess = plant.start(), first.shifted(0)
    states, inputs, times = [state], [], []
    for k in range(round(DURATION / DT)):
        begin = time.perf_counter()
        now = plan(state, guess, 1)
        u, guess = np.asarray(now.u[0]), now.shifted()
        times.append(time.perf_counter() - begin)
        state = plant(state, u)
        if k == round(BLOW_AT / DT):
            state = dataclasses.replace(state, v=state.v.at[hinge].add(BLOW))
        states.append(state)
        inputs.append(u)
    return jax.tree.map(lambda *x: jnp.stack(x), *states), np.array(inputs), np.array(times)


def draw(path, system, states, inputs, hinge):
    """The mechanism at five instants, angles, and the torque between its limits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplot_mosaic(
        "abcde\nppppp\nuuuuu", figsize=(11, 7), layout="constrained", height_ratios=(1.3, 1, 0.8)
    )
    instants = (0.0, 0.5, 0.9, 2.9, 3.2)
    for name, t in zip("abcde", instants, strict=True):
        index = round(t / DT)
        jm.plot.draw(system, jax.tree.map(lambda x, index=index: x[index], states), axes[name], points=False)
        axes[name].set(title=f"t = {t:g} s", xlim=(-0.45, 1.45), ylim=(-0.75, 0.75), xticks=(), yticks=())
    axes["p"].plot(states.t, np.rad2deg(states.q[:, hinge]) + 90, label="pole, from hanging")
    axes["p"].plot(
        states.t, np.rad2deg(states.q[:, system.coordinates.index("axle")]) + 90, label="crank, from hanging"
    )
    axes["p"].set(ylabel="angle in degrees", yticks=np.arange(-90, 181, 90))
    axes["u"].step(states.t[:-1], inputs[:, 0], where="post", label="motor")
    axes["u"].set(ylabel="torque in N m", xlabel="t in s; dotted: the blow")
    for limit in (-LIMIT, LIMIT):
        axes["u"].axhline(limit, color="0.5", linestyle="--", linewidth=0.9)
    for name in "pu":
        axes[name].axvline(BLOW_AT, color="0.5", linestyle=":")
        axes[name].grid(alpha=0.3)
        axes[name].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    system = slider_crank()
    plan, hinge = planner(system)
    rest = hanging(system)
    # At rest below nothing tells left from right: a swing as a guess. It answers nothing yet.
    swing = -0.5 * jnp.sin(2 * jnp.pi * DT * jnp.arange(HORIZON) / 0.8)[:, None]
    x = jnp.tile(jnp.concatenate([rest.q, rest.v]), (HORIZON, 1))
    guess = jm.control.Guess(x, swing, jnp.zeros((HORIZON, 1, x.shape[1])))
    begin = time.perf_counter()
    first = plan(rest, guess, 300)
    print(f"first plan, with compiling {time.perf_counter() - begin:.0f} s\n{first}")
    assert bool(first.result == jm.RESULTS.successful) and first.cost < 2

    plant = jm.stepper(slider_crank(pole=0.33), rest, DT, solver=dfx.Midpoint(), substeps=4)
    states, inputs, times = loop(plan, first, plant, hinge)
    print(
        f"{len(times)} plans of {HORIZON} steps: median {1e3 * np.median(times):.1f} ms, least {1e3 * times.min():.1f} ms"
    )
    up = 1 - np.sin(np.asarray(states.q[:, hinge]))
    before, after = round(BLOW_AT / DT), len(up)
    check(
        (
            ("torque beyond its limit, N m", np.abs(inputs).max() - LIMIT, 1e-12),
            ("height missing before the blow, relative", up[before - 25 : before].max(), 1e-3),
            ("height missing at the end, relative", up[after - 25 :].max(), 1e-3),
            ("residual of the loop", jnp.abs(jm.residuals(system, states).position).max(), 1e-10),
        )
    )
    print(f"  the blow turns the pole by up to {np.rad2deg(np.arccos(1 - up[before:].max())):.0f} degrees")
    pathlib.Path("output").mkdir(exist_ok=True)
    draw("output/swing_up.png", system, states, inputs, hinge)
    print("output/swing_up.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
