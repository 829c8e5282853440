"""Control: first-order dynamics, equilibria, and laws made from them."""

from .equilibrium import Equilibrium as Equilibrium
from .equilibrium import equilibrium as equilibrium
from .linearisation import Linearisation as Linearisation
from .linearisation import Mode as Mode
from .linearise import linearise as linearise
from .lqr import Law as Law
from .lqr import LQR as LQR
from .lqr import lqr as lqr
from .readings import Deviation as Deviation
from .tangent import Tangent as Tangent
