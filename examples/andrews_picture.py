"""The picture of the squeezer's motion, in four panels."""

import matplotlib

matplotlib.use("Agg")

import jax
import matplotlib.pyplot as plt
import numpy as np
from andrews_model import joints

LABELS = (r"$\beta$", r"$\Theta$", r"$\gamma$", r"$\Phi$", r"$\delta$", r"$\Omega$", r"$\varepsilon$")
# Each body by the joints that it connects; the plate is a triangle.
BODIES = {
    "crank": "OF",
    "rod": "FE",
    "plate": "BEDB",
    "upper arm": "EG",
    "upper rocker": "GA",
    "lower arm": "EH",
    "lower rocker": "HA",
}
FIXED = "OABC"
OFFSETS = {"O": (7, -3), "A": (-13, -4), "B": (-4, 9), "C": (6, 4)}


def draw(path, params, solution, energy, times, beta):
    """Writes the picture: mechanism, angles, energies and the fan of the variants."""
    figure, axes = plt.subplots(2, 2, figsize=(13, 9.5), layout="constrained")
    points = jax.vmap(lambda q: joints(q, params))(solution.q)
    draw_mechanism(axes[0, 0], {name: 1e3 * np.asarray(xy) for name, xy in points.items()}, 1e3 * solution.ts)
    draw_angles(axes[0, 1], solution)
    draw_energy(axes[1, 0], solution.ts, energy)
    draw_fan(axes[1, 1], times, beta, solution)
    for ax in axes.flat[1:]:
        ax.set_xlabel("time (ms)")
        ax.set_xlim(0, 1e3 * float(times[-1]))
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_mechanism(ax, points, ms):
    """Both ends of the squeezer's travel and one instant between, and the paths of two pins."""
    opening = points["G"][:, 1] - points["H"][:, 1]
    closed = int(np.argmin(opening))
    between = closed // 2
    for i, alpha in ((between, 0.2), (closed, 0.35), (0, 1.0)):
        for (name, way), colour in zip(BODIES.items(), plt.cm.tab10.colors, strict=False):
            line = np.array([points[p][i] for p in way])
            ax.plot(*line.T, "o-", color=colour, alpha=alpha, lw=2.5, ms=4, label=name if i == 0 else None)
        spring = np.array([points["C"][i], points["D"][i]])
        ax.plot(*spring.T, ":", color="black", alpha=alpha, lw=1.5, label="spring" if i == 0 else None)
    ax.plot(*points["E"].T, color="grey", lw=0.8, label="path of E")
    ax.plot(*points["F"].T, color="black", lw=0.8, label="path of F")
    for name in FIXED:
        ax.plot(*points[name][0], "^", color="black", ms=9, zorder=3)
        ax.annotate(name, points[name][0], OFFSETS[name], textcoords="offset points", fontweight="bold")
    ax.set_aspect("equal")
    ax.set(xlabel="x (mm)", ylabel="y (mm)", title=f"Mechanism at 0 s; faint: {ms[between]:.1f} and {ms[closed]:.1f} ms")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_angles(ax, solution):
    for angle, label in zip(np.asarray(solution.q).T, LABELS, strict=True):
        ax.plot(1e3 * solution.ts, angle, label=label)
    ax.set(ylabel="angle (rad)", title="The seven angles")
    ax.legend(ncols=2)


def draw_energy(ax, ts, energy):
    lines = [
        ax.plot(1e3 * ts, values, label=label)[0]
        for label, values in (
            ("kinetic", energy.kinetic),
            ("potential", energy.potential),
            ("total", energy.total),
        )
    ]
    lines += ax.plot(1e3 * ts, energy.total[0] + energy.work, "k:", label="initial + work of the motor")
    ax.set(ylabel="energy (J)", title="Energy and its balance")
    right = ax.twinx()
    # A balance of exactly zero has no place on a logarithmic axis.
    balance = np.maximum(np.abs(energy.balance), 1e-17)
    lines += right.semilogy(1e3 * ts, balance, color="grey", lw=0.8, label="|balance| (right)")
    right.set(ylabel="|balance| (J)", ylim=(1e-17, 1e-8))
    ax.legend(handles=lines, loc="upper left")


def draw_fan(ax, times, beta, solution):
    ax.plot(1e3 * times, np.asarray(beta).T, color="tab:blue", lw=0.5, alpha=0.05)
    ax.plot([], [], color="tab:blue", alpha=0.6, label=f"{len(beta)} variants")
    ax.plot(1e3 * solution.ts, solution.q[:, 0], color="black", label="nominal")
    ax.set(ylabel=r"$\beta$ (rad)", title="Torque and spring stiffness varied by 20 %")
    ax.legend(loc="upper left")
