"""What mkdocs.yml adds to the pages of docs/: the README, the notebooks with their outputs, and the API by package.

A hook of MkDocs. Links to files outside docs/ become plain text, since the site has only its own pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Documents beside docs/, and their pages."""
HOME_PICTURE = 680
"""Width in pixels of the picture on the home page, so that title, picture and commands are on the first screen."""
LAST = "---\nsearch: {boost: 0.2}\n---\n\n"
"""The head of a page that the search names last."""
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]+\)")
LINK = re.compile(r"(?<!\!)\[([^\]]+)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Fill the navigation with notebooks and packages."""
    entries = {"Notebooks": notebooks(), "API": [*packages()]}
    for section in config.nav or []:
        for name in entries.keys() & (section if isinstance(section, dict) else {}):
            section[name] = entries[name]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""

    def add(page: str, content: str | bytes) -> None:
        files.append(File.generated(config, page, content=content))

    for document, page in PAGES.items():
        add(page, (ROOT / document).read_text(encoding="utf-8").replace("](docs/", "]("))
    for page in notebooks():
        text, pictures = converted(ROOT / "notebooks" / f"{Path(page).stem}.ipynb")
        add(page, text)
        for name, picture in pictures.items():
            add(f"notebooks/{name}", picture)
    for page, package in packages().items():
        add(page, reference(package))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **others: Any) -> str:
    """Keep links to pages and files of the site; others become text. The home page's first picture gets a width."""
    if page.file.src_uri == "index.md":
        markdown = PICTURE.sub(rf"\g<0>{{ width={HOME_PICTURE} }}", markdown, count=1)
    folder = posixpath.dirname(page.file.src_uri) or "."

    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(f"{folder}/{link[2]}")
        inside = files.get_file_from_path(target) is not None
        known = (ROOT / "docs" / target).exists() or (ROOT / target).exists()
        # A link that leads nowhere stays, so that a strict build fails.
        return link[0] if inside or not known else link[1]

    return LINK.sub(kept, markdown)


def notebooks() -> list[str]:
    """The page of each notebook."""
    return [f"notebooks/{path.stem}.md" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def converted(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown with its stored outputs, and its pictures by name."""
    text, resources = MarkdownExporter().from_filename(str(path), {"unique_key": path.stem})
    return text, resources["outputs"]


def packages() -> dict[str, str]:
    """Dotted name of each package by its page; "caption" stands for the modules that are in no other."""
    names = sorted(path.parent.name for path in (ROOT / "caption").glob("*/__init__.py"))
    return {"api/caption.md": "caption"} | {f"api/{name}.md": f"caption.{name}" for name in names}


def reference(package: str) -> str:
    """The page of a package, to be filled by mkdocstrings. In the search, it comes after the pages of docs/."""
    if package != "caption":
        return f"{LAST}# {package}\n\n::: {package}\n"
    modules = sorted(path.stem for path in (ROOT / "caption").glob("*.py") if not path.stem.startswith("__"))
    entries = "".join(f"\n::: caption.{module}\n" for module in modules)
    return f"{LAST}# caption\n\n::: caption\n    options:\n      show_submodules: false\n{entries}"
