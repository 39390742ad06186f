"""From captions and references to the numbers of an epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import distributed

from caption.analysis.blind import other_word
from caption.analysis.grounding import ground
from caption.analysis.maps import measure_maps
from caption.data.boxes import Boxes
from caption.metrics import Scores, evaluate
from caption.result import Caption


@dataclass(frozen=True)
class Answer:
    """What a model made of one image."""

    id: int | str
    caption: Caption
    """Free-running, from search."""
    references: tuple[str, ...]
    nll: float
    """−log p of all references under teacher forcing, summed, in nats."""
    steps: int
    """Number of words in that sum, end tokens included."""


@dataclass(frozen=True)
class Evaluation:
    """The numbers of a split, with the protocol that made them."""

    numbers: dict[str, float]
    scores: Scores

    @property
    def signature(self) -> str:
        """Tokenizer, references, brevity penalty, split, search and the rest, in one line."""
        return self.scores.signature


def gather(answers: Sequence[Answer]) -> list[Answer]:
    """All processes' answers, each image once: a distributed sampler repeats images to even out its shares."""
    everyone = [list(answers)]
    if distributed.is_available() and distributed.is_initialized():
        everyone = [[] for _ in range(distributed.get_world_size())]
        distributed.all_gather_object(everyone, list(answers))
    return list({answer.id: answer for part in everyone for answer in part}.values())


def summarise(
    answers: Sequence[Answer],
    protocol: Mapping[str, object],
    boxes: Mapping[int | str, Boxes] | None = None,
) -> Evaluation:
    """BLEU, CIDEr and ROUGE-L of the free-running captions, NLL per word, perplexity of α, and where it pointed.

    Args:
        answers: of all images of a split, each once.
        protocol: what made the captions, for the signature: split, search, how hard attention chose.
        boxes: of the images' objects, by name; None where the data has none.

    Returns:
        numbers by name. "NLL" is in nats per word; "attention_entropy" the mean H[α] over all words, in nats, to be
        compared with "attention_entropy_max", log L; "attention_change" the share of α that moves from word to word;
        "attention_unseen" the share of regions that a whole caption hardly looks at. "pointing_accuracy" is compared
        with "pointing_chance", that of uniform maps, and with "pointing_other_word": each word's map exchanged for
        another's of its caption, which is as sharp and knows the image, but not the word.
    """
    scores = evaluate(
        {answer.id: answer.caption.text for answer in answers},
        {answer.id: answer.references for answer in answers},
        protocol=protocol,
    )
    numbers = {name: value for name, value in scores.to_dict()["scores"].items() if value is not None}
    numbers["NLL"] = sum(answer.nll for answer in answers) / sum(answer.steps for answer in answers)
    numbers |= measure_maps(answer.caption for answer in answers)
    if boxes is not None:
        objects = [boxes.get(answer.id, {}) for answer in answers]
        captions = [answer.caption for answer in answers]
        numbers |= ground(zip(captions, objects, strict=True)).to_dict()
        shuffled = ground(zip(other_word(captions), objects, strict=True))
        numbers["pointing_other_word"] = shuffled.accuracy
    return Evaluation(numbers, scores)


def write_results(answers: Sequence[Answer], path: Path) -> None:
    """The captions in COCO results format, the way other tools score them."""
    results = [{"image_id": answer.id, "caption": answer.caption.text} for answer in answers]
    _write_json(path, results)


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Numbers and signature as JSON."""
    _write_json(path, {"scores": evaluation.numbers, "signature": evaluation.signature})


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
