"""Positions and velocities on the constraints."""

from .assemble import assemble as assemble
from .assemble import consistency as consistency
from .closure import Closure as Closure
from .closure import closure_kinematics as closure_kinematics
from .closure import embed as embed
from .closure import Kinematics as Kinematics
from .closure import reduce as reduce
from .closure import restrict as restrict
from .correction import CLOSE as CLOSE
from .correction import corrected as corrected
from .correction import NEAR as NEAR
from .diagnosis import DependentRows as DependentRows
from .diagnosis import diagnose as diagnose
from .diagnosis import Diagnosis as Diagnosis
from .rows import choose_rows as choose_rows
from .rows import Rows as Rows
