"""The sparsity of M and C: blocks of velocities, and the rows that touch them, determined once for a system."""

import dataclasses
import itertools

import numpy as np
from jaxtyping import Bool

from ..foundations import counted


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """The velocities in blocks that M does not couple, and the rows in an order in which only neighbours share a block.

    Shorter blocks, rows that touch fewer blocks than others and so on are filled up with what does not exist: velocity nv, block
    B, row m.

    Attributes:
        nv, m: numbers of velocities and rows.
        blocks: the velocities (B, s) of each block.
        position: where each velocity (nv,) stands in them.
        touched: the blocks (m, w) that each row touches.
        touching: for each block (B, r) the flat indices in `touched` of its entries.
        colours: of each block; no row touches two of one colour.
        order: the rows (K, b) in neighbourhoods: only rows of one of them or of two adjacent ones share a block.
        window: for each neighbourhood and the next one, by row and by block that one of their rows touches, where in `touched`
            it stands (K, 2b, u).
    """

    nv: int
    m: int
    blocks: np.ndarray
    position: np.ndarray
    touched: np.ndarray
    touching: np.ndarray
    colours: np.ndarray
    order: np.ndarray
    window: np.ndarray

    @classmethod
    def of(cls, mass: Bool[np.ndarray, "nv nv"], jacobian: Bool[np.ndarray, "m nv"]) -> "Layout":
        """That of M and C, by their entries that may not be zero."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        m, nv = jacobian.shape
        count, block = connected_components(csr_array(mass), directed=False)
        _, block = np.unique(block, return_inverse=True)
        # All blocks have one size, that of the largest: their operations are batched, and shapes are static.
        blocks = _lists([np.flatnonzero(block == k) for k in range(count)], nv)
        position = np.empty(nv, int)
        position[blocks[blocks < nv]] = np.flatnonzero(blocks.ravel() < nv)
        lists = [np.unique(block[row]) for row in jacobian]
        touched = _lists(lists, count)
        flat = touched.ravel()
        touching = _lists([np.flatnonzero(flat == k) for k in range(count)], flat.size)
        order = _ordered(lists, count)
        return cls(
            nv=nv,
            m=m,
            blocks=blocks,
            position=position,
            touched=touched,
            touching=touching,
            colours=_coloured(lists, count),
            order=order,
            window=_window(order, touched, count),
        )

    def __str__(self) -> str:
        groups, wide = self.order.shape
        return f"{counted(len(self.blocks), 'block')} of M, rows in {counted(groups, 'neighbourhood')} of {wide}"

    @property
    def columns(self) -> np.ndarray:
        """The velocities (m, w, s) of the blocks that each row touches."""
        return np.append(self.blocks, np.full_like(self.blocks[:1], self.nv), axis=0)[self.touched]

    @property
    def work(self) -> int:
        """About how many operations the linear algebra takes."""
        (count, size), (groups, wide, union) = self.blocks.shape, self.window.shape
        return count * size**3 + groups * (wide**2 * union * size + 2 * wide**3)

    @property
    def seeds(self) -> np.ndarray:
        """Velocities, so many that C times them holds all its entries: one in each block of a colour at once."""
        count, size = self.blocks.shape
        seeds = np.zeros((len(np.unique(self.colours)), size, self.nv + 1))
        for b in range(count):
            seeds[self.colours[b], np.arange(size), self.blocks[b]] = 1
        return seeds.reshape(-1, self.nv + 1)[:, : self.nv]


def _lists(lists: list[np.ndarray], none: int) -> np.ndarray:
    """Lists of indices as the rows of one array, filled up with `none`."""
    out = np.full((len(lists), max((len(x) for x in lists), default=0)), none)
    for row, x in zip(out, lists, strict=True):
        row[: len(x)] = x
    return out


def _coloured(lists: list[np.ndarray], count: int) -> np.ndarray:
    """Colours of the blocks, one after the other the first that no neighbour has (greedy; Curtis, Powell and Reid 1974 of Jacobians)."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for touched in lists:
        for b in touched.tolist():
            neighbours[b].update(touched.tolist())
    colours = np.full(count, -1)
    for b in range(count):
        used = {colours[k] for k in neighbours[b]}
        colours[b] = next(c for c in range(count + 1) if c not in used)
    return colours


def _ordered(lists: list[np.ndarray], count: int) -> np.ndarray:
    """The rows in the order of Cuthill and McKee (1969, reversed), cut into neighbourhoods of which the widest is as narrow as may be.

    Two rows that share a block are in one of them or in adjacent ones.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    m = len(lists)
    row = np.repeat(np.arange(m), [len(x) for x in lists])
    column = np.concatenate([*lists, np.zeros(0, int)])
    touches = csr_array(coo_array((np.ones(row.size), (row, column)), shape=(m, count)))
    shared = csr_array(touches @ touches.T)
    order = reverse_cuthill_mckee(shared, symmetric_mode=True) if m else np.zeros(0, int)
    position = np.argsort(order)
    pairs = shared.tocoo()
    # Behind the last row that shares a block with any of the first i + 1.
    reach = np.arange(1, m + 1)
    np.maximum.at(reach, position[pairs.row], position[pairs.col] + 1)
    reach = np.maximum.accumulate(reach)
    bandwidth = int((reach - np.arange(m)).max(initial=1))
    ends = min(
        (_ends(least, reach) for least in range(1, bandwidth + 1)), key=lambda x: (np.diff(x).max(initial=0), len(x))
    )
    # Without rows there is one neighbourhood all the same.
    return _lists([order[a:b] for a, b in itertools.pairwise(ends)] or [order], m)


def _ends(least: int, reach: np.ndarray) -> list[int]:
    """Where neighbourhoods end, of so many rows each, or of as many as those of the one before share a block with."""
    ends = [0]
    while (end := ends[-1]) < len(reach):
        ends.append(max(min(end + least, len(reach)), int(reach[end - 1]) if end else 0))
    return ends


def _window(order: np.ndarray, touched: np.ndarray, count: int) -> np.ndarray:
    """See `Layout.window`; beyond the end of all entries where a row does not touch a block."""
    m, width = touched.shape
    after = np.concatenate([order[1:], np.full_like(order[:1], m)])
    rows = np.concatenate([order, after], axis=1)
    padded = np.concatenate([touched, np.full((1, width), count)])
    unions = [np.setdiff1d(padded[r], [count]) for r in rows]
    out = np.full((*rows.shape, max(len(u) for u in unions)), m * width)
    for k, (own, union) in enumerate(zip(rows, unions, strict=True)):
        for r, i in enumerate(own):
            for slot, b in enumerate(padded[i]):
                if b < count:
                    out[k, r, np.searchsorted(union, b)] = i * width + slot
    return out
