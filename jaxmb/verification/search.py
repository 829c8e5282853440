"""The evidence for what a search found."""

import dataclasses
import json

from ..foundations import TextInNotebooks, listing
from .evidence import RunCheck, without_infinities
from .gradient import GradientCheck


@dataclasses.dataclass(frozen=True)
class SearchCheck(TextInNotebooks):
    """The evidence for the result of a search: for its runs, and for the derivative that the search used.

    Attributes:
        experiments: names of the experiments whose runs are checked together.
        runs: what `jaxmb.check` says of these runs.
        gradient: what `jaxmb.check_gradient` says; None if bounds hold all unknowns.
    """

    experiments: tuple[tuple[str, ...], ...]
    runs: tuple[RunCheck, ...]
    gradient: GradientCheck | None

    @property
    def ok(self) -> bool:
        """Whether nothing failed, and all derivatives agree."""
        return all(x.ok for x in self.runs) and (self.gradient is None or self.gradient.agrees)

    def __str__(self) -> str:
        lines = []
        for names, run in zip(self.experiments, self.runs, strict=True):
            worst = [x for x in run.evidence if x.verdict == run.verdict != "ok"]
            lines += [f"{run.title} ({listing(names)})", *(f"  {x.name}: {x.line}" for x in worst)]
        if self.gradient is None:
            return "\n".join([*lines, "No gradient to check: bounds hold all parameters."])
        wrong = [x for x in self.gradient.directions if not x.agrees]
        verdict = "DISAGREES with values" if wrong else "agrees with values"
        lines.append(f"Gradient along {len(self.gradient.directions)} directions: {verdict}")
        return "\n".join([*lines, *(f"  {x.name}: {x.reason}" for x in wrong)])

    def to_json(self) -> str:
        """All evidence as JSON, with null for what is not finite."""
        fields = {"ok": self.ok, **dataclasses.asdict(self)}
        return json.dumps(without_infinities(fields), allow_nan=False, ensure_ascii=False)
