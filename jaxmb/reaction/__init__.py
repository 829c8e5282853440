"""Which forces of constraints a rigid model determines, and their values in named directions."""

from .analysis import analyse_reactions as analyse_reactions
from .analysis import ReactionReport as ReactionReport
from .analysis import Verdict as Verdict
from .physical import physical_reactions as physical_reactions
