"""Colours, written #rrggbb."""

import numpy as np

BLUE, RED, GREEN, PURPLE, BROWN = "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b"
BLACK, PINK, WHITE = "#000000", "#ff1493", "#ffffff"
GROUND, JOINT, GUIDE, LIGHT, PALE = "#595959", "#404040", "#737373", "#d9d9d9", "#ededed"
BODIES = (BLUE, "#ff7f0e", GREEN, RED, PURPLE, BROWN, "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


def of_body(number: int) -> str:
    """Of ground, 0, and bodies."""
    # Matplotlib's cycle: after ten bodies colours come again.
    return GROUND if number == 0 else BODIES[(number - 1) % len(BODIES)]


def mix(colour: str, factor: float, white: float) -> str:
    """A part of a colour and a part of white."""
    return to_hex(factor * to_rgb(colour) + white)


def to_rgb(colour: str) -> np.ndarray:
    """Red, green and blue (3,), between 0 and 1."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def to_hex(rgb: np.ndarray) -> str:
    """The colour of red, green and blue (3,)."""
    return "#" + "".join(f"{round(255 * float(x)):02x}" for x in np.clip(rgb, 0, 1))
