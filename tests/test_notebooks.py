"""The lessons of notebooks/: their cells, their notebooks, and their pages, which `test_docs.py` runs and compares with what they print."""

import base64
import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.py") if path.stem != "make")


@pytest.fixture(scope="module")
def make():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "notebooks"))
        yield importlib.import_module("make")


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_words_code_and_checks(make, name):
    cells = make.cells((ROOT / "notebooks" / f"{name}.py").read_text())
    words = [source for kind, source in cells if kind == "markdown"]
    code = [source for kind, source in cells if kind == "code"]
    assert len(words) >= 5 and len(code) >= 5
    for source in code:
        compile(source, name, "exec")
    assert words[0].startswith("# ") and words[-1].startswith("## What this showed\n")
    assert sum(source.count("\nassert ") for source in code) >= 1


@pytest.mark.parametrize("name", LESSONS)
def test_the_page_of_a_lesson_has_its_words_and_its_code(make, name):
    text = (ROOT / "notebooks" / f"{name}.py").read_text()
    page = (ROOT / "docs" / "notebooks" / f"{name}.md").read_text()
    pictures = re.findall(r"!\[(.*?)\]", page)
    assert pictures and all((ROOT / "docs" / "notebooks" / picture).exists() for picture in pictures)
    bare = re.sub(r"```text\n.*?```\n\n|!\[.*?\]\(.*?\)\n\n", "", page, flags=re.DOTALL)
    words, _ = make.page(name, text, [("", [])] * len(make.cells(text)))
    assert bare == words, f"Run `make notebooks LESSONS={name}`: its page is out of date."


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_makes_a_valid_notebook(make, name):
    nbformat = pytest.importorskip("nbformat")
    text = (ROOT / "notebooks" / f"{name}.py").read_text()
    made = make.notebook(text)
    nbformat.validate(made)
    assert made.nbformat == 4
    assert nbformat.writes(made) == nbformat.writes(make.notebook(text))
    again = nbformat.reads(nbformat.writes(made), as_version=4)
    shown = [(cell.cell_type, cell.source) for cell in again.cells]
    assert shown.pop(1) == ("code", make.PATH) and shown == make.cells(text)


def test_what_a_cell_printed_and_drew_stands_behind_its_code(make):
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nprint(1)\n"
    assert make.cells(text) == [("markdown", "# Title\n\nWords."), ("code", "print(1)")]
    picture = base64.b64encode(b"picture").decode()
    words, pictures = make.page("a", text, [("", []), ("1\n", [picture])])
    assert words == "# Title\n\nWords.\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n![a_1.png](a_1.png)\n"
    assert pictures == {"a_1.png": b"picture"}


def test_what_is_no_lesson_is_refused(make):
    with pytest.raises(ValueError, match="must begin with `# %%`, but begins with 'import jax'"):
        make.cells("import jax\n# %%\n")
    with pytest.raises(ValueError, match="must begin with `#`, but one is 'words'"):
        make.cells("# %% [markdown]\n# # Title\nwords\n")
