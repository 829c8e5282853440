"""Which forces of constraints a rigid model determines."""

from .uniqueness import ReactionReport, Verdict, analyse_reactions, determined_multipliers, scaled_rows

# What users and classes of theirs meet; other names are for the packages above.
__all__ = ["ReactionReport", "Verdict", "analyse_reactions"]
