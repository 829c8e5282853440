"""Packages that only some functions need."""

import importlib
import importlib.metadata
import importlib.util
from types import ModuleType


def optional(package: str, extra: str) -> ModuleType:
    """Imports a package that an extra of jaxmb brings along.

    Args:
        package: its name.
        extra: the extra that names it.

    Raises:
        ImportError: with the command that installs it, if it is not there.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"This needs the package '{package}': pip install jaxmb[{extra}]") from error


def installed(package: str) -> bool:
    """Whether a package is there."""
    return importlib.util.find_spec(package) is not None


def version(package: str) -> str:
    """Which version of a package is there, or that it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
