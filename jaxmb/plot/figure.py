"""Figures that are given or made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import matplotlib.figure


def figure_of(figure: object, width: float, height: float) -> "matplotlib.figure.Figure":
    """A figure of matplotlib as it is, a new one for None.

    Raises:
        TypeError: for anything else.
    """
    import matplotlib.pyplot as plt
    from matplotlib.figure import FigureBase

    if figure is None:
        return plt.figure(figsize=(width, height), layout="constrained")
    if not isinstance(figure, FigureBase):
        raise TypeError(f"Argument `figure` must be a figure of matplotlib, but is a {type(figure).__name__}.")
    return figure  # pyright: ignore[reportReturnType]
