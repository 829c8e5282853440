"""Control by projections: what inputs do to motions and reactions, and the inputs for what they are to do."""

from .plant import Plant as Plant
from .plant import Response as Response
from .affine import affine as affine
from .affine import Affine as Affine
from .affine import drive as drive
from .affine import Drive as Drive
from .affine import split_force as split_force
from .affine import split_input as split_input
from .motion import Command as Command
from .motion import motion_law as motion_law
from .output import AbstractOutput as AbstractOutput
from .output import as_output as as_output
from .output import JointOutput as JointOutput
from .output import MotionOutput as MotionOutput
from .output import Output as Output
from .output import output_rows as output_rows
from .output import OutputRows as OutputRows
from .output import Outputs as Outputs
from .output import reference_at as reference_at
from .output import Tracking as Tracking
from .output import tracking as tracking
from .output import VelocityOutput as VelocityOutput
