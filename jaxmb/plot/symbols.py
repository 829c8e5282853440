"""Symbols of machine elements, as points in the plane or in space; `size` is the length that all symbols are multiples of."""

from itertools import pairwise

import numpy as np

from .solid import (
    COARSE,
    Solid,
    close,
    join,
    polar,
    polygon,
    pose_along,
    prism,
    sphere,
    transform,
    tube,
    with_axis_as_z,
)

COILS = 6  # of a spring, however long it is
PITCH = 0.7  # of hatching, in sizes
TOOTH = 0.25  # height of a tooth on either side of the pitch line, in pitches
ARC_ANGLES = (-1.9, 2.4)  # angles in rad from which to which a curved arrow leads


def spring(a: np.ndarray, b: np.ndarray, radius: float) -> np.ndarray:
    """A zigzag in the plane, a helix in space, with straight ends."""
    pose, length = _between(a, b)
    turns = np.linspace(0, 1, COILS * (4 if len(a) == 2 else 16) + 1)
    phase = 2 * np.pi * COILS * turns
    local = np.zeros((len(turns), len(a)))
    if len(a) == 2:
        local[:, 0], local[:, 1] = turns, np.arcsin(np.sin(phase)) * 2 / np.pi * radius
    else:
        local[:] = np.stack([radius * np.cos(phase), radius * np.sin(phase), turns], axis=1)
    axis = 0 if len(a) == 2 else 2
    local[:, axis] = length * (0.15 + 0.7 * turns)
    return np.concatenate([a[None], transform(pose, local), b[None]])


def damper(a: np.ndarray, b: np.ndarray, radius: float) -> Solid:
    """A piston in a pot."""
    pose, length = _between(a, b)
    if len(a) == 2:
        pot = [(0.35, -1), (0.7, -1), (0.7, 1), (0.35, 1)]
        lines = [[(0, 0), (0.55, 0)], [(0.55, -0.7), (0.55, 0.7)], pot, [(0.7, 0), (1, 0)]]
        return Solid([], [transform(pose, np.array(line) * [length, radius]) for line in lines], [])
    pot = pose.copy()
    pot[:-1, -1] += 0.35 * (b - a)
    # The rod within the pot is hidden.
    rods = [np.stack([a + start * (b - a), a + end * (b - a)]) for start, end in ((0.0, 0.35), (0.7, 1.0))]
    return join([tube(pot, 0.35 * length, radius, corners=COARSE), Solid([], rods, [])])


def bar(a: np.ndarray, b: np.ndarray, radius: float) -> Solid:
    """A round bar in space between two points, without edges."""
    pose, length = _between(a, b)
    return Solid(tube(pose, length, radius, corners=COARSE).faces, [], [])


def ball(pose: np.ndarray, radius: float) -> Solid:
    """A ball in space at a pose, without edges."""
    return Solid(sphere(pose, radius, COARSE).faces, [], [])


def solidified(solid: Solid, radius: float) -> Solid:
    """A solid in space with bars of a radius in place of its rods, and somewhat thicker balls in place of its dots."""
    parts = [Solid(solid.faces, solid.edges, [])]
    for line in solid.rods:
        if len(line) == 1:
            parts.append(ball(pose_along(line[0], np.eye(3)[2]), 1.3 * radius))
        parts += [bar(a, b, radius) for a, b in pairwise(line)]
    return join(parts)


def beside(a: np.ndarray, b: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The ends of an element drawn at a distance from the line from a to b, and the lines that lead there."""
    pose, _ = _between(a, b)
    shift = gap * pose[:-1, 1 if len(a) == 2 else 0]
    ends = a + 0.1 * (b - a) + shift, b - 0.1 * (b - a) + shift
    return *ends, [np.stack([a, ends[0] - shift, ends[0]]), np.stack([ends[1], ends[1] - shift, b])]


def spiral(pose: np.ndarray, angle: float, size: float) -> np.ndarray:
    """A torsion spring about a joint; its outer end turns by an angle."""
    turn = np.linspace(0, 2 * np.pi * 2.25 + angle, 73)
    return polar(pose, np.linspace(0.6, 2.2, len(turn)) * size, turn)


def arc(pose: np.ndarray, radius: float, start: float = ARC_ANGLES[0], end: float = ARC_ANGLES[1]) -> np.ndarray:
    """A part of a circle in the pose's x and y."""
    return polar(pose, radius, np.linspace(start, end, 33))


def chart(x: np.ndarray, y: np.ndarray, half: float) -> tuple[np.ndarray, np.ndarray]:
    """A square (4, 2) about the origin and in it the curve (n, 2) of a table."""
    square = half * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    fitted = [2 * (z - z.min()) / (np.ptp(z) or 1.0) - 1 for z in (x, y)]
    return square, 0.7 * half * np.stack(fitted, axis=1)


def toothed(pose: np.ndarray, radius: float, count: int) -> np.ndarray:
    """A wheel with teeth about its pitch circle, in the pose's x and y."""
    phase = np.arange(4 * count + 1) + 0.5
    height = TOOTH * 2 * np.pi * radius / count * np.where(phase % 4 < 2, 1, -1)
    angle = 2 * np.pi * (phase + 0.3 * np.where(phase % 2 < 1, 1, -1) * np.sign(height)) / (4 * count)
    return polar(pose, radius + height, angle)


def toothed_line(low: float, high: float, pitch: float) -> np.ndarray:
    """Teeth (n, 2) along x between two positions, about y = 0, that stand still when these move."""
    first, last = round(low / pitch), round(high / pitch)
    phase = np.arange(4 * first, 4 * max(last, first + 1) + 1) + 0.5
    height = np.where(phase % 4 < 2, 1, -1)
    position = phase + 0.3 * np.where(phase % 2 < 1, 1, -1) * height
    return pitch * np.stack([position / 4, TOOTH * height], axis=1)


def hatched(pose: np.ndarray, low: float, high: float, size: float) -> list[np.ndarray]:
    """A line along the pose's x, in the plane, with strokes below it that stand still when its ends move."""
    first, last = (round(x / (PITCH * size)) for x in (low, high))
    positions = PITCH * size * np.arange(first, max(last, first + 2) + 1)
    local = [np.array([[positions[0], 0.0], [positions[-1], 0.0]])]
    local += [np.array([[x, 0.0], [x - 0.8 * size, -0.8 * size]]) for x in positions[1:]]
    return [transform(pose, line) for line in local]


def anchor(position: np.ndarray, size: float) -> Solid:
    """The ground under a pin: a hatched triangle in the plane, a hatched foot in space."""
    if len(position) == 2:
        base = np.eye(3)
        base[:2, 2] = position - np.array([0.0, 2.0 * size])
        triangle = position + size * np.array([[0.0, 0.0], [-1.2, -2.0], [1.2, -2.0]])
        return join([polygon(triangle), Solid([], hatched(base, -1.6 * size, 1.8 * size, size), [])])
    square = 1.6 * size * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    foot = position - [0.0, 0.0, size]
    edges = [corner + np.array([[0, 0, 0], [-0.5, -0.5, -0.8]]) * size for corner in foot + _rim(square)]
    return join([prism(foot + square, position - [0.0, 0.0, 0.6 * size] + square), Solid([], edges, [])])


def floor(pose: np.ndarray, low: np.ndarray, high: np.ndarray, size: float) -> Solid:
    """A hatched rectangle in the pose's x and y; the hatching stands still when the corners move."""
    step = 2.5 * size
    low, high = np.round(low / step) * step, np.round(high / step) * step
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    lines = []
    for offset in np.arange(low[0] - high[1], high[0] - low[1], step)[1:]:  # x − y = offset
        start, end = max(low[0], low[1] + offset), min(high[0], high[1] + offset)
        lines.append(np.array([[start, start - offset], [end, end - offset]]))
    lift = lambda points: transform(pose, np.pad(points, ((0, 0), (0, 1))))
    return Solid([(lift(corners),)], [lift(close(corners)), *(lift(line) for line in lines)], [])


def block(pose: np.ndarray, low: float, high: float, radius: float) -> Solid:
    """A sleeve along the axis of a slider: the pose's x in the plane, z in space."""
    if len(pose) == 3:
        corners = np.array([[low, -radius], [high, -radius], [high, radius], [low, radius]])
        return polygon(transform(pose, corners))
    square = radius * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    ends = [transform(pose, square + np.array([0.0, 0.0, height])) for height in (low, high)]
    return prism(*ends)


def hinge(pose: np.ndarray, axis: int, size: float) -> Solid:
    """A short cylinder along the axis that a joint in space turns about."""
    pin = with_axis_as_z(pose, axis)
    pin[:-1, -1] -= size * pin[:-1, 2]
    return tube(pin, 2 * size, 0.55 * size, corners=COARSE)


def thread(pose: np.ndarray, pitch: float, size: float) -> np.ndarray:
    """A helix about the pose's z, right-handed where the pitch is positive; its pitch is that of a symbol."""
    turns = np.linspace(-2.5, 2.5, 81)
    angle = 2 * np.pi * turns * np.sign(pitch)
    return transform(pose, size * np.stack([0.8 * np.cos(angle), 0.8 * np.sin(angle), turns], axis=1))


def _between(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """The pose at a that looks to b, and the distance."""
    length = float(np.linalg.norm(b - a))
    return pose_along(a, (b - a) / length if length else np.eye(len(a))[0]), length


def _rim(square: np.ndarray) -> np.ndarray:
    """Places along the first two sides of a square."""
    parts = np.linspace(0, 1, 5)[:, None]
    return np.concatenate([square[i] + parts * (square[i + 1] - square[i]) for i in (0, 1)])
