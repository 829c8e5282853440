"""Bricard's mechanism (IFToMM benchmark A04) from five boxes and six hinges, in absolute and in relative coordinates.

Both builds are compared with the same mechanism from plain functions in `bricard.py`.
"""

import bricard
import diffrax as dfx
import jax
import jax.numpy as jnp

import jaxmb as jm


def bricard_joints():
    """Five rods P1P2 to P5P6, and a hinge at each of P1 to P6; P1 and P6 are on the ground."""
    rods = [
        jm.spatial.Body.box(f"rod{i + 1}", 1.0, jnp.where(along > 0, 1.0, 0.1), points={"end": end}, position=centre)
        for i, (along, centre, end) in enumerate(
            zip(bricard.ALONG, bricard.CENTRES, bricard.POINTS[1:] - bricard.CENTRES, strict=True)
        )
    ]

    def place(i, point):
        return (f"rod{i}", point - bricard.CENTRES[i - 1]) if 1 <= i <= 5 else ("ground", point)

    hinges = [
        jm.spatial.Revolute(f"hinge{i + 1}", place(i, point), place(i + 1, point), axis=axis)
        for i, (point, axis) in enumerate(zip(bricard.POINTS, bricard.AXES, strict=True))
    ]
    return jm.spatial.Mechanism(rods, hinges, gravity=(0.0, -9.81, 0.0))


def builds():
    """The system in 30 velocities with 30 rows, and that in five with the loop closed by the last hinge."""
    mechanism = bricard_joints()
    return {"absolute": mechanism.build("absolute"), "relative": mechanism.build("relative", cut=["hinge6"])}


def run(system, state, tolerance):
    """Ten seconds, saved at the end."""
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    return jm.simulate(system, state, jnp.array([10.0]), solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    plain = bricard.p3(bricard.run(*bricard.bricard(), 1e-12).q[0])
    print(
        f"P3 after 10 s from plain functions: {float(plain[0]):.10f}, {float(plain[1]):.10f}, {float(plain[2]):.10f} m"
    )
    print("build     rows  rank   steps  distance of P3  energy balance   residual")
    for (name, system), rank in zip(builds().items(), (29, 4), strict=True):
        state = jm.assemble(system)
        solution = run(system, state, 1e-12)
        away = float(jnp.linalg.norm(jm.position(system, solution, "rod2.end")[0] - plain))
        drift = float(jnp.abs(jm.energy(system, solution).total[0] - jm.energy(system, state).total))
        residual = float(jnp.abs(jm.residuals(system, solution).position).max())
        ranks = tuple(int(solution.stats[key]) for key in ("lowest_rank", "highest_rank"))
        steps = int(solution.stats["num_accepted_steps"])
        counts = f"{name:<8}{system.m:>6}{ranks[0]:>4}–{ranks[1]:<3}{steps:>5}"
        print(f"{counts}{away:>14.1e} m{drift:>13.1e} J{residual:>10.1e} m")
        assert ranks == (rank, rank), f"The rank must be {rank} at every accepted step, but was {ranks}."
        assert away <= 1e-9 and drift <= 1e-8 and residual <= 1e-12


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
