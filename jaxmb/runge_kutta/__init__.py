"""Explicit Runge–Kutta methods, written once: a step, a run, their derivatives along a direction and their reverse sweeps."""

from .method import guarded as guarded
from .method import time_of_stage as time_of_stage
from .run import RunProgram as RunProgram
from .run_adjoint import RunAdjoint as RunAdjoint
from .run_tangent import RunTangent as RunTangent
from .step import StepProgram as StepProgram
from .step_adjoint import StepAdjoint as StepAdjoint
from .tangent import augmented as augmented
