"""A platform on three parallel cranks: one crank too many for the constraints, and a singular pose in each half turn."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

FEET = np.array([[0.0, 0.0], [0.7, 0.0], [1.5, 0.0]])


def turned(angle, x):
    """The vector x turned by an angle."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1]])


def pins(t, q, p):
    """Cranks 0 to 2 pinned to the ground at their feet and to the platform, body 3; (x, y, angle) each."""
    cranks, platform = q[:9].reshape(3, 3), q[9:]

    def both(crank, foot, place):
        arm = 0.5 * p["l"] * jnp.stack([jnp.cos(crank[2]), jnp.sin(crank[2])])
        return jnp.concatenate([crank[:2] - arm - foot, crank[:2] + arm - platform[:2] - turned(platform[2], place)])

    return jax.vmap(both)(cranks, p["feet"], p["feet"]).ravel()


def parallelogram():
    """Uniform cranks of 1 m and 1 kg, a platform of 4 kg with its frame at the head of the first crank."""

    def mass(t, q, p):
        first = p["centre"]
        crank = p["m"] * jnp.stack([1.0, 1.0, p["l"] ** 2 / 12])
        offset = turned(q[11] + jnp.pi / 2, first)  # how the centre of mass moves when the platform turns
        corner = p["M"] * jnp.concatenate([jnp.eye(2), offset[None]])
        column = jnp.stack([p["M"] * offset[0], p["M"] * offset[1], p["J"] + p["M"] * first @ first])
        return jax.scipy.linalg.block_diag(
            jnp.diag(jnp.tile(crank, 3)), jnp.concatenate([corner, column[:, None]], axis=1)
        )

    def potential(t, q, p):
        return p["g"] * (p["m"] * jnp.sum(q[1:9:3]) + p["M"] * (q[10] + turned(q[11], p["centre"])[1]))

    return jm.System(
        [f"{c}{i}" for i in range(4) for c in ("x", "y", "angle")],
        mass=mass,
        potential=potential,
        constraints=[jm.Holonomic("pins", pins)],
        params={"l": 1.0, "m": 1.0, "M": 4.0, "J": 0.6, "g": 9.81, "feet": FEET, "centre": np.array([0.8, 0.2])},
    )


def pose(angle, rate):
    """All cranks at one angle, turning at one rate; the platform does not turn."""
    arm = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    speed = rate * jnp.stack([-arm[1], arm[0]])
    cranks = jnp.concatenate([FEET + arm / 2, jnp.full((3, 1), angle)], axis=1).ravel()
    speeds = jnp.tile(jnp.concatenate([speed / 2, jnp.stack([rate])]), 3)
    level = jnp.zeros(1)
    return jnp.concatenate([cranks, arm, level]), jnp.concatenate([speeds, speed, level])


def reduced(gravity, angle, rate, time):
    """The cranks' angle from the one equation that is left: l²(3 m/3 + M) α'' = −g l (3 m/2 + M) cos α."""
    factor = gravity * (1.5 + 4.0) / (1.0 + 4.0)
    return dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -factor * jnp.cos(y[0])])),
        dfx.Dopri8(),
        0.0,
        time,
        0.01,
        jnp.stack([angle, rate]),
        stepsize_controller=dfx.PIDController(rtol=1e-13, atol=1e-13),
    ).ys[-1, 0]


def main():
    system = parallelogram()
    angle, rate = jnp.array(2.0), jnp.array(-3.0)
    print(jm.diagnose(system, jm.assemble(system, *pose(angle, rate))))
    print(jm.diagnose(system, jm.assemble(system, *pose(jnp.array(0.0), rate))))

    def end(gravity, angle, rate):
        changed = eqx.tree_at(lambda s: s.params["g"], system, gravity)
        state = jm.assemble(changed, *pose(angle, rate))
        controller = dfx.PIDController(rtol=1e-10, atol=1e-10)
        solution = jm.simulate(
            changed, state, jnp.array([1.5]), solver=dfx.Dopri8(), stepsize_controller=controller, max_steps=128
        )
        return solution.q[0, 2]

    arguments = (jnp.array(9.81), angle, rate)
    value, gradient = jax.jit(jax.value_and_grad(end, argnums=(0, 1, 2)))(*arguments)
    exact, expected = jax.value_and_grad(lambda *x: reduced(*x, 1.5), argnums=(0, 1, 2))(*arguments)
    print(f"angle after 1.5 s: {float(value):.9f} rad, error {float(value - exact):.1e}")
    print("its derivatives by gravity, start and rate:", *(f"{float(x):.6f}" for x in gradient))
    print("                 from the reduced equation:", *(f"{float(x):.6f}" for x in expected))
    np.testing.assert_allclose(value, exact, atol=1e-8)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
