"""Mechanisms drawn and animated."""

from typing import Any

import jax
import numpy as np

from ..mechanism import SpringDamper, linkage_of
from ..reaction import ReactionReport
from ..simulation import Solution
from ..system import State, System
from .outline import Line, guides, joints, lines_of_bodies, moved

TRUSTED, UNTRUSTED = "tab:blue", "tab:red"
GROUND_COLOUR, JOINT_COLOUR, SPRING_COLOUR, GUIDE_COLOUR = "0.35", "black", "tab:green", "0.55"
SLEEVE = 0.55  # part of a slider's way that is drawn as its sleeve


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
        self.bodies = lines_of_bodies(self.linkage, self.numbers, points)
        self.joints = joints(self.linkage, self.numbers)
        self.guides = guides(self.linkage, self.numbers)
        self.springs = [f for f in self.numbers.forces if isinstance(f, SpringDamper)]
        self.artists: list[Any] = []
        self._motion = jax.jit(lambda state, numbers: self.linkage.motion(state.t, state.q, state.v, numbers))

    def places(self, state: State) -> np.ndarray:
        """All points in the world."""
        motion = self._motion(state, self.numbers)
        poses = np.asarray(motion.poses)
        ends = [np.asarray(motion.position(end))[None] for force in self.springs for end in (force.a, force.b)]
        found = [*ends] + [
            moved(pose, line.points) for pose, lines in zip(poses, self.bodies, strict=True) for line in lines
        ]
        return np.concatenate([*found, *(moved(poses[joint.body], joint.place[None]) for joint in self.joints)])

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
        for body, lines in enumerate(self.bodies):
            for line in lines:
                self._line(body, line, moved(poses[body], line.points))
        for guide in self.guides:
            ends = np.stack([moved(poses[b], p[None])[0] for b, p in zip(guide.bodies, guide.places, strict=True)])
            self.artists += self.ax.plot(
                *ends.T, color=GUIDE_COLOUR, linewidth=1.5 if guide.slides else 2.5, zorder=1.5
            )
            if guide.slides:
                sleeve = np.stack([ends[0], ends[0] + SLEEVE * (ends[1] - ends[0])])
                self.artists += self.ax.plot(*sleeve.T, color=GUIDE_COLOUR, linewidth=5, alpha=0.6, zorder=1.5)
        for force in self.springs:
            self._spring(np.asarray(motion.position(force.a)), np.asarray(motion.position(force.b)))
        for joint in self.joints:
            place = moved(poses[joint.body], joint.place[None])
            marker = (
                {"marker": "s", "color": GROUND_COLOUR} if joint.is_grounded else {"marker": "o", "color": JOINT_COLOUR}
            )
            self.artists += self.ax.plot(
                *place.T, linestyle="", markersize=5, markerfacecolor="white", zorder=3, **marker
            )
        return self.artists

    def judge(self, state: State, report: ReactionReport) -> None:
        """Names the joints, in the colour of their verdict."""
        poses = np.asarray(self._motion(state, self.numbers).poses)
        groups: dict[tuple[float, ...], list[str]] = {}
        for joint in self.joints:
            place = moved(poses[joint.body], joint.place[None])[0]
            groups.setdefault(tuple(np.round(place, 6)), []).append(joint.name)
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

    def _line(self, body: int, line: Line, places: np.ndarray) -> None:
        colour = _colour(body)
        if len(places) == 1:
            marker = {"marker": "s", "markersize": 4} if body == 0 else {"marker": "o"}
            self.artists += self.ax.plot(*places.T, linestyle="", color=colour, **marker)
            return
        if line.is_filled and self.dim == 2:
            self.artists += self.ax.fill(*places.T, facecolor=colour, alpha=0.25)
        self.artists += self.ax.plot(*places.T, color=colour, linewidth=1.2 if line.is_thin or line.is_filled else 2.5)

    def _spring(self, a: np.ndarray, b: np.ndarray) -> None:
        along = np.linspace(0, 1, 26)
        line = a + along[:, None] * (b - a)
        if self.dim == 2:
            side = np.where((along > 0.15) & (along < 0.85), 0.04 * (-1.0) ** np.arange(26), 0)
            line = line + side[:, None] * np.array([-(b - a)[1], (b - a)[0]])
        self.artists += self.ax.plot(*line.T, color=SPRING_COLOUR, linewidth=1)


def _colour(body: int) -> str:
    return GROUND_COLOUR if body == 0 else f"C{(body - 1) % 10}"
