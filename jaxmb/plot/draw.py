"""Mechanisms drawn and animated."""

from typing import Any

import jax
import numpy as np

from ..mechanism import AbstractLinkage, Numbers, SpringDamper, linkage_of
from ..reaction import ReactionReport
from ..simulation import Solution
from ..system import State, System
from .outline import outlines

TRUSTED, UNTRUSTED = "tab:blue", "tab:red"
GROUND_COLOUR, JOINT_COLOUR, SPRING_COLOUR = "0.35", "black", "tab:green"


def draw(
    system: System, state: State, ax: Any = None, points: bool = True, report: ReactionReport | None = None
) -> Any:
    """Draws a mechanism at a state: bodies by their shapes, else through their joints and points; joints, springs.

    Args:
        system: built from a mechanism.
        state: a single state.
        ax: axes of matplotlib, three-dimensional for a mechanism in space; made if None.
        points: whether bodies without a shape are drawn through their named points too.
        report: of `analyse_reactions`; then joints whose reactions are determined and others are named, in two colours.

    Returns:
        The axes.
    """
    sketch = _Sketch(system, ax, points)
    sketch.show(state)
    if report is not None:
        sketch.judge(state, report)
    sketch.frame(sketch.places(state))
    return sketch.ax


def animate(system: System, solution: Solution, ax: Any = None, points: bool = True, speed: float = 1.0) -> Any:
    """An animation of a solution at its saved times, which should be evenly spaced.

    Args:
        system: built from a mechanism.
        solution: a single motion.
        ax: as of `draw`.
        points: as of `draw`.
        speed: how many times faster than real time.

    Returns:
        Matplotlib's `FuncAnimation`: `animation.save("motion.gif")` writes it to a file.
    """
    from matplotlib.animation import FuncAnimation

    sketch = _Sketch(system, ax, points)
    times = np.asarray(solution.ts)
    sketch.frame(np.concatenate([sketch.places(solution.state(i)) for i in range(len(times))]))

    def show(i: int) -> list[Any]:
        sketch.ax.set_title(f"t = {times[i]:.2f} s", fontsize=9)
        return sketch.show(solution.state(i))

    interval = 1e3 * (times[-1] - times[0]) / max(len(times) - 1, 1) / speed
    return FuncAnimation(sketch.ax.figure, show, frames=len(times), interval=interval, blit=False)


class _Sketch:
    """The artists of one mechanism in one pair of axes."""

    def __init__(self, system: System, ax: Any, points: bool):
        self.system, self.linkage, self.numbers = system, linkage_of(system), system.params
        self.dim = self.linkage.dim
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.figure().add_subplot(projection="3d" if self.dim == 3 else None)
        self.ax = ax
        self.lines = outlines(self.linkage, self.numbers)
        self.shapes = _shapes(self.linkage, self.numbers, points, set(self.lines))
        self.joints = _joints(self.linkage, self.numbers)
        self.springs = [f for f in self.numbers.forces if isinstance(f, SpringDamper)]
        self.artists: list[Any] = []
        self._motion = jax.jit(lambda state, numbers: self.linkage.motion(state.t, state.q, state.v, numbers))

    def places(self, state: State) -> np.ndarray:
        """All points in the world."""
        motion = self._motion(state, self.numbers)
        poses = np.asarray(motion.poses)
        ends = [np.asarray(motion.position(end))[None] for force in self.springs for end in (force.a, force.b)]
        found = [*ends] + [_moved(poses[body], shape) for body, shape in self.shapes.items() if len(shape)]
        found += [_moved(poses[body], line) for body, lines in self.lines.items() for line, _ in lines]
        return np.concatenate([*found, *(_moved(poses[body], point[None]) for *_, body, point in self.joints)])

    def frame(self, places: np.ndarray) -> None:
        """Equal scales, and room for all places."""
        centre, half = (places.max(axis=0) + places.min(axis=0)) / 2, 0.55 * np.ptp(places, axis=0).max() or 1.0
        limits = [(c - half, c + half) for c in centre]
        for set_limits, limit in zip((self.ax.set_xlim, self.ax.set_ylim), limits, strict=False):
            set_limits(limit)
        if self.dim == 3:
            self.ax.set_zlim(limits[2])
            self.ax.set_box_aspect((1, 1, 1))
            self.ax.set_zlabel("z in m")
        else:
            self.ax.set_aspect("equal")
        self.ax.set_xlabel("x in m")
        self.ax.set_ylabel("y in m")

    def show(self, state: State) -> list[Any]:
        """Draws the state in place of the one before."""
        for artist in self.artists:
            artist.remove()
        motion = self._motion(state, self.numbers)
        poses = np.asarray(motion.poses)
        self.artists = []
        for body, shape in self.shapes.items():
            if len(shape):
                self._body(body, _moved(poses[body], shape))
        for body, lines in self.lines.items():
            for line, is_filled in lines:
                self._line(body, _moved(poses[body], line), is_filled)
        for force in self.springs:
            self._spring(np.asarray(motion.position(force.a)), np.asarray(motion.position(force.b)))
        for _, grounded, body, point in self.joints:
            place = _moved(poses[body], point[None])
            marker = {"marker": "s", "color": GROUND_COLOUR} if grounded else {"marker": "o", "color": JOINT_COLOUR}
            self.artists += self.ax.plot(
                *place.T, linestyle="", markersize=5, markerfacecolor="white", zorder=3, **marker
            )
        return self.artists

    def judge(self, state: State, report: ReactionReport) -> None:
        """Names the joints, in the colour of their verdict."""
        poses = np.asarray(self._motion(state, self.numbers).poses)
        groups: dict[tuple[float, ...], list[str]] = {}
        for name, _, body, point in self.joints:
            groups.setdefault(tuple(np.round(_moved(poses[body], point[None])[0], 6)), []).append(name)
        for i, (place, here) in enumerate(sorted(groups.items())):
            trusted = [report.groups[name].unique for name in here]
            colour = TRUSTED if all(trusted) else UNTRUSTED
            self.ax.plot(*np.array([place]).T, linestyle="", marker="o", markersize=9, color=colour, zorder=4)
            label = ", ".join(name if unique else f"{name}?" for name, unique in zip(here, trusted, strict=True))
            text = {"color": colour, "fontsize": 9, "zorder": 5, "fontweight": "bold"}
            if self.dim == 3:
                self.ax.text(*place, f"  {label}", **text)
            else:  # neighbours on different sides, so that they do not hide each other
                x, y, side = ((4, 6, "left"), (-4, -14, "right"), (4, -14, "left"), (-4, 6, "right"))[i % 4]
                self.ax.annotate(label, place, xytext=(x, y), textcoords="offset points", ha=side, **text)
        for unique, colour, text in ((True, TRUSTED, "determined"), (False, UNTRUSTED, "not determined (?)")):
            if unique in [v.unique for v in report.groups.values()]:
                self.ax.plot([], [], linestyle="", marker="o", color=colour, label=f"reaction {text}")
        self.ax.legend(fontsize=8, loc="best")

    def _line(self, body: int, line: np.ndarray, is_filled: bool) -> None:
        if is_filled and self.dim == 2:
            self.artists += self.ax.fill(*line.T, facecolor=_colour(body), alpha=0.25)
        self.artists += self.ax.plot(*line.T, color=_colour(body), linewidth=2.5 if len(line) == 2 == self.dim else 1.2)

    def _body(self, body: int, shape: np.ndarray) -> None:
        colour = _colour(body)
        if body == 0:
            self.artists += self.ax.plot(*shape.T, linestyle="", marker="s", markersize=4, color=colour)
        elif len(shape) == 1:
            self.artists += self.ax.plot(*shape.T, linestyle="", marker="o", color=colour)
        elif self.dim == 2 and len(shape) > 2:
            outline = _round(shape)
            self._line(body, np.concatenate([outline, outline[:1]]), True)
        else:
            pairs = [(i, j) for i in range(len(shape)) for j in range(i)]
            for i, j in pairs:
                self.artists += self.ax.plot(*shape[[i, j]].T, color=colour, linewidth=2.5 if len(shape) == 2 else 1.2)

    def _spring(self, a: np.ndarray, b: np.ndarray) -> None:
        along = np.linspace(0, 1, 26)
        line = a + along[:, None] * (b - a)
        if self.dim == 2:
            side = np.where((along > 0.15) & (along < 0.85), 0.04 * (-1.0) ** np.arange(26), 0)
            line = line + side[:, None] * np.array([-(b - a)[1], (b - a)[0]])
        self.artists += self.ax.plot(*line.T, color=SPRING_COLOUR, linewidth=1)


def _colour(body: int) -> str:
    return GROUND_COLOUR if body == 0 else f"C{(body - 1) % 10}"


def _moved(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ pose[:-1, :-1].T + pose[:-1, -1]


def _frames(linkage: AbstractLinkage, numbers: Numbers) -> list[tuple[int, np.ndarray]]:
    """Body and place of the frames of every joint and connection; of a knife edge or a rolling contact that of B only."""
    found = []
    for group, frames in zip(linkage.skeleton.groups, numbers.frames, strict=True):
        for i, (a, b) in enumerate(zip(group.a, group.b, strict=True)):
            found += [(b, frames.b[i])] if group.kind.nonholonomic else [(a, frames.a[i]), (b, frames.b[i])]
    return [(body, np.asarray(frame)[:-1, -1]) for body, frame in found]


def _joints(linkage: AbstractLinkage, numbers: Numbers) -> list[tuple[str, bool, int, np.ndarray]]:
    """Of each connection its name, whether it is on the ground, and body and place of B."""
    return [
        (name, group.a[i] == 0 or group.b[i] == 0, group.b[i], np.asarray(frames.b[i])[:-1, -1])
        for group, frames in zip(linkage.skeleton.groups, numbers.frames, strict=True)
        for i, name in enumerate(group.names)
    ]


def _shapes(linkage: AbstractLinkage, numbers: Numbers, points: bool, known: set[int]) -> dict[int, np.ndarray]:
    """The local places through which each body is drawn of which no shape is known."""
    places: dict[int, list[np.ndarray]] = {b: [] for b in range(len(linkage.bodies) + 1) if b not in known}
    for body, place in _frames(linkage, numbers):
        if body in places:
            places[body].append(place)
    if points:
        for name, local in zip(linkage.skeleton.points, np.asarray(numbers.points), strict=True):
            body = ("ground", *linkage.bodies).index(name.partition(".")[0])
            if body in places:
                places[body].append(local[:-1, -1])
    for body, inertia in enumerate(np.asarray(numbers.inertia)):
        if body + 1 in places and len(places[body + 1]) < 2:  # at least its centre of mass
            places[body + 1].append(inertia[:-1, -1] / max(inertia[-1, -1], 1e-30))
    return {
        body: np.unique(np.round(found, 9), axis=0) if found else np.zeros((0, linkage.dim))
        for body, found in places.items()
    }


def _round(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull of points in the plane, in order."""
    ordered = points[np.lexsort(points.T[::-1])]

    def half(points: np.ndarray) -> list[np.ndarray]:
        hull: list[np.ndarray] = []
        for p in points:
            while len(hull) > 1 and _turn(hull[-2], hull[-1], p) <= 0:
                hull.pop()
            hull.append(p)
        return hull[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
