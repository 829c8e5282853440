"""Control by projections: what inputs do to motions and reactions, and the inputs for what they are to do."""

from .plant import Plant as Plant
from .plant import Response as Response
