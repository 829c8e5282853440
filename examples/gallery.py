"""What the examples of the gallery share: bars, checks with their limits, and pictures in output/."""

import pathlib

import matplotlib
import numpy as np

import jaxmb as jm

matplotlib.use("Agg")


def bar(name, a, b, mass=1.0):
    """A uniform rod in the plane between two places, its points a and b."""
    along = np.subtract(b, a)
    return jm.planar.Body.rod(name, mass, np.linalg.norm(along), position=a, angle=np.arctan2(along[1], along[0]))


def meeting(p, r, q, s, side):
    """Where circles about p and q, with radii r and s, meet: to the left (1) or right (−1) of the way from p to q."""
    gap = q - p
    square = np.sum(gap**2, axis=-1, keepdims=True)
    part = (r**2 - s**2 + square) / (2 * square)
    across = np.stack([-gap[..., 1], gap[..., 0]], axis=-1)
    return p + part * gap + side * np.sqrt(r**2 / square - part**2) * across


def check(rows):
    """Prints labels and values with their limits, and stops at a value that is larger."""
    for label, value, limit in rows:
        print(f"  {label:<44}{float(value):>10.1e}   at most {limit:.0e}")
        assert value <= limit, f"{label} is {float(value):.1e}, more than {limit:.0e}."


def save(axes, name):
    """Writes the picture output/name.png."""
    path = pathlib.Path("output") / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    figure = np.ravel(axes)[0].figure
    figure.savefig(path, dpi=140, bbox_inches="tight")
    print(f"wrote {path}")
