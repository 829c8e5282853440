"""A dense multibody integrator in NumPy and SciPy that shares nothing with the package.

Bodies have their centre of mass and orientation as coordinates, in space as in the plane, where the columns of motions out of it are left out.
Residuals and Jacobians of joints are written out by hand; M u̇ = f + CᵀΛ, C u̇ = Γ is solved by singular values.
"""

import contextlib
import dataclasses
import itertools

import numpy as np
from scipy.integrate import solve_ivp

RTOL, ATOL = 1e-11, 1e-12  # of the reference: four digits beyond what results are compared to
RANK = 1e-8  # singular values of scaled rows below this belong to redundant ones; at regular poses they are at 1e-15
EVALUATIONS = 20_000  # of one motion, after which the reference gives up: it is stiff, or has come to a kink
FINER = 2  # times that a path is looked at more closely, each time by twenty
STEP = 1e-30  # of the complex step, whose error is its square
PIECES = 8  # states are brought back onto the constraints at the end of each piece of a run


class Unsolved(Exception):
    """The reference has given up."""


@dataclasses.dataclass
class Rows:
    """Constraint rows by kind; body 0 is the ground. s are places and u directions in the axes of their bodies, about the centres of mass.

    Attributes:
        meet: (a, b, s_a, s_b, axes) x_a = x_b, along some axes of the world.
        across: (a, b, u_a, u_b) u_a · u_b = 0.
        along: (a, b, s_a, s_b, u_a, c) (x_b − x_a) · u_a = c.
        apart: (a, b, s_a, s_b, l) (|x_b − x_a|² − l²)/2l = 0.
        turn: (a, b, e_1, e_2, w, f) w · (−sin f(t) e_1 + cos f(t) e_2) = 0, e in the axes of a, w in those of b.
        slip: (b, s, u, fixed) u · velocity of x_b = 0, s and u in the axes of b, or of the world.
    """

    meet: list = dataclasses.field(default_factory=list)
    across: list = dataclasses.field(default_factory=list)
    along: list = dataclasses.field(default_factory=list)
    apart: list = dataclasses.field(default_factory=list)
    turn: list = dataclasses.field(default_factory=list)
    slip: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Model:
    """What the reference integrates. Springs are (a, b, s_a, s_b, stiffness, damping, length); drags (row, f) push by f along ṡ = row(y) u."""

    dim: int
    mass: np.ndarray
    inertia: np.ndarray
    gravity: np.ndarray
    rows: Rows
    springs: list
    drags: tuple = ()

    def __post_init__(self):
        self.n = len(self.mass)
        self.columns = np.arange(6) if self.dim == 3 else np.array([0, 1, 5])

    def expand(self, u):
        """Velocities and angular velocities (n + 1, 3) of all bodies, the ground first, from u (n k,)."""
        full = np.zeros((self.n + 1, 6), u.dtype)
        full[1:, self.columns] = u.reshape(self.n, -1)
        return full[:, :3], full[:, 3:]

    def poses(self, y):
        """Centres (n + 1, 3) and rotations (n + 1, 3, 3) from y = (x, quaternions)."""
        x = np.concatenate([np.zeros((1, 3)), y[: 3 * self.n].reshape(-1, 3)])
        return x, np.concatenate([np.eye(3)[None], rotations(y[3 * self.n :].reshape(-1, 4))])


def rotations(quaternions):
    """Rotation matrices of quaternions of any length."""
    w, x, y, z = (quaternions / np.linalg.norm(quaternions, axis=1)[:, None]).T
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)


def cross(a, b):
    """Of single vectors; that of NumPy takes ten times as long."""
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def skew(a):
    """The matrix of the product a ×."""
    zero = 0.0 * a[0]
    return np.array([[zero, -a[2], a[1]], [a[2], zero, -a[0]], [-a[1], a[0], zero]])


class Evaluation:
    """φ, C and b, with φ̇ = C u + b, at one pose, which may be complex."""

    def __init__(self, model, t, x, turn):
        self.model, self.t, self.x, self.r = model, t, x, turn
        self.phi, self.jacobian, self.drift, self.positional = [], [], [], []
        rows = model.rows
        for name in ("meet", "across", "along", "apart", "turn", "slip"):
            for entry in getattr(rows, name):
                getattr(self, name)(*entry)
        k = len(model.columns)
        width = model.n * k
        if self.phi:
            blocks = np.array(self.jacobian)[:, 1:, :][:, :, model.columns]
            self.jacobian = blocks.reshape(-1, width)
        else:
            self.jacobian = np.zeros((0, width))
        self.phi, self.drift, self.positional = (
            np.array(self.phi),
            np.array(self.drift),
            np.array(self.positional, bool),
        )

    def add(self, phi, parts, drift=0.0, positional=True):
        """One row from parts (body, by velocity, by angular velocity)."""
        row = np.zeros((self.model.n + 1, 6), complex)
        for body, linear, angular in parts:
            row[body, :3] += linear
            row[body, 3:] += angular
        self.phi.append(phi)
        self.jacobian.append(row)
        self.drift.append(drift)
        self.positional.append(positional)

    def meet(self, a, b, s_a, s_b, axes):
        s_a, s_b = self.r[a] @ s_a, self.r[b] @ s_b
        d = self.x[b] + s_b - self.x[a] - s_a
        by_a, by_b = skew(s_a), -skew(s_b)
        for i in axes:
            unit = np.eye(3)[i]
            self.add(d[i], [(a, -unit, by_a[i]), (b, unit, by_b[i])])

    def across(self, a, b, u_a, u_b):
        u_a, u_b = self.r[a] @ u_a, self.r[b] @ u_b
        both = cross(u_a, u_b)
        self.add(u_a @ u_b, [(a, np.zeros(3), both), (b, np.zeros(3), -both)])

    def along(self, a, b, s_a, s_b, u_a, c):
        s_a, s_b, u = self.r[a] @ s_a, self.r[b] @ s_b, self.r[a] @ u_a
        d = self.x[b] + s_b - self.x[a] - s_a
        self.add(d @ u - c, [(a, -u, cross(u, d) - cross(s_a, u)), (b, u, cross(s_b, u))])

    def apart(self, a, b, s_a, s_b, length):
        s_a, s_b = self.r[a] @ s_a, self.r[b] @ s_b
        d = self.x[b] + s_b - self.x[a] - s_a
        n = d / length
        self.add((d @ d - length**2) / (2 * length), [(a, -n, -cross(s_a, n)), (b, n, cross(s_b, n))])

    def turn(self, a, b, e_1, e_2, w, law):
        f, rate = law(self.t)
        w, e_1, e_2 = self.r[b] @ w, self.r[a] @ e_1, self.r[a] @ e_2
        e = -np.sin(f) * e_1 + np.cos(f) * e_2
        both = cross(e, w)
        drift = -rate * (w @ (np.cos(f) * e_1 + np.sin(f) * e_2))
        self.add(e @ w, [(a, np.zeros(3), both), (b, np.zeros(3), -both)], drift)

    def slip(self, b, s, u, fixed):
        s, u = (s, u) if fixed else (self.r[b] @ s, self.r[b] @ u)
        self.add(0.0, [(b, u, cross(s, u))], positional=False)


def rows_at(model, t, y, u):
    """C, b, Γ and φ: one evaluation at a pose that is complex along u gives the derivative along it too."""
    x, r = model.poses(y)
    v, w = model.expand(u)
    moved = r + 1j * STEP * np.array([skew(k) for k in w]) @ r
    found = Evaluation(model, t + 1j * STEP, x + 1j * STEP * v, moved)
    rate = found.jacobian @ u + found.drift
    return found.jacobian.real, found.drift.real, -rate.imag / STEP, found.phi.real, found.positional


def forces(model, y, u):
    """Mass matrix (n k, n k) and applied and gyroscopic forces (n k,)."""
    x, r = model.poses(y)
    v, w = model.expand(u)
    wrench = np.zeros((model.n + 1, 6))
    wrench[1:, :3] = model.mass[:, None] * model.gravity
    mass = np.zeros((6 * model.n, 6 * model.n))
    for i in range(model.n):
        inertia = r[i + 1] @ model.inertia[i] @ r[i + 1].T
        mass[6 * i : 6 * i + 3, 6 * i : 6 * i + 3] = model.mass[i] * np.eye(3)
        mass[6 * i + 3 : 6 * i + 6, 6 * i + 3 : 6 * i + 6] = inertia
        wrench[i + 1, 3:] -= cross(w[i + 1], inertia @ w[i + 1])
    for a, b, s_a, s_b, stiffness, damping, length in model.springs:
        s_a, s_b = r[a] @ s_a, r[b] @ s_b
        d = x[b] + s_b - x[a] - s_a
        size = np.sqrt(d @ d)
        n = d / size
        rate = n @ (v[b] + cross(w[b], s_b) - v[a] - cross(w[a], s_a))
        pull = (stiffness * (size - length) + damping * rate) * n
        wrench[a] += np.concatenate([pull, cross(s_a, pull)])
        wrench[b] -= np.concatenate([pull, cross(s_b, pull)])
    kept = (6 * np.arange(model.n)[:, None] + model.columns).ravel()
    dragged = sum(drag * row(y) for row, drag in model.drags)
    return mass[np.ix_(kept, kept)], wrench[1:, model.columns].ravel() + dragged


def acceleration(model, t, y, u):
    """u̇ and CᵀΛ. With a mass matrix that has an inverse in its metric; else of the whole matrix [[M, Cᵀ], [C, 0]]."""
    mass, force = forces(model, y, u)
    jacobian, _, gamma, _, _ = rows_at(model, t, y, u)
    if not len(jacobian):
        return np.linalg.solve(mass, force), np.zeros_like(force)
    if model.mass.min() > 0:
        root = np.linalg.inv(np.linalg.cholesky(mass)).T
        rows = jacobian @ root
        size = np.linalg.norm(rows, axis=1)[:, None]
        free = root.T @ force
        step = np.linalg.pinv(rows / size, RANK) @ (gamma / size[:, 0] - rows @ free / size[:, 0])
        return root @ (free + step), np.linalg.solve(root.T, step)
    size = np.linalg.norm(jacobian, axis=1)[:, None]
    whole = np.block([[mass, (jacobian / size).T], [jacobian / size, np.zeros((len(size), len(size)))]])
    found = np.linalg.lstsq(whole, np.concatenate([force, gamma / size[:, 0]]), rcond=RANK * 1e-3)[0]
    return found[: len(force)], -(jacobian / size).T @ found[len(force) :]


def corrected(model, t, y, u):
    """The state brought onto the constraints, the shortest way."""
    for _ in range(4):
        jacobian, _, _, phi, positional = rows_at(model, t, y, u)
        if not positional.any():
            break
        y = moved(model, y, -np.linalg.pinv(jacobian[positional], RANK) @ phi[positional])
    return y, corrected_velocity(model, t, y, u)


def corrected_velocity(model, t, y, u):
    """Velocities that satisfy the rows, nearest to u."""
    jacobian, drift, _, _, _ = rows_at(model, t, y, u)
    return u - np.linalg.pinv(jacobian, RANK) @ (jacobian @ u + drift) if len(jacobian) else u


def rates_of(model, y, u):
    """ẏ of centres and quaternions."""
    v, w = model.expand(u)
    q = y[3 * model.n :].reshape(-1, 4)
    spin = np.concatenate([np.zeros((model.n, 1)), w[1:]], axis=1)
    (a, b, c, d), (_, x, y_, z) = q.T, spin.T
    qdot = 0.5 * np.array(
        [-x * b - y_ * c - z * d, x * a + y_ * d - z * c, y_ * a + z * b - x * d, z * a + x * c - y_ * b]
    )
    return np.concatenate([v[1:].ravel(), qdot.T.ravel()])


def moved(model, y, step):
    """The pose after a small motion."""
    y = y + rates_of(model, y, step)
    q = y[3 * model.n :].reshape(-1, 4)
    return np.concatenate([y[: 3 * model.n], (q / np.linalg.norm(q, axis=1)[:, None]).ravel()])


def motion(model, y, u, ts, rtol=RTOL):
    """States (y, u) at all times, the first that of the start; None where SciPy gives up."""
    size, left = len(y), itertools.count(EVALUATIONS, -1)

    def slope(t, state):
        if next(left) < 0:
            raise Unsolved
        y, u = state[:size], state[size:]
        return np.concatenate([rates_of(model, y, u), acceleration(model, t, y, u)[0]])

    saved, t = [(y, u)], ts[0]
    with contextlib.suppress(Unsolved):
        for end in ts[1:]:
            for edge in np.linspace(t, end, PIECES // (len(ts) - 1) + 2)[1:]:
                run = solve_ivp(slope, (t, edge), np.concatenate([y, u]), method="DOP853", rtol=rtol, atol=ATOL)
                if not run.success:
                    return None
                y, u = corrected(model, edge, run.y[:size, -1], run.y[size:, -1])
                t = edge
            saved.append((y, u))
        return saved
    return None


def apart_after(model, y, u, ts, rng, size=1e-6):
    """By how much more states differ at the end that differed by `size` at the start, and the least singular value of rows on the way.

    The value is that of rows of length 1, redundant ones left out: how near the motion comes to a pose where rows become dependent.
    """
    times = np.linspace(ts[0], ts[-1], 41)
    path = motion(model, y, u, times, 1e-9)
    other = moved(model, y, size * rng.normal(size=len(u)))
    other, speed = corrected(model, ts[0], other, u + size * rng.normal(size=len(u)))
    end = motion(model, other, speed, ts[[0, -1]], 1e-9)
    if path is None or end is None:
        return np.inf, 0.0
    growth = max(np.abs(path[-1][k] - end[-1][k]).max() for k in (0, 1)) / size
    return growth, least_value(model, times, path, FINER)


def least_value(model, times, path, finer):
    """The least singular value along a path, which is looked at more closely around where it is least."""
    values = np.array([lowest(rows_at(model, t, *state)[0]) for t, state in zip(times, path, strict=True)])
    k = int(np.argmin(values))
    near = slice(max(k - 1, 0), min(k + 2, len(times)))
    inside = np.linspace(times[near][0], times[near][-1], len(times))
    closer = motion(model, *path[near][0], inside, 1e-9) if finer else None
    return values[k] if closer is None else min(values[k], least_value(model, inside, closer, finer - 1))


def lowest(jacobian):
    """The least singular value of rows of length 1 that is not that of redundant ones; 1 without rows."""
    sizes = np.linalg.norm(jacobian, axis=1)[:, None]
    values = np.linalg.svd(jacobian / sizes, compute_uv=False) if len(jacobian) else np.ones(1)
    return values[values > RANK].min()
