"""What a check of a run holds: a table of evidence, for people and programs."""

import dataclasses
import json
import math
from typing import Literal

from ..foundations import TextInNotebooks, aligned, counted, listing

Verdict = Literal["ok", "attention", "failed", "not asked"]
# From the best to the worst; what was not asked says nothing.
SEVERITY: tuple[Verdict, ...] = ("not asked", "ok", "attention", "failed")
HEADINGS = ("what", "verdict", "value", "threshold", "in words")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One quantity of a run, compared with a threshold.

    Attributes:
        name: of the quantity.
        value: the worst one over times and runs; NaN where there is none.
        threshold: the threshold; NaN if there is none.
        verdict: "ok", "attention" for something that a reader should know, "failed", "not asked".
        words: one line of explanation, with names of constraints and coordinates.
        run: index of the worst run of a batch; empty for a single run.
        t: when it was worst, in s; NaN where that means nothing.
    """

    name: str
    value: float
    threshold: float
    verdict: Verdict
    words: str
    run: tuple[int, ...] = ()
    t: float = math.nan

    @property
    def line(self) -> str:
        """The words with time and run."""
        of_run = f"run {', '.join(map(str, self.run))}" if self.run else ""
        at_time = f"t = {self.t:.6g} s" if math.isfinite(self.t) else ""
        where = ", ".join(filter(None, (of_run, at_time)))
        return f"{self.words} ({where})" if where else self.words

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """The row of a table."""
        number = lambda x: "" if math.isnan(x) else f"{x:.3g}"
        return self.name, self.verdict, number(self.value), number(self.threshold), self.line


@dataclasses.dataclass(frozen=True)
class RunCheck(TextInNotebooks):
    """The evidence for a run, or for all runs of a batch; `print` and notebooks show it as a table.

    `check["energy balance"]` is one row of it.

    Attributes:
        axes: leading axes of a batch; empty for a single run.
        times: how many times were saved, the first and the last of them in s.
        evidence: the rows.
    """

    axes: tuple[int, ...]
    times: tuple[int, float, float]
    evidence: tuple[Evidence, ...]

    def __getitem__(self, name: str) -> Evidence:
        """The evidence of a name.

        Raises:
            KeyError: for a name that there is not.
        """
        for x in self.evidence:
            if x.name == name:
                return x
        raise KeyError(f"There is evidence of {listing(x.name for x in self.evidence)}, but not of {name!r}.")

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all."""
        return SEVERITY[max(SEVERITY.index(x.verdict) for x in self.evidence)]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; rows that ask for attention may be all right."""
        return self.verdict != "failed"

    @property
    def title(self) -> str:
        """What was checked, and the verdict."""
        count, start, end = self.times
        runs = counted(math.prod(self.axes), "run") if self.axes else "a run"
        title = f"Check of {runs}, {counted(count, 'time')} from {start:.6g} to {end:.6g} s: {self.verdict}"
        return title if self.verdict == "ok" else f"{title}, see {listing(self._worst())}"

    def _worst(self) -> list[str]:
        return [x.name for x in self.evidence if x.verdict == self.verdict]

    def __str__(self) -> str:
        return "\n".join([self.title, *aligned([HEADINGS, *(x.cells for x in self.evidence)], "  ")])

    def to_json(self) -> str:
        """The same as JSON, with null for what is not finite."""
        fields = {"ok": self.ok, "verdict": self.verdict, **dataclasses.asdict(self)}
        return json.dumps(without_infinities(fields), allow_nan=False, ensure_ascii=False)


def without_infinities(value: object) -> object:
    """The same with None in place of numbers that JSON has no words for."""
    if isinstance(value, dict):
        return {key: without_infinities(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
