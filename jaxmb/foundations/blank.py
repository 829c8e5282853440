"""Trees apart from their numbers: what programs are made for."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array


@dataclasses.dataclass(frozen=True)
class Blank:
    """A tree without its arrays: one or more trees that are combined, of which the last one holds what is no array."""

    structures: tuple[Any, ...]
    statics: tuple[Any, ...]
    static_structure: Any

    @classmethod
    def of(cls, *trees: Any) -> tuple["Blank", list[Array]]:
        """It and the arrays."""
        arrays, rest = eqx.partition(trees[-1], eqx.is_array)
        parts = [jax.tree.flatten(tree) for tree in (*trees[:-1], arrays)]
        statics, structure = jax.tree.flatten(rest)
        return cls(tuple(s for _, s in parts), tuple(statics), structure), [x for leaves, _ in parts for x in leaves]

    @property
    def known(self) -> bool:
        """Whether it can be told from others."""
        try:
            return hash(self) is not None
        except TypeError:
            return False

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The tree with arrays."""
        given = iter(arrays)
        parts = [jax.tree.unflatten(s, [next(given) for _ in range(s.num_leaves)]) for s in self.structures]
        return eqx.combine(*parts, jax.tree.unflatten(self.static_structure, self.statics))


def shapes_of(arrays: Sequence[Array]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and types."""
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
