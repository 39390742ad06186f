"""Evaluation: the captions of a split, their scores, names and protocol."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights
from pytorch_lightning import seed_everything
from torch import distributed
from torch.optim import Adam

from caption.attention import Multinoulli
from caption.data.batches import collate
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.errors import UserError
from caption.metrics.caption_files import read_captions
from caption.result import Caption
from caption.search import BeamSearch, Greedy
from caption.training import evaluator
from caption.training.evaluator import Answer, gather, summarise
from caption.training.module import CaptionTraining


def answer(number: int, text: str, *references: str, weights: Any = None) -> Answer:
    words = text.split()
    maps = np.full((len(words), 2, 2), 0.25) if weights is None else np.array(weights, dtype=np.float32)
    caption = Caption(
        text, words, maps, log_prob=-1.0, word_log_probs=np.full(len(words), -0.5), box=(0, 0, 8, 8)
    )
    return Answer(number, caption, references or (text,), nll=4.0, steps=2)


PROTOCOL = {"split": "test", "search": "Greedy(max_length=30)"}


def test_gathering_follows_the_order_of_the_data(monkeypatch: pytest.MonkeyPatch):
    """A distributed sampler deals five images to two processes in turn, and repeats the first to fill up."""
    mine, others = {1: "a", 3: "c", 5: "e"}, {2: "b", 4: "d", 1: "again"}

    def all_gather_object(by_process: list[dict[int, str]], results: dict[int, str]) -> None:
        by_process[:] = [results, others]

    monkeypatch.setattr(evaluator, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather_object", all_gather_object)
    assert list(gather(mine).items()) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


# -- numbers ---------------------------------------------------------------------------------------------------


def test_empty_captions_are_scored_and_do_not_crash():
    numbers = summarise([answer(1, "", "a cat"), answer(2, "", "a dog")], PROTOCOL).numbers
    assert numbers["BLEU-4"] == pytest.approx(0, abs=1e-6)
    assert numbers["attention_entropy"] == 0
    assert all(math.isfinite(value) for value in numbers.values())


def test_pointing_is_that_of_the_naming_word_against_other_words_and_needs_boxes():
    """With the correct map of "cat" for both words, the other word's map is as good. Then each word has its own."""
    left, right = [[1, 0], [0, 0]], [[0, 1], [0, 0]]
    boxes = {1: {"cat": [(4, 0, 8, 4)]}}
    no_boxes = answer(2, "a cat")
    still, moving, wrong = (
        summarise([answer(1, "a cat", weights=maps), no_boxes], PROTOCOL, boxes).numbers
        for maps in ([right, right], [left, right], [right, left])
    )
    assert [numbers["pointing_accuracy"] for numbers in (still, moving, wrong)] == [1, 1, 0]
    assert [numbers["pointing_other_word"] for numbers in (still, moving, wrong)] == [1, 0, 1]
    assert still["pointing_chance"] == wrong["pointing_chance"] == 0.25
    assert still["pointing_mentions"] == 1
    assert not [name for name in summarise([no_boxes], PROTOCOL).numbers if name.startswith("pointing")]


# -- in training ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, reader: Shapes) -> CaptionTraining:
    """A trained model whose captions differ between images."""
    folder = tmp_path_factory.mktemp("evaluated")
    options = {"encoder_learning_rate": 0.02, "optimizer": lambda groups: Adam(groups, lr=0.02)}
    return fit(folder, reader, max_epochs=8, limit_val_batches=0, **options)


def evaluate(training: CaptionTraining, folder: Path, data: CaptionData, split: str) -> dict[str, float]:
    trainer = make_trainer(folder)
    run = trainer.test if split == "test" else trainer.validate
    run(training, data, verbose=False)
    assert training.evaluation is not None
    return training.evaluation.numbers


def test_numbers_are_those_of_one_split_and_do_not_depend_on_the_batch_size(
    tmp_path: Path, reader: Shapes, evaluated
):
    for split in ("val", "test"):
        data = make_data(reader, batch_size=3)
        whole = evaluate(evaluated, tmp_path, make_data(reader, batch_size=8), split)
        parts = evaluate(evaluated, tmp_path, data, split)
        assert whole == {name: pytest.approx(value, abs=1e-5) for name, value in parts.items()}
        assert set(evaluated.evaluation.scores.ids) == {image.id for image in data.splits[split]}
        assert f"split:{split}" in evaluated.evaluation.scores.signature


def test_captions_are_free_running_and_nll_is_not(tmp_path: Path, reader: Shapes, evaluated, monkeypatch):
    seen = []
    monkeypatch.setattr(evaluator, "gather", lambda answers: seen.extend(answers.values()) or answers)
    data = make_data(reader, batch_size=3)
    numbers = evaluate(evaluated, tmp_path, data, "val")
    photos = data.splits["val"]
    by_itself = evaluated.captioner.describe([str(photo.path) for photo in photos], Greedy(10))
    assert [answer.id for answer in seen] == [photo.id for photo in photos]
    assert [answer.caption.text for answer in seen] == [caption.text for caption in by_itself]
    assert len({caption.text for caption in by_itself}) > 1

    # −log p of every reference, a caption at a time.
    total, steps = 0.0, 0
    dataset = data._images("val")
    captioner = evaluated.captioner.eval()
    for i in range(len(dataset)):
        example = dataset[i]
        for ids in example.captions:
            batch = collate([example._replace(captions=[ids])])
            with torch.no_grad():
                unrolled = captioner.unroll(captioner.encoder(batch.images), batch.inputs, batch.lengths)
            log_probs = unrolled.logits.log_softmax(-1)
            total -= float(log_probs.gather(1, torch.tensor(ids)[:, None]).sum())
            steps += len(ids)
    assert numbers["NLL"] == pytest.approx(total / steps, abs=1e-4)


def test_the_last_number_is_that_of_the_last_epoch_and_logged_with_its_split(tmp_path: Path, reader: Shapes):
    """Answers of one epoch must not be counted in the next."""
    counted = Watch(lambda module: len(module.evaluation.scores.ids), "on_validation_end")
    training = fit(tmp_path, reader, counted, max_epochs=2)
    assert counted.seen == [8, 8]
    logged = set(training.trainer.callback_metrics)
    for name in ("BLEU-1", "BLEU-4", "CIDEr", "NLL", "attention_entropy", "pointing_accuracy"):
        assert f"val/{name}" in logged
    assert {"train/loss", "train/NLL"} <= logged


def test_the_signature_tells_split_and_search(reader: Shapes):
    protocol = make_training(make_data(reader)).evaluator.protocol("test", BeamSearch(4, 9, 0.5))
    assert protocol["split"] == "test"
    assert protocol["search"].startswith("BeamSearch(beam_size=4,max_length=9,length_normalization=0.5")
    assert "hard" not in protocol


def test_at_test_of_hard_attention_can_be_overridden(tmp_path: Path, reader: Shapes):
    """The answers equal those of a model made with this setting, and differ from those of others; the signature names
    it, and the saved model keeps its own."""
    data, nlls = make_data(reader), set()
    for setting in ("expectation", "argmax", "sample"):
        seed_everything(0, verbose=False)
        overridden = make_training(data, alignment=Multinoulli(), at_test=setting)
        own = make_training(data, alignment=Multinoulli(at_test=setting))
        own.captioner.load_state_dict(overridden.captioner.state_dict())
        for training in (overridden, own):
            torch.manual_seed(1)
            make_trainer(tmp_path).test(training, data, verbose=False)
        assert overridden.evaluation.numbers == own.evaluation.numbers
        assert f"hard:{setting}" in overridden.evaluation.scores.signature == own.evaluation.scores.signature
        assert overridden.captioner.decoder.attention.spec["init_args"]["alignment"] == Multinoulli().spec
        assert overridden.captioner.decoder.attention.alignment.at_test == "expectation"
        nlls.add(overridden.evaluation.numbers["NLL"])
    assert len(nlls) == 3


def test_test_and_predict_search_as_the_model_does_and_write_results(
    tmp_path: Path, reader: Shapes, evaluated
):
    data = make_data(reader, batch_size=3)
    evaluate(evaluated, tmp_path, data, "test")
    photos = data.splits["test"]
    captions = evaluated.captioner.describe([str(photo.path) for photo in photos])
    expected = [
        {"image_id": photo.id, "caption": caption.text}
        for photo, caption in zip(photos, captions, strict=True)
    ]
    scores = json.loads((tmp_path / "test_scores.json").read_text())
    assert scores == {
        "scores": evaluated.evaluation.numbers,
        "signature": evaluated.evaluation.scores.signature,
    }
    assert json.loads((tmp_path / "test_captions.json").read_text()) == expected
    kept = read_captions(str(tmp_path / "test_references.json")).captions
    assert kept == {photo.id: list(photo.captions) for photo in photos}
    predicted = make_trainer(tmp_path).predict(evaluated, data)
    assert [
        {"image_id": p["image_id"], "caption": p["text"]} for batch in predicted for p in batch
    ] == expected
    assert json.loads((tmp_path / "predictions.json").read_text()) == expected


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, reader: Shapes, evaluated: CaptionTraining) -> str:
    """Precomputed regions of the evaluated model's encoder."""
    from caption.data.feature_extraction import write_features

    data, folder = make_data(reader), tmp_path_factory.mktemp("store")
    encoder = copy.deepcopy(evaluated.captioner.encoder)
    encoder.freeze()
    images = [image for split in data.splits.values() for image in split]
    write_features(encoder, data.transform, images, str(folder))
    return str(folder)


def test_precomputed_regions_train(tmp_path: Path, reader: Shapes, evaluated: CaptionTraining, store: str):
    frozen = make_training(make_data(reader))
    frozen.captioner.load_state_dict(evaluated.captioner.state_dict())
    before = weights(frozen.captioner)
    make_trainer(tmp_path, max_steps=2).fit(frozen, make_data(reader, features=store))
    changed = differing(before, weights(frozen.captioner))
    assert {name.partition(".")[0] for name in changed} == {"decoder"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 5}, "was made with"),
        ({"encoder_learning_rate": 1e-3}, "fine-tuned"),
    ],
    ids=["another encoder", "fine-tuning"],
)
def test_precomputed_regions_do_not_fit(tmp_path: Path, reader: Shapes, store: str, options, message):
    with pytest.raises(UserError, match=message):
        fit(tmp_path, reader, max_steps=1, data={"features": store}, **options)
