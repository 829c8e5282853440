"""Whether the actuators of a mechanism can move it, and where another one would be needed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..formulation import AbstractFormulation
from ..foundations import (
    FunctionOfState,
    Limits,
    TextInNotebooks,
    contract,
    counted,
    expect_concrete,
    positive_or_one,
    program,
)
from ..linalg import metric_root
from ..system import State, System
from .affine import drive
from .names import input_names
from .output import AbstractOutput, as_output, output_rows
from .plant import Plant

# A joint is named as part of a motion from this share on: below the square root of it, 1e-3 of the amplitude, it hardly moves.
TAKES_PART = 1e-6


@dataclasses.dataclass(frozen=True)
class Controllability(TextInNotebooks):
    """What actuators can move at one pose; `print` shows it as a table.

    Attributes:
        t: time in s.
        freedoms: k, the dimension of the accelerations that the constraints allow.
        rank: of D B W^(1/2): how many of them the inputs can choose.
        rank_tol: the cut-off.
        actuation: the k-th singular value of D B W^(1/2) in units of ‖M^(−1/2) B W^(1/2)‖₂; zero if there are fewer inputs.
        shares: by name of a joint velocity, or of a velocity of a system that was not built from a mechanism: the part of the motion caused
            by an actuator there that no other actuator can cause, in the metric of M. It is positive if and only if an actuator there would
            help.
        remedy: a smallest set of places for further actuators with which all motions can be chosen.
        potencies: by input, the part of the acceleration that it would cause without constraints that moves the mechanism; the rest loads
            constraints.
        indeterminate: whether the motion itself is not determined at this pose.
        outputs: number of outputs; None without any.
        chart: smallest singular value of J Dᵀ, rows in units of ‖J_i M^(−1/2)‖.
        untold: as `shares`, for the motion that the outputs do not determine.
    """

    t: float
    freedoms: int
    rank: int
    rank_tol: float
    actuation: float
    shares: dict[str, float]
    remedy: tuple[str, ...]
    potencies: dict[str, float]
    indeterminate: bool
    outputs: int | None
    chart: float | None
    untold: dict[str, float]

    @property
    def controllable(self) -> bool:
        """Whether the inputs can give any acceleration that the constraints allow."""
        return self.rank == self.freedoms

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The problems, in sentences; none if a motion law can produce any motion."""
        sentences = []
        if self.indeterminate:
            sentences.append(
                "The motion is not determined at this pose: inputs cannot select one of several possible motions."
            )
        if not self.controllable:
            names, count = _participants(self.shares), counted(len(self.remedy), "more actuator")
            sentences.append(
                f"No actuator acts on the motion of {names}; {count} at {' and '.join(self.remedy)} would be enough."
                if self.remedy
                else f"No actuator acts on {counted(self.freedoms - self.rank, 'freedom')}."
            )
        if self.outputs is not None and self.chart is not None:
            if self.outputs > self.freedoms:
                sentences.append(
                    f"There are {counted(self.outputs, 'output')} for {counted(self.freedoms, 'freedom')}: "
                    "they can be met together by chance only."
                )
            elif self.chart <= self.rank_tol:
                sentences.append(
                    f"The outputs do not determine the motion of {_participants(self.untold)}, or not independently."
                )
            elif self.outputs < self.freedoms:
                sentences.append(
                    f"{counted(self.freedoms - self.outputs, 'freedom')} without output, in the motion of {_participants(self.untold)}, will "
                    "move by itself, perhaps unstably."
                )
        return tuple(sentences)

    def __str__(self) -> str:
        lines = [
            f"Control at t = {self.t:g} s, at this pose only: {counted(self.freedoms, 'freedom')}, of which "
            f"{counted(len(self.potencies), 'input')} can choose {self.rank}",
            f"  actuation {self.actuation:.2g}"
            + ("" if self.chart is None else f", chart {self.chart:.2g}")
            + f", cut-off {self.rank_tol:.2g}",
            f"  {'input':<18}moves by",
            *(f"  {name:<18}{value:.2f}" for name, value in self.potencies.items()),
        ]
        if not self.controllable:
            lines += [f"  {'place':<18}would help by", *(f"  {n:<18}{x:.2f}" for n, x in self.shares.items())]
        return "\n".join(lines + [f"  {text}" for text in self.verdicts])


@contract
def controllability(
    system: System,
    state: State,
    *,
    limits: Limits | None = None,
    output: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState | None = None,
    formulation: AbstractFormulation | None = None,
) -> Controllability:
    """Whether the actuators can give any acceleration that the constraints allow, rank(D B W^(1/2)) = k, at one pose.

    That is Aghili's condition (64), null(C) ∩ null(Bᵀ) = 0, decided in units that do not matter. With X = Dᵀ null((D B)ᵀ) and
    XᵀM X = I, an actuator with the generalised force b per unit helps if and only if its share ‖Xᵀb‖²/(bᵀM⁻¹b) is not zero; a
    smallest set that is enough is found by pivoted QR of these.

    Args:
        system: the system.
        state: one assembled state, with known numbers.
        limits: W^(1/2) (nu,), the largest inputs; 0 for one that must not be used; 1 for each if None.
        output: what is to be moved, to report its relation to the freedoms too.
        formulation: `GaussProjection()` by default.

    Raises:
        TypeError: for traced numbers.
        ValueError: for arguments of another shape, and names that are not known.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cart = jm.System(("cart", "pole"), mass=lambda t, q, p: jnp.array([[2.0, jnp.cos(q[1])], [jnp.cos(q[1]), 1.0]]),
        ...                  actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]))
        >>> print(jm.control.controllability(cart, jm.assemble(cart, [0.0, 0.0])).verdicts[0])
        No actuator acts on the motion of pole; 1 more actuator at pole would be enough.
    """
    expect_concrete(system=system, state=state)
    plant = Plant.at(system, state, formulation)
    names, arrays = _arrays(plant, None if limits is None else jnp.asarray(limits), output)
    values = {name: np.asarray(x) for name, x in arrays.items()}
    freedoms, tol = int(values["freedoms"]), float(values["tol"])
    # From here on by NumPy: ranks are whole numbers and names, for which nothing is to be differentiated.
    live = np.any(values["basis"] != 0, axis=1)
    basis, by_input = values["basis"][live], values["by_input"][live]
    size = np.linalg.norm(values["root"] @ values["weighted"], 2) if values["weighted"].size else 0.0
    vectors, singular, _ = np.linalg.svd(by_input / (size or 1.0))
    rank = int((singular > tol).sum())
    # An actuator at a joint is the force along its axis; in units of M⁻¹ shares do not depend on metres or radians.
    lengths = np.linalg.norm(values["root"] @ values["axes"].T, axis=0)
    axes = np.divide(values["axes"], lengths[:, None], out=np.zeros_like(values["axes"]), where=lengths[:, None] > 0)
    # X = Dᵀ null((D B)ᵀ): motions that no actuator works in.
    idle = basis.T @ vectors[:, rank:]
    shares = np.sum((axes @ idle) ** 2, axis=1)
    remedy: tuple[str, ...] = ()
    if rank < freedoms and names:
        from scipy.linalg import qr

        # Pivoted QR picks columns by their remainder: as many as freedoms lack, if the last pivot is not zero.
        factors: Any = qr((axes @ idle).T, mode="economic", pivoting=True)
        _, triangle, order = factors
        diagonal = np.abs(np.diag(triangle))
        if len(diagonal) >= freedoms - rank and diagonal[freedoms - rank - 1] > tol:
            remedy = tuple(names[j] for j in sorted(order[: freedoms - rank]))
    alone = np.linalg.norm(values["root"] @ values["weighted"], axis=0)
    potency = np.divide(np.linalg.norm(by_input, axis=0), alone, out=np.zeros_like(alone), where=alone > 0) ** 2
    chart, untold, outputs = _outputs(values, basis, axes, tol)
    return Controllability(
        t=float(state.t),
        freedoms=freedoms,
        rank=rank,
        rank_tol=tol,
        actuation=float(singular[freedoms - 1]) if 0 < freedoms <= len(singular) else float(freedoms == 0),
        shares=dict(zip(names, shares.tolist(), strict=True)),
        remedy=remedy,
        potencies=dict(zip(input_names(system), potency.tolist(), strict=True)),
        indeterminate=bool(values["indeterminate"]),
        outputs=outputs,
        chart=chart,
        untold=dict(zip(names, untold.tolist(), strict=True)),
    )


def _outputs(
    values: dict[str, np.ndarray], basis: np.ndarray, axes: np.ndarray, tol: float
) -> tuple[float | None, np.ndarray, int | None]:
    """The smallest singular value of J Dᵀ that counts, and the shares of what the outputs do not tell."""
    if "jacobian" not in values:
        return None, np.zeros(len(axes)), None
    sizes = np.linalg.norm(values["jacobian"] @ values["root"].T, axis=1)
    rows = (values["jacobian"] / positive_or_one(sizes)[:, None]) @ basis.T
    _, singular, directions = np.linalg.svd(rows)
    # Right singular vectors without a singular value: motions that change no output.
    unobserved = basis.T @ directions[int((singular > tol).sum()) :].T
    return float(singular.min(initial=np.inf)), np.sum((axes @ unobserved) ** 2, axis=1), rows.shape[0]


def _participants(shares: dict[str, float]) -> str:
    """The places that take part."""
    names = [name for name, share in shares.items() if share > TAKES_PART]
    return ", ".join(names) or "no named joint"


@program
def _arrays(plant: Plant, limits: Array | None, output: object) -> tuple[tuple[str, ...], dict[str, Array]]:
    system, mass = plant.system, plant.terms.mass
    actuators = drive(plant, limits)
    if system.joints is None:
        axes = dict(zip(system.velocities, jnp.eye(system.nv, dtype=mass.dtype), strict=True))
    else:
        axes = system.joints.axes(plant.t, plant.q, system.params)
    arrays = {
        "basis": actuators.basis,
        "by_input": actuators.by_input,
        "weighted": plant.actuation * actuators.limits,
        "root": metric_root(mass, plant.terms.jacobian),
        "axes": jnp.stack([jnp.zeros(system.nv, mass.dtype), *axes.values()])[1:],
        "freedoms": plant.freedoms,
        "tol": jnp.asarray(actuators.rank_tol),
        "indeterminate": jnp.array(False) if plant.restored is None else plant.restored.indeterminate,
    }
    if output is not None:
        arrays["jacobian"] = output_rows(plant, as_output(output)).jacobian
    return tuple(axes), arrays
