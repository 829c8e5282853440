"""What a search for dimensions has come to."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fit.parameter import values_table
from ..foundations import RESULTS, TextInNotebooks, aligned, counted
from ..mechanism import AbstractMechanism
from .goal import Goal
from .problem import Outcome

# A value at its limit, or a dimension at its bound, is within this part of its size of it.
CLOSE = 1e-6


class Design(TextInNotebooks, eqx.Module):
    """The result of `optimise`; `print` shows it as a table, `jaxmb.plot.design` draws it.

    Attributes:
        values: of all variables by name, the frozen ones included.
        nominal: where the search started.
        mechanism: with these values, its input not driven.
        input: the values of the input (n,), or times.
        label: what they are of.
        goals: the goals.
        before, after: the mechanism over the cycle, with the nominal values and with these.
        cost: ½ Σ (weight (value − target))².
        first_cost: that of the nominal values.
        obstacles: what prevented longer steps, a sentence for each.
        at_bound: the dimensions held by a bound, entries of arrays as "name[0]".
        starts: how many starts there were, and how many of them go through the cycle.
        reached: the costs that searches from the best starts have reached.
        iterations: evaluations that were made.
        excess: the largest excess over a limit, relative to it.
        result: how the search ended, see `jaxmb.RESULTS`.
    """

    values: dict[str, Array]
    nominal: dict[str, Array]
    mechanism: AbstractMechanism
    input: Float[Array, " n"]
    label: str = eqx.field(static=True)
    goals: tuple[Goal, ...]
    before: Outcome
    after: Outcome
    cost: Float[Array, ""]
    first_cost: Float[Array, ""]
    obstacles: tuple[str, ...] = eqx.field(static=True)
    at_bound: tuple[str, ...] = eqx.field(static=True)
    starts: tuple[int, int] = eqx.field(static=True)
    reached: Float[Array, " s"]
    iterations: int = eqx.field(static=True)
    excess: float = eqx.field(static=True)
    result: RESULTS

    def __str__(self) -> str:
        how = "converged" if bool(self.result == RESULTS.successful) else RESULTS[self.result]
        lines = [
            f"Design of {counted(len(self.values), 'variable')}: cost {float(self.cost):.3g}, {float(self.first_cost):.3g} at the start, "
            f"{counted(self.iterations, 'evaluation')}, {how}"
        ]
        count, turning = self.starts
        if count > 1:
            lines.append(f"Of {count} starts {turning} go through the cycle; the others were dropped.")
        lines += values_table("variable", self.values, self.nominal, self.at_bound, "  ")
        lines += aligned([("goal", "after", "before", ""), *self._goals()], "  ")
        return "\n".join([*lines, *self.obstacles])

    def _goals(self) -> list[tuple[str, ...]]:
        rows = []
        for goal in self.goals:
            after, before = self.after.values[goal.name], self.before.values[goal.name]
            if goal.target is not None:
                miss = lambda x, goal=goal: f"{float(jnp.max(jnp.abs(x - goal.target))):.3g}"
                rows.append((goal.name, miss(after), miss(before), "largest difference from the target"))
            for limit, word, end in ((goal.low, "least", jnp.min), (goal.high, "largest", jnp.max)):
                if limit is not None:
                    sign = -1.0 if word == "least" else 1.0
                    room = float(jnp.max(sign * (after - limit)))
                    size = float(jnp.max(jnp.abs(limit)))
                    note = "passed" if room > CLOSE * size else "at its limit" if room > -CLOSE * size else "within"
                    at = f" {float(limit):.4g}" if limit.ndim == 0 else ""
                    rows.append(
                        (goal.name, f"{float(end(after)):.6g}", f"{float(end(before)):.6g}", f"{word}, {note}{at}")
                    )
        return rows
