"""What the site has beyond its pages: the mechanism on the front page, search without a network, links as GitHub counts them.

mkdocs calls these functions by their names (`hooks` in mkdocs.yml).
"""

import pathlib
import re
from typing import Protocol

ROOT = pathlib.Path(__file__).parent.parent
PLAYER = "player.html"
START = '<script>document.getElementById("play").click()</script>'
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Files beside docs/ are no part of the site: links to them become their names.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:benchmarks|jaxmb|examples|tests)/[^)]*\)")
# GitHub counts equal headings by "-1", Python-Markdown by "_1"; of "… model a cable" GitHub keeps the space as "-".
COUNTED = re.compile(r"\]\(((?:[\w/]+\.md)?#jm\w+)-(\d+)\)")
# What Material's plugin `offline` loads from a server, and where it is here.
SHIM = "https://unpkg.com/iframe-worker/shim"
SHIM_HERE = "assets/iframe-worker.js"


class Page(Protocol):
    """What is used of a page of mkdocs."""

    url: str


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links as this site has them."""
    return COUNTED.sub(r"](\1_\2)", OUTSIDE.sub(r"\1", markdown)).replace("](#-", "](#")


def on_post_page(output: str, page: Page, **_: object) -> str:
    """The script for searching from the disk is the site's own."""
    return output.replace(SHIM, "../" * page.url.count("/") + SHIM_HERE)


def on_post_template(output_content: str, **_: object) -> str:
    """The same in pages that are no Markdown, such as 404.html."""
    return output_content.replace(SHIM, SHIM_HERE)


def on_post_build(config: dict[str, str], **_: object) -> None:
    """Runs the code of the front page, and writes the page that plays its motion."""
    write_player(pathlib.Path(config["site_dir"]) / PLAYER)


def write_player(path: pathlib.Path) -> None:
    """The motion of the front page's code as a page that plays by itself."""
    import jaxmb as jm

    names: dict[str, object] = {}
    exec(compile("\n".join(CODE.findall((ROOT / "docs" / "index.md").read_text())), "index.md", "exec"), names)
    jm.plot.page(names["system"], names["sol"], path, title="Four-bar linkage")
    # On the front page nobody has asked for it to stand still.
    path.write_text(path.read_text().replace("</body>", START + "</body>"))
