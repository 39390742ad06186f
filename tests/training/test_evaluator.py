"""Evaluation: the captions of a split, their scores, names and protocol."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from helpers.training import differing, fit, make_data, make_trainer, make_training, weights
from pytorch_lightning import seed_everything
from torch import distributed
from torch.optim import Adam

from caption.attention import Multinoulli
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.batches import collate
from caption.data.features.extraction import write_features
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.metrics.caption_files import read_captions
from caption.results.caption import Caption
from caption.search import Greedy
from caption.text.vocabulary import Vocabulary
from caption.training import evaluator
from caption.training.evaluator import Answer, Evaluator, gather, summarise
from caption.training.module import CaptionTraining


def answer(number: int, text: str, *references: str, weights: Any = None) -> Answer:
    words = text.split()
    maps = np.full((len(words), 2, 2), 0.25) if weights is None else np.array(weights, dtype=np.float32)
    caption = Caption(text, words, maps, -1.0, np.full(len(words), -0.5), box=(0, 0, 8, 8))
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


def test_empty_captions_are_scored_and_do_not_crash():
    numbers = summarise([answer(1, "", "a cat"), answer(2, "", "a dog")], PROTOCOL).numbers
    assert numbers["BLEU-4"] == pytest.approx(0, abs=1e-6)
    assert numbers["attention_entropy"] == 0
    assert all(math.isfinite(value) for value in numbers.values())


def test_words_whose_vowel_signs_ptb_drops_are_scored_as_they_are(monkeypatch: pytest.MonkeyPatch):
    text = "ಕಂದು ಬಣ್ಣದ ನಾಯಿ ಓಡುತ್ತಿದೆ"
    captioner = SimpleNamespace(vocabulary=Vocabulary.build([text], 1, "none"))
    scorer = Evaluator(cast("Captioner", captioner))
    monkeypatch.setattr(scorer, "protocol", lambda split, search: PROTOCOL)
    scorer.answers = {1: answer(1, text), 2: answer(2, text)}
    assert scorer.score("test", Greedy(), None).scores.signature.startswith("tok:none-1|")


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


def describe(captioner: Captioner, photos: Any, search: Any = None) -> dict[Any, str]:
    captions = captioner.describe([str(photo.path) for photo in photos], search)
    return {photo.id: caption.text for photo, caption in zip(photos, captions, strict=True)}


def test_captions_are_free_running_and_nll_is_not(tmp_path: Path, reader: Shapes, evaluated):
    data = make_data(reader, batch_size=3)
    numbers = evaluate(evaluated, tmp_path, data, "val")
    texts = describe(evaluated.captioner, data.splits["val"], Greedy(10))
    assert list(evaluated.evaluation.captions.items()) == list(texts.items())
    assert len(set(texts.values())) > 1
    # −log p of every reference, a caption at a time.
    total, steps = 0.0, 0
    captioner, dataset = evaluated.captioner.eval(), data._images("val")
    for example in (dataset[i] for i in range(len(dataset))):
        for ids in example.captions:
            batch = collate([example._replace(captions=[ids])])
            with torch.no_grad():
                words, _, lengths = batch.captions
                unrolled = captioner.unroll(captioner.encoder(batch.images), words, lengths)
            total -= float(unrolled.logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum())
            steps += len(ids)
    assert numbers["NLL"] == pytest.approx(total / steps, abs=1e-4)


def test_at_test_of_hard_attention_can_be_overridden(tmp_path: Path, reader: Shapes):
    """As in a model made with this setting. The signature names it, and the saved model keeps its own."""
    data, nlls = make_data(reader), set()
    for setting in ("argmax", "sample"):
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
    assert len(nlls) == 2


def test_test_and_predict_search_as_the_model_does(tmp_path: Path, reader: Shapes, evaluated):
    data = make_data(reader, batch_size=3)
    whole = evaluate(evaluated, tmp_path, make_data(reader, batch_size=8), "test")
    numbers = evaluate(evaluated, tmp_path, data, "test")
    assert whole == {name: pytest.approx(value, abs=1e-5) for name, value in numbers.items()}
    photos, signature = data.splits["test"], evaluated.evaluation.scores.signature
    assert "|split:test|search:BeamSearch(beam_size=2,max_length=10," in signature
    expected = describe(evaluated.captioner, photos)
    scores = json.loads((tmp_path / "test_scores.json").read_text())
    assert scores == {"scores": numbers, "signature": signature}
    kept = read_captions(str(tmp_path / "test_references.json")).captions
    assert kept == {photo.id: list(photo.captions) for photo in photos}
    predicted = make_trainer(tmp_path).predict(evaluated, data)
    assert {entry["image_id"]: entry["text"] for batch in predicted for entry in batch} == expected
    for file in ("test_captions.json", "predictions.json"):
        results = json.loads((tmp_path / file).read_text())
        assert results == [{"image_id": image, "caption": text} for image, text in expected.items()]


def test_precomputed_regions_train_their_own_encoders_decoder(tmp_path: Path, reader: Shapes, evaluated):
    data, store = make_data(reader), str(tmp_path / "store")
    encoder = copy.deepcopy(evaluated.captioner.encoder)
    encoder.freeze()
    images = [image for split in data.splits.values() for image in split]
    write_features(encoder, data.transform, images, store)
    frozen = make_training(data)
    frozen.captioner.load_state_dict(evaluated.captioner.state_dict())
    before = weights(frozen.captioner)
    make_trainer(tmp_path, max_steps=2).fit(frozen, make_data(reader, features=store))
    changed = differing(before, weights(frozen.captioner))
    assert {name.partition(".")[0] for name in changed} == {"decoder"}
    with pytest.raises(UserError, match="was made with"):
        fit(tmp_path, reader, seed=5, data={"features": store})
    with pytest.raises(UserError, match="fine-tuned"):
        fit(tmp_path, reader, data={"features": store}, encoder_learning_rate=1e-3)
    with pytest.raises(UserError, match="bf16-true converts the encoder"):
        make_trainer(tmp_path, precision="bf16-true").fit(frozen, make_data(reader, features=store))
