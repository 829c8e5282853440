"""The commands of a control law along a motion, and the demands that they miss."""

import equinox as eqx
from jaxtyping import PyTree

from ..control import Command, HybridCommand, Plant, Track, TrackForce
from ..foundations import contract
from ..simulation import Solution
from ..system import State, System
from .quantities import over_states


@contract
def commands(
    system: System, motion: Solution | State, law: Track | TrackForce, *, z: PyTree = None
) -> Command | HybridCommand:
    """The law's commands at each state: inputs, the part of the demand that they miss, and the distance from singular poses.

    Returns a `jaxmb.control.Command`, or `HybridCommand`, with the leading axes of the motion. If `missed` is not small, the actuators
    could not do what the law demanded, and the mechanism may stall there.

    Args:
        system: the system.
        motion: a solution, or a state; leading axes are kept.
        law: the controller, without wrappers.
        z: its state; that of the solution by default, that at the start for a state.
    """
    if z is None and isinstance(motion, Solution):
        z = motion.z
    return over_states(_Command(law), system.acting_at(law.acts_at), motion, z)


class _Command(eqx.Module):
    law: Track | TrackForce

    def __call__(self, system: System, state: State, z: PyTree) -> Command | HybridCommand:
        plant = Plant.at(system, state)
        # A single state has no history: the controller is taken at its start.
        z = self.law.init(plant.system) if z is None else z
        if isinstance(self.law, TrackForce):
            return self.law.hybrid(plant, z, self.law.desired(plant))
        return self.law.command(plant, z)
