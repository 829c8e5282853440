"""Control: first-order dynamics, equilibria, and laws made from them."""

from .linearisation import Linearisation as Linearisation
from .linearisation import Mode as Mode
from .linearisation import Tangent as Tangent
from .linearise import linearise as linearise
