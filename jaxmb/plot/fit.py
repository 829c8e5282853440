"""What was measured beside what the model makes of it."""

from typing import TYPE_CHECKING

import numpy as np

from ..fit import Fit
from ..foundations import contract
from .figure import figure_of

if TYPE_CHECKING:
    import matplotlib.figure


@contract
def fit(
    result: Fit, experiment: str | None = None, figure: "matplotlib.figure.Figure | None" = None
) -> "matplotlib.figure.Figure":
    """Draws a fit: for each signal measured samples and the model above, residuals in σ below.

    Residuals that are noise scatter evenly about zero, nearly all between −2 and 2; a pattern in them is not explained by the model.

    Args:
        result: of `jaxmb.fit.identify`, a single one.
        experiment: name of the experiment; the first by default.
        figure: of matplotlib; made if None.

    Returns:
        The figure.

    Raises:
        TypeError: for a `figure` that is not a figure of matplotlib.
        ValueError: for several fits, and for an experiment that is not among those of the fit.
    """
    if result.cost.ndim:
        raise ValueError(f"Argument `result` must be a single fit, but holds {result.cost.size}; index one of them.")
    names = list(result.signals)
    name = names[0] if experiment is None else experiment
    if name not in names:
        raise ValueError(f"Argument `experiment` must be one of {', '.join(names)}, but is '{name}'.")
    signals = result.signals[name]
    figure = figure_of(figure, 4.5 * len(signals), 5.0)
    axes = figure.subplots(2, len(signals), sharex="col", squeeze=False, height_ratios=(2, 1))
    for (upper, lower), (label, signal) in zip(axes.T, signals.items(), strict=True):
        ts = np.asarray(signal.ts)
        measured, model, residual = (np.asarray(x) for x in (signal.measured, signal.model, signal.residual))
        # Zero stands for a missing sample there, which would look like a perfect one.
        residual = np.where(np.isnan(measured), np.nan, residual)
        for k in range(measured.shape[1]):
            suffix = f" {k}" if measured.shape[1] > 1 else ""
            (line,) = upper.plot(ts, model[:, k], label=f"model{suffix}")
            upper.plot(ts, measured[:, k], ".", ms=3, color=line.get_color(), alpha=0.5, label=f"measured{suffix}")
            lower.plot(ts, residual[:, k], ".", ms=3, color=line.get_color())
        upper.set_title(label)
        lower.axhspan(-2, 2, color="0.9", zorder=0)
        lower.set_xlabel("t in s")
        upper.legend(fontsize="small")
    axes[0, 0].set_ylabel("signal")
    axes[1, 0].set_ylabel("residual in σ")
    return figure
