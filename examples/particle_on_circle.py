"""A particle on a circle that is stated three times over, beside the closed form of its motion."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm


def circle(t, q, p):
    """Three ways to say that the particle is at a distance r from the origin."""
    r = jnp.linalg.norm(q)
    return jnp.stack([q @ q - p["r"] ** 2, 1e3 * (r - p["r"]), jnp.log(r / p["r"])])


def particle():
    """Mass m in the plane, no other force."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        constraints=[jm.Holonomic("circle", circle)],
        params={"m": 2.0, "r": 0.5},
    )


def main():
    system = particle()
    m, r, speed = 2.0, 0.5, 3.0
    state = jm.assemble(system, [0.6, 0.1], hold=[])
    normal = state.q / r
    along = jnp.stack([-normal[1], normal[0]])
    state = jm.assemble(system, state.q, speed * along)
    print(jm.diagnose(system, state))

    ts = jnp.linspace(0.0, 10.0, 101)
    solution = jm.simulate(system, state, ts)
    turned = speed / r * ts
    exact = r * (jnp.cos(turned)[:, None] * normal + jnp.sin(turned)[:, None] * along)
    reaction = jm.reactions(system, solution).reaction
    rows = (
        ("largest error of the position, m", jnp.abs(solution.q - exact).max(), 1e-6),
        ("largest distance from the circle, m", jnp.abs(jnp.linalg.norm(solution.q, axis=1) - r).max(), 1e-14),
        ("largest error of the force m v²/r, N", jnp.abs(reaction + m * speed**2 / r**2 * solution.q).max(), 1e-5),
        ("largest energy drift, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-6),
    )
    print(f"{speed * 10 / (2 * np.pi * r):.1f} turns in 10 s, {solution.stats['num_accepted_steps']} steps")
    for label, value, limit in rows:
        print(f"  {label:<40}{float(value):>10.1e}   at most {limit:.0e}")
        assert value <= limit, f"{label} is {float(value):.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
