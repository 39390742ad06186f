"""The page's code: ES modules in the folder `web`, joined into one script so that a page stays one file.

The modules are plain: a browser, an editor or a linter reads each of them as it is. Joining drops the imports and the
word `export` before a declaration, so all declarations share one scope, and no two may have the same name.

    page.js      the static page: starts the elements of the HTML
    live.js      the page of `caption serve`
    widget.js    the widget of a notebook, an ES module
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

STYLE_SHEETS = ("page.css", "card.css", "beam.css", "matrix.css")
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def joined_modules(entry: str) -> str:
    """The module `entry` after all that it imports, each module once; `export default` stays."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for needed in IMPORT.findall(web_resource(name)):
                visit(needed)
            order.append(name)

    visit(entry)
    return "".join(EXPORT.sub("", IMPORT.sub("", web_resource(name))) for name in order)


@cache
def page_script(entry: str = "page.js") -> str:
    """The script of a page, in a function of its own, so that nothing becomes global in a notebook."""
    return f'(function () {{\n"use strict";\n{joined_modules(entry)}}})();\n'


@cache
def page_style(*more: str) -> str:
    """The style sheets of every page, and further ones, such as explore.css for pages that move attention."""
    return "".join(map(web_resource, (*STYLE_SHEETS, *more)))


@cache
def page_description() -> dict[str, Any]:
    """The OpenAPI description of `caption serve`, with the JSON Schemas of a page's data and requests."""
    description: dict[str, Any] = json.loads(web_resource("openapi.json"))
    return description


def web_resource(name: str) -> str:
    """A file of the folder `web`."""
    return files("caption.visualize").joinpath("web").joinpath(name).read_text(encoding="utf-8")
