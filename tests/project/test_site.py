"""The documentation as a site: links of notebooks lead somewhere, and in a browser nothing runs out of its column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

config = pytest.importorskip("mkdocs.config", reason="the site is built with the extra docs")
for package in ("material", "mkdocs_jupyter", "mkdocs_include_markdown_plugin"):
    pytest.importorskip(package, reason="the site is built with the extra docs")

ROOT = Path(__file__).parents[2]
DESK, TELEPHONE = (1400, 900), (390, 844)
pytestmark = pytest.mark.nightly

OUTSIDE = """(() => {
    const column = document.querySelector(".md-content__inner").getBoundingClientRect();
    const outside = [...document.querySelectorAll(".md-content pre > code")].filter(
        code => code.scrollWidth > code.clientWidth + 1);
    for (const each of document.querySelectorAll(".md-content :is(p, img, h1, h2, h3, p code, li code)"))
        if (each.getBoundingClientRect().right > column.right + 4) outside.push(each);
    const texts = outside.map(each => (each.textContent || each.src).slice(0, 60));
    if (document.documentElement.scrollWidth > innerWidth) texts.push("the page");
    return texts;
})()"""
EMPTY = """[...document.querySelectorAll(".md-nav--primary .md-nav__item")].filter(
    item => !item.textContent.trim() || (item.matches(".md-nav__item--nested") && !item.querySelector("li a"))
).length"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without the reference of the API, which takes long, and without the search."""
    from mkdocs.commands.build import build

    settings = ROOT / "mkdocs.yml"
    plugins = yaml.safe_load(settings.read_text(encoding="utf-8"))["plugins"]
    plugins = [each for each in plugins if each == "include-markdown" or "mkdocs-jupyter" in each]
    folder = tmp_path_factory.mktemp("site")
    build(config.load_config(str(settings), site_dir=str(folder), plugins=plugins))
    return folder


def test_links_of_notebooks_lead_somewhere(site: Path):
    """MkDocs checks all links but these."""
    pages = sorted((site / "notebooks").glob("*.html"))
    assert len(pages) == len([*(ROOT / "notebooks").glob("*.ipynb")])
    for page in pages:
        links = re.findall(r'<a [^>]*href="(?![a-z]+:|#)([^"#?]+)', page.read_text(encoding="utf-8"))
        assert links
        assert [link for link in links if not (page.parent / link).is_file()] == []


def test_nothing_runs_out_of_its_column_and_the_first_screen_is_complete(site: Path, browser: Any):
    # A notebook's page has the layout of Jupyter.
    written = [page for page in sorted(site.rglob("*.html")) if page.parent.name != "notebooks"]
    # Others are interactive pages, which `caption describe --html` has made, and that of a wrong address.
    pages = [
        page for page in written if "<article" in page.read_text(encoding="utf-8") and page.stem != "404"
    ]
    assert len(pages) > 30
    found = {}
    for each in pages:
        page = browser.open(each.as_uri(), *TELEPHONE)
        for size in (TELEPHONE, DESK):
            page.resize(*size)
            if outside := page.run(OUTSIDE):
                found[each.relative_to(site).as_posix(), size[0]] = outside
        page.close()
    assert found == {}
    # The first screen has the title, the picture and the command.
    page = browser.open((site / "index.html").as_uri(), *DESK)
    assert page.run(EMPTY) == 0
    for size in (DESK, TELEPHONE):
        page.resize(*size)
        for selector, index in ((".md-content h1", 0), (".md-content img", 0), (".md-content pre", 0)):
            page.run("scrollTo(0, 0)")
            _, top, _, height = page.box_of(selector, index)
            assert height > 10
            assert top + height <= size[1], (selector, size)
    page.close()
