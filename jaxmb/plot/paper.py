"""Pieces brought to axes of matplotlib."""

from typing import TYPE_CHECKING

import numpy as np

from .colour import GUIDE
from .primitive import Primitive
from .solid import TINY, close
from .view import View

if TYPE_CHECKING:
    import matplotlib.artist
    import matplotlib.axes
    import matplotlib.path

# A piece and its loops on paper.
PaperPiece = tuple[Primitive, tuple[np.ndarray, ...]]
HEAD = 1.8  # length of an arrow head, in sizes of symbols
BESIDE = 6.0  # from the tip of an axis of the world to the middle of its name, in points
STRIP, STRIP_WIDTH = 0.3, 1.1  # height and width of what is below a view in perspective, in radii of what is seen
ROUND = np.linspace(0, 2 * np.pi, 13)[:-1]


def paint(
    ax: "matplotlib.axes.Axes", view: View, pieces: list[Primitive], size: float
) -> "list[matplotlib.artist.Artist]":
    """Draws pieces, one collection of paths for all that follow each other in one element, with its name as `gid`.

    Args:
        ax: axes of matplotlib.
        view: how they are seen.
        pieces: of the scene.
        size: of the symbols, in m.
    """
    from matplotlib.collections import PathCollection

    artists = []
    runs = _runs(view, pieces, size)
    for i, run in enumerate(runs):
        seams = 0.0 if view.axes is None else 0.5  # neighbouring faces must not show a gap
        artist = PathCollection(
            [_path(loops, piece.fills) for piece, loops in run],
            facecolors=[piece.colour if piece.fills else "none" for piece, _ in run],
            edgecolors=[piece.rim or ("none" if piece.fills and not seams else piece.colour) for piece, _ in run],
            linewidths=[seams if piece.fills and piece.rim is None else piece.width for piece, _ in run],
            zorder=2 + i / len(runs),
            gid=run[0][0].name,
            capstyle="round",
            joinstyle="round",
        )
        artists.append(ax.add_collection(artist, autolim=False))
    return artists


def measures(ax: "matplotlib.axes.Axes", view: View, corner: np.ndarray) -> None:
    """The axes of the world and a bar of known length, at the depth of the centre, in a strip below a view in perspective.

    Args:
        ax: axes of matplotlib.
        view: how the mechanism is seen.
        corner: of the strip, lower left (2,).
    """
    assert view.axes is not None  # of space
    unit, style = STRIP * view.radius, {"color": GUIDE, "fontsize": 8, "ha": "center"}
    origin = corner + unit * np.array([0.5, 0.4])
    for name, direction in zip("xyz", view.axes.T[:, :2], strict=True):
        tip = 0.5 * unit * direction
        ax.plot(*np.stack([origin, origin + tip], axis=1), color=GUIDE, linewidth=1.2, solid_capstyle="round")
        # Beside the tip by half a letter and more, however small the picture is.
        offset = BESIDE * direction / max(float(np.linalg.norm(direction)), TINY)
        ax.annotate(name, origin + tip, xytext=offset, textcoords="offset points", va="center", **style)
    ends = corner + unit * np.array([[1.9, 0.25], [1.9, 0.25]])
    ends[1, 0] += (length := _round_length(0.5 * view.radius))
    ax.plot(*ends.T, color=GUIDE, linewidth=2.0, solid_capstyle="butt")
    x, y = ends.mean(axis=0)
    ax.text(x, y + 0.06 * unit, f"{length:g} m", va="bottom", **style)


def _round_length(longest: float) -> float:
    """The longest of 1, 2, 5, 10, … that is not longer."""
    power = 10.0 ** np.floor(np.log10(longest))
    return max(x * power for x in (1.0, 2.0, 5.0) if x * power <= longest)


def _runs(view: View, pieces: list[Primitive], size: float) -> list[list[PaperPiece]]:
    """Pieces from the far ones to the near ones, those of one element that follow each other together."""
    runs: list[list[PaperPiece]] = []
    for piece, flat in view.sorted(pieces):
        if not runs or runs[-1][-1][0].name != piece.name:
            runs.append([])
        runs[-1] += _parts(piece, flat, size)
    return runs


def _parts(piece: Primitive, flat: tuple[np.ndarray, ...], size: float) -> list[PaperPiece]:
    """The piece itself, a dot as a small disk, an arrow with its heads."""
    points = flat[0]
    if len(points) == 1:
        dot = points + 0.4 * size * np.stack([np.cos(ROUND), np.sin(ROUND)], axis=1)
        return [(piece._replace(fills=True), (dot,))]
    parts = [(piece, flat)]
    length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
    # A short arrow keeps at least half of its shaft.
    head = min(HEAD * size, 0.5 * length)
    for i in range(piece.heads if length > 1e-3 * size else 0):
        tip, back = points[-1], points[-2]
        direction = (tip - back) / max(float(np.linalg.norm(tip - back)), TINY)
        tip = tip - 0.8 * i * head * direction
        side = 0.4 * head * np.array([-direction[1], direction[0]])
        corners = np.stack([tip, tip - head * direction + side, tip - head * direction - side])
        parts.append((piece._replace(fills=True), (corners,)))
    return parts


def _path(loops: tuple[np.ndarray, ...], fills: bool) -> "matplotlib.path.Path":
    from matplotlib.path import Path

    if not fills:
        return Path(loops[0])
    codes = [[Path.MOVETO, *[Path.LINETO] * (len(loop) - 1), Path.CLOSEPOLY] for loop in loops]
    # The hole runs the other way round, so that it is not filled.
    rings = [close(loop if i == 0 else loop[::-1]) for i, loop in enumerate(loops)]
    return Path(np.concatenate(rings), np.concatenate(codes))
