"""A thin disk rolls without slipping: one row for the contact, two for the velocity of the contact point."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, save

import jaxmb as jm
from jaxmb.spatial import Body, Disk, Mechanism, RollingDisk

MASS, RADIUS, GRAVITY, UP = 1.0, 0.5, 9.81, np.array([0.0, 0.0, 1.0])
# Lean (90° is upright) and heading in rad, and their rates and the spin about the disk's axis in rad/s.
LEAN, HEADING, LEAN_RATE, HEADING_RATE, SPIN = np.deg2rad(75.0), 0.0, 0.2, 0.5, -6.0


def axes(heading, lean):
    """Columns e₁ along the track, e₂ from the contact point to the centre, e₃ = e₁ × e₂ along the disk's axis."""
    e1 = np.array([np.cos(heading), np.sin(heading), 0.0])
    e2 = np.sin(lean) * UP + np.cos(lean) * np.cross(UP, e1)
    return np.stack([e1, e2, np.cross(e1, e2)], axis=1)


def rolling_disk():
    """The disk on the ground's plane z = 0; its frame at the start is that of `axes`."""
    turned = axes(HEADING, LEAN)
    disk = Body("disk", MASS, shape=Disk(RADIUS), position=RADIUS * turned[:, 1], orientation=turned)
    return Mechanism([disk], [RollingDisk("contact", "ground", "disk", RADIUS)], gravity=-GRAVITY * UP)


def start(system):
    """The contact point at the origin, the disk rolling."""
    turned = axes(HEADING, LEAN)
    omega = LEAN_RATE * turned[:, 0] + HEADING_RATE * UP + SPIN * turned[:, 2]
    return jm.assemble(system, v=np.concatenate([np.cross(omega, RADIUS * turned[:, 1]), turned.T @ omega]))


def run(system, ts, tolerance=1e-12):
    """The motion, with steps that end at the saved times."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=tolerance, atol=tolerance), step_ts=ts)
    return jm.simulate(system, start(system), ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    system, ts = rolling_disk().build(), jnp.linspace(0.0, 6.0, 13)
    solution, loose = run(system, ts), run(system, ts, 1e-11)
    found = jm.residuals(system, solution)
    gap = jm.position(system, loose, "disk") - jm.position(system, solution, "disk")
    check([
        ("energy balance, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-10),
        ("contact, m", jnp.abs(found.position).max(), 1e-12),
        ("velocity of the contact point, m/s", jnp.abs(found.velocity).max(), 1e-12),
        ("distance from a run ten times as loose, m", jnp.abs(gap).max(), 1e-9),
    ])  # fmt: skip
    save(jm.plot.draw(system, solution.state(0), view="three", forces=True), "rolling_disk")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
