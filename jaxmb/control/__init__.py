"""Control by projections: what inputs do to motions and reactions, laws for both, and how they act in a run."""

from .controller import AbstractController as AbstractController
from .controller import as_controller as as_controller
from .controller import Law as Law
from .instant import Instant as Instant
from .instant import motion_of as motion_of
from .pid import PD as PD
from .pid import PID as PID
from .plant import Plant as Plant
from .plant import Response as Response
from .sampled import Clock as Clock
from .sampled import Sampled as Sampled
from .wrappers import AbstractWrapper as AbstractWrapper
from .wrappers import Noisy as Noisy
from .wrappers import RateLimited as RateLimited
from .wrappers import Saturated as Saturated
