"""Docs speak of what there is: every name of the package in them exists, the glossary's words are those of the code."""

import importlib
import pathlib
import re
import tomllib

import code_measures as code
import pytest

import jaxmb as jm

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "llms.txt",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]


def wrong_names(text, pattern):
    wrong = set()
    for name in re.findall(pattern, text):
        at = jm
        for part in name.split("."):
            if not hasattr(at, part):
                wrong.add(name)
                break
            at = getattr(at, part)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_of_the_package_exist(page):
    assert not wrong_names(page.read_text(), r"\bjm\.((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)")


def test_names_of_the_package_in_messages_and_docstrings_exist():
    text = "\n".join(path.read_text() for path in (ROOT / "jaxmb").rglob("*.py"))
    modules = [name for path in (ROOT / "jaxmb").iterdir() if path.is_dir() and (name := path.name)[0] != "_"]
    for name in modules:
        importlib.import_module(f"jaxmb.{name}")
    assert not wrong_names(text, r"`jaxmb\.((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)")


def test_words_of_the_glossary_are_those_of_the_code():
    words = set(re.findall(r"\w+", "\n".join(p.read_text() for p in (ROOT / "jaxmb").rglob("*.py"))))
    for term in re.findall(r"`([^`]+)`", (ROOT / "docs" / "glossary.md").read_text()):
        if "/" in term:
            assert (ROOT / "jaxmb" / term).exists(), term
        else:
            assert set(re.findall(r"[A-Za-z_]\w*", term)) <= words, term


def test_layers_are_told_in_their_order():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    order = [set(layer.split(" | ")) for layer in contract["layers"] if layer != "__main__"]
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| layer | what lives there |")[1].split("\n\n")[0]
    rows = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in table.splitlines()[2:]]
    assert rows == order


def test_the_code_keeps_its_measures():
    """By `benchmarks/code_measures.py`: types in place of `Any`, few names that say how a thing came about, no function of too many branches, records by name."""
    measures = code.Measures()
    for path in sorted((ROOT / "jaxmb").rglob("*.py")):
        code.measure(path, measures)
    assert measures.untyped <= 0.02 * measures.arguments
    assert sum(measures.words.values()) <= 4e-3 * measures.code
    assert measures.comments >= 0.035 * measures.lines
    assert not measures.locations["complex"] + measures.locations["positions"]
