"""Whether code can be compiled here, and does what it should."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from .code import Shaped
from .native import missing
from .program import Program

# Of steps without compiled code to those with it: of four-bars alone and in batches, and of their gradients (`docs/engines.md`).
COST = "10 to 100 times"


def available(asked: bool | None) -> bool:
    """Whether code is compiled for a run. Where it cannot be on a CPU, and nobody has said that it must not, that is told: once in a process."""
    if asked is None and jax.default_backend() == "cpu":
        _tell()
    return asked is not False and unavailable() is None


@functools.cache
def _tell() -> None:
    reason = unavailable()
    if reason is not None:
        message = f"Steps take some {COST} as long as they could, for no code is compiled: {reason}. `show_config()` tells more."
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def unavailable(asked: bool = False) -> str | None:
    """Why no steps are compiled, None if they are; the first call compiles a small program and looks at what it gives.

    On other devices than CPUs they are made of operations on single numbers, if that is asked for: how fast those are was not measured.
    """
    kind = jax.default_backend()
    if kind != "cpu" and not asked:
        return f"the device is of kind '{kind}'"
    return (missing() if kind == "cpu" else None) or _wrong(kind)


@functools.cache
def _wrong(kind: str) -> str | None:
    """What is wrong with a small program on this kind of device."""
    try:
        with jax.ensure_compile_time_eval():
            x = jnp.asarray(np.linspace([-3.0, 0.5], [2.0, 4.0], 5))
            fn = lambda x: [jnp.sin(x[0]) / x[1] + jnp.sqrt(x[1]) * jnp.exp(x[0]), x[0] > x[1]]
            found, expected = (
                jax.jit(jax.vmap(f))(x) for f in (Program.of(fn, Shaped((2,), x.dtype), thorough=True), fn)
            )
            same = [np.allclose(a, b, rtol=1e-5) for a, b in zip(found, expected, strict=True)]
    except Exception as error:  # whatever a compiler, or a version of XLA that it does not fit, may say
        return f"compiled code does not run here: {(str(error) or type(error).__name__).splitlines()[0]}"
    return None if all(same) else "compiled code gives wrong numbers here"
