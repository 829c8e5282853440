"""Pictures of mechanisms, fits and designs; needs matplotlib (`pip install jaxmb[plots]`)."""

from .design import design as design
from .design import pareto as pareto
from .draw import animate as animate
from .draw import draw as draw
from .fit import fit as fit
from .live import live as live
from .live import LiveWindow as LiveWindow
from .page import Player as Player
from .page import page as page
