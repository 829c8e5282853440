"""An independent solution by NumPy's singular value decomposition; shares nothing with the package."""

import numpy as np


def acceleration(mass, force, jacobian, gamma, tol=1e-9):
    """v̇, reaction, minimum-norm λ and rank of M v̇ = F + Cᵀλ, C v̇ = Γ, by least squares in the metric of M."""
    mass, force, jacobian, gamma = (np.asarray(x) for x in (mass, force, jacobian, gamma))
    half = np.linalg.inv(np.linalg.cholesky(mass)).T  # half halfᵀ = M⁻¹
    length = np.linalg.norm(jacobian @ half, axis=1)
    rows = (jacobian @ half) / length[:, None]
    free = half.T @ force
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    kept = s > tol
    step = vt[kept].T @ ((u[:, kept].T @ (gamma / length - rows @ free)) / s[kept])
    vdot = half @ (free + step)
    reaction = mass @ vdot - force
    # least norm in the user's own rows: (Cᵀ)⁺ reaction, by the range of C found above
    basis, _ = np.linalg.qr(length[:, None] * u[:, kept])
    multipliers = basis @ np.linalg.lstsq(jacobian.T @ basis, reaction, rcond=None)[0]
    return vdot, reaction, multipliers, int(kept.sum())


def condition(mass, jacobian, tol=1e-9):
    """Condition number of the kept rows in the metric of M, times that of M."""
    half = np.linalg.inv(np.linalg.cholesky(np.asarray(mass))).T
    rows = np.asarray(jacobian) @ half
    s = np.linalg.svd(rows / np.linalg.norm(rows, axis=1)[:, None], compute_uv=False)
    s = s[s > tol]
    return s[0] / s[-1] * np.linalg.cond(np.asarray(mass))
