"""Models read from files."""

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jaxtyping import Array

from ..foundations import TextInNotebooks, contract, counted, listing, table
from ..kinematics import assemble, try_assemble
from ..mechanism import AbstractMechanism
from ..system import State, System
from .graph import Note
from .repair import nearly_closed

KINDS = ("merged", "renamed", "approximated", "listed", "left out")


@dataclasses.dataclass(frozen=True)
class Model(TextInNotebooks):
    """A mechanism read from a file, and the other contents of the file; `print` shows it as a table.

    Attributes:
        name: the model's name.
        path: the file.
        format: "URDF", "MJCF", "SDF" or "text".
        mechanism: the bodies, joints and forces.
        loops: names of the joints that close loops in the file.
        markers: where each link, or body of the file, is in the mechanism, "body" or "body.point", by its name in the file.
        poses: by name of each keyframe, its coordinates by name.
        limits: the least and the largest value of each joint coordinate that has limits; the mechanism has stops there only if `stops` is given.
        notes: elements of the file that the mechanism represents in another way, or not at all.
    """

    name: str
    path: pathlib.Path
    format: str
    mechanism: AbstractMechanism
    loops: tuple[str, ...] = ()
    markers: dict[str, str] = dataclasses.field(default_factory=dict)
    poses: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    limits: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @contract
    def build(
        self, coordinates: Literal["relative", "absolute"] = "relative", cut: Sequence[str] | None = None
    ) -> System:
        """The system of the mechanism, with the tree of the file.

        Args:
            coordinates: as in `Mechanism.build`.
            cut: names of the joints that must close loops; those of the file, `loops`, by default.
        """
        return self.mechanism.build(coordinates, self.loops if cut is None else cut)

    @contract
    def assemble(
        self, system: System, pose: str | None = None, q: Mapping[str, Any] | None = None, **arguments: Any
    ) -> State:
        """A state near a pose of the file.

        Args:
            system: built of the mechanism.
            pose: name of a keyframe; the pose in which the file is drawn by default.
            q: values of further coordinates, by name.
            **arguments: further arguments of `jaxmb.assemble`.

        Raises:
            ValueError: for an unknown keyframe, and if loops cannot be closed.
        """
        guess: dict[str, float | Array] = {k: v for k, v in keyframe(self, pose).items() if k in system.coordinates}
        guess |= dict(q or {})
        try:
            return assemble(system, guess, **arguments)
        except ValueError as error:
            if not (self.loops and "cannot be satisfied" in str(error) and nearly_closed(try_assemble(system, guess))):
                raise
            text = "Rounded numbers of the file may leave as much open: `jaxmb.load(…, repair=True)` moves the ends of such loops."
            raise ValueError(f"{error}\n{text}") from error

    def to_dict(self) -> dict[str, Any]:
        """Everything but the mechanism, as a dictionary of plain numbers, strings, lists and dictionaries."""
        return {
            "name": self.name,
            "path": str(self.path),
            "format": self.format,
            "loops": list(self.loops),
            "markers": dict(self.markers),
            "poses": {name: dict(values) for name, values in self.poses.items()},
            "limits": {name: list(values) for name, values in self.limits.items()},
            "notes": [dataclasses.asdict(note) for note in self.notes],
        }

    def __str__(self) -> str:
        m = self.mechanism
        title = f"Model '{self.name}' ({self.format}): {counted(len(m.bodies), 'body', 'bodies')}, {counted(len(m.joints), 'joint')}"
        lines = [
            table(
                title,
                {
                    "loops": self.loops,
                    "keyframes": self.poses,
                    "limits": [f"{name} {low:g} … {high:g}" for name, (low, high) in self.limits.items()],
                },
            )
        ]
        lines += [f"  {line}" for line in self.summary()]
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """The notes by kind; notes that say the same of many elements are one line."""
        lines = []
        for kind in KINDS:
            alike = Counter(note.text for note in self.notes if note.kind == kind)
            for text, count in alike.items():
                names = [note.what for note in self.notes if (note.kind, note.text) == (kind, text)]
                shown = ", ".join(names[:3]) + (f" and {count - 3} others" if count > 3 else "")
                lines.append(f"{kind:<13} {shown}: {text}")
        return lines


def keyframe(model: Model, pose: str | None) -> dict[str, float]:
    """The coordinates of a keyframe, by name; none for the pose in which the file is drawn.

    Raises:
        ValueError: for a keyframe that there is not.
    """
    if pose is not None and pose not in model.poses:
        raise ValueError(f"Argument `pose` must be a keyframe out of {listing(model.poses)}, but is '{pose}'.")
    return {} if pose is None else model.poses[pose]
