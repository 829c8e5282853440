"""Whether code can be compiled here, and does what it should."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .code import Shaped
from .native import missing
from .program import Program


@functools.cache
def unavailable(asked: bool = False) -> str | None:
    """Why no steps are compiled, None if they are; the first call compiles a small program and looks at what it gives.

    On other devices than CPUs they are made of operations on single numbers, if that is asked for: how fast those are was not measured.
    """
    kind = jax.default_backend()
    reason = missing() if kind == "cpu" else None if asked else f"the device is of kind '{kind}'"
    if reason is not None:
        return reason
    try:
        with jax.ensure_compile_time_eval():
            x = jnp.asarray(np.linspace([-3.0, 0.5], [2.0, 4.0], 5))
            fn = lambda x: [jnp.sin(x[0]) / x[1] + jnp.sqrt(x[1]) * jnp.exp(x[0]), x[0] > x[1]]
            found, expected = (
                jax.jit(jax.vmap(f))(x) for f in (Program.of(fn, Shaped((2,), x.dtype), thorough=True), fn)
            )
            same = [np.allclose(a, b, rtol=1e-5) for a, b in zip(found, expected, strict=True)]
    except Exception as error:  # whatever a compiler, or a version of XLA that it does not fit, may say
        return f"compiled code does not run here: {error}"
    return None if all(same) else "compiled code gives wrong numbers here"
