"""The explicit closures of Blajer's four-bar (Blajer, Schiehlen and Schirm 1993, eqs. 17–18)."""

import jax.numpy as jnp

import jaxmb as jm

L0 = 1.0


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
    "crank": jm.Closure("crank", ["a1"], by_crank),
    "rocker": jm.Closure("rocker", ["a3"], by_rocker),
}
