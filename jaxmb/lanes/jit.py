"""Modules of LLVM compiled for the processor at hand, as functions that XLA calls."""

import ctypes
import ctypes.util
import functools
import importlib.util
import threading
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.typing import DTypeLike

from .module import Handler, Unit
from .stored import stored

if TYPE_CHECKING:
    from llvmlite import binding

_LOCK = threading.Lock()
_NAMES: set[str] = set()  # that XLA knows
_ADDRESSES: dict[str, int] = {}  # of what is compiled, by names, not by its text, which may be forgotten


@functools.cache
def missing() -> str | None:
    """Why no code is compiled here; None if it is."""
    return None if importlib.util.find_spec("llvmlite") else "llvmlite is not installed (`pip install llvmlite`)"


def _machine(quick: bool) -> "binding.TargetMachine":
    """The processor at hand."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=0 if quick else 1)


_assembler = functools.cache(_machine)


@functools.cache
def _engine() -> "binding.ExecutionEngine":
    """What holds all code. It lives as long as the process: XLA may call what was compiled at any time.

    One engine, which is given code and no modules: with an engine each, 2,000 additions took 1.3 MB, 0.5 of it for the module; here 0.03.
    """
    from llvmlite import binding

    return binding.create_mcjit_compiler(binding.parse_assembly(""), _machine(False))


@functools.cache
def vector_bytes() -> int:
    """The size of a vector register."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


def width_of(dtype: DTypeLike, lanes: int) -> int:
    """How many lanes are worked on side by side."""
    width = vector_bytes() // np.dtype(dtype).itemsize
    # No vector of which half or more stays empty.
    while width > 1 and width >= 2 * lanes:
        width //= 2
    return width


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m"))


def registered(module: Handler, name: str | None = None) -> str:
    """The name under which XLA finds the compiled function, its own or one that is given; equal ones are compiled once."""
    name = name or module.handler.name
    with _LOCK:
        # Threads may come with equal functions at once, each with a handler of its own.
        if name not in _NAMES:
            for unit in module.units:
                _compiled(unit)
            call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_compiled(module.handler))
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(call), platform="cpu")
            _NAMES.add(name)
    return name


def _compiled(unit: Unit) -> int:
    """The address of a function, which others find by its name from then on."""
    if unit.name in _ADDRESSES:
        return _ADDRESSES[unit.name]
    from llvmlite import binding

    for symbol in unit.library:
        binding.add_symbol(symbol, ctypes.cast(getattr(_library(), symbol), ctypes.c_void_p).value)
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(stored(unit.name, lambda: _object_code(unit))))
    engine.finalize_object()
    return _ADDRESSES.setdefault(unit.name, engine.get_function_address(unit.name))


def _object_code(unit: Unit) -> bytes:
    from llvmlite import binding

    machine = _assembler(unit.quick)
    module = binding.parse_assembly(unit.text)
    module.verify()
    if not unit.quick:
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)
