"""Conditions on masses and inertias of links."""

import numpy as np

from ..mechanism import moments_of_inertia, second_moments
from ..mechanism.body import TRIANGLE_TOLERANCE


def inertial(spread: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it, of ∫ x̃ x̃ᵀ dm (4, 4); a body without mass has its centre at the origin."""
    mass = float(spread[3, 3])
    com = spread[:3, 3] / mass if mass > 0 else np.zeros(3)
    return mass, com, moments_of_inertia(spread[:3, :3] - mass * np.outer(com, com))


def expect_mass(mass: float, inertia: np.ndarray, where: str) -> None:
    """Refuses masses that are negative or not finite, and inertia without mass.

    Raises:
        ValueError: beginning with `where`.
    """
    if not np.isfinite(mass) or mass < 0:
        raise ValueError(f"{where} must have a mass that is finite and not negative, but has {mass:g} kg.")
    if mass == 0 and inertia.any():
        raise ValueError(f"{where} must have a mass where it has an inertia, but has none; give both, or neither.")


def admissible(inertia: np.ndarray, where: str, repair: bool) -> tuple[np.ndarray, str]:
    """An inertia about the centre of mass that a body can have, and what was changed.

    Of a body Σ = ½ tr(I) 1 − I = ∫ x xᵀ dm has no negative eigenvalue, which says that the principal moments are not negative and that none
    exceeds the sum of the others. The repaired one is the nearest: that of Σ without its negative eigenvalues.

    Args:
        inertia: (3, 3).
        where: with which a refusal begins.
        repair: whether to change one that no body can have.

    Raises:
        ValueError: by how much the inequality is missed, where it is not repaired.
    """
    # One eigenvalue problem holds both conditions, positive moments and the triangle inequality, in any axes.
    values, vectors = np.linalg.eigh(second_moments(inertia))
    if values[0] >= -TRIANGLE_TOLERANCE * np.abs(values).max():
        return inertia, ""
    moments = np.linalg.eigvalsh(inertia)
    small, middle, large = moments
    reason = f"{small:.6g} + {middle:.6g} is less than {large:.6g} kg m² by {large - small - middle:.3g}"
    if small < 0:
        reason = f"the moment {small:.6g} kg m² is negative"
    if not repair:
        raise ValueError(
            f"{where} must have principal moments of inertia of which none is negative or exceeds the sum of the others, but {reason}; "
            "`repair=True` takes the nearest inertia that a body can have."
        )
    # The nearest in the Frobenius norm: negative eigenvalues of a symmetric matrix are set to zero (Higham 1988).
    nonnegative = (vectors * np.maximum(values, 0)) @ vectors.T
    return moments_of_inertia(nonnegative), f"inertia changed to the nearest that a body can have, since {reason}"
