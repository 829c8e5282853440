"""Parameters from measured motion, and design by gradients."""

from .experiment import Experiment as Experiment
from .experiment import Signal as Signal
from .identifiability import Identifiability as Identifiability
from .identify import identify as identify
from .inertia import inertia_parameter as inertia_parameter
from .information import identifiability as identifiability
from .information import information as information
from .parameter import Parameter as Parameter
from .progress import Progress as Progress
from .report import Fit as Fit
from .report import SignalFit as SignalFit
from .tune import tune as tune
from .tune import Tuned as Tuned
