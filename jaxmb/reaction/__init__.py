"""Which forces of constraints a rigid model determines."""

from .uniqueness import analyse_reactions as analyse_reactions
from .uniqueness import determined_multipliers as determined_multipliers
from .uniqueness import ReactionReport as ReactionReport
from .uniqueness import scaled_rows as scaled_rows
from .uniqueness import Verdict as Verdict

# What users and classes of theirs meet; other names are for the packages above.
__all__ = ["ReactionReport", "Verdict", "analyse_reactions"]
