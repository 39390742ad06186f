"""The weights that training starts from."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights

from caption import checkpoint
from caption.attention import Multinoulli
from caption.data.shapes import Shapes
from caption.encoders import SmallCNN
from caption.errors import CheckpointError
from caption.objectives import Reinforce
from caption.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory, reader: Shapes) -> Path:
    """A soft-attention model after a few steps."""
    folder = tmp_path_factory.mktemp("soft")
    training = fit(folder, reader, max_steps=2, encoder_learning_rate=1e-3)
    training.trainer.save_checkpoint(folder / "soft.ckpt")
    return folder / "soft.ckpt"


def test_hard_attention_starts_from_soft(tmp_path: Path, reader: Shapes, soft: Path):
    options = {"alignment": Multinoulli(), "objective": Reinforce(), "warm_start": str(soft)}
    start = Watch(lambda module: weights(module.captioner), "on_train_start")
    training = fit(tmp_path, reader, start, max_steps=1, **options)
    assert differing(start.seen[0], weights(checkpoint.load(soft))) == set()
    assert training.captioner.decoder.attention.alignment.expectation == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [({"data": {"min_count": 60}}, "another vocabulary"), ({"encoder": SmallCNN((4, 4, 6))}, "other shapes")],
    ids=["vocabulary", "shapes"],
)
def test_another_model_is_refused(tmp_path: Path, reader: Shapes, soft: Path, options, message: str):
    with pytest.raises(CheckpointError, match=message):
        fit(tmp_path, reader, warm_start=str(soft), **options)


def test_a_new_part_starts_untrained_and_is_named(tmp_path: Path, reader: Shapes, soft: Path):
    options = {"previous_word": True, "warm_start": str(soft)}
    start = Watch(lambda module: weights(module.captioner), "on_train_start")
    part = "decoder.attention.score.word.weight"
    with pytest.warns(UserWarning, match=rf"soft.ckpt has no weights of .* start untrained: {part}$"):
        training = fit(tmp_path, reader, start, max_steps=1, **options)
    started = dict(start.seen[0])
    assert not started.pop(part).any()
    assert differing(started, weights(checkpoint.load(soft))) == set()
    assert training.captioner.decoder.attention.score.word.weight.any()


def test_warm_start_refuses_parts_that_it_would_lose(tmp_path: Path, reader: Shapes, soft: Path):
    training = make_training(make_data(reader), previous_word=True)
    richer = tmp_path / "richer.ckpt"
    checkpoint.save(training.captioner, richer)
    with pytest.raises(CheckpointError, match=r"no place for: decoder\.attention\.score\.word\.weight"):
        fit(tmp_path, reader, warm_start=str(richer))


def test_resuming_does_not_start_again_from_the_other_model(tmp_path: Path, reader: Shapes, soft: Path):
    data = make_data(reader)
    start = Watch(lambda module: weights(module.captioner), "on_train_start")
    options = {"warm_start": str(tmp_path / "no longer there.ckpt"), "encoder_learning_rate": 1e-3}
    make_trainer(tmp_path, start, max_epochs=2).fit(make_training(data, **options), data, ckpt_path=soft)
    assert differing(start.seen[0], weights(checkpoint.load(soft))) == set()


def test_the_weights_that_an_encoder_names_are_loaded_for_a_fresh_run_only(tmp_path: Path, reader: Shapes):
    loaded = []

    class Pretrained(SmallCNN):
        def load_pretrained(self) -> None:
            loaded.append(self)

    data = make_data(reader)
    training = make_training(data, encoder=Pretrained((4, 4, 8)))
    assert loaded == []
    trainer = make_trainer(tmp_path, max_steps=1)
    trainer.fit(training, data)
    assert loaded == [training.captioner.encoder]
    trainer.test(training, data, verbose=False)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    resumed = make_training(data, encoder=Pretrained((4, 4, 8)))
    make_trainer(tmp_path, max_steps=2).fit(resumed, data, ckpt_path=tmp_path / "one.ckpt")
    assert len(loaded) == 1


def test_a_checkpoint_of_other_captions_is_not_resumed(tmp_path: Path, reader: Shapes, soft: Path):
    data = make_data(reader, vocabulary=Vocabulary(["other", "words"]))
    with pytest.raises(CheckpointError, match="other captions"):
        make_trainer(tmp_path).fit(make_training(data), data, ckpt_path=soft)
