"""Every example in docstrings, README and docs runs as printed; every example script passes its own checks."""

import contextlib
import doctest
import importlib
import io
import pathlib
import pkgutil
import re
import runpy
import subprocess
import sys

import pytest
from test_page import BROWSER

import jaxmb

ROOT = pathlib.Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(jaxmb.__path__, "jaxmb.")]


@pytest.mark.slow
def test_docstrings():
    tried = 0
    for name in MODULES:
        module = importlib.import_module(name)
        for case in doctest.DocTestFinder(exclude_empty=True).find(module):
            if case.examples:
                tried += len(case.examples)
                out = []
                doctest.DocTestRunner(verbose=False).run(case, out=out.append)
                assert not out, "".join(out)
    assert tried >= 15


PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]


# What the others show is tested by itself too.
SHORT = ["README.md", "docs/formulations/kkt.md", "docs/lanes.md", "docs/records.md"]
# In these a block of text behind a block of code is what that prints.
WITH_OUTPUT = ["README.md", "docs/index.md"]
# In these only where there is such a block, and but for numbers of the size of rounding, which differ between machines.
WITH_SOME_OUTPUT = ["docs/models.md", *(page for page in PAGES if page.startswith("docs/notebooks/"))]
ROUNDING = re.compile(r"\b\d[\d.]*e-1[3-9]")
WITH_CODE = [page for page in PAGES if "```python" in (ROOT / page).read_text()]


@pytest.mark.parametrize("page", [p if p in SHORT else pytest.param(p, marks=pytest.mark.slow) for p in WITH_CODE])
def test_pages(page):
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", (ROOT / page).read_text(), re.S)
    assert blocks
    names = {}
    for code, printed in blocks:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(code, page, "exec"), names)
        if page in WITH_OUTPUT:
            assert shown.getvalue() == printed
        elif page in WITH_SOME_OUTPUT and printed:
            assert ROUNDING.sub("ε", shown.getvalue()) == ROUNDING.sub("ε", printed)


@pytest.mark.parametrize("page", PAGES)
def test_links(page):
    for target in re.findall(r"\]\(((?!http)[^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_pages_of_the_interface_are_those_of_the_docstrings(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    made = importlib.import_module("make_api").pages()
    for name, text in made.items():
        assert (ROOT / "docs" / "api" / name).read_text() == text, (
            f"Run `python docs/make_api.py`: {name} is out of date."
        )
    assert {path.name for path in (ROOT / "docs" / "api").iterdir()} == {*made}


def test_every_page_is_in_the_contents_of_the_site():
    yaml = pytest.importorskip("yaml")
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]

    def pages(entry):
        inside = entry.values() if isinstance(entry, dict) else entry
        return [entry] if isinstance(entry, str) else [page for x in inside for page in pages(x)]

    shown = pages(yaml.safe_load(nav))
    assert len(shown) == len(set(shown))
    assert {f"docs/{page}" for page in shown} == {*PAGES} - {"README.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical")
    pytest.importorskip("material")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        return importlib.import_module("make_site").make(tmp_path_factory.mktemp("built"))


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere_and_plays_a_mechanism(site):
    loads = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"?https?:|<link[^>]*stylesheet[^>]*https?:|unpkg\.com")
    made = list(site.rglob("*.html"))
    assert len(made) >= len(PAGES) - 1
    for page in made:
        assert not loads.search(page.read_text()), page
    assert 'src="player.html"' in (site / "index.html").read_text()
    for name in ("player", "wishbone", "excavator"):
        assert "__DATA__" not in (site / f"{name}.html").read_text()


# Types into the search, which is in a shadow tree, and writes where links of its answer lead into the title.
SEARCH = """<script>
const roots = [document], attach = Element.prototype.attachShadow;
Element.prototype.attachShadow = function(options) { roots.push(attach.call(this, options)); return roots.at(-1); };
const all = what => roots.flatMap(root => [...root.querySelectorAll(what)]), wait = ms => new Promise(done => setTimeout(done, ms));
window.onload = async () => {
  await wait(500);
  all(".md-search__button")[0].click();
  await wait(700);
  const input = all("input[type=text]").pop();
  input.value = "brake";
  input.dispatchEvent(new InputEvent("input", {bubbles: true}));
  await wait(2500);
  document.title = all("a").filter(a => /brake/i.test(a.innerText)).map(a => a.href).join(" ");
};
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_site_is_searched_from_the_disk(site):
    page = site / "searched.html"
    page.write_text((site / "index.html").read_text().replace("<head>", "<head>" + SEARCH, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000", "--dump-dom"]
    found = subprocess.run([BROWSER, *options, page.as_uri()], capture_output=True, text=True, timeout=120).stdout
    assert "api/topology.html" in re.search(r"<title>(.*?)</title>", found)[1]


SCRIPTS = re.search(r"EXAMPLES := (.*)", (ROOT / "Makefile").read_text())[1].split()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_examples(script, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script])
    runpy.run_path(str(ROOT / "examples" / f"{script}.py"), run_name="__main__")
