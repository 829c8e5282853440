"""Whether code can be compiled here, and does what it should."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .code import Shaped
from .jit import missing
from .program import Program

# Of a small program's results in single precision; a wrong layout or a wrong instruction errs by far more.
RTOL = 1e-5


def unavailable(by_xla: bool = False) -> str | None:
    """Why no code is compiled here, None if it is; the first call compiles a small program and looks at what it gives.

    Args:
        by_xla: whether it serves as well if XLA compiles the operations on single numbers, as it does on other devices than CPUs.
    """
    kind = jax.default_backend()
    if kind != "cpu" and not by_xla:
        return f"the device is of kind '{kind}'"
    return (missing() if kind == "cpu" else None) or _failure(kind)


@functools.cache
def _failure(kind: str) -> str | None:
    """What is wrong with a small program on this kind of device."""
    try:
        with jax.ensure_compile_time_eval():
            x = jnp.asarray(np.linspace([-3.0, 0.5], [2.0, 4.0], 5))
            fn = lambda numbers, a, b: [numbers.sin(a) / b + numbers.sqrt(b) * numbers.exp(a), a > b]
            small = Program.of(lambda x: fn(jnp, *x), Shaped((2,), x.dtype), thorough=True)
            results, expected = jax.jit(jax.vmap(small))(x), fn(np, *np.asarray(x).T)
            same = [np.allclose(a, b, rtol=RTOL) for a, b in zip(results, expected, strict=True)]
    except Exception as error:  # whatever a compiler, or a version of XLA that it does not fit, may say
        return f"compiled code does not run here: {(str(error) or type(error).__name__).splitlines()[0]}"
    return None if all(same) else "compiled code gives wrong numbers here"
