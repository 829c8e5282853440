"""Names of inputs."""

from ..system import System


def input_names(system: System) -> tuple[str, ...]:
    """Names of a mechanism's actuators; u0, u1 … of other systems."""
    actuators = () if system.joints is None else getattr(system.params, "actuators", ())
    names = tuple(str(a.name) for a in actuators)
    return names if len(names) == system.nu else tuple(f"u{i}" for i in range(system.nu))
