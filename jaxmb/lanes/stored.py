"""Compiled code in JAX's persistent cache folder, so that a second process need not compile it."""

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax

_DIGEST = hashlib.sha256().digest_size


def stored(name: str, compiled: Callable[[], bytes]) -> bytes:
    """The code of that name, from the folder if it is there and whole; else compiled, and kept there.

    A file is the SHA-256 of its code and the code. It gets its name when it is whole, so that processes may share the folder. One that
    cannot be read or written serves nobody and harms nobody: JAX, which uses the folder too, says so.
    """
    folder = _folder()
    if folder is None:
        return compiled()
    path = folder / f"{name}_{_processor()}"
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    if len(data) > _DIGEST and hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
        return data[_DIGEST:]
    code = compiled()
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(hashlib.sha256(code).digest() + code)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
    return code


def _folder() -> pathlib.Path | None:
    """Where code is kept; None if JAX has no cache, or none in the file system."""
    settings: Any = jax.config  # which the type checker does not know
    folder = settings.jax_compilation_cache_dir if settings.jax_enable_compilation_cache else None
    return None if not folder or "://" in folder else pathlib.Path(folder) / "lanes"


@functools.cache
def _processor() -> str:
    """What code depends on besides its text: processor and compiler."""
    import llvmlite
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    machine = binding.get_default_triple(), binding.get_host_cpu_name(), features
    compiler = llvmlite.__version__, binding.llvm_version_info
    return hashlib.sha256(repr((machine, compiler)).encode()).hexdigest()[:16]
