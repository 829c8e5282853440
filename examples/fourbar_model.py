"""Blajer's four-bar in relative coordinates, and its explicit closures (Blajer, Schiehlen and Schirm 1993)."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

L0 = 1.0
LENGTHS, MASSES = np.array([0.4, 0.9, 0.8]), np.array([1.0, 2.0, 1.5])
GRAVITY = 9.81


def directions(q):
    """Unit vectors along the three moving links; α₁ is measured from +y towards +x, the others from the link before."""
    angle = jnp.cumsum(q)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=1)


def ends(q, p):
    """The far ends of the links (3, 2)."""
    return jnp.cumsum(p["l"][:, None] * directions(q), axis=0)


def centres(q, p):
    """The centres of the links (3, 2)."""
    return ends(q, p) - p["l"][:, None] / 2 * directions(q)


def mass(t, q, p):
    """Of three uniform rods."""
    jac = jax.jacfwd(lambda q: centres(q, p))(q)
    spin = jnp.tril(jnp.ones((3, 3)))
    moving = jnp.einsum("i,ija,ijb->ab", p["m"], jac, jac)
    return moving + jnp.einsum("i,ia,ib->ab", p["m"] * p["l"] ** 2 / 12, spin, spin)


def potential(t, q, p):
    """Gravity along −y."""
    return GRAVITY * jnp.sum(p["m"] * centres(q, p)[:, 1])


def loop(t, q, p):
    """The end of the third link stays at (L0, 0)."""
    return ends(q, p)[-1] - jnp.array([L0, 0.0])


def fourbar(extra=()):
    """The four-bar; its loop may be closed again by further constraints."""
    return jm.System(
        ("a1", "a2", "a3"),
        mass=mass,
        potential=potential,
        force=lambda t, q, v, p: -p["d"] * v,
        constraints=[jm.Holonomic("loop", loop), *extra],
        params={"l": LENGTHS, "m": MASSES, "d": 0.0},
    )


def second_angle(a1, a3, lengths):
    """α₂ from the other two, eq. (18)."""
    l1, l2, l3 = lengths
    sine = L0 * l2 * jnp.cos(a1) + L0 * l3 * jnp.cos(a1 + a3) + l1 * l3 * jnp.sin(a3)
    cosine = L0 * l2 * jnp.sin(a1) + L0 * l3 * jnp.sin(a1 + a3) - l1 * l3 * jnp.cos(a3) - l1 * l2
    return jnp.arctan2(sine, cosine)


def by_crank(t, q, p):
    """α₂ and α₃ from α₁: eq. (17a), the upper sign. Never singular where the crank can turn."""
    (a1,), (l1, l2, l3) = q, p["l"]
    a3 = jnp.arccos((L0**2 + l1**2 - l2**2 - l3**2 - 2 * L0 * l1 * jnp.sin(a1)) / (2 * l2 * l3))
    return jnp.stack([second_angle(a1, a3, p["l"]), a3])


def by_rocker(t, q, p):
    """α₁ and α₂ from α₃: eq. (17b), the lower sign, α₁ between −π/2 and π/2; singular at both ends."""
    (a3,), (l1, l2, l3) = q, p["l"]
    a1 = jnp.pi / 2 - jnp.arccos((L0**2 + l1**2 - l2**2 - l3**2 - 2 * l2 * l3 * jnp.cos(a3)) / (2 * L0 * l1))
    return jnp.stack([a1, second_angle(a1, a3, p["l"])])


CLOSURES = {
    "crank": jm.kinematics.Closure("crank", ["a1"], by_crank),
    "rocker": jm.kinematics.Closure("rocker", ["a3"], by_rocker),
}
