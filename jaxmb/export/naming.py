"""Names of users in the text of programs: none of them can end a comment or a string, or be taken for code."""

import itertools
import re
from collections.abc import Collection, Sequence

# Words that C keeps for itself (ISO/IEC 9899:1999, 6.4.1), and those of the functions that are written.
RESERVED = (
    *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum"),
    *("extern", "float", "for", "goto", "if", "inline", "int", "long", "main", "register", "restrict"),
    *("return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union"),
    *("unsigned", "void", "volatile", "while"),
)
# The longest identifier that all compilers tell apart (5.2.4.1), less room for what is put behind a name.
LONGEST = 31


def checked_name(name: str) -> str:
    """A name for files, and for the beginning of identifiers.

    Raises:
        ValueError: if it is none.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or len(name) > LONGEST or name in RESERVED:
        raise ValueError(
            f"Argument `name` must be an identifier of C, letters, digits and underscores, of at most {LONGEST} characters, but is {name!r}."
        )
    return name


def comment(text: str) -> str:
    """What may stand in a comment or a string: no star, quote, backslash or question mark, whatever a name holds."""
    ascii_text = text.translate({ord("²"): "2", ord("³"): "3", ord("·"): " "})
    return re.sub(r"[^A-Za-z0-9 _.,:;()'\[\]/=+-]", "_", ascii_text)


def macros(names: Sequence[str]) -> list[str]:
    """Names as the ends of identifiers, in capitals, no two of them alike."""
    out: list[str] = []
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9]+", "_", name.replace("'", "_RATE")).strip("_").upper() or "UNNAMED"
        out.append(numbered(stem, out, "{}_{}"))
    return out


def numbered(stem: str, used: Collection[str], form: str) -> str:
    """The stem, or where that is used the first of it with a number that is not."""
    names = (stem if k == 1 else form.format(stem, k) for k in itertools.count(1))
    return next(name for name in names if name not in used)
