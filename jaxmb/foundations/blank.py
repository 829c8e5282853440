"""Trees apart from their numbers: what programs are made for."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array, PyTree, PyTreeDef


@dataclasses.dataclass(frozen=True)
class Blank:
    """A tree without its arrays: one or more trees that are combined, of which the last one holds what is no array."""

    structures: tuple[PyTreeDef, ...]  # pyright: ignore[reportInvalidTypeForm]
    statics: tuple[object, ...]
    static_structure: PyTreeDef  # pyright: ignore[reportInvalidTypeForm]

    @classmethod
    def of(cls, *trees: PyTree) -> tuple["Blank", list[Array]]:
        """It and the arrays."""
        arrays, rest = eqx.partition(trees[-1], eqx.is_array)
        parts = [jax.tree.flatten(tree) for tree in (*trees[:-1], arrays)]
        statics, structure = jax.tree.flatten(rest)
        blank = cls(structures=tuple(s for _, s in parts), statics=tuple(statics), static_structure=structure)
        return blank, [x for leaves, _ in parts for x in leaves]

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
        parts = [jax.tree.unflatten(s, [next(values) for _ in range(s.num_leaves)]) for s in self.structures]
        return eqx.combine(*parts, jax.tree.unflatten(self.static_structure, self.statics))


def shapes_of(arrays: Sequence[Array]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and types."""
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
