"""Constraints that begin and cease to act: events, and the jumps of velocity that they cause."""

from .event import AbstractEvent as AbstractEvent
from .event import Activate as Activate
from .event import Brake as Brake
from .event import Lock as Lock
from .event import Release as Release
from .jump import impulses as impulses
from .plan import Plan as Plan
from .plan import planned as planned
from .plan import unattended as unattended
from .transition import Transition as Transition
from .transition import transition as transition
