"""The structure of MATLAB's files, looked at before SciPy reads them: its reader trusts every size, and a wrong one ends the process.

MATLAB 7 MAT-File Format (MathWorks, R2024): a version 5 file is 128 bytes of header, then elements, each of a type, a size and so
many bytes; a matrix is an element of elements. Version 4 is a row of headers, each with a matrix.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

HEADER = 128
MATRIX, COMPRESSED = 14, 15
INT8, INT32, UINT32 = 1, 5, 6
# Bytes of the types of numbers, and of text.
SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
CELL, TEXT, DOUBLE, LAST_NUMBER = 1, 4, 6, 15
LETTERS = (4, 16, 17)
COMPLEX = 0x0800
# Of the numbers of version 4, by the digit of tens of its type.
SIZES_4 = (8, 4, 4, 2, 2, 1)
# Cell arrays in each other; records have one. Deeper ones would end in Python's limit of recursion, in SciPy too.
DEEPEST = 16


class DataElement(NamedTuple):
    """A type and its bytes."""

    kind: int
    data: memoryview


def variables(data: bytes, largest: int) -> dict[str, bool]:
    """The names of the variables, and which are matrices of numbers or of text, or cell arrays of them; those are whole.

    Args:
        data: the file.
        largest: so many bytes may come of what is compressed.

    Raises:
        ValueError: for what is no such file, is damaged, or grows beyond `largest`.
    """
    if len(data) < 20:
        raise ValueError("it is too short.")
    # A version 4 file begins with a small integer, so that one of its bytes is zero; text of version 5 has none
    # (format, section 1).
    if 0 in data[:4]:
        return dict(_version_4(data))
    if len(data) < HEADER:
        raise ValueError("it is too short.")
    # The mark reads MI in the order of bytes in which it was written.
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    version = None if order is None else struct.unpack(order + "H", data[124:126])[0]
    if version == 0x0200:
        raise ValueError("it is of version 7.3; save it with save(…, '-v7').")
    if order is None or version != 0x0100:
        raise ValueError("its header is that of no version 5.")
    arrays = {}
    for element in _elements(memoryview(data)[HEADER:], order, padded=False):
        if element.kind == COMPRESSED:
            element = _only_element(_unpacked(element.data, largest), order)
        if element.kind != MATRIX:
            raise ValueError(f"it holds an element of type {element.kind} in place of a matrix.")
        name, is_readable = _matrix(element.data, order, 0)
        arrays[name] = is_readable
    return arrays


def _unpacked(data: memoryview, largest: int) -> memoryview:
    """What is compressed, as far as it is not too large."""
    # With a limit: a file of a few kilobytes may unpack to gigabytes.
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, largest)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked ({error}).") from error
    if stream.unconsumed_tail:
        raise ValueError(f"a variable of it takes more than {largest / 2**20:g} MiB when it is unpacked.")
    if not stream.eof:
        raise ValueError("it ends within a variable.")
    return memoryview(unpacked)


def _elements(data: memoryview, order: str, padded: bool = True) -> Iterator[DataElement]:
    """The elements that fill some bytes; compressed ones are not filled up to eight bytes."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it ends within an element.")
        kind, size = struct.unpack_from(order + "II", data, at)
        start, end = at + 8, at + 8 + size
        if kind >> 16:  # of four bytes at most, within the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            end = start + size
            if size > 4:
                raise ValueError("an element is larger than its place.")
            at += 8
        else:
            # Elements begin at multiples of eight bytes, but for compressed ones at the top (format, section 1).
            at = end if kind == COMPRESSED and not padded else end + -end % 8
        if end > len(data):
            raise ValueError("an element is larger than what it is in.")
        if kind in SIZES and size % SIZES[kind]:
            raise ValueError("an element ends within a number.")
        if kind not in SIZES and kind not in (MATRIX, COMPRESSED):
            raise ValueError(f"it holds an element of type {kind}, which is none.")
        yield DataElement(kind, data[start:end])


def _only_element(data: memoryview, order: str) -> DataElement:
    """The only element of some bytes."""
    elements = list(_elements(data, order))
    if len(elements) != 1:
        raise ValueError(f"a compressed variable holds {len(elements)} elements.")
    return elements[0]


def _matrix(data: memoryview, order: str, depth: int) -> tuple[str, bool]:
    """The name of a matrix, and whether it is one of numbers, or a cell array of such, all of it there.

    Raises:
        ValueError: if its parts do not fit each other.
    """
    parts = list(_elements(data, order))
    header = _matrix_header(parts, order)
    if header is None:
        return "", False
    flags, count, name = header
    kind, values = flags & 0xFF, parts[3:]
    if kind == CELL:
        return name, _is_readable_cell_array(name, values, count, order, depth)
    if kind == TEXT:
        return name, len(values) == 1 and _is_text(values[0], count)
    if not DOUBLE <= kind <= LAST_NUMBER:
        return name, False
    # The imaginary parts are an element of their own behind the real ones.
    expected = 2 if flags & COMPLEX else 1
    is_complete = all(part.kind in SIZES and len(part.data) == count * SIZES[part.kind] for part in values)
    if len(values) != expected or not is_complete:
        raise ValueError(f"matrix '{name}' does not hold the {count} numbers that its size asks for.")
    return name, True


def _is_readable_cell_array(name: str, cells: list[DataElement], count: int, order: str, depth: int) -> bool:
    if depth == DEEPEST:
        raise ValueError(f"cell arrays are nested more deeply than {DEEPEST}.")
    if len(cells) != count or any(cell.kind != MATRIX for cell in cells):
        raise ValueError(f"cell array '{name}' must hold {count} matrices, but holds {len(cells)}.")
    return all(_matrix(cell.data, order, depth + 1)[1] for cell in cells)


def _is_text(element: DataElement, count: int) -> bool:
    """Whether an element holds as many letters as it should; in UTF-8 one may take several bytes, and SciPy is not asked then."""
    return element.kind in LETTERS and len(element.data) == count * SIZES[element.kind]


def _matrix_header(parts: list[DataElement], order: str) -> tuple[int, int, str] | None:
    """Flags, number of entries and name, the first three elements of a matrix; None for an object, which has others."""
    kinds = [part.kind for part in parts[:3]]
    if kinds[:2] != [UINT32, INT32] or len(parts[0].data) != 8 or len(parts[1].data) < 8:
        return None
    if len(parts) < 3 or kinds[2] != INT8:
        raise ValueError("a matrix has no name.")
    flags = struct.unpack(order + "II", parts[0].data)[0]
    shape = struct.unpack(f"{order}{len(parts[1].data) // 4}i", parts[1].data)
    if min(shape) < 0:
        raise ValueError("a matrix has a negative size.")
    return flags, math.prod(shape), bytes(parts[2].data).decode("latin-1")


def _version_4(data: bytes) -> Iterator[tuple[str, bool]]:
    """The names in a file of version 4, and which are matrices of numbers."""
    at = 0
    while at < len(data):
        if len(data) - at < 20:
            raise ValueError("it ends within a header.")
        order = "<" if 0 <= struct.unpack_from("<i", data, at)[0] < 5000 else ">"
        kind, rows, columns, imaginary, length = struct.unpack_from(order + "5i", data, at)
        number, sort = kind // 10 % 10, kind % 10
        if (
            not 0 <= kind < 5000
            or number >= len(SIZES_4)
            or min(rows, columns) < 0
            or imaginary not in (0, 1)
            or length < 1
        ):
            raise ValueError("its header is that of no version 4.")
        size = rows * columns * SIZES_4[number] * (1 + imaginary)
        name = data[at + 20 : at + 20 + length].split(b"\0")[0].decode("latin-1")
        at += 20 + length + size
        if at > len(data):
            raise ValueError(f"matrix '{name}' is larger than the file.")
        yield name, sort == 0  # of numbers; others are text and sparse ones
