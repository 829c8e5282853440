"""A Puma 560 arm from its Denavit–Hartenberg table, falling freely, in relative and in absolute coordinates."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

# Standard convention: link i's frame in that of link i − 1 is Rz(θ) Tz(d) Tx(a) Rx(α); d in m, a in m, α in rad.
TABLE = (
    (0.672, 0.0, np.pi / 2),
    (0.0, 0.4318, 0.0),
    (0.15005, 0.0203, -np.pi / 2),
    (0.4318, 0.0, np.pi / 2),
    (0.0, 0.0, -np.pi / 2),
    (0.0, 0.0, 0.0),
)
MASSES = (10.0, 17.4, 4.8, 0.82, 0.34, 0.09)
CENTRES = (  # in the links' frames
    (0.0, 0.0, 0.0),
    (-0.3638, 0.006, 0.2275),
    (-0.0203, -0.0141, 0.070),
    (0.0, 0.019, 0.0),
    (0.0, 0.0, 0.0),
    (0.0, 0.0, 0.032),
)
INERTIAS = (  # about the centres of mass, along the axes of the links' frames
    (0.35, 0.35, 0.35),
    (0.13, 0.524, 0.539),
    (0.066, 0.066, 0.0125),
    (1.8e-3, 1.3e-3, 1.8e-3),
    (0.3e-3, 0.4e-3, 0.3e-3),
    (0.15e-3, 0.15e-3, 0.04e-3),
)
JOINTS = tuple(f"joint{i + 1}" for i in range(6))
Q0 = (0.0, np.pi / 4, np.pi, 0.0, np.pi / 4, 0.0)
V0 = (1.0, -0.8, 1.2, 0.5, -0.6, 0.7)


def puma():
    """Six links on hinges; link i turns about the z axis of the frame of link i − 1."""
    links, joints = [], []
    for i, (d, a, alpha) in enumerate(TABLE):
        c, s = np.cos(alpha), np.sin(alpha)
        turned = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
        # Where the joint is, seen from the link's own frame at its far end.
        joint = jm.spatial.frame(-turned.T @ np.array([a, 0.0, d]), turned.T)
        points = {"joint": joint, "end": (0.0, 0.0, 0.0)}
        links.append(jm.spatial.Body(f"link{i + 1}", MASSES[i], INERTIAS[i], CENTRES[i], points))
        joints.append(jm.spatial.Revolute(JOINTS[i], f"link{i}" if i else "ground", f"link{i + 1}.joint"))
    return jm.spatial.Mechanism(links, joints, gravity=(0.0, 0.0, -9.81))


def start(system):
    """The given start, of the relative build."""
    return jm.assemble(system, dict(zip(JOINTS, Q0, strict=True)), dict(zip(JOINTS, V0, strict=True)))


def run(system, state, ts, tolerance=1e-12):
    """The motion, with steps that end at the saved times."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=tolerance, atol=tolerance), step_ts=ts)
    return jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    mechanism, ts = puma(), jnp.linspace(0.0, 0.3, 7)
    relative, absolute = mechanism.build(), mechanism.build("absolute")
    state = start(relative)
    fall = run(relative, state, ts)
    print("t, s    joint angles, rad")
    for t, q in zip(fall.ts, fall.q, strict=True):
        print(f"{float(t):.2f}   " + " ".join(f"{float(x):>12.9f}" for x in q))
    free = run(absolute, jm.convert(state, relative, absolute), ts)
    place = lambda system, solution: jm.position(system, solution, "link6.end")
    rows = (
        ("energy balance, relative, J", jnp.abs(jm.energy(relative, fall).balance).max(), 1e-9),
        ("energy balance, absolute, J", jnp.abs(jm.energy(absolute, free).balance).max(), 1e-9),
        ("distance of the hands of both builds, m", jnp.abs(place(relative, fall) - place(absolute, free)).max(), 1e-9),
        ("residual of the absolute build, m", jnp.abs(jm.residuals(absolute, free).position).max(), 1e-12),
    )
    for label, value, limit in rows:
        print(f"  {label:<44}{float(value):>10.1e}   at most {limit:.0e}")
        assert value <= limit, f"{label} is {float(value):.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
