"""Modules whose constructor is written out."""

import equinox as eqx


class AbstractExplicit(eqx.Module):
    """A module whose subclasses are made by the `__init__` of their base.

    Equinox leaves that `__init__` to them. To type checkers each is a dataclass with an `__init__` of its fields, unless it says
    `init=False`, as in `class Revolute(AbstractFrameJoint, init=False)`.
    """

    def __init_subclass__(cls, init: bool = True, **more: bool):
        super().__init_subclass__(**more)
