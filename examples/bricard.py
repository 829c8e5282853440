"""Bricard's mechanism (IFToMM benchmark A04): six revolute joints close a spatial loop that can move only because of its special dimensions."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float)
AXES = np.eye(3)[[1, 2, 0, 1, 2, 0]]  # of the joints at P1 to P6, at the start
ALONG = np.abs(np.diff(POINTS, axis=0))  # the rods' directions
CENTRES = (POINTS[:-1] + POINTS[1:]) / 2
INERTIA = 1.01 / 12 + (1 / 600 - 1.01 / 12) * ALONG  # 1 kg, 1 m, square section of 0.1 m


def rotated(e, x):
    """The vector x turned by the unit quaternion e = (w, x, y, z)."""
    w, u = e[0], e[1:]
    return x + 2 * jnp.cross(u, jnp.cross(u, x) + w * x)


def revolute(before, after, point, axis, centre_before, centre_after):
    """Five rows of a joint between two bodies whose axes agreed with those of the world at the start."""
    arm, other = point - centre_before, point - centre_after
    gap = before[:3] + rotated(before[3:], arm) - after[:3] - rotated(after[3:], other)
    across = jnp.stack([jnp.roll(axis, 1), jnp.roll(axis, 2)])
    tilt = jax.vmap(lambda n: rotated(before[3:], n) @ rotated(after[3:], axis))(across)
    return jnp.concatenate([gap, tilt])


def joints(t, q, p):
    """Ground, five rods, ground."""
    ground = jnp.array([0.0, 0, 0, 1, 0, 0, 0])
    bodies = jnp.concatenate([ground, q, ground]).reshape(7, 7)
    centres = np.concatenate([np.zeros((1, 3)), CENTRES, np.zeros((1, 3))])
    return jax.vmap(revolute)(bodies[:-1], bodies[1:], POINTS, AXES, centres[:-1], centres[1:]).ravel()


def rate(q, v, p):
    """ṗ = v and ė = ½ e ∘ (0, ω) of each body, ω in its own axes."""

    def one(q, v):
        w, u, omega = q[3], q[4:], v[3:]
        return jnp.concatenate([v[:3], 0.5 * jnp.array([-u @ omega]), 0.5 * (w * omega + jnp.cross(u, omega))])

    return jax.vmap(one)(q.reshape(5, 7), v.reshape(5, 6)).ravel()


def normalise(q):
    """The quaternions at unit length."""
    bodies = q.reshape(5, 7)
    e = bodies[:, 3:]
    return jnp.concatenate([bodies[:, :3], e / jnp.linalg.norm(e, axis=1, keepdims=True)], axis=1).ravel()


def bricard():
    """The mechanism and its start at rest."""
    system = jm.System(
        35,
        velocities=30,
        mass=lambda t, q, p: jnp.diag(jnp.concatenate([jnp.ones((5, 3)), p["J"]], axis=1).ravel() * p["m"]),
        potential=lambda t, q, p: p["m"] * p["g"] * jnp.sum(q[1::7]),
        constraints=[jm.Holonomic("joints", joints)],
        rate=rate,
        normalise=normalise,
        params={"m": 1.0, "g": 9.81, "J": INERTIA},
    )
    start = np.concatenate([CENTRES, np.tile([1.0, 0, 0, 0], (5, 1))], axis=1).ravel()
    return system, jm.assemble(system, start)


def p3(q):
    """The point P3, on the second rod."""
    rod = q[7:14]
    return rod[:3] + rotated(rod[3:], POINTS[2] - CENTRES[1])


def run(system, state, tolerance):
    """Ten seconds from rest, saved at the end."""
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    return jm.simulate(system, state, jnp.array([10.0]), solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    system, state = bricard()
    found = jm.diagnose(system, state)
    print(found)
    exact = run(system, state, 1e-13)
    end = p3(exact.q[0])
    print(f"P3 after 10 s: {float(end[0]):.9f}, {float(end[1]):.9f}, {float(end[2]):.9f} m")
    print("tolerance  steps  rank    residual     energy drift  distance of P3 from the run at 1e-13")
    before = jm.energy(system, state).total
    for tolerance, limit in ((1e-3, 3e-2), (1e-6, 1e-4), (1e-9, 1e-7), (1e-11, 1e-9)):
        solution = run(system, state, tolerance)
        drift = float(jnp.abs(jm.energy(system, solution).total[0] - before))
        away = float(jnp.linalg.norm(p3(solution.q[0]) - end))
        stats = {name: float(x) for name, x in solution.stats.items() if x.ndim == 0}
        ranks = f"{stats['lowest_rank']:.0f}–{stats['highest_rank']:.0f}"
        steps, residual = stats["num_accepted_steps"], stats["largest_residual"]
        print(f"  {tolerance:.0e} {steps:>6.0f}  {ranks}  {residual:>8.1e} m {drift:>14.1e} J {away:>14.1e} m")
        assert ranks == "29–29", f"The rank must be 29 at every accepted step, but was {ranks}."
        kept = np.finfo(float).eps ** (2 / 3)  # what `Projection` promises, of a mechanism of 1 m
        assert residual <= kept and away <= limit and drift <= 10 * limit
    assert found.redundancy == 1 and found.freedom == 1


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
