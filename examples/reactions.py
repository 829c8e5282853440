"""Which bearing loads of a redundant robot can be trusted: those that no choice of eliminated rows changes."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from mobile_robot import build

import jaxmb as jm

ELIMINATED = ((5, 20), (17, 20), (18, 20))  # rows {6, 21}, {18, 21} and {19, 21}, counted from one
SHOWN = ("A", "D", "B", "W3")


def runs(system, state, ts):
    """The motion with each choice of eliminated rows, and the reactions."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=ts)
    for rows in ELIMINATED:
        formulation = jm.formulation.Elimination(rows)
        solution = jm.simulate(
            system,
            state,
            ts,
            formulation=formulation,
            solver=dfx.Dopri8(),
            stepsize_controller=controller,
        )
        yield rows, solution, jm.reactions(system, solution, formulation=formulation).forces


def picture(system, state, report, ts, forces, path):
    """The mechanism with its verdicts, and some reactions for each choice."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), width_ratios=(1.6, 1, 1))
    jm.plot.draw(system, state, axes[0], report=report)
    fork = [system.velocities.index(name) for name in ("front.x", "front.y")]  # both joints act on the front fork
    for ax, name in zip(axes[1:], ("D", "B"), strict=True):
        for (rows, force), style in zip(forces, ("-", "--", ":"), strict=True):
            size = np.linalg.norm(np.asarray(force[name])[:, fork], axis=1)
            ax.plot(ts, size, style, label=f"rows {{{rows[0] + 1}, {rows[1] + 1}}} eliminated")
        verdict = "determined" if report.groups[name].unique else "not determined"
        ax.set(title=f"force in {name}: {verdict}", xlabel="t in s", ylabel="N")
    axes[2].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    system, state = build("absolute")
    report = jm.analyse_reactions(system, state)
    print(report)
    ts = jnp.linspace(0.0, 9.0, 91)
    found = list(runs(system, state, ts))
    first = found[0]
    distance = max(float(jnp.abs(solution.q - first[1].q).max()) for _, solution, _ in found[1:])
    print(f"largest distance of the motions: {distance:.1e}")
    assert distance <= 1e-9
    largest = max(float(jnp.abs(force).max()) for force in first[2].values())
    for name in report.groups:
        spread = max(float(jnp.abs(forces[name] - first[2][name]).max()) for _, _, forces in found[1:])
        if name in SHOWN:
            verdict = "determined" if report.groups[name].unique else "not determined"
            print(f"  {name:<10}{verdict:<16} largest difference {spread:.1e} N")
        assert not report.groups[name].unique or spread <= 1e-8 * largest
    for name in ("B", "W3"):
        size = max(float(jnp.abs(forces[name]).max()) for _, _, forces in found)
        assert max(float(jnp.abs(f[name] - first[2][name]).max()) for _, _, f in found[1:]) > 0.01 * size
    picture(system, state, report, np.asarray(ts), [(r, f) for r, _, f in found], pathlib.Path("output/reactions.png"))
    print("wrote output/reactions.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
