"""The pseudo-inverse of a small matrix by plane rotations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..foundations import positive_or_one
from .root import solve_spd

# Rotations converge within ten sweeps over all pairs; a matrix that is not finite must end too.
SWEEPS = 30
# Up to so many rows p take p + 2 sweeps: a fixed number, as scalar programs have no loops whose length depends on numbers.
# All of 126,000 random matrices, some graded over 15 orders of magnitude, had converged after p + 1, two rows after two.
FEW = 4
# Squarings of AᵀA for the largest singular value, which the Frobenius norm of the last one exceeds by a factor of n^(1/2¹¹) at most.
DOUBLINGS = 9


class PseudoInverse(eqx.Module):
    """A⁺ with the singular values of A.

    Attributes:
        inverse: A⁺ (n, k), or the damped one.
        values: singular values of A (min(k, n),) in falling order, without derivatives.
        rank: how many of them are above the cut-off.
    """

    inverse: Float[Array, "n k"]
    values: Float[Array, " p"]
    rank: Int[Array, ""]

    def value(self, count: Int[Array, ""] | int) -> Float[Array, ""]:
        """The smallest of the first `count` singular values; zero if there are fewer, infinite of none."""
        padded = jnp.concatenate([jnp.full(1, jnp.inf), self.values, jnp.zeros(1)]).astype(self.values.dtype)
        return padded[jnp.minimum(count, len(self.values) + 1)]


def pseudoinverse(
    matrix: Float[Array, "k n"],
    tol: float | Float[Array, ""],
    scale: Float[Array, ""] | float | None = None,
    *,
    damping: Float[Array, ""] | float | None = None,
) -> Float[Array, "n k"]:
    """A⁺, in which singular values up to a cut-off count as zero.

    Found by one-sided Jacobi rotations (Hestenes 1958) of plain array operations, so that it may be called in loops and
    batches. The derivatives, of any order, are those of A⁺ as long as no singular value crosses the cut-off,

        dA⁺ = −A⁺ dA A⁺ + A⁺A⁺ᵀ dAᵀ (I − AA⁺) + (I − A⁺A) dAᵀ A⁺ᵀA⁺

    (Golub and Pereyra 1973), which hold where singular values repeat, too.

    Args:
        matrix: A (k, n), of up to some thirty rows or columns.
        tol: the cut-off, relative to `scale`.
        scale: a size of A that does not depend on the values under question; 1 if None.
        damping: σ₀ in units of `scale`. Where the smallest singular value is below it, each is inverted by σ/(σ² + d²) instead,
            d² = σ₀² (1 − (σ_min/σ₀)²)², without any cut-off; nothing is changed where it is not. Second derivatives then take the
            singular vectors of σ_min as fixed.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmb.linalg import pseudoinverse
        >>> [[round(float(x), 6) for x in row] for row in pseudoinverse(jnp.array([[3.0, 4.0]]), 1e-9)]
        [[0.12], [0.16]]
    """
    return invert(matrix, tol, scale, damping=damping).inverse


def invert(
    matrix: Float[Array, "k n"],
    tol: float | Float[Array, ""],
    scale: Float[Array, ""] | float | None = None,
    *,
    damping: Float[Array, ""] | float | None = None,
    outside: Float[Array, "k k"] | None = None,
) -> PseudoInverse:
    """`pseudoinverse` with the singular values and the rank.

    Args:
        matrix: as in `pseudoinverse`.
        tol: likewise.
        scale: likewise.
        damping: likewise.
        outside: where A is damped, the projector on directions that A does not reach and that do not count for σ_min; None where
            A has full rank but for what σ_min tells.
    """
    k, n = matrix.shape
    size = 1.0 if scale is None else lax.stop_gradient(scale)
    cut = jnp.asarray(tol * size, matrix.dtype)
    if not min(k, n):
        return PseudoInverse(jnp.zeros((n, k), matrix.dtype), jnp.zeros(0, matrix.dtype), jnp.array(0))
    if damping is None:
        # Differentiated through A⁺ itself: singular vectors have no derivative where values repeat, as they do at any ball joint.
        inverse, values = _inverse(matrix, cut)
        return PseudoInverse(inverse, values, jnp.sum(values > cut))
    threshold = jnp.asarray(damping * size, matrix.dtype)
    values, left, right = decomposed(lax.stop_gradient(matrix))
    inverse = _damped(matrix, threshold, left, right, outside)
    return PseudoInverse(inverse, values, jnp.sum(values > cut))


def _damped(matrix: Array, threshold: Array, left: Array, right: Array, outside: Array | None) -> Array:
    """Aᵀ(A Aᵀ + d²I)⁻¹, or (AᵀA + d²I)⁻¹Aᵀ, whose matrices have no eigenvalue below ¾σ₀² where A reaches."""
    k, n = matrix.shape
    if k > n and outside is None:
        return _damped(matrix.T, threshold, right, left, None).T
    count = min(k, n) if outside is None else jnp.round(k - jnp.trace(lax.stop_gradient(outside))).astype(int)
    # Directions in `outside` have values of zero, which do not count; their number is traced, the shape is not.
    at = jnp.clip(count - 1, 0, len(left) - 1)
    smallest = jnp.where(count <= len(left), left[at] @ matrix @ right[at], 0)  # with its first derivative
    missing = jnp.maximum(1 - (smallest / positive_or_one(threshold)) ** 2, 0)
    # A matrix of zeros without a size has no other damping: its inverse is zero.
    damping = jnp.where(jnp.any(matrix != 0) | (threshold > 0), threshold * missing, 1)
    square = matrix @ matrix.T + damping**2 * jnp.eye(k, dtype=matrix.dtype)
    if outside is not None:
        square = square + threshold**2 * outside
    return solve_spd(square, matrix).T


def singular_values(matrix: Float[Array, "k n"]) -> Float[Array, " p"]:
    """The min(k, n) singular values in falling order, without derivatives."""
    if not min(matrix.shape):
        return jnp.zeros(0, matrix.dtype)
    return decomposed(lax.stop_gradient(matrix))[0]


def spectral_norm(matrix: Float[Array, "k n"]) -> Float[Array, ""]:
    """The largest singular value to within a percent, without derivatives: a size, by the powers of AᵀA."""
    if not min(matrix.shape):
        return jnp.zeros((), matrix.dtype)
    matrix = lax.stop_gradient(matrix)
    power = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    largest = jnp.ones((), matrix.dtype)
    for i in range(DOUBLINGS):
        length = jnp.linalg.norm(power)
        # Brought to unit length before each squaring, else the 2⁹th power would overflow.
        power = power / positive_or_one(length)
        power, largest = power @ power, largest * length ** (0.5**i)
    return jnp.sqrt(largest * jnp.linalg.norm(power) ** (0.5**DOUBLINGS))


@jax.custom_jvp
def _inverse(matrix: Array, cut: Array) -> tuple[Array, Array]:
    """A⁺ and the singular values, which have no derivatives here."""
    values, left, right = decomposed(matrix)
    inverse = (right / jnp.where(values > cut, values, jnp.inf)[:, None]).T @ left
    return inverse, values


@_inverse.defjvp
def _inverse_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple:
    matrix, cut = primals
    change, _ = tangents
    inverse, values = _inverse(matrix, cut)
    off_rows = lambda x: x - inverse @ (matrix @ x)
    off_columns = lambda x: x - (x @ matrix) @ inverse
    derivative = -inverse @ change @ inverse
    derivative = derivative + inverse @ (inverse.T @ off_columns(change.T)) + (off_rows(change.T) @ inverse.T) @ inverse
    return (inverse, values), (derivative, jnp.zeros_like(values))


def decomposed(
    matrix: Float[Array, "k n"],
) -> tuple[Float[Array, " p"], Float[Array, "p k"], Float[Array, "p n"]]:
    """Singular values in falling order, left and right singular vectors as rows, without derivatives."""
    k, n = matrix.shape
    # By its largest entry, so that no square overflows.
    size = positive_or_one(jnp.max(jnp.abs(matrix)))
    rows = matrix / size if k <= n else matrix.T / size
    turned, rotation = _orthogonalised(rows)
    lengths = jnp.linalg.norm(turned, axis=1)
    lengths, turned, rotation = _falling(lengths, turned, rotation)
    unit = turned / positive_or_one(lengths)[:, None]
    return lengths * size, *((rotation, unit) if k <= n else (unit, rotation))


def _falling(sizes: Array, *rows: Array) -> list[Array]:
    """Numbers in falling order, and rows in the same one."""
    i = np.arange(sizes.shape[0])
    # By counting, not by sorting: scalar programs have no places that depend on numbers.
    before = (sizes > sizes[:, None]) | ((sizes == sizes[:, None]) & (i < i[:, None]))
    permutation = jnp.sum(before, axis=1) == i[:, None]
    ordered = lambda x: jnp.sum(jnp.where(permutation.reshape(permutation.shape + (1,) * (x.ndim - 1)), x, 0), axis=1)
    return [ordered(x) for x in (sizes, *rows)]


def _orthogonalised(rows: Array) -> tuple[Array, Array]:
    """U A with orthogonal rows, and the orthogonal U (p, p), for A (p, r).

    Each round of a sweep turns the pairs of one round of a tournament, all at once; after a sweep without a turn it is done.
    """
    p, r = rows.shape
    if p == 1:
        return rows, jnp.ones((1, 1), rows.dtype)
    # The tournament needs an even number: an odd one plays against a row of zeros.
    count = p + p % 2
    rest = jnp.concatenate([rows, np.eye(p, dtype=rows.dtype)], axis=1)
    rest = jnp.concatenate([rest, jnp.zeros((count - p, r + p), rows.dtype)])
    eps = float(jnp.finfo(rows.dtype).eps)
    # Below it a row is rounding, whose direction would be turned for ever.
    least = (eps * jnp.linalg.norm(rows)) ** 2 / count
    half = count // 2

    def turn(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        rest, turned = carry
        a, b = rest[:half], rest[half:][::-1]
        inner = lambda x, y: jnp.sum(x[:, :r] * y[:, :r], axis=1)
        aa, bb, ab = inner(a, a), inner(b, b), inner(a, b)
        needed = (jnp.abs(ab) > eps * max(r, 4) * jnp.sqrt(aa * bb)) & (jnp.minimum(aa, bb) > least)
        cosine, sine = _rotation(aa, bb, jnp.where(needed, ab, 1), needed)
        a, b = cosine * a - sine * b, sine * a + cosine * b
        rest = jnp.concatenate([a, b[::-1]])
        # The circle method: the first stays, the others move on by one, so that each meets each in count − 1 rounds and is
        # back at its place then.
        return (jnp.concatenate([rest[:1], rest[-1:], rest[1:-1]]), turned | jnp.any(needed)), None

    def sweep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rest, sweeps, _ = carry
        (rest, turned), _ = lax.scan(turn, (rest, jnp.array(False)), length=count - 1)
        return rest, sweeps + 1, turned

    start = (rest, jnp.array(0), jnp.array(True))
    if p <= FEW:
        rest = lax.fori_loop(0, p + 2, lambda _, carry: sweep(carry), start)[0]
    else:
        rest = lax.while_loop(lambda carry: carry[2] & (carry[1] < SWEEPS), sweep, start)[0]
    return rest[:p, :r], rest[:p, r:]


def _rotation(aa: Array, bb: Array, ab: Array, needed: Bool[Array, " h"]) -> tuple[Array, Array]:
    """Cosine and sine of the turns by which pairs become orthogonal."""
    # The smaller one of the two angles (Rutishauser 1966), whose tangent has no cancellation.
    slope = (bb - aa) / (2 * ab)
    tangent = jnp.where(slope >= 0, 1, -1) / (jnp.abs(slope) + jnp.sqrt(1 + slope**2))
    tangent = jnp.where(needed, tangent, 0)
    cosine = lax.rsqrt(1 + tangent**2)
    return cosine[:, None], (cosine * tangent)[:, None]
