"""Names that a mechanism can have."""

from .graph import WORLD


class Names:
    """The names of a model's elements in a mechanism, where all differ and none has a dot.

    Attributes:
        taken: those in use.
        changes: pairs of what an element is called in the file, with its kind, and in the mechanism.
    """

    def __init__(self) -> None:
        self.taken, self.changes = {WORLD}, []
        self._known: dict[tuple[str, str], str] = {}

    def new(self, kind: str, name: str) -> str:
        """A name for a new element: its own, or with its kind and a number behind where that is taken."""
        plain = name.replace(".", "_").strip() or kind
        candidates = [plain, f"{plain}_{kind}"]
        found = next((c for c in candidates if c not in self.taken), None)
        count = 1
        while found is None:
            count += 1
            found = f"{plain}_{kind}{count}" if f"{plain}_{kind}{count}" not in self.taken else None
        self.taken.add(found)
        self._known[kind, name] = found
        if found != name:
            self.changes.append((f"{kind} '{name}'", found))
        return found

    def of(self, kind: str, name: str) -> str:
        """The name of an element that has one."""
        return self._known[kind, name]
