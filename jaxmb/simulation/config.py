"""What a run depends on besides its arguments."""

import collections
import platform

import jax

from ..foundations import default_float, version
from ..kernels import COST, unavailable

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
    """Prints versions, devices, the type of numbers, and whether steps are compiled code or why not.

    Example:
        >>> import jaxmb as jm
        >>> jm.show_config()  # doctest: +ELLIPSIS
        python      3...
        jaxmb       ...
        devices     ...
        numbers     float...
        steps       ...
    """
    kinds = collections.Counter(device.device_kind for device in jax.devices())
    rows = {"python": f"{platform.python_version()} on {platform.system()}, {platform.machine()}"}
    rows |= {package: version(package) for package in _PACKAGES}
    rows["devices"] = ", ".join(f"{count} of kind '{kind}'" for kind, count in kinds.items())
    rows["numbers"] = f"{default_float().name} (jax_enable_x64 is {jax.config.read('jax_enable_x64')})"
    reason = unavailable()
    rows["steps"] = "compiled code" if reason is None else f"not compiled, some {COST} slower on a CPU: {reason}"
    for name, told in rows.items():
        print(f"{name:<11} {told}")
