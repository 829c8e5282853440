"""Reactions along physical directions."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..formulation import CoordinatePartition, GaussProjection
from ..foundations import announce, strong
from ..system import State, System, check_state, evaluate

SCHEMES = ("metric", "square", "direct")


def physical_reactions(
    system: System, state: State, directions: dict[str, Any], *, scheme: str = "direct", u: Any = None
) -> dict[str, Float[Array, ""]]:
    """Reactions along named physical directions, Cᵀλ = Bᵀf (Blajer, Schiehlen and Schirm 1994, section 5).

    Row j of B is the virtual displacement along direction j for each velocity: the derivative of a function of the pose
    which gives the displacement of the constrained point, or the turn of the constrained frame, along that direction. The
    rows must span the same space as the constraints and be independent.

    * "metric": f = (B M⁻¹Bᵀ)⁻¹ B ([0; ξ] − M⁻¹F), their (35);
    * "square": [f; 0] = [B; D M]⁻ᵀ (M v̇ − F), their (37);
    * "direct": Bᵀf = M v̇ − F by least squares, their (38).

    Args:
        system: the system.
        state: a single state.
        directions: by name, `fn(t, q, params)` → displacement in m or turn in rad.
        scheme: one of the three.
        u: inputs (nu,).

    Returns:
        f by name, in N or N m.

    Raises:
        ValueError: for a scheme that is not known.
        RuntimeError: with known numbers, where no acceleration is determined, as of `reactions`.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"Argument `scheme` must be 'metric', 'square' or 'direct', but is {scheme!r}.")
    check_state(system, state)
    system, state = strong(system), strong(state)
    displacement = lambda t, q: jnp.stack([jnp.reshape(fn(t, q, system.params), ()) for fn in directions.values()])
    along = lambda v: jax.jvp(lambda q: displacement(state.t, q), (state.q,), (system.qdot(state.q, v),))[1]
    matrix = jax.jacfwd(along)(jnp.zeros(system.nv))
    terms = evaluate(system, state, u=u)
    found = GaussProjection().acceleration(terms)
    announce(found.result)
    reaction = found.reaction
    if scheme == "direct":
        values = jnp.linalg.lstsq(matrix.T, reaction)[0]
    else:
        parts = CoordinatePartition().partition(terms)
        if scheme == "metric":
            inverse = jnp.linalg.inv(terms.mass)
            values = jnp.linalg.solve(matrix @ inverse @ matrix.T, matrix @ (parts.xi - inverse @ terms.force))
        else:
            tangent = parts.tangent[jnp.flatnonzero(parts.independent)]
            square = jnp.concatenate([matrix, tangent @ terms.mass])
            values = jnp.linalg.solve(square.T, reaction)
    return dict(zip(directions, values, strict=False))
