"""Trees apart from their numbers: what programs are made for."""

import dataclasses
import enum
from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array, PyTree, PyTreeDef


class _Hole(enum.Enum):
    """Where a tree had an array."""

    HOLE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Blank:
    """A tree without its arrays: one or more trees that are combined."""

    structures: tuple[PyTreeDef, ...]  # pyright: ignore[reportInvalidTypeForm]
    leaves: tuple[object, ...]

    @classmethod
    def of(cls, *trees: PyTree) -> tuple["Blank", list[Array]]:
        """It and the arrays."""
        flattened = [jax.tree.flatten(tree) for tree in trees]
        leaves = [x for own, _ in flattened for x in own]
        rest = tuple(_Hole.HOLE if eqx.is_array(x) else x for x in leaves)
        return cls(tuple(structure for _, structure in flattened), rest), [x for x in leaves if eqx.is_array(x)]

    @property
    def hashable(self) -> bool:
        """Whether it can be told from others, as a key of what is compiled for it: all that is no array must have a hash."""
        try:
            return hash(self) is not None
        except TypeError:
            return False

    def filled(self, arrays: Sequence[object]) -> PyTree:
        """The tree with arrays."""
        values = iter(arrays)
        leaves = iter([next(values) if x is _Hole.HOLE else x for x in self.leaves])
        trees = [jax.tree.unflatten(s, [next(leaves) for _ in range(s.num_leaves)]) for s in self.structures]
        return trees[0] if len(trees) == 1 else eqx.combine(*trees)


def shapes_of(arrays: Sequence[Array]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and types."""
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
