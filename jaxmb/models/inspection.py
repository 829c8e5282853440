"""An inspection of a model: doubtful numbers, closure of loops, freedom, redundancy and reactions at a pose."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..foundations import TextInNotebooks, contract, listing
from ..kinematics import Diagnosis, MotionCurve, diagnose, trace_motion
from ..mechanism import AbstractBody, AbstractMechanism
from ..reaction import ReactionReport, analyse_reactions
from ..system import System, residuals
from .model import Model, keyframe

# Beyond these ratios a number is reported as doubtful. Masses of one machine seldom differ by a million, while grams for kilograms
# and mm for m in an inertia make a thousand or a million. A radius of gyration of ten times the whole mechanism has such a reason.
MASS_RATIO, GYRATION_RATIO = 1e6, 10.0


@dataclasses.dataclass(frozen=True)
class BodyReport:
    """A body in figures.

    Attributes:
        name: its name.
        mass: in kg.
        moments: principal moments of inertia about the centre of mass, rising: one in the plane, three in space.
        doubts: sentences about doubtful numbers.
    """

    name: str
    mass: float
    moments: tuple[float, ...]
    doubts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Inspection(TextInNotebooks):
    """A model at one pose; `print` shows it, `to_dict` gives it as a dictionary.

    Attributes:
        model: the model.
        pose: the name of the pose; None for the one in which the file is drawn.
        changes: coordinates that take its place, by name.
        coordinates: the coordinates of the tree at the assembled pose, or as given where loops do not close.
        gaps: by name of each joint or relation that is a constraint, how far its rows are from zero at the pose as given, in m and rad.
        closed: whether loops close near that pose.
        failure: what `assemble` says where they do not.
        bodies: masses and inertias.
        diagnosis: degrees of freedom, redundancy and singularity at the assembled pose; None where loops do not close.
        reactions: which reactions are determined there; None likewise.
        range: the curve of all poses by the input that was asked for.
    """

    model: Model
    pose: str | None
    changes: dict[str, float]
    coordinates: dict[str, float]
    gaps: dict[str, float]
    closed: bool
    failure: str
    bodies: tuple[BodyReport, ...]
    diagnosis: Diagnosis | None
    reactions: ReactionReport | None
    range: MotionCurve | None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts about bodies, with their names."""
        return tuple(f"{body.name}: {doubt}" for body in self.bodies for doubt in body.doubts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dictionaries."""
        joints = {joint.name: type(joint).__name__ for joint in self.model.mechanism.joints}
        curve = self.range
        return {
            "model": self.model.to_dict(),
            "pose": self.pose,
            "changes": self.changes,
            "joints": joints,
            "coordinates": self.coordinates,
            "gaps": self.gaps,
            "closed": self.closed,
            "failure": self.failure,
            "bodies": [dataclasses.asdict(body) for body in self.bodies],
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_dict(),
            "reactions": None if self.reactions is None else self.reactions.to_dict(),
            "ranges": None if curve is None else {name: list(ends) for name, ends in curve.ranges.items()},
            "events": None if curve is None else [str(event) for event in curve.events],
        }

    def __str__(self) -> str:
        lines = [str(self.model), "", f"  {'body':<28}{'mass/kg':>12}   principal moments/(kg m²)"]
        for body in self.bodies:
            moments = " ".join(f"{x:.4g}" for x in body.moments)
            lines.append(f"  {body.name:<28}{body.mass:>12.5g}   {moments}")
        lines += [f"  looks wrong: {doubt}" for doubt in self.doubts]
        where = f"At pose '{self.pose}'" if self.pose else "At the pose in which the file is drawn"
        changes = ", ".join(f"{name} = {value:g}" for name, value in self.changes.items())
        lines += ["", f"{where}, with {changes}" if changes else where]
        lines += [f"  gap of {name:<24}{gap:.3g}" for name, gap in self.gaps.items()]
        if not self.closed:
            return "\n".join([*lines, f"  loops do not close near it: {self.failure}"])
        lines += ["", str(self.diagnosis), "", str(self.reactions)]
        return "\n".join([*lines, "", str(self.range)] if self.range is not None else lines)


@contract
def inspect(
    model: Model, pose: str | None = None, *, q: Mapping[str, Any] | None = None, input: str | None = None
) -> Inspection:
    """Reports problems of a model, and what it can do, at one pose.

    Args:
        model: the model.
        pose: name of a keyframe; the pose in which the file is drawn by default.
        q: values of further coordinates, by name: a guess for loops.
        input: name of a joint coordinate, for a mechanism with one degree of freedom: its range, dead centres and branch points are
            looked for, as in `jaxmb.trace_motion`.

    Raises:
        ValueError: for unknown names.

    Example:
        >>> import pathlib, tempfile, jaxmb as jm
        >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=1.0)
        >>> pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", "ground", "rod.a")])
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "pendulum.toml"
        >>> _ = path.write_text(pendulum.to_text())
        >>> found = jm.models.inspect(jm.load(path), q={"pivot": 0.3})
        >>> found.closed, found.diagnosis.freedom, found.bodies[0].mass
        (True, 1, 1.0)
    """
    system = model.build()
    guess = _guess(system, model, pose, q)
    values = {name: float(value) for name, value in (q or {}).items()}
    inspection = Inspection(
        model=model,
        pose=pose,
        changes=values,
        coordinates=dict(zip(system.coordinates, map(float, guess), strict=True)),
        gaps=_gaps(system, guess),
        closed=False,
        failure="",
        bodies=_bodies(model.mechanism),
        diagnosis=None,
        reactions=None,
        range=None,
    )
    try:
        # Loops that do not close are a result here, not an error: gaps at the guess tell which of them, and by how
        # much.
        state = model.assemble(system, pose, q)
    except ValueError as error:
        return dataclasses.replace(inspection, failure=str(error))
    return dataclasses.replace(
        inspection,
        coordinates=dict(zip(system.coordinates, np.asarray(state.q).tolist(), strict=True)),
        closed=True,
        diagnosis=diagnose(system, state),
        reactions=analyse_reactions(system, state),
        range=None if input is None else trace_motion(system, state, input),
    )


def _guess(system: System, model: Model, pose: str | None, q: Mapping[str, Any] | None) -> np.ndarray:
    """The coordinates of the guess, keyframe and own values.

    Raises:
        ValueError: for a pose or a coordinate that there is not.
    """
    coordinates = np.zeros(system.nq) if system.guess is None else np.array(system.guess)
    for name, value in (keyframe(model, pose) | dict(q or {})).items():
        if name in system.coordinates:
            coordinates[system.coordinates.index(name)] = value
        elif name in (q or {}):
            raise ValueError(
                f"Argument `q` must name coordinates out of {listing(system.coordinates)}, but names '{name}'."
            )
    return coordinates


def _gaps(system: System, guess: np.ndarray) -> dict[str, float]:
    """The length of each constraint's position rows."""
    if not system.m:
        return {}
    rows, _ = residuals(system, jnp.zeros(()), jnp.asarray(guess), jnp.zeros(system.nv))
    return {name: float(np.linalg.norm(np.asarray(rows)[part])) for name, part in system.rows.items()}


def _bodies(mechanism: AbstractMechanism) -> tuple[BodyReport, ...]:
    """Masses and inertias, with doubts about them."""
    heaviest = max(float(body.mass) for body in mechanism.bodies)
    positions = np.array([np.asarray(body.pose)[:-1, -1] for body in mechanism.bodies])
    size = float(np.abs(positions - positions.mean(axis=0)).max())
    return tuple(_body(body, heaviest, size) for body in mechanism.bodies)


def _body(body: AbstractBody, heaviest: float, size: float) -> BodyReport:
    mass, inertia = float(body.mass), np.asarray(body.inertia)
    moments = np.atleast_1d(inertia) if inertia.ndim < 2 else np.linalg.eigvalsh(inertia)
    reach = max(size, float(np.linalg.norm(body.com)))
    doubts = []
    if mass == 0:
        doubts.append("has no mass; only what it carries and what holds it lets it move")
    elif heaviest > MASS_RATIO * mass:
        doubts.append(f"is lighter than the heaviest body by a factor of {heaviest / mass:.2g}")
    if mass > 0 and not moments.any():
        doubts.append("has a mass and no moment of inertia")
    # Some exporters write the identity where they know no density.
    if inertia.ndim == 2 and np.array_equal(inertia, np.eye(3)):
        doubts.append("has the inertia of a template, 1 kg m² about each axis")
    gyration = np.sqrt(moments.max(initial=0.0) / mass) if mass > 0 else 0.0
    if reach > 0 and gyration > GYRATION_RATIO * reach:
        doubts.append(f"has a radius of gyration of {gyration:.3g} m in a mechanism of {reach:.3g} m")
    return BodyReport(body.name, mass, tuple(float(x) for x in moments), tuple(doubts))
