"""Mechanisms drawn and animated."""

import os
import pathlib
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from ..foundations import Positive, contract, expect_concrete, folder_there, replacing
from ..output import Wrench, joint_reactions
from ..reaction import ReactionReport, analyse_reactions
from ..simulation import Solution
from ..system import State, System, check_state
from .paper import STRIP, STRIP_WIDTH, measures, paint
from .reactions import TRUSTED, UNTRUSTED, ReactionArrows, reaction_arrows, verdict_legend, verdicts
from .scene import SIZE, Scene
from .snapshot import Snapshot, Trajectory, reached_times
from .solid import TINY
from .view import View, view_kinds

Tree = TypeVar("Tree", bound=PyTree)
# Half a symbol and a label beside it must not be cut off.
MARGIN = 5.0  # around what is seen, in sizes of symbols
FONT = 8  # size of labels in points
LETTER = 0.6, 1.2  # width and height of a letter with its margins, in sizes of the font


@contract
def draw(
    system: System,
    state: State,
    ax: object = None,
    points: bool = True,
    report: ReactionReport | None = None,
    *,
    view: str | tuple[float, float] | None = None,
    forces: bool | dict[str, Wrench] = False,
    symbols: Positive = SIZE,
) -> Any:
    """Draws a mechanism at a state.

    Bodies are drawn by their shapes, or else as lines through their joints and points; wheels have spokes. Sliders are rods with sleeves, springs
    keep their number of coils, drivers and actuators have an arrow and their name, and the ground is hatched. Each
    collection of the axes has the element's name as its `gid`.

    Args:
        system: built from a mechanism.
        state: a single state.
        ax: plain axes of matplotlib, or four of them for `view="three"`; made if None.
        points: whether bodies without a shape are drawn through their named points too.
        report: of `analyse_reactions`; then joints are named, those whose reactions are determined in one colour and others in another.
        view: of a mechanism in space: "perspective" (by default), "front", "side", "top", "three" for all of these, or azimuth and
            elevation in degrees.
        forces: whether the force and torque that each joint exerts on its body B are drawn, in the plane a torque as an arc; or
            what `joint_reactions` found. The legend gives the scales. Joints have the colours of `report`, which is made
            if it is None.
        symbols: size of hinges, springs, arrows and the like, in sizes of the mechanism.

    Returns:
        The axes; of `view="three"` an array of four.

    Raises:
        TypeError: for traced numbers.
        ValueError: for a batch, for a state of another system, for a view that is not known, and for axes that do not fit.
    """
    expect_concrete(system=system, state=state)
    check_state(system, state)
    sketch = _Sketch(system, ax, points, view, symbols)
    trajectory = sketch.scene.trajectory(jax.tree.map(lambda x: x[None], state))
    if forces is not False:
        wrenches = joint_reactions(system, state, warn=False) if forces is True else forces
        sketch.load(jax.tree.map(lambda x: x[None], wrenches), trajectory)
    if report is not None or forces is not False:
        sketch.judge(analyse_reactions(system, state) if report is None else report)
    sketch.frame(trajectory)
    sketch.show(trajectory, 0)
    if report is not None:
        sketch.name(trajectory.poses[0], report)
    return sketch.axes if view == "three" else sketch.axes[0]


@contract
def animate(
    system: System,
    solution: Solution,
    path: str | os.PathLike[str] | None = None,
    ax: object = None,
    points: bool = True,
    speed: Positive = 1.0,
    *,
    view: str | tuple[float, float] | None = None,
    forces: bool | dict[str, Wrench] = False,
    symbols: Positive = SIZE,
) -> Any:
    """An animation of a solution at its saved times, which should be evenly spaced.

    Args:
        system: built from a mechanism.
        solution: a single motion; times that were not reached are left out.
        path: of a file to write, ".gif" or ".mp4", which needs the program ffmpeg; none by default.
        ax: as in `draw`.
        points: as in `draw`.
        speed: how many times faster than real time.
        view: as in `draw`.
        forces: as in `draw`, with one scale for all times; the colours are those of the first.
        symbols: as in `draw`.

    Returns:
        Matplotlib's `FuncAnimation`.

    Raises:
        ValueError: as in `draw`, for a run that did not get beyond its start, and for a file of another kind.
        RuntimeError: for ".mp4" without ffmpeg.
    """
    from matplotlib.animation import FuncAnimation

    file = None if path is None else pathlib.Path(path)
    writer = None if file is None else _writer(folder_there(file, "path"))
    expect_concrete(system=system, solution=solution)
    indices = reached_times(solution)
    sketch = _Sketch(system, ax, points, view, symbols)
    times, trajectory = np.asarray(solution.ts)[indices], sketch.scene.trajectory(_at_times(solution.states, indices))
    if forces is not False:
        wrenches = joint_reactions(system, solution, warn=False, throw=False) if forces is True else forces
        sketch.load(_at_times(wrenches, indices), trajectory)
        sketch.judge(analyse_reactions(system, solution.state(0)))
    sketch.frame(trajectory)

    def show(i: int) -> list[Any]:
        sketch.axes[0].set_title(f"t = {times[i]:.2f} s", fontsize=9)
        return sketch.show(trajectory, i)

    # Matplotlib's intervals are constant; saved times are asked to be.
    interval = 1e3 * (times[-1] - times[0]) / max(len(times) - 1, 1) / speed
    figure = sketch.axes[0].figure
    movie = FuncAnimation(figure, show, frames=len(times), interval=interval, blit=False)
    if file is not None and writer is not None:
        with replacing(file) as fresh:
            movie.save(fresh, writer=writer(fps=1e3 / interval if interval else 1))
    return movie


def _at_times(tree: Tree, indices: np.ndarray) -> Tree:
    """At the times that were reached."""
    return jax.tree.map(lambda x: x[indices], tree)


def _writer(path: pathlib.Path) -> Any:
    """Matplotlib's writer of a kind of file."""
    from matplotlib.animation import FFMpegWriter, PillowWriter

    writers = {".gif": PillowWriter, ".mp4": FFMpegWriter}
    if path.suffix not in writers:
        raise ValueError(
            f"Argument `path` must end in .gif or .mp4, but is '{path}'; a page is made by `jaxmb.plot.page`."
        )
    if not writers[path.suffix].isAvailable():
        raise RuntimeError(f"Argument `path` must end in .gif where ffmpeg is not installed, but is '{path}'.")
    return writers[path.suffix]


class _Sketch:
    """The artists of one mechanism in its axes."""

    def __init__(self, system: System, ax: object, points: bool, view: object, symbols: float):
        self.scene = Scene(system, points, symbols)
        self.view_kinds = view_kinds(view, self.scene.dim)
        self.axes, self.is_own = _axes(ax, len(self.view_kinds)), ax is None
        self.arrows: ReactionArrows | None = None
        self.legend: list[tuple[str, str, str]] = []
        self.artists: list[Any] = []

    def load(self, wrenches: dict[str, Wrench], trajectory: Trajectory) -> None:
        """Takes reactions at all instants."""
        self.scene.frame(trajectory)
        self.arrows = reaction_arrows(wrenches, 2 * self.scene.radius)
        self.legend += [(colour, "$\\rightarrow$", text) for colour, text in self.arrows.legend]

    def judge(self, report: ReactionReport) -> None:
        """Gives joints the colours of their verdicts."""
        self.scene.colours = verdicts(report)
        self.legend += [(colour, "o", text) for colour, text in verdict_legend(self.scene.colours)]

    def frame(self, trajectory: Trajectory) -> None:
        """Equal scales, and room for everything at all instants."""
        extent = self.scene.frame(trajectory)
        if self.arrows is not None:
            tips = self.arrows.tips
            # Arrows of motions that failed may be NaN, which would make axes of them.
            extent = np.concatenate([extent, tips[np.isfinite(tips).all(axis=1)]])
        self.views = [View(kind, self.scene.centre, self.scene.radius) for kind in self.view_kinds]
        for ax, view in zip(self.axes, self.views, strict=True):
            flat, _ = view.projected(extent)
            ends = flat.min(axis=0) - MARGIN * self.scene.size, flat.max(axis=0) + MARGIN * self.scene.size
            if not view.is_flat:  # what hangs, or turns about one point, is narrower than the strip below it
                missing = max(0.0, STRIP_WIDTH * self.scene.radius - float(ends[1][0] - ends[0][0]))
                ends = ends[0] - np.array([missing / 2, 0.0]), ends[1] + np.array([missing / 2, 0.0])
            ax.set(xlim=(ends[0][0], ends[1][0]), ylim=(ends[0][1], ends[1][1]), aspect="equal")
            ax.set(xlabel=view.labels[0], ylabel=view.labels[1])
            if not view.is_flat:
                corner = ends[0] - np.array([0.0, STRIP * self.scene.radius])
                ax.set_ylim(corner[1], ends[1][1])
                ax.set_axis_off()
                measures(ax, view, corner)
            if len(self.axes) > 1:
                ax.set_title(str(view.kind), fontsize=9)
        self._explain()

    def show(self, trajectory: Trajectory, i: int) -> list[Any]:
        """Draws an instant in place of the one before."""
        for artist in self.artists:
            artist.remove()
        now = self.scene.at(trajectory, i)
        pieces = self.scene.pieces(now) + ([] if self.arrows is None else self.arrows.pieces(i))
        self.artists = []
        for ax, view in zip(self.axes, self.views, strict=True):
            self.artists += paint(ax, view, pieces, self.scene.size)
            if len(self.views) == 1 or not view.is_flat:  # once for all views
                self.artists += self._labels(ax, view, now)
        return self.artists

    def _labels(self, ax: Any, view: View, now: Snapshot) -> list[Any]:
        """The names of what moves the mechanism or loads it, beside the tips of their arrows and clear of each other."""
        artists, placed = [], np.zeros((0, 2, 2))
        # Of the axes as they are before the layout of the figure, which makes them no larger: in m a point of the font.
        point = ax.figure.dpi / 72 / np.abs(np.diff(ax.transData.transform([[0, 0], [1, 1]]), axis=0)).min()
        for name, arrow in self.scene.arrows(now).items():
            flat, _ = view.projected(arrow)
            direction = flat[-1] - flat.mean(axis=0)
            position = flat[-1] + self.scene.size * direction / max(float(np.linalg.norm(direction)), TINY)
            is_right, is_up = direction >= 0
            size = point * FONT * np.array([LETTER[0] * len(name), LETTER[1]])
            corner = position - np.where([is_right, is_up], 0.0, size)
            moves = size * np.array([[0, row] for row in (0, 1, -1, 2, -2, 3, -3)])
            boxes = np.stack([corner + moves, corner + moves + size], axis=1)
            meets = (boxes[:, None, 0] < placed[None, :, 1]) & (placed[None, :, 0] < boxes[:, None, 1])
            free = int(np.argmin([bool(row.all(axis=-1).any()) for row in meets]))
            placed = np.concatenate([placed, boxes[free : free + 1]])
            style = {"ha": "left" if is_right else "right", "va": "bottom" if is_up else "top", "fontsize": FONT}
            artists.append(ax.text(*(position + moves[free]), name, zorder=4, **style))
        return artists

    def name(self, poses: np.ndarray, report: ReactionReport) -> None:
        """Names the joints, in the colour of their verdict."""
        # Joints at one point, such as three rods on one pin, share a label.
        groups: dict[tuple[float, ...], list[str]] = {}
        for link in self.scene.links:
            position = (poses[link.bodies[1]] @ link.frames[1])[:-1, -1]
            groups.setdefault(tuple(np.round(position, 6)), []).append(link.name)
        for i, (position, names) in enumerate(sorted(groups.items())):
            trusted = [report.groups[name].unique for name in names]
            label = ", ".join(name if unique else f"{name}?" for name, unique in zip(names, trusted, strict=True))
            # Neighbours on different sides, so that they do not hide each other.
            x, y, side = ((4, 6, "left"), (-4, -14, "right"), (4, -14, "left"), (-4, 6, "right"))[i % 4]
            style = {"color": TRUSTED if all(trusted) else UNTRUSTED, "fontsize": 9, "fontweight": "bold", "ha": side}
            for ax, view in zip(self.axes, self.views, strict=True):
                at = view.projected(np.array([position]))[0][0]
                ax.annotate(label, at, xytext=(x, y), textcoords="offset points", zorder=5, **style)

    def _explain(self) -> None:
        from matplotlib.lines import Line2D

        if not self.legend:
            return
        entries = [
            Line2D([], [], color=colour, marker=marker, markersize=7 if marker == "o" else 13, linestyle="", label=text)
            for colour, marker, text in self.legend
        ]
        if self.is_own:
            self.axes[0].figure.legend(handles=entries, loc="outside lower center", ncols=2, fontsize=8)
        else:
            self.axes[0].legend(handles=entries, loc="best", fontsize=8)


def _axes(ax: object, count: int) -> np.ndarray:
    """The given axes, or new ones, (count,)."""
    if ax is None:
        import matplotlib.pyplot as plt

        size = (6.4, 4.8) if count == 1 else (9.0, 7.5)
        return np.ravel(plt.figure(figsize=size, layout="constrained").subplots(*((1, 1) if count == 1 else (2, 2))))
    axes = np.ravel(np.asarray(ax, object))
    if not all(hasattr(one, "add_artist") for one in axes):
        raise TypeError(f"Argument `ax` must be axes of matplotlib, but is {ax!r}.")
    if len(axes) != count:
        raise ValueError(f"Argument `ax` must hold {count} axes for this view, but holds {len(axes)}.")
    if any(hasattr(one, "get_zlim") for one in axes):
        raise ValueError("Argument `ax` must be plain axes, but is three-dimensional; `view` says how to look at it.")
    return axes
