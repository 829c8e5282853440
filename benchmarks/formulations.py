"""Every formulation on the same problems: error at the end against time per step.

    taskset -c 0 python benchmarks/formulations.py [problem ...]

Each motion is integrated with the same solver and tolerance (Dopri8, 1e-10); the time is that of the second call over the
number of steps, relative to `GaussProjection`'s in the same run.
"""

import pathlib
import sys
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path.append(str(ROOT / "examples"))

import andrews_model  # noqa: E402
import bricard  # noqa: E402
import nfourbar  # noqa: E402
import pendulum  # noqa: E402
import slider_crank  # noqa: E402

import jaxmb as jm  # noqa: E402

FORMULATIONS = {
    "GaussProjection": jm.GaussProjection(),
    "KKT": jm.KKT(),
    "OrthogonalProjection, skew": jm.OrthogonalProjection(inertia="skew"),
    "OrthogonalProjection, symmetric": jm.OrthogonalProjection(inertia="symmetric"),
    "OrthogonalProjection, parameterised": jm.OrthogonalProjection(),
    "NullSpace": jm.NullSpace(),
    "CoordinatePartition": jm.CoordinatePartition(),
    "Elimination": jm.Elimination(),
    "Proximal": jm.Proximal(),
}


def data(name):
    """A reference file."""
    return np.load(ROOT / "tests" / "data" / f"{name}.npz")


def a01():
    """Pendulum in x and y."""
    system, state = pendulum.build()
    reference = data("A01_pendulum")
    end = np.array([reference["x"][-1], reference["y"][-1]])
    return system, state, 10.0, lambda q: np.abs(q - end).max()


def a02():
    """N-four-bar, N = 2, through ten singular poses."""
    system = nfourbar.nfourbar(2)
    state = jm.assemble(system, *nfourbar.pose(2, jnp.array(np.pi / 2), jnp.array(-1.0)))
    reference = data("A02_nfourbar")
    end = np.array([reference["B0x_N2"][-1], reference["B0y_N2"][-1]])
    return system, state, 10.0, lambda q: np.abs(nfourbar.rod_end(q[:3], 0.5) - end).max()


def a03():
    """Andrews' squeezer."""
    system, state = andrews_model.build()
    end = data("A03_andrews_ivp")["Y"][-1, :7]
    return system, state, 0.03, lambda q: np.abs(q - end).max()


def a04():
    """Bricard's mechanism, 30 rows of rank 29; against the run of `GaussProjection` at 1e-13."""
    system, state = bricard.bricard()
    end = bricard.p3(bricard.run(system, state, 1e-13).q[0])
    return system, state, 10.0, lambda q: np.abs(bricard.p3(q) - end).max()


def crank():
    """Slider-crank with equal links, through eight singular poses."""
    system = slider_crank.slider_crank()
    state = jm.assemble(system, [0.0, 0.0], [5.0, -10.0], hold_velocity=["q1"])
    end = data("slidercrank_singular")["q1_spin"][-1]
    return system, state, 10.0, lambda q: abs(q[0] - end)


def tripled():
    """Slider-crank of no special lengths whose loop is closed three times, in other units."""
    loop = lambda t, q, p: jnp.stack([jnp.sin(q[0]) + 1.7 * jnp.sin(q[0] + q[1])])
    system = jm.System(
        ("q1", "q2"),
        mass=lambda t, q, p: slider_crank.mass(t, q, {"m": 1.0, "l": 1.0}),
        potential=lambda t, q, p: 9.81 * jnp.sin(q[0]),
        constraints=[jm.Holonomic(f"slider {f}", lambda t, q, p, f=f: f * loop(t, q, p)) for f in (1.0, 1e3, 1e-3)],
    )
    state = jm.assemble(system, [0.3, -0.5], [2.0, 0.0], hold=["q1"], hold_velocity=["q1"])
    exact = run(system, state, 10.0, jm.KKT(), 1e-13).q[0, 0]
    return system, state, 10.0, lambda q: abs(q[0] - exact)


CASES = {"A01": a01, "A02": a02, "A03": a03, "A04": a04, "slider-crank": crank, "three loops": tripled}


def run(system, state, end, formulation, tolerance=1e-10):
    """The motion, saved at its end."""
    return jm.simulate(
        system,
        state,
        jnp.array([end]),
        formulation=formulation,
        solver=dfx.Dopri8(),
        stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
        throw=False,
    )


def main(names):
    for name in names:
        system, state, end, error = CASES[name]()
        print(f"{name}: {CASES[name].__doc__}", flush=True)
        print(f"  {'':<38}error   steps   µs per step   relative   first call, s")
        unit = None
        for label, formulation in FORMULATIONS.items():
            begin = time.perf_counter()
            solution = jax.block_until_ready(run(system, state, end, formulation))
            first = time.perf_counter() - begin
            times = []
            for _ in range(5):
                begin = time.perf_counter()
                jax.block_until_ready(run(system, state, end, formulation).q)
                times.append(time.perf_counter() - begin)
            steps = int(solution.stats["num_steps"])
            each = 1e6 * min(times) / steps
            unit = unit or each
            verdict = "" if bool(solution.result == jm.RESULTS.successful) else "  " + jm.RESULTS[solution.result]
            print(
                f"  {label:<36}{float(error(solution.q[0])):>8.1e}{steps:>7}{each:>13.1f}{each / unit:>11.2f}{first:>13.1f}{verdict}",
                flush=True,
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:] or CASES)
