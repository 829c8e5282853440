"""Programs that are compiled quickly."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.core import Tracer

from .check import is_concrete

F = TypeVar("F", bound=Callable[..., Any])

# Many small kernels: LLVM's costly passes gain little in them.
_LEVEL = "xla_backend_optimization_level"
_FAVOURED = {"xla_cpu_use_fusion_emitters": False, _LEVEL: 1}


def compiler_options() -> dict[str, Any]:
    """Options of XLA with which programs of this library compile in about two thirds of the CPU time, and run some 5 % slower.

    They suit CPUs; elsewhere there are none. What this version of XLA does not know, or `XLA_FLAGS` sets, is left out. JAX takes
    them at the outermost `jax.jit` only: there the library's own programs use them by themselves, but not inside of your `jit`.

    Example:
        >>> import jax, jaxmb as jm
        >>> float(jax.jit(lambda x: 2 * x, compiler_options=jm.compiler_options())(1.0))
        2.0
    """
    return dict(_known(jax.default_backend()))


@functools.cache
def _known(backend: str) -> dict[str, Any]:
    if backend != "cpu":
        return {}
    known = {}
    for name, value in _FAVOURED.items():
        if name in os.environ.get("XLA_FLAGS", ""):
            continue
        try:
            jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def is_outermost(*trees: Any) -> bool:
    """Whether no leaf is a tracer, and no transformation is around the call."""
    return is_concrete(*trees) and not isinstance(jax.device_put(0), Tracer)


def program(fn: F, brief: bool = True) -> F:
    """`equinox.filter_jit`, with `compiler_options` where no other transformation is around it.

    Args:
        fn: the function.
        brief: whether it takes longer to compile it than to run it; then it is compiled in half the time, and runs half as fast.
    """
    plain = eqx.filter_jit(fn)
    options: Any = lambda: {
        "compiler_options": compiler_options() | ({_LEVEL: 0} if brief and _LEVEL in compiler_options() else {})
    }
    quick = functools.cache(lambda: eqx.filter_jit(fn, **options()))

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (quick() if is_outermost(args, kwargs) else plain)(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


lasting = functools.partial(program, brief=False)
