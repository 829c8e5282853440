"""Where things stand in the structs by which XLA calls a function, as the header that comes with JAX says."""

import dataclasses
import functools
import pathlib
import re

import jax

_HEADER = "xla/ffi/api/c_api.h"
_WORD = 8  # bytes of a pointer
_SIZES = {"size_t": 8, "int64_t": 8, "uint64_t": 8, "int": 4, "int32_t": 4, "uint32_t": 4, "bool": 1}


@dataclasses.dataclass(frozen=True)
class Interface:
    """XLA's foreign function interface.

    Attributes:
        version: major and minor.
        extension, arguments, results: in a call frame, in bytes: of the first extension, and of the arrays of pointers to buffers.
        data: in a buffer, of its numbers.
        metadata: in an extension, of the metadata that XLA asks for.
        built_for: in the metadata, of the version for which a function was made: two whole numbers of four bytes.
        functions: in a call frame, of XLA's functions for those whom it calls.
        create: among these, of the one that makes an error.
        message, code: in what that is given, whose size is
        error: in bytes.
    """

    version: tuple[int, int]
    extension: int
    arguments: int
    results: int
    data: int
    metadata: int
    built_for: int
    functions: int
    create: int
    message: int
    code: int
    error: int


@functools.cache
def interface() -> Interface:
    """Of the version of JAX at hand.

    Raises:
        ValueError: if its header is not understood.
    """
    return read(pathlib.Path(jax.ffi.include_dir(), _HEADER).read_text())


def read(header: str) -> Interface:
    """The interface that the text of a header declares."""
    # Comments first: one may hold a semicolon, at which fields are split.
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)
    layout = _StructLayout(re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"void* \1", text))
    at = layout.offset
    major, minor = (layout.match(rf"#define XLA_FFI_API_{word} (\d+)") for word in ("MAJOR", "MINOR"))
    return Interface(
        version=(int(major), int(minor)),
        extension=at("XLA_FFI_CallFrame", "extension_start"),
        arguments=at("XLA_FFI_CallFrame", "args") + at("XLA_FFI_Args", "args"),
        results=at("XLA_FFI_CallFrame", "rets") + at("XLA_FFI_Rets", "rets"),
        data=at("XLA_FFI_Buffer", "data"),
        metadata=at("XLA_FFI_Metadata_Extension", "metadata"),
        built_for=at("XLA_FFI_Metadata", "api_version") + at("XLA_FFI_Api_Version", "major_version"),
        functions=at("XLA_FFI_CallFrame", "api"),
        create=at("XLA_FFI_Api", "XLA_FFI_Error_Create"),
        message=at("XLA_FFI_Error_Create_Args", "message"),
        code=at("XLA_FFI_Error_Create_Args", "errc"),
        error=layout.size("XLA_FFI_Error_Create_Args")[0],
    )


class _StructLayout:
    """Structs of C, as compilers of 64-bit processors lay them out: each field at the next multiple of its alignment.

    Read from the header and not written here as numbers: fields have moved between versions of JAX, and a wrong offset does not fail
    but reads other memory.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def match(self, pattern: str) -> str:
        """The first group of a pattern in the header."""
        match = re.search(pattern, self.text)
        if match is None:
            raise ValueError(f"XLA's header {_HEADER} has no `{pattern}`")
        return match[1]

    def fields(self, struct: str) -> list[tuple[str, str]]:
        """(name, type) of each field; a pointer, to a function too, has the type `*`."""
        out = []
        for line in self.match(rf"struct {struct} {{([^}}]*)}}").split(";"):
            function = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", line)
            words = re.findall(r"\w+|\*", line)
            if function:
                out.append((function[1], "*"))
            elif words:
                out.append((words[-1], "*" if "*" in words else words[-2]))
        return out

    def size(self, kind: str) -> tuple[int, int]:
        """The size and the alignment of a type, in bytes."""
        if kind == "*":
            return _WORD, _WORD
        if kind in _SIZES:
            return _SIZES[kind], _SIZES[kind]
        if re.search(rf"typedef enum[^{{]*{{[^}}]*}} {kind};", self.text):
            return _SIZES["int"], _SIZES["int"]
        alias = re.search(rf"typedef (\w+) {kind};", self.text)
        if alias:
            return self.size(alias[1])
        end, alignment = 0, 1
        for _, field in self.fields(kind):
            size, own = self.size(field)
            end, alignment = -(-end // own) * own + size, max(alignment, own)
        return -(-end // alignment) * alignment, alignment

    def offset(self, struct: str, name: str) -> int:
        """Of a field, in bytes."""
        end = 0
        for field, kind in self.fields(struct):
            size, alignment = self.size(kind)
            start = -(-end // alignment) * alignment
            if field == name:
                return start
            end = start + size
        raise ValueError(f"XLA's header {_HEADER} has no field `{name}` of `{struct}`")
