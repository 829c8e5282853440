"""Functions of Python that compiled programs call where a flag is set, and a CPU of their own for what they compute."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxlib import xla_client

from ..lanes import Handler, Shaped, entries, interface

_Address = ctypes.c_void_p
_IDLE: list[Any] = []
_LIVE: list[Any] = []  # what compiled programs call must live as long as they do


@contextlib.contextmanager
def own_cpu() -> Iterator[Any]:
    """A CPU of XLA with threads that nobody else uses.

    A computation that is started from within another one waits for threads that may all be busy with the latter: on one core it would
    wait for ever. Those of another client are free.
    """
    try:
        device = _IDLE.pop()
    except IndexError:
        device = _new_cpu()
    try:
        yield device
    finally:
        # For the next call: two calls at once never share one, and threads are not made anew each time.
        _IDLE.append(device)


def _new_cpu() -> Any:
    return xla_client.make_cpu_client(asynchronous=False).local_devices()[0]


@functools.cache
def has_own_cpu() -> bool:
    """Whether this version of JAX can make another CPU client."""
    try:
        _IDLE.append(_new_cpu())
    except Exception:  # whatever it may say
        return False
    return True


def handler(
    work: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None],
    operands: Sequence[Shaped],
    results: Sequence[Shaped],
) -> Handler:
    """The function that XLA calls: `work(operands, results)` if any entry of the first operand is true, and nothing else.

    Python is not asked, nor waited for, where none is. What `work` raises becomes an error of the program.
    """

    def called(frame: int) -> int | None:
        try:
            at = interface()
            inputs = _arrays(frame + at.arguments, operands)
            _in_thread(lambda: work(inputs, _arrays(frame + at.results, results)))
        except BaseException as error:  # it must not pass through XLA
            return _error(frame, f"{type(error).__name__}: {error}")
        return None

    call = ctypes.CFUNCTYPE(_Address, _Address)(called)
    _LIVE.append(call)
    address = ctypes.cast(call, _Address).value
    out, flags = Handler(), entries(operands[0].shape)
    flag_memory = out.open(len(operands), len(results))[0][0]
    # The flags are read by machine code: Python, with its lock, is entered only where one is set.
    out.do("br label %look")
    out.label("look")
    k = out.let("phi i64 [ 0, %called ], [ %next, %none ]")
    flag = out.let(f"load i8, ptr {out.entry('i8', flag_memory, k)}")
    out.do(f"br i1 {out.let(f'icmp ne i8 {flag}, 0')}, label %some, label %none")
    out.label("none")
    out.do(f"%next = add nuw nsw i64 {k}, 1")
    out.do(f"br i1 {out.let(f'icmp ult i64 %next, {flags}')}, label %look, label %idle")
    out.label("idle")
    out.do("ret ptr null")
    out.label("some")
    out.do(f"ret ptr {out.let(f'call ptr inttoptr (i64 {address} to ptr)(ptr %frame)')}")
    return out


def _in_thread(work: Callable[[], None]) -> None:
    """In a thread of its own, in which no transformation and no setting of the caller's is about."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        try:
            thread.join()
        except (
            KeyboardInterrupt
        ) as error:  # XLA's memory, to which the thread writes, must not be given back before it is done
            raised.append(error)
    if raised:
        raise raised[0]


def _pointer(address: int) -> int:
    return _Address.from_address(address).value or 0


def _arrays(address: int, shapes: Sequence[Shaped]) -> list[np.ndarray]:
    """The arrays of XLA's buffers, to whose pointers an address points."""
    first, out = _pointer(address), []
    for k, shaped in enumerate(shapes):
        if not entries(shaped.shape):
            out.append(np.empty(shaped.shape, shaped.dtype))
            continue
        data = _pointer(_pointer(first + ctypes.sizeof(_Address) * k) + interface().data)
        memory: ctypes.Array[ctypes.c_uint8] = (
            ctypes.c_uint8 * (entries(shaped.shape) * np.dtype(shaped.dtype).itemsize)
        ).from_address(data)
        out.append(np.frombuffer(memoryview(memory), shaped.dtype).reshape(shaped.shape))
    return out


def _error(frame: int, message: str) -> int:
    """An error of XLA's."""
    at, text = interface(), ctypes.create_string_buffer(message.encode())
    arguments = ctypes.create_string_buffer(at.error)
    ctypes.c_size_t.from_buffer(arguments).value = at.error
    _Address.from_buffer(arguments, at.message).value = ctypes.addressof(text)
    ctypes.c_int.from_buffer(arguments, at.code).value = 13  # internal
    create = _pointer(_pointer(frame + at.functions) + at.create)
    return ctypes.CFUNCTYPE(_Address, _Address)(create)(ctypes.addressof(arguments))
