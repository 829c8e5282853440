"""Mechanisms of model files: URDF with loops, MJCF, SDF, and texts of ours."""

from .graph import Note as Note
from .inspection import BodyReport as BodyReport
from .inspection import inspect as inspect
from .inspection import Inspection as Inspection
from .load import load as load
from .mjcf_writer import to_mjcf as to_mjcf
from .model import Model as Model
from .urdf_text import to_urdf as to_urdf
