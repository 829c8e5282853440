"""Warnings at the line that called the library."""

import sys
import warnings

# Frames of these packages are passed over: this one, and those that call it in a user's name.
_PASSED = ("jaxmb", "equinox", "jax", "jaxtyping", "beartype")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns where the library was called, however many functions of it lie between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _PASSED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
