"""Andrews' squeezer: one run against the reference, 1,000 variants at once, and the gradient of the crank angle."""

import pathlib
import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from andrews_model import build, crank_pin
from andrews_picture import draw

import jaxmb as jm

jax.config.update("jax_enable_x64", True)

ROOT = pathlib.Path(__file__).parent.parent
REFERENCE = ROOT / "tests" / "data" / "A03_andrews_ivp.npz"
PICTURE = ROOT / "output" / "andrews.png"
END = 0.03  # s
VARIANTS = 1000
SPREAD = 0.2
SOUGHT = ("mom", "c0", "m1", "m2", "m3", "m4", "m5", "m6", "m7")


def accurate(ts, tol):
    """Steps of order eight that end at the saved times, so that no saved state is interpolated."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=tol, atol=tol), step_ts=ts)
    return {"solver": dfx.Dopri8(), "stepsize_controller": controller}


def variant(system, values):
    """The system with some of its parameters replaced; they may be traced."""
    return eqx.tree_at(lambda s: s.params, system, system.params | values)


def _compiled(fn, *arguments):
    return jax.jit(fn, compiler_options=jm.compiler_options()).lower(*arguments).compile()


def timed(fn, *args):
    start = time.perf_counter()
    result = jax.block_until_ready(fn(*args))
    return result, time.perf_counter() - start


def report(label, value, limit=None):
    """Prints a line of a table; where there is a limit the value must not exceed it."""
    bound = "" if limit is None else f"   at most {limit:.0e}"
    print(f"  {label:<44}{value:>22}{bound}" if isinstance(value, str) else f"  {label:<44}{value:>22.3e}{bound}")
    assert limit is None or value <= limit, f"{label} is {value:.3e}, more than {limit:.0e}."


def nominal_run(system, state):
    """The benchmark's run; returns the solution and its energies."""
    reference = np.load(REFERENCE)
    ts = jnp.linspace(0, END, 301)

    def run():
        return jm.simulate(system, state, ts, **accurate(ts, 1e-12))

    solution, first = timed(run)
    _, second = timed(run)
    energy, residuals = jm.energy(system, solution), jm.residuals(system, solution)
    beta = solution.q[:, 0]
    force = crank_pin(solution.q[-1], system.params)
    motor_work = system.params["mom"] * (beta - beta[0])
    exact = reference["Y"]
    print(f"\nOne run to {END} s")
    report("beta(0.03 s), rad", f"{beta[-1]:.13f}")
    report("reference, rad", f"{exact[-1, 0]:.13f}")
    report("error of beta(0.03 s), rad", float(abs(beta[-1] - exact[-1, 0])), 1e-9)
    report("largest error of all angles and times, rad", float(np.abs(solution.q - exact[:, :7]).max()))
    report("F(0.03 s), m", f"({force[0]:.9f}, {force[1]:.9f})")
    report("error of F, m", float(np.hypot(force[0] - reference["Fx"][-1], force[1] - reference["Fy"][-1])))
    report("largest position residual, rad", float(jnp.abs(residuals.position).max()), 1e-12)
    report("largest velocity residual, rad/s", float(jnp.abs(residuals.velocity).max()), 1e-12)
    report("largest energy balance, J", float(jnp.abs(energy.balance).max()), 1e-10)
    report(
        "T + V - E0 - mom (beta - beta0), J", float(jnp.abs(energy.total - energy.total[0] - motor_work).max()), 1e-10
    )
    steps = solution.stats
    report("steps accepted, rejected", f"{steps['num_accepted_steps']}, {steps['num_rejected_steps']}")
    report("first call (with compilation), second call", f"{first:.2f} s, {second:.3f} s")
    return solution, energy


def batch(system, state):
    """Torque and spring stiffness spread over a square, all variants in one program; returns times and crank angles."""
    ts = jnp.linspace(0, END, 61)
    rng = np.random.default_rng(0)
    torque, stiffness = 1 + SPREAD * rng.uniform(-1, 1, (2, VARIANTS))
    values = {"mom": system.params["mom"] * torque, "c0": system.params["c0"] * stiffness}

    def run(values):
        changed = variant(system, values)
        meter = dfx.TextProgressMeter(minimum_increase=0.1)
        settings = {"throw": False, "progress_meter": meter} | accurate(ts, 1e-10)
        solution = jm.simulate(changed, state, ts, **settings)
        return solution.q[:, 0], jnp.abs(jm.energy(changed, solution).balance).max(), solution.result

    print(f"\n{VARIANTS} variants, torque and spring stiffness within {SPREAD:.0%}")
    program, compilation = timed(lambda: _compiled(jax.vmap(run), values))
    (beta, balance, result), seconds = timed(program, values)
    failures = int(jnp.sum(result != jm.RESULTS.successful))
    assert failures == 0, f"{failures} variants of {VARIANTS} failed."
    report("beta(0.03 s) from, to, rad", f"{beta[:, -1].min():.3f}, {beta[:, -1].max():.3f}")
    report("variants that failed", f"{failures}")
    report("largest energy balance of all variants, J", float(balance.max()), 1e-10)
    report("compilation, run", f"{compilation:.2f} s, {seconds:.2f} s")
    report("per variant", f"{1e3 * seconds / VARIANTS:.2f} ms")
    return ts, beta


def gradient(system, state):
    """The gradient of beta(0.03 s) in reverse mode, beside central differences."""
    ts = jnp.array([END])
    # The reverse pass stores each step. No pose on the way is singular; else the gradient would be NaN.
    settings = accurate(ts, 1e-12) | {"max_steps": 512, "throw": False}

    def crank_angle(values):
        return jm.simulate(variant(system, values), state, ts, **settings).q[-1, 0]

    values = {name: system.params[name] for name in SOUGHT}
    program, compilation = timed(lambda: _compiled(jax.value_and_grad(crank_angle), values))
    (_, slopes), seconds = timed(program, values)
    differences = central_differences(system, state, values)
    print("\nGradient of beta(0.03 s), in rad per SI unit of the parameter")
    print(f"  {'parameter':<14}{'reverse mode':>22}{'central differences':>22}{'relative':>12}")
    worst = 0.0
    for name in SOUGHT:
        relative = abs(float(slopes[name]) / differences[name] - 1)
        worst = max(worst, relative)
        print(f"  {name:<14}{float(slopes[name]):>22.12e}{differences[name]:>22.12e}{relative:>12.1e}")
    report("largest relative difference", worst, 1e-6)
    report("compilation, run", f"{compilation:.2f} s, {seconds:.3f} s")


def central_differences(system, state, values, step=2e-3):
    """Central differences at two steps, extrapolated to fourth order, with the program of the nominal run."""
    ts = jnp.linspace(0, END, 301)

    def slope(name, step):
        ends = [
            jm.simulate(variant(system, {name: values[name] * (1 + s)}), state, ts, **accurate(ts, 1e-12)).q[-1, 0]
            for s in (-step, step)
        ]
        return float(ends[1] - ends[0]) / float(2 * step * values[name])

    return {name: (4 * slope(name, step / 2) - slope(name, step)) / 3 for name in values}


def main():
    start = time.perf_counter()
    print("Andrews' squeezer: seven bodies, seven angles, six constraint rows")
    (system, state), seconds = timed(build)
    report("assembly (with compilation)", f"{seconds:.2f} s")
    solution, energy = nominal_run(system, state)
    times, beta = batch(system, state)
    gradient(system, state)
    PICTURE.parent.mkdir(exist_ok=True)
    draw(PICTURE, system.params, solution, energy, times, beta)
    print(f"\nPicture: {PICTURE.relative_to(ROOT)}\nDone in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
