"""Mechanisms of model files: URDF with loops, MJCF, and texts of ours."""

from .graph import Note as Note
from .load import load as load
from .model import Model as Model
