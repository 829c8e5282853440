"""Slider-crank with crank and rod of equal length (Aghili): its only constraint row vanishes twice a turn."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "slidercrank_singular.npz"


def mass(t, q, p):
    """Point masses m at the ends of both links of length l; q2 is the angle between the links."""
    c = jnp.cos(q[1])
    return p["m"] * p["l"] ** 2 * jnp.array([[3 + 2 * c, 1 + c], [1 + c, 1.0]])


def height(q):
    """Height of the slider above the crank's pivot, in link lengths."""
    return jnp.sin(q[0]) + jnp.sin(q[0] + q[1])


def slider_crank(line=None, force=None, actuation=None):
    """The slider on y = 0, or on a line that moves as y = line(t); `actuation` is the matrix B of inputs."""
    level = line or (lambda t: jnp.zeros_like(t))
    return jm.System(
        ("q1", "q2"),
        mass=mass,
        potential=lambda t, q, p: p["m"] * p["g"] * p["l"] * (2 * jnp.sin(q[0]) + jnp.sin(q[0] + q[1])),
        force=force,
        constraints=[jm.Holonomic("slider", lambda t, q, p: p["l"] * height(q) - level(t))],
        params={"m": 1.0, "l": 1.0, "g": 9.81},
        actuation=actuation,
    )


def acceleration(angle, rate):
    """Of the crank on the slider's branch, q2 = 2π − 2 q1, from the one equation that is left there."""
    return -(2 * np.sin(2 * angle) * rate**2 + 9.81 * np.cos(angle)) / (3 - 2 * np.cos(2 * angle))


def main():
    reference = np.load(REFERENCE)
    ts = jnp.asarray(reference["t"])
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-10, atol=1e-10), step_ts=ts)
    system = slider_crank()
    for start, rate in (("rest", 0.0), ("spin", 5.0)):
        state = jm.assemble(system, [0.0, 0.0], [rate, -2 * rate], hold_velocity=["q1"])
        solution = jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)
        passages = int(jnp.sum(jnp.diff(jnp.sign(jnp.cos(solution.q[:, 0]))) != 0))
        error = np.abs(np.asarray(solution.q[:, 0]) - reference[f"q1_{start}"]).max()
        drift = float(jnp.abs(jm.energy(system, solution).balance).max())
        reactions = jm.reactions(system, solution).multipliers["slider"][:, 0]
        force = np.nanmax(np.abs(np.asarray(reactions) - reference[f"lam_{start}"]))
        print(
            f"{start}: {passages} passages, largest errors: q1 {error:.1e} rad, energy {drift:.1e} J, slider {force:.1e} N"
        )
        assert error <= 1e-7 and drift <= 1e-7 and force <= 1e-5

    upright = jm.assemble(system, [np.pi / 2, np.pi], [5.0, -10.0], hold=["q1", "q2"])
    print(jm.diagnose(system, upright))
    found = float(jm.formulation.GaussProjection().acceleration(jm.evaluate(system, upright)).vdot[0])
    assert abs(found - acceleration(np.pi / 2, 5.0)) <= 1e-9
    at_rest = jm.assemble(system, [np.pi / 2, np.pi], [0.0, 0.0], hold=["q1", "q2"])
    try:
        jm.simulate(system, at_rest, [1.0])
    except ValueError as error:
        print(f"From rest at that pose: {error}")
    else:
        raise AssertionError("At rest at a bifurcation the motion is not determined.")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
