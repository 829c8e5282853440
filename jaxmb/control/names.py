"""Names of inputs."""

from ..system import JointDirections, System


def input_names(system: System) -> tuple[str, ...]:
    """Names of a mechanism's actuators, or of the joints where the inputs act; u0, u1 … of other systems."""
    if isinstance(system.actuation_fn, JointDirections):
        return system.actuation_fn.names
    named = () if system.joints is None else system.joints.actuators(system.params)
    return named if len(named) == system.nu else tuple(f"u{i}" for i in range(system.nu))
