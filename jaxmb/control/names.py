"""Names of inputs."""

from ..system import System


def input_names(system: System) -> tuple[str, ...]:
    """Names of a mechanism's actuators; u0, u1 … of other systems."""
    named = () if system.joints is None else system.joints.actuators(system.params)
    return named if len(named) == system.nu else tuple(f"u{i}" for i in range(system.nu))
