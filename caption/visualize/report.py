"""The report of `caption analyse` on photos: one self-contained page with questions, answers, tables and pictures."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from caption.analysis.photos.examples import Example, Examples
from caption.analysis.photos.report import Part
from caption.analysis.table_rows import Cell, Value
from caption.errors import printable
from caption.visualize.figure import plot_word
from caption.visualize.figure_file import dpi_of, render
from caption.visualize.html_document import document
from caption.visualize.layout import new_figure
from caption.visualize.overlay import photo_name
from caption.visualize.page_script import web_resource
from caption.visualize.plots import curve_plot

if TYPE_CHECKING:
    from caption.analysis.faithfulness.curves import FaithfulnessCurves, Kind

WIDTH = 480
"""Pixels of an example's picture."""


def report_html(
    title: str,
    setting: str,
    parts: Sequence[Part],
    examples: Mapping[str, Examples],
    curves: Mapping[str, FaithfulnessCurves],
) -> str:
    """The page, a complete HTML document that loads nothing.

    Args:
        title, setting: plain text.
        parts: from `caption.analysis.photos.report`.
        examples: by the name of the model.
        curves: of deletion and insertion, by the name of the model.

    Raises:
        caption.errors.ImageError: a photo of the examples cannot be opened.
    """
    tiles, sections = [], []
    for part in parts:
        pictures = ""
        if part.name == "grounding":
            named = [(f" of {name}" if len(examples) > 1 else "", one) for name, one in examples.items()]
            pictures = "".join(_examples(*each) for each in named)
        elif part.name == "faithfulness":
            pictures = "".join(_curves(name, of_model) for name, of_model in curves.items())
        tiles.append(_tile(part))
        sections.append(_section(part, pictures))
    body = f"""<h1>{_text(title)}</h1>
<p class="setting">{_text(setting)}</p>
<nav>
{"".join(tiles)}</nav>
{"".join(sections)}"""
    return document(printable(title), body, web_resource("report.css"))


def _text(text: object) -> str:
    return html.escape(printable(text)).replace(" %", "&nbsp;%")


def _tile(part: Part) -> str:
    """A link to the part, with its first number."""
    number, of_what = part.headline
    above = f"<strong>{_text(number)}</strong> {_text(of_what)}" if number else "not measured"
    return f'<a href="#{part.name}"><span>{_text(part.title)}</span> {above}</a>\n'


def _section(part: Part, pictures: str) -> str:
    if part.missing:
        answer = f'<p class="missing">Left out. {_text(part.missing)}</p>\n{pictures}'
    else:
        findings = "".join(f"<li>{_text(finding)}</li>\n" for finding in part.findings)
        notes = "".join(f"<p>{_text(note)}</p>\n" for note in part.notes)
        answer = f'<ul class="findings">\n{findings}</ul>\n{pictures}{_table(part.head, part.rows)}{notes}'
    meaning = "" if part.missing else f'<p class="meaning">{_text(part.meaning)}</p>\n'
    return f'<section id="{part.name}">\n<h2>{_text(part.title)}</h2>\n{meaning}{answer}</section>\n'


def _table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    heads = "".join(f"<th>{_text(one)}</th>" for one in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f'<div class="table" tabindex="0"><table>\n<tr>{heads}</tr>\n{lines}</table></div>\n'


def _cell(cell: Cell) -> str:
    """A cell; a share with its interval as a bar."""
    if not isinstance(cell, Value):
        return f'<td class="{"number" if isinstance(cell, int) else "name"}">{_text(cell)}</td>'
    bar = ""
    if cell.is_share and cell.of.mean == cell.of.mean:
        mean, low, high = (100 * number for number in cell.of)
        bar = (
            '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" '
            f'height="6"/><rect class="mean" width="{mean:.1f}" height="6"/><rect class="interval" x="{low:.1f}" y="2" '
            f'width="{max(high - low, 0.6):.1f}" height="2"/></svg>'
        )
    return f"<td>{_text(cell)}{bar}</td>"


def _examples(of_model: str, examples: Examples) -> str:
    """The pictures of the best and the worst maps of a model, which the headings name where there are several."""
    rows = {"best": examples.best, "worst": examples.worst}
    return "".join(
        f"<h3>Photos with the {kind} maps{_text(of_model)}</h3>\n"
        f'<p class="meaning">By {_text(examples.measure)}.</p>\n'
        f'<div class="gallery">\n{"".join(map(_example, several))}</div>\n'
        for kind, several in rows.items()
        if several
    )


def _example(example: Example) -> str:
    caption, place = example.caption, example.word
    assert caption.image is not None
    # The scale is that of the whole caption, the boxes those of this word alone.
    fig = plot_word(caption, caption.image, place, boxes=example.boxes)
    words = " ".join(
        f"<mark>{_text(word)}</mark>" if number == place else _text(word)
        for number, word in enumerate(caption.words)
    )
    name = _text(photo_name(caption.image, 0))
    picture = _picture(render(fig, "jpg", dpi_of(fig, WIDTH)), "jpeg", f"{name}: where it looked")
    return (
        f"<figure>{picture}<figcaption><b>{_text(caption.words[place])}</b>: {_text(example.verdict)}<br>{words}<br>"
        f"<small>{name}</small></figcaption></figure>\n"
    )


def _curves(name: str, curves: FaithfulnessCurves) -> str:
    kinds: tuple[Kind, ...] = ("deletion", "insertion")
    fig = new_figure((8.0, 2.9))
    fig.set_layout_engine("constrained")
    axes = fig.subplots(1, 2, sharey=True)
    for ax, kind in zip(axes, kinds, strict=True):
        curve_plot(ax, curves, kind)
        ax.set_title(f"{name}: {kind}", fontsize=10, parse_math=False)
        ax.label_outer()
    axes[1].legend(title="order", frameon=False, fontsize=8, loc="lower right")
    picture = _picture(render(fig, "png", 110), "png", f"Curves of deletion and insertion, {_text(name)}")
    return f'<figure class="curves">{picture}</figure>\n'


def _picture(data: bytes, kind: str, alt: str) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
    source = base64.b64encode(data).decode()
    return f'<img src="data:image/{kind};base64,{source}" width="{width}" height="{height}" alt="{alt}">'
