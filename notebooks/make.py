"""Makes and executes the notebooks of this folder, and their pages in docs/notebooks: `make notebooks`.

A lesson is a script in Jupytext's percent format, so that it is read, reviewed and checked as code. Its notebook is written to
build/notebooks with its outputs; its page has the words, the code, what is printed and the pictures.
"""

import argparse
import base64
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parent
PAGES = ROOT / "docs" / "notebooks"
BUILD = ROOT / "build" / "notebooks"
MARK = re.compile(r"^# %%(?: \[(markdown)\])?\n", re.MULTILINE)
# A cell behind the title of every notebook: Jupyter runs it in build/notebooks, and the mechanisms of some lessons are those of examples.
PATH = 'import sys\n\nsys.path.append("../../examples")'
LIMIT = 600  # s for a cell; a lesson takes a minute, but not on a machine that does other things


def lessons():
    """The scripts, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.py")) if path != pathlib.Path(__file__)}


def cells(text):
    """Kind, "markdown" or "code", and text of each cell of a script in percent format."""
    start, *parts = MARK.split(text)
    if start.strip():
        raise ValueError(f"A lesson must begin with `# %%`, but begins with {start.splitlines()[0]!r}.")
    found = []
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        lines = source.strip("\n").splitlines()
        if kind:
            wrong = [line for line in lines if not line.startswith("#")]
            if wrong:
                raise ValueError(f"Every line of a cell of words must begin with `#`, but one is {wrong[0]!r}.")
            lines = [re.sub("^# ?", "", line) for line in lines]
        found.append((kind or "code", "\n".join(lines)))
    return found


def notebook(text):
    """The notebook of a script, without outputs."""
    from nbformat import v4

    made = v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    new = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    # Names by number: a notebook that is made twice is the same.
    (title, *others) = cells(text)
    made.cells = [
        new[kind](source, id=f"cell-{i}") for i, (kind, source) in enumerate([title, ("code", PATH), *others])
    ]
    return made


def page(name, text, outputs):
    """Text and pictures of a page; `outputs` are for each cell what it printed, and its pictures in base64."""
    parts, pictures = [], {}
    for (kind, source), (printed, drawn) in zip(cells(text), outputs, strict=True):
        parts.append(source if kind == "markdown" else f"```python\n{source}\n```")
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
        for data in drawn:
            file = f"{name}_{len(pictures) + 1}.png"
            pictures[file] = base64.b64decode(data)
            parts.append(f"![{file}]({file})")
    return "\n\n".join(parts) + "\n", pictures


def outputs_of(cell):
    """What an executed cell printed, and its pictures."""
    outputs = cell.get("outputs", [])
    printed = "".join(x.text for x in outputs if x.output_type == "stream" and x.name == "stdout")
    return printed, [x.data["image/png"] for x in outputs if "image/png" in x.get("data", {})]


def main():
    import nbformat
    from nbclient import NotebookClient

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="lessons; all by default")
    BUILD.mkdir(parents=True, exist_ok=True)
    PAGES.mkdir(exist_ok=True)
    for name in parser.parse_args().names or lessons():
        text = lessons()[name].read_text()
        made = notebook(text)
        nbformat.validate(made)
        # An error in a cell ends everything here, with the cell's traceback.
        NotebookClient(made, timeout=LIMIT, resources={"metadata": {"path": str(BUILD)}}).execute()
        nbformat.write(made, BUILD / f"{name}.ipynb")
        words, pictures = page(name, text, [outputs_of(cell) for cell in made.cells if cell.source != PATH])
        (PAGES / f"{name}.md").write_text(words)
        for file, data in pictures.items():
            (PAGES / file).write_bytes(data)
        print(f"wrote {name}.ipynb, {name}.md and {len(pictures)} pictures", file=sys.stderr)


if __name__ == "__main__":
    main()
