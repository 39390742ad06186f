"""Evaluation of a split: from captions and references to scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import distributed

from caption.analysis.blind import other_word
from caption.analysis.grounding import ground
from caption.analysis.map_statistics import measure_maps
from caption.data.boxes import Boxes
from caption.metrics import Scores, evaluate
from caption.result import Caption


@dataclass(frozen=True)
class Answer:
    """A model's results for one image."""

    id: int | str
    caption: Caption
    """The caption found by search."""
    references: tuple[str, ...]
    nll: float
    """−log p of all references under teacher forcing, summed, in nats."""
    steps: int
    """Number of words in that sum, end tokens included."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of a split and the protocol behind them."""

    numbers: dict[str, float]
    scores: Scores

    @property
    def signature(self) -> str:
        """Tokenizer, references, brevity penalty, split, search and the rest, in one line."""
        return self.scores.signature


def gather(answers: Sequence[Answer]) -> list[Answer]:
    """Collect the answers of all processes, each image once: a distributed sampler repeats images to make equal
    shares."""
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
    """Compute BLEU, CIDEr and ROUGE-L of the captions, NLL per word, and statistics of the attention.

    Args:
        answers: of all images of a split, each once.
        protocol: how the captions were made, for the signature: split, search, setting of hard attention.
        boxes: of the images' objects, by name; None if the data has none.

    Returns:
        numbers by name. "NLL" is in nats per word; "attention_entropy" the mean H[α] over all words, in nats, to be
        compared with "attention_entropy_max", log L; "attention_change" the share of α that moves from word to word;
        "attention_unseen" the share of regions with almost no attention over a whole caption. "pointing_accuracy" has
        two controls: "pointing_chance", that of uniform maps, and "pointing_other_word", with each word's map replaced
        by that of another word of its caption, which is as sharp and depends on the image, but not on the word.
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
    """Write the captions in COCO results format, which other tools score."""
    results = [{"image_id": answer.id, "caption": answer.caption.text} for answer in answers]
    _write_json(path, results)


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Write scores and signature as JSON."""
    _write_json(path, {"scores": evaluation.numbers, "signature": evaluation.signature})


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
