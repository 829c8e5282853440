"""jaxmb: differentiable dynamics of constrained mechanical systems in JAX."""

from .formulation import AbstractFormulation as AbstractFormulation
from .formulation import Acceleration as Acceleration
from .formulation import GaussProjection as GaussProjection
from .formulation import KKT as KKT
from .foundations import RESULTS as RESULTS
from .kinematics import assemble as assemble
from .simulation import AbstractDrift as AbstractDrift
from .simulation import Baumgarte as Baumgarte
from .simulation import Energy as Energy
from .simulation import energy as energy
from .simulation import NoDrift as NoDrift
from .simulation import Projection as Projection
from .simulation import Reactions as Reactions
from .simulation import reactions as reactions
from .simulation import Residuals as Residuals
from .simulation import residuals as residuals
from .simulation import simulate as simulate
from .simulation import Solution as Solution
from .system import evaluate as evaluate
from .system import Holonomic as Holonomic
from .system import Pfaffian as Pfaffian
from .system import State as State
from .system import System as System
from .system import Terms as Terms
