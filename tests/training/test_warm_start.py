"""The weights that training starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from helpers.command_line import Ran
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights
from torch import Tensor

from caption.attention import AdditiveScore, Multinoulli, ScoredAttention, Softmax
from caption.core.errors import CheckpointError, DataError
from caption.data.shapes import Shapes
from caption.decoders import AdaptiveDecoder, ShowAndTellDecoder, TopDownDecoder, TransformerDecoder
from caption.encoders import SmallCNN
from caption.models import checkpoint, model_zoo
from caption.objectives import CrossEntropy, GuidedAttention, Objective, Reinforce, WeightedSum
from caption.text.vocabulary import Vocabulary
from caption.training.warm_start import load_model, word_tensors
from caption.training.weight_averaging import AveragedWeights


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory, reader: Shapes) -> Path:
    """A soft-attention model after a few steps."""
    folder = tmp_path_factory.mktemp("soft")
    training = fit(folder, reader, max_steps=2, encoder_learning_rate=1e-3)
    training.trainer.save_checkpoint(folder / "soft.ckpt")
    return folder / "soft.ckpt"


def test_hard_starts_from_soft_and_a_new_part_untrained(tmp_path: Path, reader: Shapes, soft: Path):
    options = {"alignment": Multinoulli(), "objective": Reinforce(), "previous_word": True}
    start = Watch(lambda module: weights(module.captioner), "on_train_start")
    part = "decoder.attention.score.word.weight"
    with pytest.warns(UserWarning, match=rf"soft.ckpt has no weights of .* start untrained: {part}$"):
        training = fit(tmp_path, reader, start, max_steps=1, warm_start=str(soft), **options)
    started = start.seen[0]
    assert not started.pop(part).any()
    assert differing(started, weights(checkpoint.load(soft))) == set()
    assert training.captioner.decoder.attention.score.word.weight.any()


def test_word_detectors_are_taken_if_they_detect_the_same_words(tmp_path: Path, reader: Shapes):
    """Also where they lie deeper, and after averaging, which must not round the numbers of words."""

    def guided(words: int = 100) -> GuidedAttention:
        return GuidedAttention(CrossEntropy(), words=words)

    averaged = AveragedWeights(0.9)
    first = fit(tmp_path, reader, averaged, max_steps=3, objective=guided())
    first.trainer.save_checkpoint(tmp_path / "first.ckpt")
    trained = checkpoint.read(tmp_path / "first.ckpt")["state_dict"]["objective.detectors.layer.weight"]

    def started(objective: Objective) -> Tensor:
        start = Watch(lambda module: weights(module.objective), "on_train_start")
        fit(
            tmp_path, reader, start, max_steps=1, warm_start=str(tmp_path / "first.ckpt"), objective=objective
        )
        return next(value for name, value in start.seen[0].items() if name.endswith("detectors.layer.weight"))

    assert torch.equal(started(WeightedSum([CrossEntropy(), guided()], [1.0, 0.1])), trained)
    assert started(guided(words=8)).shape != trained.shape
    assert started(guided(words=len(trained) - 1)).shape != trained.shape  # more rows than words
    contents = torch.load(tmp_path / "first.ckpt", weights_only=True)
    index = contents["state_dict"]["objective.detectors.index"]
    contents["state_dict"]["objective.detectors.index"] = index.roll(1)  # of other captions
    torch.save(contents, tmp_path / "first.ckpt")
    assert not torch.equal(started(guided()), trained)


def test_words_keep_their_weights_and_new_ones_start_as_the_unknown_word(reader: Shapes, soft: Path):
    source = checkpoint.load(soft)
    kept = [word for word in reversed(source.vocabulary.words[4:]) if word != "red"]
    own = Vocabulary(["zebra", *kept, "tram", "pug"])
    captioner = make_training(make_data(reader, vocabulary=own)).captioner
    load_model(captioner, str(soft))
    before, after = weights(source), weights(captioner)
    bias = "decoder.readout.to_words.bias"
    of_words = {"decoder.embed.weight", "decoder.readout.to_words.weight", bias}
    assert set(word_tensors(source)) == of_words
    assert all(torch.equal(before[name], after[name]) for name in before.keys() - of_words)
    new, unknown = ("zebra", "tram", "pug"), source.vocabulary["<unk>"]
    for name in of_words:
        for word in ("<pad>", "<start>", "<end>", "<unk>", *kept):
            assert torch.equal(before[name][source.vocabulary[word]], after[name][own[word]])
        if name != bias:
            assert all(torch.equal(after[name][own[word]], before[name][unknown]) for word in new)
    # Together they are as likely as an unknown word was.
    together = after[bias][[own[word] for word in new]].logsumexp(0).item()
    assert together == pytest.approx(before[bias][unknown].item(), abs=1e-6)


def attention() -> ScoredAttention:
    return ScoredAttention(AdditiveScore(8), Softmax())


def test_every_decoder_has_its_rows_found(reader: Shapes):
    for decoder in (
        TopDownDecoder(attention(), 8, 8, tie_weights=True),
        AdaptiveDecoder(attention(), 8, 12),
        TransformerDecoder(attention(), 1, 8, 2, 8),
        ShowAndTellDecoder(8, 12),
    ):
        captioner = make_training(make_data(reader), decoder=decoder).captioner
        names = word_tensors(captioner)
        assert names == ["decoder.embed.weight", "decoder.to_words.weight", "decoder.to_words.bias"], decoder


@pytest.mark.nightly
def test_the_command_starts_from_an_installed_model(cli: Callable[..., Ran], tiny: Path, tmp_path: Path):
    start = "--model.warm_start=shapes --data.min_count=1 --data.max_words=9 --model.optimizer.lr=0 "
    start += "--trainer.max_epochs=1 --trainer.limit_train_batches=1 --trainer.limit_val_batches=1"
    installed = model_zoo.load("shapes")
    config = yaml.safe_load(tiny.read_text())
    config["model"] |= {name: getattr(installed, name).spec for name in ("encoder", "decoder")}
    config["data"]["transform"] = installed.transform.to_dict()
    tiny.write_text(yaml.safe_dump(config))
    ran = cli("fit", "-c", tiny, *start.split())
    assert ran.code == 0, ran.err
    own = checkpoint.load(tmp_path / "run" / "last.ckpt")
    known = len(installed.vocabulary)
    assert own.vocabulary.words[:known] == installed.vocabulary.words
    assert torch.equal(own.decoder.embed.weight[:known], installed.decoder.embed.weight)
    ran = cli("fit", "-c", tiny, "--model.warm_start", "shappes")
    assert ran.code == 2
    assert "no installed model of that name (did you mean shapes?)" in ran.err


def test_another_model_or_one_of_other_captions_is_refused(tmp_path: Path, reader: Shapes, soft: Path):
    with pytest.raises(CheckpointError, match="other shapes"):
        fit(tmp_path, reader, warm_start=str(soft), encoder=SmallCNN((4, 4, 6)))
    richer = tmp_path / "richer.ckpt"
    checkpoint.save(make_training(make_data(reader), previous_word=True).captioner, richer)
    with pytest.raises(CheckpointError, match=r"no place for: decoder\.attention\.score\.word\.weight"):
        fit(tmp_path, reader, warm_start=str(richer))
    data = make_data(reader, vocabulary=Vocabulary(["other", "words"]))
    with pytest.raises(CheckpointError, match="other captions"):
        make_trainer(tmp_path).fit(make_training(data), data, ckpt_path=soft)
    characters = make_data(reader, tokenizer="none")
    with pytest.raises(DataError, match="tokenizer 'ptb', but the data has the tokenizer 'none'"):
        checkpoint.load(soft).vocabulary.widened(characters.vocabulary)


def test_a_resumed_run_starts_neither_from_another_model_nor_pretrained(tmp_path: Path, reader: Shapes):
    loaded = []

    class Pretrained(SmallCNN):
        def load_pretrained(self) -> None:
            loaded.append(self)

    data = make_data(reader)
    training = fit(tmp_path, reader, max_steps=1, encoder=Pretrained((4, 4, 8)))
    training.trainer.test(training, data, verbose=False)
    training.trainer.save_checkpoint(tmp_path / "one.ckpt")
    for other in ({}, {"warm_start": str(tmp_path / "no longer there.ckpt")}):
        resumed = make_training(data, encoder=Pretrained((4, 4, 8)), **other)
        make_trainer(tmp_path, max_steps=2).fit(resumed, data, ckpt_path=tmp_path / "one.ckpt")
    assert loaded == [training.captioner.encoder]
