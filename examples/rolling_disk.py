"""A thin disk rolls without slipping: one row for the contact, two for the velocity of the contact point."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, save

import jaxmb as jm

MASS, RADIUS, GRAVITY = 1.0, 0.5, 9.81
# Lean (90° is upright) and heading in rad, and their rates and the spin about the disk's axis in rad/s.
LEAN, HEADING, LEAN_RATE, HEADING_RATE, SPIN = np.deg2rad(75.0), 0.0, 0.2, 0.5, -6.0


def axes(heading, lean):
    """Columns e₁ along the track, e₂ from the contact point to the centre, e₃ = e₁ × e₂ along the disk's axis."""
    z, zero = np.array([0.0, 0.0, 1.0]), 0.0
    e1 = np.array([np.cos(heading), np.sin(heading), zero])
    e2 = np.sin(lean) * z + np.cos(lean) * np.cross(z, e1)
    return np.stack([e1, e2, np.cross(e1, e2)], axis=1)


def rolling_disk():
    """The disk on the ground's plane z = 0; its frame at the start is that of `axes`."""
    turned = axes(HEADING, LEAN)
    inertia = MASS * RADIUS**2 * np.array([0.25, 0.25, 0.5])
    disk = jm.spatial.Body("disk", MASS, inertia, position=RADIUS * turned[:, 1], orientation=turned)
    contact = jm.spatial.RollingDisk("contact", "ground", "disk", RADIUS)
    return jm.spatial.Mechanism([disk], [contact], gravity=(0.0, 0.0, -GRAVITY))


def start(system):
    """The contact point at the origin, the disk rolling."""
    turned = axes(HEADING, LEAN)
    omega = LEAN_RATE * turned[:, 0] + HEADING_RATE * np.array([0.0, 0.0, 1.0]) + SPIN * turned[:, 2]
    velocity = np.cross(omega, RADIUS * turned[:, 1])
    return jm.assemble(system, v=np.concatenate([velocity, turned.T @ omega]))


def run(system, ts, tolerance=1e-12):
    """The motion, with steps that end at the saved times."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=tolerance, atol=tolerance), step_ts=ts)
    return jm.simulate(system, start(system), ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    system, ts = rolling_disk().build(), jnp.linspace(0.0, 6.0, 13)
    solution = run(system, ts)
    centre, axis = jm.position(system, solution, "disk"), jm.pose(system, solution, "disk")[:, :3, 2]
    print("t, s   centre, m                                lean, °")
    for t, place, direction in zip(ts, centre, axis, strict=True):
        lean = np.degrees(np.arccos(float(direction[2])))
        print(f"{float(t):.1f}   " + " ".join(f"{float(x):>12.9f}" for x in place) + f"   {lean:.3f}")
    loose = run(system, ts, 1e-11)
    found = jm.residuals(system, solution)
    rows = (
        ("energy balance, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-10),
        ("contact, m", jnp.abs(found.position).max(), 1e-12),
        ("velocity of the contact point, m/s", jnp.abs(found.velocity).max(), 1e-12),
        ("distance from a run ten times as loose, m", jnp.abs(jm.position(system, loose, "disk") - centre).max(), 1e-9),
    )
    check(rows)
    save(jm.plot.draw(system, solution.state(0), view="three", forces=True), "rolling_disk")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
