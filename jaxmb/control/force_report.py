"""Which forces of constraints inputs can command."""

import dataclasses
from collections.abc import Sequence

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
    listing,
    positive_or_one,
    program,
)
from ..linalg import metric_root
from ..reaction import analyse_reactions
from ..system import State, System
from .motion import chart
from .output import AbstractOutput, Outputs, as_output, output_rows
from .plant import Plant
from .reaction import AbstractForces, force_authority

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ForceReport(TextInNotebooks):
    """What can be commanded of some forces of constraints at one pose; `print` shows it as a table.

    Attributes:
        t: time in s.
        spare: how many forces at most can be commanded beside the motion, rank B − rank(D B).
        rank: how many of these can be.
        rank_tol: the cut-off.
        authority: smallest singular value of their answer to inputs that move nothing, as in `HybridCommand`.
        ambiguous: by force, which part of it a rigid model does not determine, ‖S_i (I − C C⁺)‖/‖S_i‖ with rows in units of their own.
        beyond: by force, how much of it is beyond the actuators: 1 if they do not change it at all.
        undefined: forces of multipliers that are undefined here, of rows that are degenerate at this pose.
        partners: constraints that trade ambiguous forces against each other.
    """

    t: float
    spare: int
    rank: int
    rank_tol: float
    authority: float
    ambiguous: dict[str, float]
    beyond: dict[str, float]
    undefined: tuple[str, ...]
    partners: tuple[tuple[str, ...], ...]

    @property
    def commandable(self) -> bool:
        """Whether all are determined, and can be commanded together."""
        return not self.verdicts

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What is wrong, in sentences."""
        sentences = []
        # Shares are lengths of projections: a singular vector is known to about the root of what its value is known
        # to.
        limit = self.rank_tol**0.5
        open_ = [name for name, share in self.ambiguous.items() if share > limit]
        if open_:
            traded = "".join(f"; {listing(group)} trade theirs" for group in self.partners)
            sentences.append(
                f"A rigid model does not determine {listing(open_)}: redundant rows share the load{traded}."
            )
        if self.rank < len(self.beyond):
            names = [name for name, share in self.beyond.items() if share > limit]
            sentences.append(
                f"The actuators cannot command {listing(names)} beside the motion: {counted(self.spare, 'force')} at most, and of these "
                f"{self.rank}."
            )
        if self.undefined:
            sentences.append(
                f"The multipliers {listing(self.undefined)} are undefined at this pose, where their rows are degenerate; components of the "
                "reaction (`ReactionAlong`) are not."
            )
        return tuple(sentences)

    def __str__(self) -> str:
        lines = [
            f"Forces at t = {self.t:g} s, at this pose only: {counted(len(self.beyond), 'force')}, of which {self.rank} can be commanded",
            f"  authority {self.authority:.2g}, cut-off {self.rank_tol:.2g}, at most {self.spare} beside the motion",
            f"  {'force':<18}{'not determined':<18}beyond the actuators",
        ]
        lines += [f"  {n:<18}{self.ambiguous[n]:<18.2f}{self.beyond[n]:.2f}" for n in self.beyond]
        return "\n".join(lines + [f"  {text}" for text in self.verdicts])


@contract
def analyse_forces(
    system: System,
    state: State,
    forces: AbstractForces,
    *,
    output: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState | None = None,
    limits: Limits | None = None,
    formulation: AbstractFormulation | None = None,
) -> ForceReport:
    """Whether forces y = S λ of constraints are determined, and can be commanded beside a motion, at one pose.

    y is determined if and only if S (I − C C⁺) = 0, of which S = C_Xᵀ is the criterion of Frączek and Wojtyra (2013) for the
    reaction of X. With A₁ = Π D B W^(1/2) and −∂y/∂x = A₂ it can be commanded beside any motion if and only if
    rank(A₂ (I − A₁⁺A₁)) is the number of forces; names are found by the left null vectors of that matrix.

    Args:
        system: the system.
        state: one assembled state, with known numbers.
        forces: what y is.
        output: what is to be moved; all freedoms if None, `Outputs()` for nothing.
        limits: W^(1/2) (nu,), the largest inputs; 1 for each if None.
        formulation: `GaussProjection()` by default.

    Raises:
        ValueError: for arguments of another shape, and names that are not known.
    """
    plant = Plant.at(system, state, formulation)
    labels = forces.labels(plant.system)
    arrays = _arrays(plant, forces, output, None if limits is None else jnp.asarray(limits))
    values: Arrays = {name: np.asarray(x) for name, x in arrays.items()}
    tol = float(values["tol"])
    weights = values["weights"] / values["lengths"]
    vectors, singular, _ = np.linalg.svd(values["rows"])
    # Left null vectors of C: combinations of multipliers without any reaction, by which y may differ.
    silent = vectors[:, int((singular > tol).sum()) :]
    shares = _relative(weights @ silent, weights)
    answer = values["by_input"] @ values["impotent"]
    undefined = tuple(
        n for n, row, alone in zip(labels, weights, values["alone"], strict=True) if row.any() and np.isnan(alone)
    )
    # Undefined multipliers are NaN, for which no SVD converges; they are named by themselves.
    vectors, singular, _ = np.linalg.svd(np.nan_to_num(answer))
    rank = int((singular > tol).sum())
    beyond = np.linalg.norm(vectors[:, rank:], axis=1)
    ambiguous = any(share > tol**0.5 for share in shares)
    acting = (_rank(matrix / values["size"], tol) for matrix in (values["root"] @ values["weighted"], values["potent"]))
    return ForceReport(
        t=float(state.t),
        spare=next(acting) - next(acting),
        rank=rank,
        rank_tol=tol,
        authority=float(singular[len(labels) - 1]) if 0 < len(labels) <= len(singular) else 0.0,
        ambiguous=dict(zip(labels, shares.tolist(), strict=True)),
        beyond=dict(zip(labels, beyond.tolist(), strict=True)),
        undefined=undefined,
        partners=analyse_reactions(system, state, rank_tol=plant.formulation.rank_tol).clusters if ambiguous else (),
    )


def _relative(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(total, axis=1)
    return np.linalg.norm(part, axis=1) / positive_or_one(lengths)


def _rank(matrix: np.ndarray, tol: float) -> int:
    return int((np.linalg.svd(matrix, compute_uv=False) > tol).sum()) if matrix.size else 0


@program
def _arrays(plant: Plant, forces: AbstractForces, output: object, limits: Array | None) -> dict[str, Array]:
    rows = output_rows(plant, Outputs() if output is None else as_output(output))
    moving = chart(plant, rows, jnp.zeros_like(rows.value), limits)
    if output is None:
        # No output at all means all freedoms: nothing may move.
        moving = dataclasses.replace(moving, projector=moving.drive.live)
    authority = force_authority(plant, moving, moving.actuation(), forces)
    mass, jacobian = plant.terms.mass, plant.terms.jacobian
    root = metric_root(mass, jacobian)
    lengths = positive_or_one(jnp.linalg.norm(jacobian @ root.T, axis=1))
    return {
        "alone": authority.alone,
        "by_input": authority.by_input,
        "impotent": authority.impotent,
        "weights": forces.weights(plant),
        "rows": (jacobian / lengths[:, None]) @ root.T,
        "lengths": lengths,
        "root": root,
        "weighted": plant.actuation * moving.drive.limits,
        "potent": moving.by_input,
        "size": moving.drive.size,
        "tol": jnp.asarray(moving.drive.rank_tol),
    }
