"""Evaluation of a split: from batches to captions, from captions and references to scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed

from caption.analysis.baseline_maps import other_word
from caption.analysis.map_statistics import measure_maps
from caption.analysis.pointing_game import ground
from caption.attention.stochastic import AtTest, override_at_test, stochastic_parts
from caption.captioner import Captioner
from caption.core.batch import Batch
from caption.core.regions import Views
from caption.core.runtime.atomic_files import OwnFolder, file_digest, make_parents
from caption.core.runtime.distributed import process_count
from caption.data.boxes import Boxes
from caption.metrics import Scores, evaluate
from caption.objectives import word_log_likelihoods
from caption.results.caption import Caption
from caption.search import Search, search_spec

ImageId = int | str
REFERENCES = "test_references.json"
RESULTS = {"test": ("test_captions.json", REFERENCES, "test_scores.json"), "predict": ("predictions.json",)}
"""Files that a verb writes."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """A model's results for one image."""

    id: ImageId
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
    captions: dict[ImageId, str]
    """Of all images."""


def gather(results: dict[ImageId, Result]) -> dict[ImageId, Result]:
    """Collect the results of all processes in the order of the data, each image once.

    A distributed sampler deals images out in turn, and repeats some to make equal shares.
    """
    by_process = [results]
    if process_count() > 1:
        by_process = [{} for _ in range(process_count())]
        distributed.all_gather_object(by_process, results)
    unique: dict[ImageId, Result] = {}
    for turn in zip_longest(*(share.items() for share in by_process)):
        for item in turn:
            if item is not None:
                unique.setdefault(*item)
    return unique


def summarise(
    answers: Collection[Answer],
    protocol: Mapping[str, object],
    boxes: Mapping[ImageId, Boxes] | None = None,
    tokenizer: str = "ptb",
) -> Evaluation:
    """Compute BLEU, CIDEr and ROUGE-L of the captions, NLL per word, and statistics of the attention.

    Args:
        answers: of all images of a split, each once.
        protocol: how the captions were made, for the signature: split, search, setting of hard attention.
        boxes: of the images' objects, by name; None if the data has none.
        tokenizer: of the scores.

    Returns:
        numbers by name. "NLL" is in nats per word; "attention_entropy" the mean H[α] over all words, in nats, to be
        compared with "attention_entropy_max", log L; "attention_change" the share of α that moves from word to word;
        "attention_unseen" the share of regions with almost no attention over a whole caption; "attention_evenness" how
        evenly a whole caption looks at the regions, 0 to 1. "pointing_accuracy" has
        two controls: "pointing_chance", that of uniform maps, and "pointing_other_word", with each word's map replaced
        by that of another word of its caption, which is as sharp and depends on the image, but not on the word.
    """
    texts = {answer.id: answer.caption.text for answer in answers}
    references = {answer.id: answer.references for answer in answers}
    scores = evaluate(texts, references, tokenizer, protocol=protocol)
    numbers = {name: value for name, value in scores.to_dict()["scores"].items() if value is not None}
    numbers["NLL"] = sum(answer.nll for answer in answers) / sum(answer.steps for answer in answers)
    numbers |= measure_maps(answer.caption for answer in answers)
    if boxes is not None:
        objects = [boxes.get(answer.id, {}) for answer in answers]
        captions = [answer.caption for answer in answers]
        numbers |= ground(zip(captions, objects, strict=True)).to_dict()
        shuffled = ground(zip(other_word(captions), objects, strict=True))
        numbers["pointing_other_word"] = shuffled.accuracy
    return Evaluation(numbers, scores, texts)


class Evaluator:
    """Captions the batches of a split, and scores them when all have been seen.

    Args:
        captioner: is evaluated; in evaluation mode.
        at_test: what hard attention reads; None = the mechanism's own setting.
    """

    def __init__(self, captioner: Captioner, at_test: AtTest | None = None) -> None:
        self.captioner = captioner
        self.at_test = at_test
        self.forget()

    def forget(self) -> None:
        """Forget the answers so far."""
        self.answers: dict[ImageId, Answer] = {}
        self._predicted: dict[ImageId, str] = {}

    def evaluate(self, batch: Batch, views: Views, search: Search) -> None:
        """Caption a batch, and keep the answers until `score`."""
        self.answers |= {answer.id: answer for answer in self._answer(batch, views, search)}

    def predict(self, batch: Batch, views: Views, search: Search) -> list[dict[str, Any]]:
        """Caption a batch, and keep the texts until `write_predictions`."""
        answers = self._answer(batch, views, search)
        self._predicted |= {answer.id: answer.caption.text for answer in answers}
        return [{"image_id": answer.id, **answer.caption.to_dict()} for answer in answers]

    def _answer(self, batch: Batch, views: Views, search: Search) -> list[Answer]:
        with override_at_test(self.captioner, self.at_test):
            unrolled = self.captioner.unroll(views, batch.captions.words, batch.captions.lengths)
            hypotheses = self.captioner.generate(views, search)
        nll = -unrolled.unpack(word_log_likelihoods(unrolled, batch.captions.targets)).sum((1, 2))
        steps = unrolled.unpack(torch.ones_like(unrolled.positions)).sum((1, 2))
        captions = self.captioner.captions(hypotheses, self.captioner.grids(views), batch.boxes)
        fields = zip(batch.ids, captions, batch.references, nll.tolist(), steps.tolist(), strict=True)
        return [Answer(*values) for values in fields]

    def score(
        self,
        split: str,
        search: Search,
        boxes: Mapping[ImageId, Boxes] | None,
        folder: OwnFolder | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Evaluation:
        """Score the answers of all processes, and forget them.

        Args:
            split: their name.
            search: with which they were made.
            boxes: see `summarise`.
            folder: for captions and scores as files; None = none are written.
            checkpoint: the model's file, which is named beside the scores with its digest; None = it has none.
        """
        answers, self.answers = gather(self.answers), {}
        tokenizer = self.captioner.vocabulary.scored_by
        evaluation = summarise(answers.values(), self.protocol(split, search), boxes, tokenizer)
        if folder is not None:
            write_results(evaluation.captions, folder, f"{split}_captions.json")
            folder.write_json(f"{split}_references.json", _coco_references(answers), indent=1)
            scores: dict[str, Any] = {"scores": evaluation.numbers, "signature": evaluation.scores.signature}
            if checkpoint is not None:
                scores["model"] = {
                    "file": str(checkpoint),
                    "digest": file_digest(Path(checkpoint).expanduser()),
                }
            folder.write_json(f"{split}_scores.json", scores, indent=1)
        return evaluation

    def write_predictions(self, folder: OwnFolder | None) -> None:
        """Gather the predictions of all processes, and write them if there is a folder."""
        predicted, self._predicted = gather(self._predicted), {}
        if folder is not None:
            write_results(predicted, folder, *RESULTS["predict"])

    def protocol(self, split: str, search: Search) -> dict[str, str]:
        """The conditions of an evaluation, without the conventions of the metrics."""
        spec = search_spec(search)
        options = ",".join(f"{name}={value}" for name, value in spec["init_args"].items())
        protocol = {"split": split, "search": f"{spec['class_path'].rpartition('.')[2]}({options})"}
        settings = [self.at_test or part.at_test for part in stochastic_parts(self.captioner.decoder)]
        return protocol | ({"hard": ",".join(settings)} if settings else {})


def _coco_references(answers: Mapping[ImageId, Answer]) -> dict[str, Any]:
    """The references in COCO's format, with which others can score the captions again."""
    captions = [(image, text) for image, answer in answers.items() for text in answer.references]
    return {
        "images": [{"id": image} for image in answers],
        "annotations": [
            {"id": number, "image_id": image, "caption": text}
            for number, (image, text) in enumerate(captions)
        ],
    }


def write_results(captions: Mapping[ImageId, str], folder: OwnFolder, name: str) -> None:
    """Write the captions in COCO results format, which other tools score."""
    results = [{"image_id": image, "caption": text} for image, text in captions.items()]
    make_parents(folder.path / name)  # the logger chose it
    folder.write_json(name, results, indent=1)
