"""Names of the elements of a model in a mechanism."""

from itertools import chain, count

from .graph import WORLD


class NameTable:
    """The names of a model's elements in a mechanism, where all differ and none has a dot.

    Attributes:
        in_use: the names in use.
        changes: pairs of what an element is called in the file, with its kind, and in the mechanism.
    """

    def __init__(self) -> None:
        self.in_use, self.changes = {WORLD}, []
        self._by_origin: dict[tuple[str, str], str] = {}

    def new(self, kind: str, name: str) -> str:
        """A name for a new element: its own, or with its kind and a number behind where that is taken."""
        base = name.replace(".", "_").strip() or kind
        # With the kind before a number: "wrist_body" beside the joint "wrist" says more than "wrist_2".
        candidates = chain([base, f"{base}_{kind}"], (f"{base}_{kind}{i}" for i in count(2)))
        unique = next(x for x in candidates if x not in self.in_use)
        self.in_use.add(unique)
        self._by_origin[kind, name] = unique
        if unique != name:
            self.changes.append((f"{kind} '{name}'", unique))
        return unique

    def of(self, kind: str, name: str) -> str:
        """The name of an element that has one."""
        return self._by_origin[kind, name]
