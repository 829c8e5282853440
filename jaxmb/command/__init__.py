"""The command line: `jaxmb inspect`, `simulate`, `view`, `convert` and `sweep`."""

from .main import main as main
