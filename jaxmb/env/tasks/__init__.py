"""Ready-made tasks."""

from collections.abc import Callable

from ...foundations import Count, contract
from ..environment import Environment
from .five_bar_hopper import five_bar_hopper

_MAKERS: dict[str, Callable[..., Environment]] = {"five_bar_hopper": five_bar_hopper}
TASKS = tuple(_MAKERS)
