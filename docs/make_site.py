"""What the site has beyond its pages: mechanisms that play on the front page and in the gallery, links as GitHub counts them.

mkdocs calls these functions by their names (`hooks` in mkdocs.yml).
"""

import importlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
PLAYER = "player.html"
# Examples that play in the gallery: title, and how long in s.
GALLERY = {"wishbone": ("Double wishbone", 1.0), "excavator": ("Excavator", 0.5)}
START = '<script>document.getElementById("play").click()</script>'
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Files beside docs/ are no part of the site: links to them become their names.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:benchmarks|jaxmb|examples|tests)/[^)]*\)")
# GitHub counts equal headings by "-1", Python-Markdown by "_1"; of "… model a cable" GitHub keeps the space as "-".
COUNTED = re.compile(r"\]\(((?:[\w/]+\.md)?#jm\w+)-(\d+)\)")
# What Material's plugin `offline` would load from a server, for a search in pages that are opened from the disk.
SHIM = re.compile(r"<script src=\"?https://unpkg\.com/iframe-worker/shim\"?></script>")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links as this site has them."""
    return COUNTED.sub(r"](\1_\2)", OUTSIDE.sub(r"\1", markdown)).replace("](#-", "](#")


def on_post_page(output: str, **_: object) -> str:
    """Nothing is loaded from elsewhere."""
    return SHIM.sub("", output)


def on_post_template(output_content: str, **_: object) -> str:
    """The same in pages that are no Markdown, such as 404.html."""
    return SHIM.sub("", output_content)


def on_post_build(config: dict[str, str], **_: object) -> None:
    """Runs the code of the front page and examples of the gallery, and writes the pages that play their motions."""
    site = pathlib.Path(config["site_dir"])
    write_player(site / PLAYER)
    sys.path.append(str(ROOT / "examples"))
    for name, (title, duration) in GALLERY.items():
        write_example(site / f"{name}.html", name, title, duration)


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
    exec(compile("\n".join(CODE.findall((ROOT / "docs" / "index.md").read_text())), "index.md", "exec"), names)
    jm.plot.page(names["system"], names["sol"], path, title="Four-bar linkage")
    # On the front page nobody has asked for it to stand still.
    path.write_text(path.read_text().replace("</body>", START + "</body>"))
