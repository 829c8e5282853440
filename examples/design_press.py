"""A crank press whose counterweight makes the motor's largest torque least, while the crank's bearing carries no more than it may.

The ram goes up and down. A counterweight takes its weight off the motor, but loads the crank's bearing by its own inertia. The Pareto front of both shows what a smaller load costs in torque.
"""

import jax
import numpy as np
from gallery import check, save

import jaxmb as jm

D, P = jm.design, jm.planar
# In m, kg, rad/s, N.
CRANK, ROD, ROD_MASS, RADIUS, RAM, SPEED, MOST = 0.1, 0.4, 3.0, 0.15, 40.0, 12.0, 930.0
ANGLES = np.linspace(0.0, 2 * np.pi, 49)
GRAVITY = 9.81


def press(counterweight):
    """A crank with a counterweight opposite to its pin, a rod and a ram that slides vertically."""
    sizes = dict(inertia=0.05, points={"shaft": (0.0, 0.0), "pin": (CRANK, 0.0), "weight": (-RADIUS, 0.0)})
    bodies = [
        P.Body("crank", 5.0, **sizes),
        P.Body("counterweight", counterweight, 0.0),
        P.Body.rod("rod", ROD_MASS, ROD),
        P.Body("ram", RAM, 0.5),
    ]
    joints = [
        P.Revolute("shaft", "ground", "crank.shaft"),
        P.Fixed("bolt", "crank.weight", "counterweight"),
        P.Revolute("pin", "crank.pin", "rod.a"),
        P.Prismatic("guide", "ground", "ram", axis=(0.0, 1.0)),
        P.Revolute("wrist", "rod.b", "ram"),
    ]
    return P.Mechanism(bodies, joints, gravity=(0.0, -GRAVITY))


def torque(counterweight, count=20_000):
    """The motor's torque over a turn by the rate of the energy, T ω = dE/dt, and closed formulas of the crank's geometry; no solver."""
    turn = 2 * np.pi * np.arange(count) / count
    # Of functions of the angle with period 2π, to rounding.
    derivative = lambda f: np.real(np.fft.ifft(1j * np.fft.fftfreq(count, 1 / count) * np.fft.fft(f)))
    pin = CRANK * np.array([np.cos(turn), np.sin(turn)])
    wrist = np.array([0 * turn, pin[1] + np.sqrt(ROD**2 - pin[0] ** 2)])
    speeds = [SPEED * np.array([derivative(x) for x in place]) for place in ((pin + wrist) / 2, wrist)]
    rod = SPEED * derivative(np.arctan2(*(wrist - pin)[::-1]))
    kinetic = 0.5 * (ROD_MASS * speeds[0] ** 2 + RAM * speeds[1] ** 2).sum(axis=0) + ROD_MASS * ROD**2 / 24 * rod**2
    heights = ROD_MASS * (pin + wrist)[1] / 2 + RAM * wrist[1] - counterweight * RADIUS * np.sin(turn)
    return derivative(kinetic + GRAVITY * heights)


def front(variable, start):
    """The least ½ T² + μ ½ F² of torque and load, for several weights μ in m²."""
    goals = [D.Goal("torque", D.Peak(D.Effort()), 0.0), D.Goal("load", D.Peak(D.BearingLoad("shaft")), 0.0)]
    weights = np.geomspace(2e-3, 1.0, 8)
    found = D.pareto(press(5.0), [variable], goals, weights=weights, over={"shaft": ANGLES}, start=start, speed=SPEED)
    print(found)
    save(jm.plot.pareto(found).axes, "design_press_front")
    # Each design is the best one for its own weight: F₁ + μ F₂ is no less for its neighbours.
    costs = np.asarray(found.costs)
    rates = -np.diff(costs[:, 0]) / np.diff(costs[:, 1])
    peaks = [np.abs(torque(float(design.values["counterweight.mass"]))).max() for design in found.designs]
    return [
        ("peaks along the front by the energy, N m", np.abs(np.sqrt(2 * costs[:, 0]) - peaks).max(), 1e-5),
        ("rate along it below the weight, relative", np.max(weights[:-1] / rates) - 1, 0.0),
        ("rate along it above the next weight, relative", np.max(rates / weights[1:]) - 1, 0.0),
    ]


def main():
    goals = [
        D.Goal("peak torque", D.Peak(D.Effort()), 0.0, weight=0.01),
        D.Goal("load of the shaft", D.BearingLoad("shaft"), high=MOST),
    ]
    variable = jm.fit.Parameter("counterweight.mass", min_value=0.0, max_value=100.0)
    start = {"shaft": 0.0, "pin": 1.8, "guide": 0.4}
    design = D.optimise(press(5.0), [variable], goals, over={"shaft": ANGLES}, start=start, speed=SPEED)
    print(design)
    weight, load = float(design.values["counterweight.mass"]), design.after.values["load of the shaft"]
    peak = lambda mass: np.abs(torque(mass)).max()
    check(
        [
            ("peak from that by the energy, N m", abs(design.after.values["peak torque"] - peak(weight)), 1e-5),
            ("largest load from its limit, N", abs(load.max() - MOST), 1e-4),
            ("gain by a lighter weight, N m", peak(weight) - peak(weight - 0.1), 0.0),
            *front(variable, start),
        ]
    )
    print(
        f"the largest torque falls from {peak(5.0):.1f} N m to {peak(weight):.1f} N m; with {weight + 1:.1f} kg, which the shaft would"
    )
    print(f"not bear, to {peak(weight + 1):.1f} N m")
    save(jm.plot.design(design).axes, "design_press")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
