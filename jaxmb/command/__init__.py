"""The command line: `jaxmb inspect`, `simulate`, `view`, `convert`, `fit` and `sweep`."""

from .main import main as main
