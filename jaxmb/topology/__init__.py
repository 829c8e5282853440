"""Constraints that begin and cease to act: events, and the jumps of velocity that they cause."""

from .event import AbstractEvent as AbstractEvent
from .event import Activate as Activate
from .event import Brake as Brake
from .event import Lock as Lock
from .event import Release as Release
from .plan import Plan as Plan
from .planning import missed as missed
from .planning import planned as planned
from .planning import resolution as resolution
from .planning import unattended as unattended
from .planning import weak as weak
from .transition import Transition as Transition
from .transition import transition as transition
