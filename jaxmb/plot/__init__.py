"""Pictures of mechanisms and fits; needs matplotlib (`pip install jaxmb[plots]`)."""

from .draw import animate as animate
from .draw import draw as draw
from .fit import fit as fit
from .page import Player as Player
from .page import page as page
from .page import player as player
