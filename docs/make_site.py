"""What the site has beyond its pages: the mechanism on the front page, links as GitHub counts them.

mkdocs calls these functions by their names (`hooks` in mkdocs.yml).
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
PLAYER = "player.html"
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
