"""Which forces of constraints a rigid model determines."""

from .uniqueness import analyse_reactions as analyse_reactions
from .uniqueness import ReactionReport as ReactionReport
from .uniqueness import Verdict as Verdict
