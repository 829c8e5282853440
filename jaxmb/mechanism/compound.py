"""Bodies joined rigidly to one."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .body import AbstractBody
from .marker import as_pose
from .pose import product, shifted
from .shape import AbstractShape, Stroke

Scalar = Float[Array, ""]


class Compound(AbstractShape):
    """Bodies in one frame, each with its own inertia; their points are called "part_point".

    The parallel-axis theorem for x̃ = (x, 1): if part i has the pose X_i, ∫ x̃ x̃ᵀ dm = Σ X_i (∫ x̃ x̃ᵀ dm)_i X_iᵀ.

    Args:
        parts: bodies, with names that differ.
        poses: their positions (d,) or poses (D, D) in the common frame.
    """

    parts: tuple[AbstractBody, ...]
    poses: tuple[Float[Array, "D D"], ...]
    own_density: ClassVar[float | None] = 1.0  # its size is a mass

    def __init__(self, parts: Sequence[AbstractBody], poses: Sequence[Any]):
        self.parts = tuple(parts)
        self.poses = tuple(as_pose(x, f"position of part '{p.name}'") for p, x in zip(self.parts, poses, strict=True))
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"Argument `parts` must hold bodies with names that differ, but holds {names}.")
        if len({x.shape for x in (*self.poses, *(part.pose for part in self.parts))}) > 1:
            raise ValueError(
                "Argument `parts` must hold bodies and positions that are all in the plane, or all in space."
            )

    def size(self) -> Scalar:
        """The mass of all parts in kg."""
        return self._moments(self.poses)[-1, -1]

    def centre(self) -> Float[Array, " d"]:
        """The centre of mass."""
        moments = self._moments(self.poses)
        return moments[:-1, -1] / moments[-1, -1]

    def spread(self) -> Float[Array, "d d"]:
        """The mean of (x − c)(x − c)ᵀ, weighted by mass."""
        centre = self.centre()
        # Parts are moved to the centre of mass before moments are summed: subtracting m c cᵀ afterwards would cancel
        # digits where the compound lies far from its frame.
        moments = self._moments(tuple(shifted(x, -centre) for x in self.poses))
        return moments[:-1, :-1] / moments[-1, -1]

    def _moments(self, poses: tuple[Float[Array, "D D"], ...]) -> Float[Array, "D D"]:
        """∫ x̃ x̃ᵀ dm."""
        return jnp.sum(jnp.stack([x @ p.spread() @ x.T for p, x in zip(self.parts, poses, strict=True)]), axis=0)

    def points(self) -> dict[str, Any]:
        """The points of the parts, and the frames of the parts by their names."""
        points = {}
        for part, x in zip(self.parts, self.poses, strict=True):
            points[part.name] = x
            points |= {f"{part.name}_{name}": product(x, local) for name, local in part.points.items()}
        return points

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The strokes of the parts, by their points here."""
        return tuple(
            (kind, *(f"{part.name}_{name}" for name in names)) for part in self.parts for kind, *names in part.strokes
        )


def compound(parts: Sequence[Any], dim: int) -> Compound:
    """The compound of bodies, or of pairs of a body and its position."""
    pairs = [part if isinstance(part, tuple) else (part, jnp.zeros(dim)) for part in parts]
    for part, _ in pairs:
        if not isinstance(part, AbstractBody):
            raise TypeError(
                f"Argument `parts` must hold bodies, or pairs of a body and its position, but holds {part!r}."
            )
    return Compound(*zip(*pairs, strict=True)) if pairs else Compound((), ())
