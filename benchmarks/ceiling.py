"""The four-bar by hand, `ceiling.c`, for as many lanes as are asked for: what a C compiler makes of it for this very machine."""

import ctypes
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import numpy as np
from lanes import Case
from problems import fourbar_model

from jaxmb.simulation.stages import coefficients

COMPILER, SIDE_BY_SIDE = "cc", 8


def by_hand(case: Case, lanes: int) -> Callable[[int], np.ndarray] | None:
    """A function that goes so many steps of Tsit5 and returns the crank's angles; None without a compiler."""
    if shutil.which(COMPILER) is None:
        return None
    width = SIDE_BY_SIDE if lanes > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "ceiling.so"
        source = pathlib.Path(__file__).with_suffix(".c")
        options = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", f"-DLANES={width}")
        subprocess.run([COMPILER, *options, "-o", str(library), str(source)], check=True)
        step = ctypes.CDLL(str(library)).run
    a = np.ascontiguousarray(coefficients(dfx.Tsit5())[0])
    model = fourbar_model
    rods = np.array([*model.LENGTHS, *model.MASSES, model.GRAVITY, model.L0])
    _, state = case.build()
    start = np.zeros((-(-lanes // width), 6, width))
    v = np.resize(case.velocities(state.v, lanes), (start.shape[0] * width, 3)).reshape(-1, width, 3)
    start[:, :3] = np.cumsum(np.asarray(state.q))[:, None]  # absolute angles
    start[:, 3:] = np.cumsum(v, axis=2).swapaxes(1, 2)

    def run(steps: int) -> np.ndarray:
        states = aligned(start)
        for lane in states:
            step(address(rods), address(a), ctypes.c_double(case.step), ctypes.c_long(steps), address(lane))
        return states[:, 0].reshape(-1)[:lanes]

    return run


def address(x: np.ndarray) -> Any:
    return x.ctypes.data_as(ctypes.c_void_p)


def aligned(x: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    room = np.empty(x.nbytes + 64, np.uint8)
    first = -room.ctypes.data % 64
    out = room[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
    out[:] = x
    return out
