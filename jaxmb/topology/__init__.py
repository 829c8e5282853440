"""Constraints that begin and cease to act: events, and the jumps of velocity that they cause."""

from .activate import Activate as Activate
from .brake import Brake as Brake
from .change import Change as Change
from .event import AbstractEvent as AbstractEvent
from .event import Occurrence as Occurrence
from .lock import Lock as Lock
from .plan import Plan as Plan
from .planning import plan_events as plan_events
from .planning import resolution as resolution
from .planning import check_unattended as check_unattended
from .release import Release as Release
from .context import EventContext as EventContext
from .context import fitting as fitting
from .transition import Transition as Transition
from .transition import transition as transition

# What users and classes of theirs meet; other names are for the packages above.
__all__ = [
    "AbstractEvent",
    "Activate",
    "Brake",
    "Change",
    "EventContext",
    "Lock",
    "Occurrence",
    "Release",
    "Transition",
    "transition",
]
