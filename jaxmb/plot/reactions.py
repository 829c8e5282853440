"""Reactions as arrows to scale, and joints in the colours of their verdicts."""

from typing import Any, NamedTuple

import numpy as np

from ..output import Wrench
from ..reaction import ReactionReport
from .colour import BLACK, BLUE, PINK, RED
from .primitive import Primitive
from .symbols import arc

TRUSTED, UNTRUSTED, FORCE, TORQUE = BLUE, RED, BLACK, PINK
# Large enough to be compared, small enough not to leave the picture.
LONGEST, WIDEST = 0.25, 0.08  # arrows, and radii of arcs, in sizes of the mechanism
SMALL = 1e-6  # parts of the largest reaction that are not drawn
ROUNDING = 1e-9  # a power of ten that log10 misses by rounding is still that power


class ReactionArrows(NamedTuple):
    """Forces (k, n, d) and torques (k, n, 1 or 3) of n joints on the bodies of B at points (k, n, d), at k instants.

    Attributes:
        names: of the joints.
        force_scale: newtons for each metre of an arrow.
        torque_scale: newton metres for each metre: of an arrow in space, of an arc's radius in the plane.
        least: of a force, and of a torque, that is drawn.
    """

    names: tuple[str, ...]
    forces: np.ndarray
    torques: np.ndarray
    points: np.ndarray
    force_scale: float
    torque_scale: float
    least: tuple[float, float]

    @property
    def tips(self) -> np.ndarray:
        """The ends of all arrows (…, d)."""
        ends = self.points + self.forces / self.force_scale
        if ends.shape[-1] == 3:
            ends = np.concatenate([ends, self.points + self.torques / self.torque_scale])
        return ends.reshape(-1, ends.shape[-1])

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Colours and what they mean."""
        arc_or_arrow = "1 m" if self.points.shape[-1] == 3 else "1 m of radius"
        scales = (
            (self.forces, FORCE, f"force: 1 m is {self.force_scale:g} N"),
            (self.torques, TORQUE, f"torque: {arc_or_arrow} is {self.torque_scale:g} N m"),
        )
        return [(colour, text) for i, (x, colour, text) in enumerate(scales) if self._is_visible(x, i).any()]

    def pieces(self, i: int, small: bool = False) -> list[Primitive]:
        """The arrows at an instant, without those that are too small to be seen unless `small`."""
        primitives = []
        for k, name in enumerate(self.names):
            point, force, torque = self.points[i, k], self.forces[i, k], self.torques[i, k]
            if small or self._is_visible(force, 0):
                arrow = np.stack([point, point + force / self.force_scale])
                primitives.append(Primitive(f"{name} force", (arrow,), FORCE, width=2.0, heads=1, layer=1))
            if small or self._is_visible(torque, 1):
                arrow = _turning(point, torque / self.torque_scale)
                primitives.append(
                    Primitive(f"{name} torque", (arrow,), TORQUE, width=2.0, heads=len(point) - 1, layer=1)
                )
        return primitives

    def _is_visible(self, vectors: np.ndarray, kind: int) -> Any:
        return np.linalg.norm(vectors, axis=-1) > self.least[kind]


def reaction_arrows(wrenches: dict[str, Wrench], size: float) -> ReactionArrows:
    """The arrows of wrenches at several instants, to a scale that suits a mechanism of some size."""
    forces, torques, points = (
        np.stack([np.asarray(getattr(wrench, part)) for wrench in wrenches.values()], axis=1)
        for part in ("force", "torque", "point")
    )
    force, torque = (float(np.nanmax(np.linalg.norm(x, axis=-1), initial=0.0)) for x in (forces, torques))
    # Forces and torques are compared by the size of the mechanism: a torque of rounding is no torque.
    least = SMALL * max(force, torque / size)
    reach = LONGEST if points.shape[-1] == 3 else WIDEST
    scales = _round(force / (LONGEST * size)), _round(torque / (reach * size))
    return ReactionArrows(
        names=tuple(wrenches),
        forces=forces,
        torques=torques,
        points=points,
        force_scale=scales[0],
        torque_scale=scales[1],
        least=(least, least * size),
    )


def verdicts(report: ReactionReport) -> dict[str, str]:
    """The colour of each joint."""
    return {name: TRUSTED if verdict.unique else UNTRUSTED for name, verdict in report.groups.items()}


def verdict_legend(colours: dict[str, str]) -> list[tuple[str, str]]:
    """The colours of verdicts that joints have, and what they mean."""
    meanings = ((TRUSTED, "determined"), (UNTRUSTED, "not determined (?)"))
    return [(colour, f"reaction {text}") for colour, text in meanings if colour in colours.values()]


def _turning(at: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Along the torque in space; in the plane an arc with its sense."""
    if len(at) == 3:
        return np.stack([at, at + vector])
    pose = np.eye(3)
    pose[:2, 2] = at
    return arc(pose, abs(float(vector[0])))[:: 1 if vector[0] > 0 else -1]


def _round(value: float) -> float:
    """The next one of 1, 2, 5, 10 and so on."""
    if not value:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * next(x for x in (1, 2, 5, 10) if x * power >= value * (1 - ROUNDING)))
