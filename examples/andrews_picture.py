"""The picture of the squeezer's motion: mechanism, angles, energies and the fan of the variants."""

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from andrews_model import joints

matplotlib.use("Agg")

LABELS = (r"$\beta$", r"$\Theta$", r"$\gamma$", r"$\Phi$", r"$\delta$", r"$\Omega$", r"$\varepsilon$")
REVOLVING = 2  # β and Θ turn round, the other angles swing
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
# Where the letters stand, in points from their joints.
OFFSETS = {
    "O": (-4, -16),
    "A": (-16, -4),
    "B": (-4, 9),
    "C": (-16, -3),
    "D": (7, -3),
    "E": (6, -11),
    "F": (3, 6),
    "G": (-6, 9),
    "H": (-4, -16),
}


def draw(path, params, solution, energy, times, beta):
    """Writes the picture."""
    names = [["mechanism", "angles"], ["energy", "fan"], ["balance", "fan"]]
    figure, axes = plt.subplot_mosaic(names, figsize=(13, 10), layout="constrained", height_ratios=[3, 2, 1])
    ms = 1e3 * np.asarray(solution.ts)
    points = jax.vmap(lambda q: joints(q, params))(solution.q)
    draw_mechanism(axes["mechanism"], {name: 1e3 * np.asarray(xy) for name, xy in points.items()}, ms)
    draw_angles(axes["angles"], ms, np.asarray(solution.q))
    draw_energy(axes["energy"], axes["balance"], ms, energy)
    draw_fan(axes["fan"], 1e3 * times, np.asarray(beta), ms, solution.q[:, 0])
    for name in ("angles", "energy", "balance", "fan"):
        axes[name].set(xlabel="time (ms)", xlim=(0, ms[-1]))
        axes[name].grid(alpha=0.3)
    figure.align_ylabels([axes["energy"], axes["balance"]])
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_mechanism(ax, points, ms):
    """Both ends of E's travel faintly, an instant between in full colour, and the paths of E and F."""
    travel = np.linalg.norm(points["E"] - points["E"][0], axis=1)
    far = int(np.argmax(travel))
    halfway = int(np.argmin(abs(travel[:far] - travel[far] / 2)))
    for i, alpha in ((0, 0.3), (far, 0.3), (halfway, 1.0)):
        full = i == halfway
        for (name, way), colour in zip(BODIES.items(), plt.cm.tab10.colors, strict=False):
            x, y = np.array([points[p][i] for p in way]).T
            ax.plot(x, y, "o-", color=colour, alpha=alpha, lw=2.5 if full else 1.5, ms=4, label=name if full else None)
        x, y = np.array([points["C"][i], points["D"][i]]).T
        ax.plot(x, y, ":", color="black", alpha=alpha, lw=1.5, label="spring" if full else None)
    ax.plot(*points["E"].T, "--", color="black", lw=1, label="paths of E and F")
    ax.plot(*points["F"].T, "--", color="black", lw=1)
    for name in OFFSETS:
        fixed = name in FIXED
        ax.annotate(
            name, points[name][halfway], OFFSETS[name], textcoords="offset points", weight="bold" if fixed else None
        )
        if fixed:
            ax.plot(*points[name][0], "^", color="black", ms=9, zorder=3)
    ax.set_aspect("equal")
    ax.margins(0.1)
    ax.set(
        xlabel="x (mm)", ylabel="y (mm)", title=f"Mechanism at {ms[halfway]:.1f} ms; faint at 0 and {ms[far]:.1f} ms"
    )
    ax.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.02, 0.5))


def draw_angles(ax, ms, q):
    right = ax.twinx()
    lines = []
    for k, (angle, label) in enumerate(zip(q.T, LABELS, strict=True)):
        panel, style = (right, "--") if k < REVOLVING else (ax, "-")
        lines += panel.plot(ms, angle, style, color=plt.cm.tab10.colors[k], label=label)
    ax.set(ylabel=", ".join(LABELS[REVOLVING:]) + " (rad)", ylim=(-0.7, 2.1), title="The seven angles")
    right.set(ylabel=", ".join(LABELS[:REVOLVING]) + " (rad, dashed)")
    ax.legend(handles=lines, ncols=len(LABELS), loc="upper left", columnspacing=1, handlelength=1.5)


def draw_energy(ax, below, ms, energy):
    for label in ("kinetic", "potential", "total"):
        ax.plot(ms, getattr(energy, label), label=label)
    ax.plot(ms, energy.total[0] + energy.work, "k:", label="initial + work of the motor")
    ax.set(ylabel="energy (J)", ylim=(-0.1, 2.9), title="Energy and its balance")
    ax.legend(ncols=2, loc="upper left")
    below.semilogy(ms, np.maximum(np.abs(energy.balance), 1e-17), color="grey", lw=1)  # no logarithm of zero
    below.set(ylabel="|balance| (J)", ylim=(1e-17, None))


def draw_fan(ax, times, beta, ms, nominal):
    ax.plot(times, beta.T, color="tab:blue", lw=0.5, alpha=0.05)
    ax.plot([], [], color="tab:blue", alpha=0.6, label=f"{len(beta)} variants")
    ax.plot(ms, nominal, color="black", label="nominal")
    ax.set(ylabel=r"$\beta$ (rad)", title="Motor torque and spring stiffness varied by ±20 %")
    ax.legend(loc="upper left")
