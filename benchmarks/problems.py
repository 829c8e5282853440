"""The reference problems A01 to A05 of the IFToMM library of multibody benchmarks, built from `examples/`, with their answers."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from common import ROOT

import jaxmb as jm

sys.path.append(str(ROOT / "examples"))

import andrews_model
import bricard
import bricard_joints
import fourbar_model
import governor
import nfourbar
import nfourbar_joints
import pendulum
import puma as puma
import slider_crank as slider_crank

FORMULATIONS = {
    "GaussProjection": jm.formulation.GaussProjection(),
    "KKT": jm.formulation.KKT(),
    "OrthogonalProjection, skew": jm.formulation.OrthogonalProjection(inertia="skew"),
    "OrthogonalProjection, symmetric": jm.formulation.OrthogonalProjection(inertia="symmetric"),
    "OrthogonalProjection, parameterised": jm.formulation.OrthogonalProjection(),
    "NullSpace": jm.formulation.NullSpace(),
    "CoordinatePartition": jm.formulation.CoordinatePartition(),
    "Elimination": jm.formulation.Elimination(),
    "Proximal": jm.formulation.Proximal(),
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """A motion and what is known of its end.

    Attributes:
        title: in a few words.
        end: duration in s.
        unit: of the answer.
        exact: the answer at the end.
        build: makes the system and its start.
        answer: reads the answer off a system and its solution, at the last time.
    """

    title: str
    end: float
    unit: str
    exact: Any
    build: Callable[[], tuple[jm.System, jm.State]]
    answer: Callable[[jm.System, jm.Solution], Any]

    def error(self, answer: Any) -> float | None:
        """Largest distance of an answer's components from the exact ones; None if it is not finite."""
        away = float(np.abs(np.asarray(answer, np.float64) - self.exact).max())
        return away if np.isfinite(away) else None

    def built(self) -> tuple[jm.System, jm.State]:
        """The system and its start, made once."""
        return _built(self.build)


@functools.cache
def _built(build: Callable[[], tuple[jm.System, jm.State]]) -> tuple[jm.System, jm.State]:
    return build()


def reference(name: str) -> dict[str, np.ndarray]:
    """A file of reference solutions."""
    return dict(np.load(ROOT / "tests" / "data" / f"{name}.npz"))


def nfourbar_absolute(n: int = 2) -> tuple[jm.System, jm.State]:
    """A02 in 3(2N + 1) absolute coordinates."""
    system = nfourbar.nfourbar(n)
    return system, jm.assemble(system, *nfourbar.pose(n, jnp.array(np.pi / 2), jnp.array(-1.0)))


def nfourbar_relative(n: int = 2) -> tuple[jm.System, jm.State]:
    """A02 in 2N + 1 joint angles, closed by 2N rows."""
    system = nfourbar_joints.nfourbar(n).build(cut=[f"right{i}" for i in range(n)])
    return system, nfourbar_joints.turning(system, n, -1.0)


def bricard_relative() -> tuple[jm.System, jm.State]:
    """A04 in five joint angles, closed by five rows of rank four."""
    system = bricard_joints.builds()["relative"]
    return system, jm.assemble(system)


def governor_relative() -> tuple[jm.System, jm.State]:
    """A05 in four joint coordinates, a tree without rows."""
    system = governor.governor().build()
    return system, governor.start(system)


def _end(name: str, *keys: str) -> np.ndarray:
    return np.array([reference(name)[key][-1] for key in keys])


A01 = Problem(
    title="pendulum in x and y",
    end=10.0,
    unit="m",
    exact=_end("A01_pendulum", "x", "y"),
    build=pendulum.build,
    answer=lambda system, found: found.q[-1],
)
A02 = Problem(
    title="N-four-bar, N = 2, ten singular passages",
    end=10.0,
    unit="m",
    exact=_end("A02_nfourbar", "B0x_N2", "B0y_N2"),
    build=nfourbar_absolute,
    answer=lambda system, found: nfourbar.rod_end(found.q[-1, :3], 0.5),
)
A03 = Problem(
    title="Andrews' squeezer",
    end=0.03,
    unit="rad",
    exact=reference("A03_andrews_ivp")["Y"][-1, 0],
    build=andrews_model.build,
    answer=lambda system, found: found.q[-1, 0],
)
A04 = Problem(
    title="Bricard's mechanism, 30 rows of rank 29",
    end=10.0,
    unit="m",
    exact=np.array([0.9997309873038, -0.9999999638258, -0.0002689765123]),  # two builds at 1e-13 agree to 2e-13
    build=bricard.bricard,
    answer=lambda system, found: bricard.p3(found.q[-1]),
)
A05 = Problem(
    title="stiff flyball governor",
    end=10.0,
    unit="m",
    exact=0.6196229170614,  # Tsit5 at 1e-11; hand-derived equations give the same to 2e-12
    build=governor_relative,
    answer=lambda system, found: jm.coordinate(system, found, "slide")[-1],
)
PROBLEMS = {"A01": A01, "A02": A02, "A03": A03, "A04": A04, "A05": A05}
# The same answers from joint coordinates, which other engines use.
RELATIVE = {
    "A02": dataclasses.replace(
        A02,
        build=nfourbar_relative,
        answer=lambda system, found: jm.position(system, found, "up0.b")[-1],
    ),
    "A04": dataclasses.replace(
        A04,
        build=bricard_relative,
        answer=lambda system, found: jm.position(system, found, "rod2.end")[-1],
    ),
}


def fourbar(speed: float = 12.0) -> tuple[jm.System, jm.State]:
    """The four-bar in three relative angles, its crank upright and turning at a speed in rad/s."""
    system = fourbar_model.fourbar()
    angles = reference("fourbar_blajer")["alpha_spin"][0]
    return system, jm.assemble(system, angles, [speed, 0.0, 0.0], hold=["a1"], hold_velocity=["a1"])
