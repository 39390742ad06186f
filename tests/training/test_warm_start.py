"""The weights that training starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from helpers.command_line import Ran
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights

from caption import checkpoint
from caption.attention import AdditiveScore, Multinoulli, ScoredAttention, Softmax
from caption.data.shapes import Shapes
from caption.decoders import AdaptiveDecoder, Decoder, ShowAndTellDecoder, TopDownDecoder, TransformerDecoder
from caption.encoders import SmallCNN
from caption.errors import CheckpointError, DataError
from caption.models import model_zoo
from caption.objectives import Reinforce
from caption.text.vocabulary import Vocabulary
from caption.training.warm_start import load_model, word_tensors


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


def test_words_keep_their_weights_and_new_ones_start_as_the_unknown_word(reader: Shapes, soft: Path):
    source = checkpoint.load(soft)
    kept = [word for word in reversed(source.vocabulary.words[4:]) if word != "red"]
    own = Vocabulary(["zebra", *kept, "tram", "pug"])
    captioner = make_training(make_data(reader, vocabulary=own)).captioner
    load_model(captioner, str(soft))
    before, after = source.decoder, captioner.decoder
    for one, other in (
        (before.embed.weight, after.embed.weight),
        (before.readout.to_words.weight, after.readout.to_words.weight),
        (before.readout.to_words.bias, after.readout.to_words.bias),
    ):
        for word in ("<pad>", "<start>", "<end>", "<unk>", *kept):
            assert torch.equal(one[source.vocabulary[word]], other[own[word]])
    unknown = source.vocabulary["<unk>"]
    for word in ("zebra", "tram", "pug"):
        assert torch.equal(after.embed.weight[own[word]], before.embed.weight[unknown])
        assert torch.equal(after.readout.to_words.weight[own[word]], before.readout.to_words.weight[unknown])
    # Together they are as likely as an unknown word was.
    biases = after.readout.to_words.bias[[own[word] for word in ("zebra", "tram", "pug")]]
    assert biases.logsumexp(0).item() == pytest.approx(before.readout.to_words.bias[unknown].item(), abs=1e-6)
    of_words = {"decoder.embed.weight", "decoder.readout.to_words.weight", "decoder.readout.to_words.bias"}
    assert set(word_tensors(source)) == of_words
    one, other = weights(source), weights(captioner)
    assert all(torch.equal(one[name], other[name]) for name in one.keys() - of_words)


def attention() -> ScoredAttention:
    return ScoredAttention(AdditiveScore(8), Softmax())


@pytest.mark.parametrize(
    "decoder",
    [
        lambda: TopDownDecoder(attention(), 8, 8, tie_weights=True),
        lambda: AdaptiveDecoder(attention(), 8, 12),
        lambda: TransformerDecoder(attention(), 1, 8, 2, 8),
        lambda: ShowAndTellDecoder(8, 12),
    ],
    ids=["top-down", "adaptive", "transformer", "show and tell"],
)
def test_every_decoder_has_its_rows_found(reader: Shapes, decoder: Callable[[], Decoder]):
    captioner = make_training(make_data(reader), decoder=decoder()).captioner
    names, state = word_tensors(captioner), captioner.state_dict()
    assert names == ["decoder.embed.weight", "decoder.to_words.weight", "decoder.to_words.bias"]
    assert {len(state[name]) for name in names} == {len(captioner.vocabulary)}


@pytest.mark.nightly
def test_the_command_starts_from_an_installed_model_by_name_and_keeps_its_words(
    cli: Callable[..., Ran], tiny: Path, tmp_path: Path
):
    start = "--model.warm_start=shapes --data.min_count=1 --data.max_words=9 --model.optimizer.lr=0 "
    start += "--trainer.max_epochs=1 --trainer.limit_train_batches=1 --trainer.limit_val_batches=1"
    installed = model_zoo.load("shapes")
    parts = {name: getattr(installed, name).spec for name in ("encoder", "decoder")}
    config = yaml.safe_load(tiny.read_text())
    config["model"] |= parts
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


def test_a_model_with_another_tokenizer_is_refused(reader: Shapes, soft: Path):
    data = make_data(reader, tokenizer="none")
    with pytest.raises(DataError, match="tokenizer 'ptb' and those of data with the tokenizer 'none'"):
        checkpoint.load(soft).vocabulary.widened(data.vocabulary)


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


def test_another_model_is_refused(tmp_path: Path, reader: Shapes, soft: Path):
    with pytest.raises(CheckpointError, match="other shapes"):
        fit(tmp_path, reader, warm_start=str(soft), encoder=SmallCNN((4, 4, 6)))
    richer = tmp_path / "richer.ckpt"
    checkpoint.save(make_training(make_data(reader), previous_word=True).captioner, richer)
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
