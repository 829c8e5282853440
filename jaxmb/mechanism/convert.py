"""States of one mechanism in the coordinates of different builds."""

import jax.numpy as jnp
from jaxtyping import Array

from ..foundations import contract, program
from ..kinematics import assemble
from ..system import State, System, check_state
from .linkage import linkage_of


@contract
def convert(state: State, source: System, target: System) -> State:
    """The same state of the same mechanism in the coordinates of another build.

    Poses and velocities of the bodies are expressed in the target's coordinates and assembled there, which changes only
    rounding if the mechanisms agree. Angles keep the full turns that the source's build counts; others lie between −π and π.

    Args:
        state: a single state of `source`.
        source: built from a mechanism.
        target: built from the same mechanism, or one with bodies of the same names.

    Raises:
        ValueError: if a system was not built from a mechanism, or a body is missing.

    Example:
        >>> import jaxmb as jm
        >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=2.0)
        >>> pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", "ground", "rod.b")])
        >>> relative, absolute = pendulum.build(), pendulum.build("absolute")
        >>> state = jm.convert(jm.assemble(relative, {"pivot": 0.0}), relative, absolute)
        >>> [round(float(x), 6) for x in state.q]
        [-2.0, 0.0, 0.0]
    """
    origin, goal = linkage_of(source, "source"), linkage_of(target, "target")
    check_state(source, state)
    if state.mode is not None:
        raise ValueError("Argument `state` must have no mode: what events have locked or left out is not converted.")
    missing = [name for name in goal.bodies if name not in origin.bodies]
    if missing:
        raise ValueError(f"Argument `source` must have all bodies of `target`, but lacks {', '.join(missing)}.")
    q, v = _measured(state, source, target)
    # Poses that agree need no correction; assembling them removes rounding, and tells of mechanisms that do not
    # agree.
    return assemble(target, q, v, t=state.t)


@program
def _measured(state: State, source: System, target: System) -> tuple[Array, Array]:
    """Coordinates and velocities of the target, by the poses of the source."""
    origin, goal = linkage_of(source), linkage_of(target)
    motion = origin.motion(state.t, state.q, state.v, source.params)
    # The target may list its bodies in another order, or fewer of them.
    order = jnp.array([0, *(1 + origin.bodies.index(name) for name in goal.bodies)])
    q = goal.measure(motion.poses[order], target.params)
    v = goal.measure_rates(motion.poses[order], motion.rates[order], target.params)
    return goal.with_turns(q, origin, state.q), v
