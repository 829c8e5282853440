"""Programs that are compiled quickly."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, PyTree

from .blank import Blank
from .check import is_concrete
from .terminal import compiling, working

F = TypeVar("F", bound=Callable[..., Any])

# Many small kernels: LLVM's costly passes gain little in them. Undivided among threads they compile in a fifth less time on two cores.
_LEVEL = "xla_backend_optimization_level"
_FAVOURED = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1, _LEVEL: 1}


def compiler_options() -> dict[str, Any]:
    """Options of XLA with which programs of this library compile in about two thirds of the CPU time and run some 5 % slower.

    On devices other than CPUs there are none. Options that this version of XLA does not know, or that `XLA_FLAGS` sets, are left out. JAX accepts
    such options at the outermost `jax.jit` only. The library's own programs use them automatically if they are outermost; pass them to your own
    `jit`.

    Example:
        >>> import jax, jaxmb as jm
        >>> float(jax.jit(lambda x: 2 * x, compiler_options=jm.compiler_options())(1.0))
        2.0
    """
    return dict(_accepted(jax.default_backend()))


def quickest_options() -> dict[str, Any]:
    """`compiler_options` of what takes longer to compile than to run: compiled in half the time, it runs half as fast."""
    return {name: 0 if name == _LEVEL else value for name, value in compiler_options().items()}


@functools.cache
def _accepted(backend: str) -> dict[str, bool | int]:
    if backend != "cpu":
        return {}
    chosen = {name: value for name, value in _FAVOURED.items() if name not in os.environ.get("XLA_FLAGS", "")}
    if _known(chosen):
        return chosen
    return {name: value for name, value in chosen.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    """Whether this version of XLA knows all of these options; it has no list of them, but refuses what it does not know."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def is_outermost(*trees: PyTree) -> bool:
    """Whether no leaf is a tracer, and no transformation is around the call."""
    # Within `jit` a new array is a tracer even if no argument is one.
    return is_concrete(*trees) and not isinstance(jax.device_put(0), Tracer)


def program(fn: F, brief: bool = True) -> F:
    """`equinox.filter_jit`, with `compiler_options` where no other transformation is around it.

    Args:
        fn: the function.
        brief: whether it takes longer to compile it than to run it, see `quickest_options`.
    """

    # Trees are taken apart once, by compiled code; `filter_jit` would take them apart several times in Python.
    def of_arrays(blank: Blank, arrays: Sequence[Array]) -> tuple[Blank, list[Array]]:
        compiling()
        args, kwargs = blank.filled(arrays)
        return Blank.of(fn(*args, **kwargs))

    of_arrays.__name__ = of_arrays.__qualname__ = fn.__name__
    inner = eqx.filter_jit(of_arrays)

    # At the first call, not when it is defined: which options there are depends on the backend, whose start is the user's choice.
    @functools.cache
    def outermost() -> Callable[..., tuple[Blank, list[Array]]]:
        options = quickest_options() if brief else compiler_options()
        return eqx.filter_jit(of_arrays, compiler_options=options)  # pyright: ignore[reportCallIssue]

    @functools.wraps(fn)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        blank, arrays = Blank.of((args, kwargs))
        if not is_outermost(arrays):
            result, values = inner(blank, arrays)
        else:
            with working("running"):
                result, values = outermost()(blank, arrays)
        return result.filled(values)

    return call  # pyright: ignore[reportReturnType]


lasting = functools.partial(program, brief=False)
