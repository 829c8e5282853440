"""What a run depends on besides its arguments."""

import collections
import functools
import platform

import jax

from ..foundations import default_float, shows_progress, version, warn
from ..lanes import unavailable

# Of steps without compiled code to those with it: of four-bars alone and in batches, and of their gradients (`docs/engines.md`).
COST = "10 to 100 times"
_PACKAGES = (
    "jaxmb",
    "jax",
    "jaxlib",
    "diffrax",
    "equinox",
    "optimistix",
    "lineax",
    "optax",
    "numpy",
    "scipy",
    "llvmlite",
)


def show_config() -> None:
    """Prints versions, devices, the type of numbers, whether steps are compiled or why not, and whether long work reports its progress on a terminal.

    Example:
        >>> import jaxmb as jm
        >>> jm.show_config()  # doctest: +ELLIPSIS
        python      3...
        jaxmb       ...
        devices     ...
        numbers     float...
        steps       ...
        progress    ...
    """
    kinds = collections.Counter(device.device_kind for device in jax.devices())
    rows = {"python": f"{platform.python_version()} on {platform.system()}, {platform.machine()}"}
    rows |= {package: version(package) for package in _PACKAGES}
    # By kind: a host may have many equal devices.
    rows["devices"] = ", ".join(f"{count} of kind '{kind}'" for kind, count in kinds.items())
    rows["numbers"] = f"{default_float().name} (jax_enable_x64 is {jax.config.read('jax_enable_x64')})"
    reason = unavailable(by_xla=jax.default_backend() == "gpu")
    rows["steps"] = "compiled code" if reason is None else f"not compiled, some {COST} slower on a CPU: {reason}"
    rows["progress"] = "shown" if shows_progress() else "not shown"
    for name, value in rows.items():
        print(f"{name:<11} {value}")


def available(demanded: bool | None) -> bool:
    """Whether code is compiled for a run. Where it cannot be on a CPU, and nobody has said that it must not, that is told: once in a process."""
    if demanded is None and jax.default_backend() == "cpu":
        _warn_once()
    return demanded is not False and unavailable() is None


@functools.cache
def _warn_once() -> None:
    reason = unavailable()
    if reason is not None:
        message = f"Steps take some {COST} as long as they could, because no code is compiled: {reason}. `show_config()` tells more."
        warn(message, RuntimeWarning)
