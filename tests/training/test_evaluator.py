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
from helpers.training import (
    Watch,
    differing,
    fit,
    make_data,
    make_trainer,
    make_training,
    weights,
)
from pytorch_lightning import seed_everything
from torch import distributed
from torch.optim import Adam

from caption import checkpoint
from caption.attention import (
    Multinoulli,
    Softmax,
)
from caption.data.augmentation import HorizontalFlip
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.errors import UserError
from caption.result import Caption
from caption.search import BeamSearch, Greedy
from caption.training import evaluator
from caption.training.evaluator import Answer, gather, summarise, write_evaluation, write_results
from caption.training.module import CaptionTraining


def caption_of(text: str, weights: Any = None, **fields: Any) -> Caption:
    words = text.split()
    weights = np.full((len(words), 2, 2), 0.25) if weights is None else np.array(weights, dtype=np.float32)
    made = {"log_prob": -1.0, "word_log_probs": np.full(len(words), -0.5), "box": (0, 0, 8, 8)}
    return Caption(text=text, words=words, weights=weights, **made | fields)


def answer(
    number: int, text: str, *references: str, nll: float = 4.0, steps: int = 2, **fields: Any
) -> Answer:
    return Answer(number, caption_of(text, **fields), references or (text,), nll, steps)


PROTOCOL = {"split": "test", "search": "Greedy(max_length=30)"}


# -- gathering -------------------------------------------------------------------------------------------------


def test_each_image_counts_once_however_often_it_was_answered():
    answers = [answer(1, "a cat"), answer(2, "a dog"), answer(1, "a cat")]
    assert [each.id for each in gather(answers)] == [1, 2]


def test_gathering_follows_the_order_of_the_data(monkeypatch: pytest.MonkeyPatch):
    """A distributed sampler deals five images to two processes in turn, and repeats the first to fill up."""
    mine, theirs = [answer(1, "a"), answer(3, "c"), answer(5, "e")], [answer(i, "b") for i in (2, 4, 1)]

    def all_gather_object(everyone: list[list[Answer]], given: list[Answer]) -> None:
        everyone[:] = [given, theirs]

    monkeypatch.setattr(evaluator, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather_object", all_gather_object)
    gathered = gather(mine)
    assert [each.id for each in gathered] == [1, 2, 3, 4, 5]
    assert gathered[0].caption.text == "a"


# -- numbers ---------------------------------------------------------------------------------------------------


def test_perfect_captions():
    texts = ["a small red circle", "a big blue square here"]
    numbers = summarise([answer(i, text) for i, text in enumerate(texts)], PROTOCOL).numbers
    for name in ("BLEU-1", "BLEU-4", "ROUGE-L"):
        assert numbers[name] == pytest.approx(1, abs=1e-6)


def test_scores_are_of_the_free_running_captions():
    right = summarise([answer(1, "a red circle here", "a red circle here")], PROTOCOL).numbers
    wrong = summarise([answer(1, "blue squares", "a red circle here")], PROTOCOL).numbers
    assert wrong["BLEU-1"] < 0.01 < right["BLEU-1"]
    assert wrong["NLL"] == right["NLL"]  # of the references, under teacher forcing


def test_nll_is_a_mean_over_words_not_over_images():
    numbers = summarise(
        [answer(1, "a cat", nll=10.0, steps=2), answer(2, "a dog", nll=2.0, steps=6)], PROTOCOL
    ).numbers
    assert numbers["NLL"] == pytest.approx(12 / 8)


def test_entropy_of_uniform_and_of_pointed_maps():
    pointed = np.zeros((2, 2, 2))
    pointed[:, 0, 1] = 1
    spread = summarise([answer(1, "a cat")], PROTOCOL).numbers
    sharp = summarise([answer(1, "a cat", weights=pointed)], PROTOCOL).numbers
    assert spread["attention_entropy"] == pytest.approx(math.log(4))
    assert sharp["attention_entropy"] == pytest.approx(0, abs=1e-6)
    assert spread["attention_entropy_max"] == sharp["attention_entropy_max"] == pytest.approx(math.log(4))


def test_change_is_the_share_of_the_mass_that_moves_from_word_to_word():
    still = [[[1, 0], [0, 0]]] * 3
    jumping = [[[1, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 0], [0, 1]]]
    half = [[[1, 0], [0, 0]], [[0.5, 0.5], [0, 0]], [[0.5, 0.5], [0, 0]]]
    for maps, expected in ((still, 0), (jumping, 1), (half, 0.25)):
        numbers = summarise([answer(1, "one two three", weights=maps)], PROTOCOL).numbers
        assert numbers["attention_change"] == pytest.approx(expected)


def test_change_does_not_reach_from_one_caption_to_the_next():
    left, right = [[[1, 0], [0, 0]]] * 2, [[[0, 1], [0, 0]]] * 2
    answers = [answer(1, "a cat", weights=left), answer(2, "a dog", weights=right)]
    assert summarise(answers, PROTOCOL).numbers["attention_change"] == 0


def test_empty_captions_are_scored_and_do_not_crash():
    numbers = summarise([answer(1, "", "a cat"), answer(2, "", "a dog")], PROTOCOL).numbers
    assert numbers["BLEU-4"] == pytest.approx(0, abs=1e-6)
    assert numbers["attention_entropy"] == 0
    assert all(math.isfinite(value) for value in numbers.values())


def test_pointing_needs_boxes_and_looks_at_the_word_that_names_the_object():
    weights = [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]  # "a" attends to the left, "cat" to the right
    answers = [answer(1, "a cat", weights=weights)]
    assert "pointing_accuracy" not in summarise(answers, PROTOCOL).numbers
    right = summarise(answers, PROTOCOL, {1: {"cat": [(4, 0, 8, 4)]}}).numbers
    left = summarise(answers, PROTOCOL, {1: {"cat": [(0, 0, 4, 4)]}}).numbers
    assert (right["pointing_accuracy"], left["pointing_accuracy"]) == (1, 0)
    assert right["pointing_chance"] == left["pointing_chance"] == 0.25


def test_pointing_is_compared_with_maps_of_other_words():
    """With the correct map of "cat" for both words, the other word's map is as good. Then each word has its own."""
    left, right = [[1, 0], [0, 0]], [[0, 1], [0, 0]]
    boxes = {1: {"cat": [(4, 0, 8, 4)]}}
    still = summarise([answer(1, "a cat", weights=[right, right])], PROTOCOL, boxes).numbers
    moving = summarise([answer(1, "a cat", weights=[left, right])], PROTOCOL, boxes).numbers
    assert still["pointing_accuracy"] == moving["pointing_accuracy"] == 1
    assert still["pointing_other_word"] == 1
    assert moving["pointing_other_word"] == 0
    assert "pointing_other_word" not in summarise([answer(1, "a cat")], PROTOCOL).numbers


def test_images_without_boxes_are_left_alone():
    answers = [answer(1, "a cat"), answer(2, "a cat")]
    numbers = summarise(answers, PROTOCOL, {1: {"cat": [(0, 0, 8, 8)]}}).numbers
    assert numbers["pointing_accuracy"] == 1
    assert numbers["pointing_mentions"] == 1


# -- protocol --------------------------------------------------------------------------------------------------


def test_the_signature_tells_the_protocol():
    evaluation = summarise([answer(1, "a cat", "a cat", "one cat")], {**PROTOCOL, "hard": "argmax"})
    for entry in (
        "tok:ptb",
        "case:lower",
        "refs:2",
        "bp:on",
        "n:1",
        "split:test",
        "Greedy(max_length=30)",
        "hard:argmax",
    ):
        assert entry in evaluation.signature


def test_files_are_readable_by_other_tools(tmp_path: Path):
    answers = [answer(7, "a cat"), answer(8, "a dog")]
    evaluation = summarise(answers, PROTOCOL)
    write_results([each.without_maps() for each in answers], tmp_path / "new" / "results.json")
    write_evaluation(evaluation, tmp_path / "new" / "scores.json")
    results = json.loads((tmp_path / "new" / "results.json").read_text())
    assert results == [{"image_id": 7, "caption": "a cat"}, {"image_id": 8, "caption": "a dog"}]
    scores = json.loads((tmp_path / "new" / "scores.json").read_text())
    assert scores == {"scores": evaluation.numbers, "signature": evaluation.signature}


def test_the_results_score_the_same_by_themselves(tmp_path: Path, cli):
    """`caption score` on the files gives the same scores."""
    answers = [
        answer(1, "a red circle", "a red circle", "one circle"),
        answer(2, "a blue dog", "a green square"),
    ]
    evaluation = summarise(answers, PROTOCOL)
    write_results([each.without_maps() for each in answers], tmp_path / "results.json")
    texts = [(each.id, text) for each in answers for text in each.references]
    annotations = [{"id": i, "image_id": image, "caption": text} for i, (image, text) in enumerate(texts)]
    references = {
        "images": [{"id": each.id, "file_name": "x"} for each in answers],
        "annotations": annotations,
    }
    (tmp_path / "references.json").write_text(json.dumps(references))
    ran = cli(
        *("score", "--references", tmp_path / "references.json"),
        *("--candidates", tmp_path / "results.json", "--format", "json"),
    )
    scores = json.loads(ran.out)["scores"]
    for name in ("BLEU-1", "BLEU-4", "CIDEr", "ROUGE-L"):
        assert scores[name] == pytest.approx(evaluation.numbers[name], abs=1e-9)


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


@pytest.mark.parametrize("split", ["val", "test"])
def test_numbers_do_not_depend_on_the_batch_size(tmp_path: Path, reader: Shapes, evaluated, split: str):
    whole = evaluate(evaluated, tmp_path, make_data(reader, batch_size=8), split)
    parts = evaluate(evaluated, tmp_path, make_data(reader, batch_size=3), split)
    assert whole.keys() == parts.keys()
    assert whole == {name: pytest.approx(value, abs=1e-5) for name, value in parts.items()}


def test_captions_are_free_running_and_nll_is_not(tmp_path: Path, reader: Shapes, evaluated, monkeypatch):
    seen = []
    monkeypatch.setattr("caption.training.evaluator.gather", lambda answers: seen.extend(answers) or answers)
    data = make_data(reader, batch_size=3)
    numbers = evaluate(evaluated, tmp_path, data, "val")
    photos = data.splits["val"]
    by_itself = evaluated.captioner.describe([str(each.path) for each in photos], Greedy(10))
    assert [answer.id for answer in seen] == [each.id for each in photos]
    assert [answer.caption.text for answer in seen] == [each.text for each in by_itself]
    assert len({each.text for each in by_itself}) > 1

    # −log p of every reference, a caption at a time.
    total, steps = 0.0, 0
    dataset = data._dataset("val", None, None)
    captioner = evaluated.captioner.eval()
    for i in range(len(dataset)):
        example = dataset[i]
        for ids in example.captions:
            batch = dataset.collate([example._replace(captions=[ids])])
            with torch.no_grad():
                unrolled = captioner(captioner.encoder(batch.images), batch.inputs, batch.lengths)
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


def test_the_numbers_of_a_split_are_of_no_other(tmp_path: Path, reader: Shapes, evaluated):
    data = make_data(reader)
    for split in ("val", "test"):
        evaluate(evaluated, tmp_path, data, split)
        assert set(evaluated.evaluation.scores.ids) == {each.id for each in data.splits[split]}
        assert f"split:{split}" in evaluated.evaluation.signature


@pytest.mark.parametrize(
    ("alignment", "entry"),
    [(Softmax(), None), (Multinoulli(at_test="argmax"), "argmax")],
    ids=["soft", "hard"],
)
def test_the_signature_tells_split_search_and_how_hard_attention_chose(reader: Shapes, alignment, entry):
    protocol = make_training(make_data(reader), alignment=alignment).evaluator.protocol(
        "test", BeamSearch(4, 9, 0.5)
    )
    assert protocol["split"] == "test"
    assert "BeamSearch(beam_size=4" in str(protocol["search"])
    assert "length_normalization=0.5" in str(protocol["search"])
    assert protocol.get("hard") == entry


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
        assert f"hard:{setting}" in overridden.evaluation.signature == own.evaluation.signature
        assert overridden.captioner.decoder.attention.spec["init_args"]["alignment"] == Multinoulli().spec
        assert overridden.captioner.decoder.attention.alignment.at_test == "expectation"
        nlls.add(overridden.evaluation.numbers["NLL"])
    assert len(nlls) == 3


def test_training_saves_a_model(evaluated, tmp_path: Path, reader: Shapes):
    evaluated.trainer.save_checkpoint(tmp_path / "model.ckpt")
    torch.load(tmp_path / "model.ckpt", weights_only=True)
    loaded = checkpoint.load(tmp_path / "model.ckpt")
    assert differing(weights(loaded), weights(evaluated.captioner)) == set()
    photo = str(make_data(reader).splits["test"][0].path)
    assert loaded.search == BeamSearch(2, max_length=10)
    assert loaded.describe(photo).to_dict() == evaluated.captioner.eval().describe(photo).to_dict()


def test_test_and_predict_search_as_the_model_does_and_write_results(
    tmp_path: Path, reader: Shapes, evaluated
):
    data = make_data(reader, batch_size=3)
    evaluate(evaluated, tmp_path, data, "test")
    photos = [str(each.path) for each in data.splits["test"]]
    expected = [
        {"image_id": each.id, "caption": found.text}
        for each, found in zip(data.splits["test"], evaluated.captioner.describe(photos), strict=True)
    ]
    assert json.loads((tmp_path / "test_captions.json").read_text()) == expected
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
    write_features(
        encoder, data.transform, [each for split in data.splits.values() for each in split], str(folder)
    )
    return str(folder)


@pytest.fixture
def frozen(reader: Shapes, evaluated: CaptionTraining) -> CaptionTraining:
    """The evaluated model with its encoder frozen."""
    training = make_training(make_data(reader))
    training.captioner.load_state_dict(evaluated.captioner.state_dict())
    return training


def test_precomputed_regions_are_the_encoders(reader: Shapes, frozen: CaptionTraining, store: str):
    stored = make_data(reader, features=store)
    (batch,), (from_store,) = make_data(reader).val_dataloader(), stored.val_dataloader()
    assert from_store.images is None
    assert from_store.boxes == batch.boxes
    (found,) = frozen.views(stored.transfer_batch_to_device(from_store, torch.device("cpu"), 0))
    (expected,) = frozen.views(batch)
    assert found.grid == expected.grid
    torch.testing.assert_close(found.vectors, expected.vectors, atol=2e-2, rtol=2e-3)


def test_precomputed_regions_train(tmp_path: Path, reader: Shapes, frozen: CaptionTraining, store: str):
    before = weights(frozen.captioner)
    make_trainer(tmp_path, max_steps=2).fit(frozen, make_data(reader, features=store))
    changed = differing(before, weights(frozen.captioner))
    assert {name.partition(".")[0] for name in changed} == {"decoder"}


def test_precomputed_regions_of_another_encoder_are_refused(tmp_path: Path, reader: Shapes, store: str):
    with pytest.raises(UserError, match="was made with"):
        fit(tmp_path, reader, max_steps=1, data={"features": store}, seed=5)


def test_precomputed_regions_of_mirrored_images_are_a_store_of_their_own(
    tmp_path: Path, reader: Shapes, frozen: CaptionTraining, store: str
):
    flip = HorizontalFlip(features=store)
    with pytest.raises(UserError, match="was made with images that are not mirrored"):
        make_trainer(tmp_path, max_steps=1).fit(frozen, make_data(reader, features=store, flip=flip))


def test_precomputed_regions_cannot_be_fine_tuned(tmp_path: Path, reader: Shapes, store: str):
    with pytest.raises(UserError, match="fine-tuned"):
        fit(tmp_path, reader, max_steps=1, data={"features": store}, encoder_learning_rate=1e-3)
