"""The goals of a design over its cycle, before and after, and what one goal costs another."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..design import Design, Goal, ParetoFront, Path
from ..foundations import contract
from .colour import BLUE
from .figure import figure_of

if TYPE_CHECKING:
    import matplotlib.figure

# Lines of the nominal mechanism, and marks of what is wanted.
BEFORE = "0.6"
TARGET = "black"


@contract
def design(result: Design, figure: "matplotlib.figure.Figure | None" = None) -> "matplotlib.figure.Figure":
    """Draws a design: a panel for each goal, with its values before and after, its target and its limits.

    Values at each pose of the cycle are drawn over the input, paths in the plane as paths, values of other shapes over their numbers.

    Args:
        result: of `jaxmb.design.optimise`.
        figure: of matplotlib; made if None.

    Returns:
        The figure.

    Raises:
        TypeError: for a `figure` that is not a figure of matplotlib.
    """
    count = len(result.goals)
    figure = figure_of(figure, 4.5 * count, 3.6)
    for ax, goal in zip(figure.subplots(1, count, squeeze=False)[0], result.goals, strict=True):
        before, after = (np.asarray(x.values[goal.name]) for x in (result.before, result.after))
        if isinstance(goal.of, Path) and after.shape[1] == 2:
            _path(ax, goal, before, after)
        else:
            _values(ax, goal, result, before, after)
        ax.set_title(goal.name)
        ax.legend(fontsize="small")
    return figure


@contract
def pareto(front: ParetoFront, figure: "matplotlib.figure.Figure | None" = None) -> "matplotlib.figure.Figure":
    """Draws a Pareto front: the costs of both goals over each other, a mark for each design; those that are dominated are grey.

    Args:
        front: of `jaxmb.design.pareto`.
        figure: of matplotlib; made if None.

    Returns:
        The figure.

    Raises:
        TypeError: for a `figure` that is not a figure of matplotlib.
    """
    figure = figure_of(figure, 4.5, 3.6)
    ax, costs, dominated = figure.subplots(), np.asarray(front.costs), front.dominated
    best = costs[~dominated]
    ax.plot(*best[np.argsort(best[:, 0])].T, "o-", color=BLUE)
    ax.plot(*costs[dominated].T, "o", color=BEFORE)
    ax.set_xlabel(f"cost of {front.names[0]}")
    ax.set_ylabel(f"cost of {front.names[1]}")
    return figure


def _path(ax: Any, goal: Goal, before: np.ndarray, after: np.ndarray) -> None:
    """A path in the plane."""
    ax.plot(*before.T, "--", color=BEFORE, label="before")
    ax.plot(*after.T, ".-", color=BLUE, label="after")
    if goal.target is not None:
        ax.plot(*np.broadcast_to(goal.target, after.shape).T, "o", color=TARGET, fillstyle="none", label="wanted")
    ax.set_aspect("equal")
    ax.set_xlabel("x in m")
    ax.set_ylabel("y in m")


def _values(ax: Any, goal: Goal, result: Design, before: np.ndarray, after: np.ndarray) -> None:
    """Values over the input where there is one for each, else over their numbers; each component has a line."""
    shape = after.shape
    over_input = bool(shape) and shape[0] == result.input.shape[0]
    x = np.asarray(result.input) if over_input else np.arange(after.shape[0] if shape else 1)
    lines = lambda y: np.broadcast_to(y, shape).reshape(len(x), -1)
    style = "-" if over_input else "o"
    for values, color, label in ((before, BEFORE, "before"), (after, BLUE, "after")):
        curves = ax.plot(x, lines(values), style, color=color)
        curves[0].set_label(label)
    for level, style, label in ((goal.target, "--", "wanted"), (goal.low, ":", "least"), (goal.high, ":", "largest")):
        if level is not None:
            curves = ax.plot(x, lines(np.asarray(level)), style if over_input else "_", color=TARGET, lw=1.0)
            curves[0].set_label(label)
    ax.set_xlabel(result.label if over_input else "number")
