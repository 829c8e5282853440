"""Which coordinate of a four-bar should be independent: the projective criterion, switching, and explicit closures.

Draws cos²α over a turn of the crank as figure 3 of Blajer, Schiehlen and Schirm 1994, and a run that starts from the worst choice.
"""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from fourbar_model import CLOSURES, MASSES, fourbar

import jaxmb as jm

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "fourbar_blajer.npz"
LABELS = (r"$\alpha_1$", r"$\alpha_2$", r"$\alpha_3$")
COLOURS = ("tab:blue", "tab:orange", "tab:green")


def criterion(angles, masses, weight=None):
    """cos²α (n, 3) at crank angles (n,)."""
    system = fourbar()
    system = system.with_params(system.params | {"m": masses})

    def one(angle):
        q = jnp.concatenate([jnp.stack([angle]), CLOSURES["crank"].fn(0.0, jnp.stack([angle]), system.params)])
        return jm.formulation.projective_criterion(
            jm.evaluate(system, jm.assemble(system, q, hold=["a1"])), weight
        ).tangent

    return np.asarray(jax.jit(jax.vmap(one))(angles))


def accurate(ts):
    """Settings whose steps end at the saved times."""
    return dict(
        solver=dfx.Dopri8(),
        stepsize_controller=dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-11, atol=1e-11), step_ts=ts),
    )


def difference(q, reference):
    """The largest difference of angles, up to whole turns."""
    return float(np.abs((np.asarray(q) - reference + np.pi) % (2 * np.pi) - np.pi).max())


def draw(path, angles, curves, solution):
    """Both criteria over the crank angle, and the switches of the run."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(3, 1, figsize=(9, 11), layout="constrained")
    for ax, kinds, title in (
        (
            axes[0],
            ("nominal", "heavy coupler"),
            r"projective criterion $\cos^2\alpha_i$; dashed: coupler ten times as heavy",
        ),
        (axes[1], ("geometric",), "geometric criterion (singular value decomposition), whatever the masses"),
    ):
        for kind in kinds:
            for values, label, colour in zip(curves[kind].T, LABELS, COLOURS, strict=True):
                style = "--" if kind == "heavy coupler" else "-"
                ax.plot(angles, values, style, color=colour, label=label if style == "-" else None)
        ax.set(xlim=(0, 2 * np.pi), ylim=(0, 1), xlabel=r"crank angle $\alpha_1$ (rad)", title=title)
        ax.set_xticks(np.pi / 2 * np.arange(5), ["0", "π/2", "π", "3π/2", "2π"])
        ax.legend(loc=(0.62, 0.38) if len(kinds) == 2 else "upper left", ncols=3)
        ax.grid(alpha=0.3)
    ax, ts = axes[2], np.asarray(solution.ts)
    count = int(solution.switches.count)
    edges = [0.0, *np.asarray(solution.switches.t[:count]), ts[-1]]
    masks = [solution.switches.before[0], *solution.switches.after[:count]]
    for left, right, mask in zip(edges[:-1], edges[1:], masks, strict=True):
        ax.axvspan(left, right, color=COLOURS[int(np.argmax(mask))], alpha=0.25, lw=0)
    for values, label, colour in zip(np.asarray(solution.v).T, LABELS, COLOURS, strict=True):
        ax.plot(ts, values, color=colour, label=f"rate of {label}")
    ax.set(
        xlim=(0, ts[-1]),
        xlabel="time (s)",
        ylabel="rad/s",
        title="velocities; shaded in the colour of the independent one",
    )
    ax.legend(loc="upper right", ncols=3)
    ax.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main():
    angles = jnp.linspace(0, 2 * jnp.pi, 201)
    heavy = MASSES * np.array([1, 10, 1])
    curves = {
        "nominal": criterion(angles, MASSES),
        "heavy coupler": criterion(angles, heavy),
        "geometric": criterion(angles, MASSES, jnp.eye(3)),
    }
    assert np.abs(curves["nominal"][[50, 150], 2]).max() < 1e-12, "α₃ must be useless at π/2 and 3π/2."
    assert curves["nominal"][:, :2].min() > 0 and np.argmin(curves["nominal"].mean(axis=0)) == 2
    assert np.abs(curves["nominal"] - curves["heavy coupler"]).max() > 0.05
    assert np.abs(curves["geometric"] - criterion(angles, heavy, jnp.eye(3))).max() < 1e-12

    reference, end = np.load(REFERENCE), 101
    ts, exact = jnp.asarray(reference["t"][:end]), reference["alpha_spin"][:end]
    system = fourbar()
    state = jm.assemble(system, exact[0], reference["alphad_spin"][0], hold=["a1"])
    worst_first = jm.formulation.CoordinatePartition(independent=(2,), switching=0.95)
    solution = jm.simulate(system, state, ts, formulation=worst_first, **accurate(ts))
    count = int(solution.switches.count)
    for t, before, after in zip(
        *(x[: min(count, 8)] for x in (solution.switches.t, solution.switches.before, solution.switches.after)),
        strict=True,
    ):
        names = [system.velocities[int(np.argmax(mask))] for mask in (before, after)]
        print(f"t = {float(t):.4f} s: {names[0]} gives way to {names[1]}")
    error = difference(solution.q, exact)
    print(f"{count} switches in {float(ts[-1]):.0f} s; largest error {error:.1e} rad")
    assert count >= 3 and error < 1e-9

    # One coordinate by explicit closures: the rocker's until its angle turns, the crank's from then on.
    criterion_now = lambda state: float(jm.formulation.projective_criterion(jm.evaluate(system, state)).tangent[2])
    first, second = CLOSURES["rocker"], CLOSURES["crank"]
    begin = jm.kinematics.restrict(system, first, state)
    turn = int(np.argmax(exact[:, 0] > 1.3))  # before α₁ = π/2, where α₃ turns
    early = jm.simulate(jm.kinematics.reduce(system, first), begin, ts[: turn + 1], **accurate(ts[: turn + 1]))
    between = jm.kinematics.embed(system, first, early.states)
    handover = jax.tree.map(lambda x: x[-1], between)
    late = jm.simulate(
        jm.kinematics.reduce(system, second),
        jm.kinematics.restrict(system, second, handover),
        ts[turn:],
        **accurate(ts[turn:]),
    )
    whole = jm.kinematics.embed(system, second, late.states)
    errors = difference(between.q, exact[: turn + 1]), difference(whole.q, exact[turn:])
    off = float(jnp.abs(jm.residuals(system, whole).position).max())
    print(f"closures: cos²α₃ falls from {criterion_now(state):.2f} to {criterion_now(handover):.2f} at the change;")
    print(f"largest errors {errors[0]:.1e} and {errors[1]:.1e} rad, residual {off:.1e} m")
    # Rounding of the angles that follow, which sin α₃ near its dead centre magnifies.
    assert max(errors) < 1e-9 and off < 1e-13

    pathlib.Path("output").mkdir(exist_ok=True)
    draw("output/coordinates.png", np.asarray(angles), curves, solution)
    print("output/coordinates.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
