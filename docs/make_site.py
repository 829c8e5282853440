"""The documentation as a site that needs no network: `make site` writes build/site, whose pages open from the disk too.

Its pages are brought to a folder of their own, with links as the site has them and with mechanisms that play on the front page and in the gallery.
They are checked by mkdocs, for which each warning is an error, and built by zensical.
"""

import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
PLAYER = "player.html"
# Examples that play in the gallery: title, and how long in s.
GALLERY = {"wishbone": ("Double wishbone", 1.0), "excavator": ("Excavator", 0.5)}
START = '<script>document.getElementById("play").click()</script>'
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Files beside docs/ are no part of the site: links to them become their names.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:benchmarks|jaxmb|examples|tests)/[^)]*\)")
# GitHub counts equal headings by "-1", Python-Markdown by "_1"; of "… model a cable" GitHub keeps the space as "-".
COUNTED = re.compile(r"\]\(((?:[\w/]+\.md)?#jm\w+)-(\d+)\)")
# What would be loaded from a server for a search in pages that are opened from the disk, where browsers start no workers,
SHIM = re.compile(r"<script src=\"?https://unpkg\.com/iframe-worker/shim\"?[^>]*></script>")
# and what does it here: the worker's script in a frame of the page.
WORKER = """<script>
if (location.protocol === "file:") window.Worker = class {
  constructor(url) {
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.ready = new Promise(done => this.frame.onload = () => {
      const inner = this.frame.contentWindow, script = inner.document.createElement("script");
      inner.postMessage = data => this.onmessage?.({data});
      Object.assign(script, {src: url, onload: () => done(inner), onerror: event => this.onerror?.(event)});
      inner.document.head.append(script);
    });
    this.frame.srcdoc = "";
    document.documentElement.append(this.frame);
  }
  postMessage(data) { this.ready.then(inner => inner.onmessage({data})); }
  terminate() { this.frame.remove(); }
};
</script>"""


def make(folder: pathlib.Path) -> pathlib.Path:
    """Writes the pages, and the site of them, to a folder; returns that of the site."""
    pages, site = folder / "pages", folder / "site"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in pages.rglob("*.md"):
        page.write_text(as_on_the_site(page.read_text()))
    write_player(pages / PLAYER)
    sys.path.append(str(ROOT / "examples"))
    for name, (title, duration) in GALLERY.items():
        write_example(pages / f"{name}.html", name, title, duration)
    config = folder / "mkdocs.yml"
    places = {"docs_dir: docs": "docs_dir: pages", "site_dir: build/site": "site_dir: site"}
    config.write_text(re.sub("|".join(places), lambda line: places[line[0]], (ROOT / "mkdocs.yml").read_text()))
    check = [
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
        str(config),
        "--site-dir",
        str(folder / "checked"),
    ]
    build = ["zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    for command in (check, build):
        # The variable silences an advertisement.
        subprocess.run([sys.executable, "-m", *command], check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    for page in site.rglob("*.html"):
        page.write_text(SHIM.sub(WORKER, page.read_text()))
    return site


def as_on_the_site(text: str) -> str:
    """A page with its links as this site has them."""
    return COUNTED.sub(r"](\1_\2)", OUTSIDE.sub(r"\1", text)).replace("](#-", "](#")


def write_example(path: pathlib.Path, name: str, title: str, duration: float) -> None:
    """The motion of an example from its first pose."""
    import jax.numpy as jnp

    import jaxmb as jm

    system = getattr(importlib.import_module(name), name)().build()
    solution = jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, duration, 101))
    jm.plot.page(system, solution, path, title=title, speed=0.3)


def write_player(path: pathlib.Path) -> None:
    """The motion of the front page's code as a page that plays by itself."""
    import jaxmb as jm

    names: dict[str, object] = {}
    exec(compile("\n".join(CODE.findall((DOCS / "index.md").read_text())), "index.md", "exec"), names)
    jm.plot.page(names["system"], names["sol"], path, title="Four-bar linkage")
    # On the front page nobody has asked for it to stand still.
    path.write_text(path.read_text().replace("</body>", START + "</body>"))


if __name__ == "__main__":
    print(f"Open {make(ROOT / 'build') / 'index.html'}")
