"""The report of a study on photos: one self-contained page with questions, tables and pictures."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from caption.analysis.faithfulness.curves import Kind, plot_curves
from caption.analysis.study.run import Study
from caption.analysis.study.subject import OWN, Subject
from caption.analysis.table import AnalysisTable, Cell, Value
from caption.core.errors import printable
from caption.data.boxes import Boxes
from caption.results.caption import Caption
from caption.visualize.figure import plot_word
from caption.visualize.figure_file import dpi_of, render
from caption.visualize.html_document import document
from caption.visualize.overlay import photo_name
from caption.visualize.page_script import web_resource

WIDTH = 480
"""Pixels of an example's picture."""
EXAMPLES = 6
"""Best, and worst, photos of a model."""
PANELS: tuple[tuple[Kind, str], ...] = (
    ("deletion", "removed"),
    ("deletion", "replaced"),
    ("insertion", "removed"),
)
"""Of the figure of curves: the curve, and how regions are hidden."""


class ExampleWord(NamedTuple):
    """A word of a caption and its map."""

    score: float
    """Higher = better."""
    caption: Caption
    word: int
    """Its place in the caption."""
    boxes: Boxes
    """Of the object that the word names; {} without boxes."""
    verdict: str
    """Such as "hit, 81 % of α in the box"."""


def report_html(study: Study, setting: str) -> str:
    """The page, a complete HTML document that loads nothing.

    Args:
        study: of models.
        setting: the data and models of the study, in plain text.

    Raises:
        caption.core.errors.ImageError: a photo of the examples cannot be opened.
    """
    measured = {name: table for name, table in study.tables.items() if not table.missing}
    pictures: dict[str, str] = {}  # they take as long as the tables
    if "faithfulness" in measured:
        pictures["faithfulness"] = _figure(draw_curves(study))
    # Without boxes, the curves say which maps are best.
    if (of_examples := "grounding" if "grounding" in measured else "faithfulness") in measured:
        drawn = "".join(_examples(subject, len(study.subjects) > 1) for subject in study.subjects)
        pictures[of_examples] = pictures.get(of_examples, "") + drawn
    missing = [table for table in study.tables.values() if table.missing]
    body = f"""<h1>{_text(study.title)}</h1>
<p class="setting">{_text(setting)}</p>
<nav>
{"".join(_link(name, table) for name, table in measured.items())}</nav>
{"".join(_section(name, table, pictures.get(name, "")) for name, table in measured.items())}{_left_out(missing)}"""
    return document(printable(study.title), body, web_resource("report.css"))


def draw_curves(study: Study) -> Figure:
    """A row of deletion and insertion curves for each model."""
    panels = [panel for panel in PANELS if panel[1] in study.subjects[0].curves]
    return plot_curves(
        [
            {
                f"{subject.name}: {kind}, {way}": (subject.images.about(subject.curves[way]), kind)
                for kind, way in panels
            }
            for subject in study.subjects
        ]
    )


def examples(subject: Subject) -> Mapping[str, Sequence[ExampleWord]]:
    """The photos with the best and the worst maps, each photo once.

    With boxes, photos are ordered by how often the maps hit and how much of them lies in the boxes beyond chance;
    without, by how much more the words lose when regions are hidden in the order of α than at random. A photo is shown
    by its best, or worst, word.
    """
    words = _pointings(subject) if subject.groundings else _falls(subject)
    photos = sorted(words.values(), key=lambda several: -float(np.mean([word.score for word in several])))
    half = min(EXAMPLES, len(photos) // 2)
    return {
        "best": [max(several, key=lambda word: word.score) for several in photos[:half]],
        "worst": [min(several, key=lambda word: word.score) for several in photos[::-1][:half]],
    }


def _pointings(subject: Subject) -> Mapping[int, list[ExampleWord]]:
    """By photo, each word that has a box."""
    words: dict[int, list[ExampleWord]] = {}
    for pointing in subject.groundings[OWN].pointings:
        mention, mass = pointing.mention, pointing.mass
        even = f"an even map: {100 * pointing.mass_chance:.0f} %"
        verdict = f"{'hit' if pointing.hit else 'miss'}, {100 * mass:.0f} % of α in the box ({even})"
        boxes, caption = {mention.name: mention.boxes}, subject.pointed.captions[pointing.caption]
        score = pointing.hit + mass - pointing.mass_chance
        example = ExampleWord(score, caption, mention.word, boxes, verdict)
        words.setdefault(int(subject.pointed.images[pointing.caption]), []).append(example)
    return words


def _falls(subject: Subject) -> Mapping[int, list[ExampleWord]]:
    """By photo, each word of the model's caption."""
    curves = subject.curves["removed"]
    gains = curves.area("deletion", "random") - curves.area("deletion", "attention")
    words: dict[int, list[ExampleWord]] = {}
    for photo, gain in zip(curves.images.tolist(), gains.tolist(), strict=True):
        of_photo = words.setdefault(photo, [])
        caption = subject.captions[photo].stepwise  # curves measure pieces
        more = "more" if gain >= 0 else "less"
        verdict = f"p(word) falls by {abs(gain):.2f} {more} in the order of α than at random"
        of_photo.append(ExampleWord(gain, caption, len(of_photo), {}, verdict))
    return words


def _text(text: object) -> str:
    return html.escape(printable(text)).replace(" %", "&nbsp;%")


def _link(name: str, table: AnalysisTable) -> str:
    """A link to the table."""
    return f'<a href="#{name}"><span>{_text(table.title)}</span></a>\n'


def _section(name: str, table: AnalysisTable, pictures: str) -> str:
    notes = "".join(f"<p>{_text(note)}</p>\n" for note in table.notes)
    rows = f'<div class="table" tabindex="0">{table.html(_cell)}</div>\n'
    answer = f'<p class="meaning">{_text(table.meaning)}</p>\n{pictures}{rows}{notes}'
    return f'<section id="{name}">\n<h2>{_text(table.title)}</h2>\n{answer}</section>\n'


def _left_out(tables: Sequence[AnalysisTable]) -> str:
    """The questions that were not answered, each with what it needs."""
    if not tables:
        return ""
    reasons = "".join(f"<li>{_text(table.title)} {_text(table.missing)}</li>\n" for table in tables)
    return f'<section id="left-out">\n<h2>Left out</h2>\n<ul class="missing">\n{reasons}</ul>\n</section>\n'


def _cell(cell: Cell) -> str:
    """A cell; a share with its interval as a bar."""
    if not isinstance(cell, Value):
        return f'<td class="{"number" if isinstance(cell, int) else "name"}">{_text(cell)}</td>'
    bar = ""
    if cell.is_share and cell.estimate.low >= 0:
        mean, low, high = (100 * number for number in cell.estimate)
        bar = (
            '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" '
            f'height="6"/><rect class="mean" width="{mean:.1f}" height="6"/><rect class="interval" x="{low:.1f}" y="2" '
            f'width="{max(high - low, 0.6):.1f}" height="2"/></svg>'
        )
    return f"<td>{_text(cell)}{bar}</td>"


def _examples(subject: Subject, with_name: bool) -> str:
    """The pictures of the best and the worst maps of a model, with its name in the headings if wanted."""
    measure = (
        "pointing and mass in the box, beyond that of an even map"
        if subject.groundings
        else "how much faster p(word) falls in the order of α than at random"
    )
    of_model = f" of {_text(subject.name)}" if with_name else ""
    return "".join(
        f'<h3>Photos with the {kind} maps{of_model}</h3>\n<p class="meaning">By {measure}.</p>\n'
        f'<div class="gallery">\n{"".join(map(_example, several))}</div>\n'
        for kind, several in examples(subject).items()
        if several
    )


def _example(example: ExampleWord) -> str:
    caption, place = example.caption, example.word
    assert caption.image is not None
    # The scale is that of the whole caption, the boxes those of this word alone.
    fig = plot_word(caption, caption.image, place, boxes=example.boxes)
    words = " ".join(
        f"<mark>{_text(word)}</mark>" if step == place else _text(word)
        for step, word in enumerate(caption.words)
    )
    name = _text(photo_name(caption.image, 0))
    picture = _picture(render(fig, "jpg", dpi_of(fig, WIDTH)), "jpeg", f"{name}: where it looked")
    return (
        f"<figure>{picture}<figcaption><b>{_text(caption.words[place])}</b>: {_text(example.verdict)}<br>{words}<br>"
        f"<small>{name}</small></figcaption></figure>\n"
    )


def _figure(fig: Figure) -> str:
    picture = _picture(render(fig, "png", 110), "png", "Curves of deletion and insertion")
    return f'<figure class="curves">{picture}</figure>\n'


def _picture(data: bytes, kind: str, alt: str) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
    source = base64.b64encode(data).decode()
    return f'<img src="data:image/{kind};base64,{source}" width="{width}" height="{height}" alt="{alt}">'
