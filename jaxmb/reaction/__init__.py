"""Forces of constraints: what acts in every joint, and which of it a rigid model determines."""

from .absolute import joint_terms as joint_terms
from .absolute import JointTerms as JointTerms
from .analysis import analyse_reactions as analyse_reactions
from .analysis import ReactionReport as ReactionReport
from .analysis import Verdict as Verdict
from .physical import physical_reactions as physical_reactions
from .wrench import joint_reaction as joint_reaction
from .wrench import Wrench as Wrench
