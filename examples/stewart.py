"""A Stewart platform whose six legs are driven so that it follows a given motion: there is no freedom left, and the reactions are computed."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from gallery import check, save
from stewart_model import LEGS, platform_pose, stewart

import jaxmb as jm


def run(system, ts, tolerance=1e-9):
    """The motion; the drivers leave nothing to choose, so that only the time is integrated."""
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    return jm.simulate(system, jm.assemble(system), ts, solver=dfx.Tsit5(), stepsize_controller=controller)


def main():
    system, ts = stewart().build(), jnp.linspace(0.0, 4.0, 9)
    solution = run(system, ts)
    place, turned = jax.vmap(platform_pose)(ts)
    poses = jm.pose(system, solution, "platform")
    multipliers = jm.reactions(system, solution).multipliers
    forces = jnp.stack([multipliers[f"drive{i}"] for i in range(LEGS)], axis=1)
    ranks = [int(solution.stats[key]) for key in ("lowest_rank", "highest_rank")]
    print(
        f"{system.nv} velocities, {system.m} rows, rank {ranks[0]}–{ranks[1]}: no freedom is left, nothing is redundant"
    )
    assert ranks == [system.nv, system.nv] == [system.m, system.m]
    print("t, s    forces of the drives along the legs, N")
    for t, row in zip(ts, forces, strict=True):
        print(f"{float(t):.1f}   " + " ".join(f"{float(x):>9.3f}" for x in row))
    rows = (
        ("position of the platform, m", jnp.abs(poses[:, :3, 3] - place).max(), 1e-9),
        ("its rotation matrix", jnp.abs(poses[:, :3, :3] - turned).max(), 1e-9),
        ("residual", jnp.abs(jm.residuals(system, solution).position).max(), 1e-12),
        ("energy less the work of the drives, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-6),
    )
    check(rows)
    save(jm.plot.draw(system, solution.state(0)), "stewart")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
