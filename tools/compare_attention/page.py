"""The page in which all mechanisms look at the same scene for the same word, side by side.

Its code is `caption/visualize/web/mechanisms.js`, which is told

    scenes      image, sentence, words, boxes: of the object that a word names, by the word's number
    families    name, idea, members
    mechanisms  by name: title, and what it makes of each scene:
        photo       the sentence as the mechanism reads it, `Photo` in data.schema.json; null without maps
        log_probs   of its words
        hits        by the number of a word that names an object, whether the map's maximum lies in the object
        said        the mechanism's own caption
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from caption.analysis.pointing_game import ground
from caption.captioner import Captioner
from caption.cli.configs import FAMILIES
from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.data.readers.captions import CaptionedImage
from caption.result import Caption
from caption.search import Greedy
from caption.search.step_functions import with_prefix
from caption.text.mentions import find_mentions
from caption.text.vocabulary import END
from caption.visualize import save_html
from caption.visualize.html_document import document
from caption.visualize.page import CLASSES, data_uri, embedded_json
from caption.visualize.page_data import look_record, photo_record
from caption.visualize.page_script import page_script, page_style
from caption.visualize.styles import Look
from tools.compare_attention.mechanisms import Mechanism, by_family

TITLE = "Mechanisms of attention, looking at the same scene for the same word"
INTRODUCTION = (
    "All mechanisms read the same sentence, which none of them wrote, and their maps for one word of it stand side by "
    "side. The green box is the object that the word names; ✓ says that the largest weight lies in it. Choose a scene "
    "and a word; choose a mechanism to see it large, with all words."
)


def save_page(
    models: Mapping[str, Captioner | None],
    mechanisms: Mapping[str, Mechanism],
    scenes: Sequence[CaptionedImage],
    boxes: Mapping[int | str, Boxes],
    file: Path,
) -> list[str]:
    """Write the page.

    Args:
        models: by name; None = the model is not here, and the page says of it what it said before.
        mechanisms: those that the models are, by name.
        scenes: whose first captions are read.
        boxes: of their objects, by the scenes' ids.
        file: the page.

    Returns:
        The mechanisms that are neither here nor on the earlier page, if it shows the same scenes. With any, the page is
        not written.
    """
    records = [_scene_record(scene, boxes[scene.id]) for scene in scenes]
    before = _before(file, records)
    if unknown := [name for name, model in models.items() if model is None and name not in before]:
        return unknown
    data = {
        **look_record(Look()),
        "scenes": records,
        "families": [
            {"name": kin or "others", "idea": FAMILIES.get(kin, ""), "members": members}
            for kin, members in by_family(models, mechanisms).items()
        ],
        "mechanisms": {
            name: {
                "title": mechanisms[name].title if name in mechanisms else "",
                "scenes": before[name] if model is None else _readings(model, scenes, boxes),
            }
            for name, model in models.items()
        },
    }
    body = f"""<div class="{CLASSES} satt-mechanisms">
<h1>{TITLE}</h1>
<p class="satt-intro">{INTRODUCTION}</p>
<noscript><p>This page needs JavaScript.</p></noscript>
<script type="application/json">{embedded_json(data)}</script>
</div>"""
    save_html(document(TITLE, body, page_style("mechanisms.css"), page_script("mechanisms.js")), file)
    return []


def _before(file: Path, scenes: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What a page says of each mechanism in these scenes; {} if there is no page, or it shows others."""
    if not file.exists():
        return {}
    told = re.search(
        r'<script type="application/json">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL
    )
    data = json.loads(told[1]) if told else {}
    if data.get("scenes") != scenes:
        return {}
    return {name: said["scenes"] for name, said in data["mechanisms"].items()}


@torch.no_grad()
def read_by(model: Captioner, scene: CaptionedImage) -> Caption:
    """A scene's first caption as a model reads it, word by word: its weights and log-probabilities."""
    views = model.encode([scene.path])
    begin = [*(model.vocabulary[word] for word in scene.captions[0].split()), END]
    hypotheses = model.generate(views, Greedy(len(begin)), [partial(with_prefix, words=begin)])
    seen = [model.transform.box(*open_image(scene.path).size)]
    return next(model.captions(hypotheses, model.grids(views), seen, [scene.path]))


def _scene_record(scene: CaptionedImage, boxes: Boxes) -> dict[str, Any]:
    words = scene.captions[0].split()
    named = {mention.word: mention.boxes for mention in find_mentions(words, boxes)}
    return {
        "image": data_uri(open_image(scene.path)),
        "sentence": scene.captions[0],
        "words": words,
        "boxes": {str(word): [list(box) for box in places] for word, places in named.items()},
    }


def _readings(
    model: Captioner, scenes: Sequence[CaptionedImage], boxes: Mapping[int | str, Boxes]
) -> list[dict[str, Any]]:
    """What the page is told of a model in every scene."""
    own = model.describe([scene.path for scene in scenes])
    return [
        _reading(model, scene, boxes[scene.id], str(said)) for scene, said in zip(scenes, own, strict=True)
    ]


def _reading(model: Captioner, scene: CaptionedImage, boxes: Boxes, said: str) -> dict[str, Any]:
    # Single heads and channels would not fit; the summary is what the mechanisms have in common.
    caption = replace(read_by(model, scene), maps={})
    size = open_image(scene.path).size
    pointings = ground([(caption, boxes)]).pointings if model.decoder.attentions else ()
    return {
        "photo": photo_record(caption, "", size, size) if model.decoder.attentions else None,
        "log_probs": [round(float(log_prob), 4) for log_prob in caption.word_log_probs],
        "hits": {str(pointing.mention.word): pointing.hit > 0.5 for pointing in pointings},
        "said": said,
    }
