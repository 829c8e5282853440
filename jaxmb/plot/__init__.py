"""Pictures of mechanisms; needs matplotlib (`pip install jaxmb[plots]`)."""

from .draw import animate as animate
from .draw import draw as draw
