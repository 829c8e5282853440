"""Inertias that some distribution of mass can have."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import PositiveOrInfinite, contract, listing
from ..mechanism import AbstractBody, AbstractMechanism, moments_of_inertia, second_moments
from .parameter import Parameter


@contract
def inertia_parameter(model: AbstractMechanism, body: str, *, bound: PositiveOrInfinite = np.inf) -> Parameter:
    """Mass, centre of mass and inertia of a body as one parameter, of which every value belongs to a physically possible body.

    Of a body in space θ = (α, d₁, d₂, d₃, s₁₂, s₂₃, s₁₃, t₁, t₂, t₃) with the pseudo-inertia

        J = ∫ x̃ x̃ᵀ dm = e^(2α) U Uᵀ,    x̃ = (x, 1),    U = [[e^d₁, s₁₂, s₁₃, t₁], [0, e^d₂, s₂₃, t₂], [0, 0, e^d₃, t₃], [0, 0, 0, 1]],

    so that m = e^(2α), the centre of mass is t and J is positive definite (Rucker and Wensing 2022, "Smooth parameterization of
    rigid-body inertia"). Of a body in the plane θ = (α, d, t₁, t₂) with m = e^(2α), the moment of inertia m e^(2d) about
    the centre of mass t. The search starts at the body's own values.

    Args:
        model: the mechanism.
        body: name of the body; its mass points stay as they are. The parameter is called "body.pseudo_inertia"; do not use "body.mass" and
            the like together with it.
        bound: how far each entry of θ may move in either direction.

    Raises:
        ValueError: for an unknown name, and an inertia that no body can have.

    Example:
        >>> import jaxmb as jm
        >>> rod = jm.planar.Body.rod("rod", mass=2.0, length=1.0)
        >>> pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", "ground", "rod.a")])
        >>> unknown = jm.fit.inertia_parameter(pendulum, "rod")
        >>> print(f"{float(unknown.modifier(pendulum, unknown.nominal).elements['rod'].mass):.1f}")
        2.0
    """
    names = [b.name for b in model.bodies]
    if body not in names:
        raise ValueError(f"Argument `body` must be one of {listing(names)}, but is '{body}'.")
    theta = _entries(model.bodies[names.index(body)])
    scale = jnp.ones_like(theta)
    return Parameter(
        f"{body}.pseudo_inertia", theta, theta - bound, theta + bound, modifier=_Inertia(body), scale=scale
    )


class _Inertia(eqx.Module):
    """Puts the inertia of θ into a body of a mechanism."""

    body: str = eqx.field(static=True)

    def __call__(self, model: AbstractMechanism, theta: Float[Array, " k"]) -> Any:
        mass = jnp.exp(2 * theta[0])
        if theta.shape[0] == 4:
            return model.replace(self.body, mass=mass, com=theta[2:], inertia=mass * jnp.exp(2 * theta[1]))
        upper, com = _upper(theta[1:7]), theta[7:]
        spread = mass * upper @ upper.T  # ∫ (x − t)(x − t)ᵀ dm: the last column of U carries the centre alone
        return model.replace(self.body, mass=mass, com=com, inertia=moments_of_inertia(spread))


def _upper(entries: Float[Array, "6"]) -> Float[Array, "3 3"]:
    d1, d2, d3, s12, s23, s13 = entries
    zero = jnp.zeros(())
    return jnp.stack(
        [
            jnp.stack([jnp.exp(d1), s12, s13]),
            jnp.stack([zero, jnp.exp(d2), s23]),
            jnp.stack([zero, zero, jnp.exp(d3)]),
        ]
    )


def _entries(body: AbstractBody) -> Float[Array, " k"]:
    """The parameters θ of a body."""
    mass, com = np.asarray(body.mass), np.asarray(body.com)
    inertia = np.asarray(body.inertia)
    alpha = 0.5 * np.log(mass)
    if com.shape[0] == 2:
        entries = np.array([alpha, 0.5 * np.log(inertia / mass), *com])
    else:
        spread = second_moments(inertia) / mass
        upper = np.full((3, 3), np.nan)
        # Triangle inequalities of the principal moments are the positive definiteness of Σ; Cholesky's error would
        # not say so.
        if np.all(np.linalg.eigvalsh(spread) > 0):
            upper = np.linalg.cholesky(spread[::-1, ::-1])[::-1, ::-1]  # spread = U Uᵀ, U upper triangular
        d, s = np.log(np.diag(upper)), (upper[0, 1], upper[1, 2], upper[0, 2])
        entries = np.array([alpha, *d, *s, *com])
    if not np.all(np.isfinite(entries)):
        raise ValueError(
            f"Body '{body.name}' must have a positive mass, and an inertia whose principal moments are each less than the sum of the "
            "others, to be estimated."
        )
    return jnp.asarray(entries)
