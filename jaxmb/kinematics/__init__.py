"""Positions and velocities on the constraints."""

from .assemble import assemble as assemble
from .assemble import consistency as consistency
from .correction import corrected as corrected
