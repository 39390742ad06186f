"""Training: reproducibility by seed, frozen encoders, and evaluation on free-running captions."""

from __future__ import annotations

import copy
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

import caption
from caption import checkpoint
from caption.attention import (
    AdditiveScore,
    Alignment,
    GumbelSoftmax,
    Multinoulli,
    ScoredAttention,
    Softmax,
)
from caption.data.augmentation import HorizontalFlip
from caption.data.module import CaptionData
from caption.data.resize import ImageTransform
from caption.data.shapes import Shapes
from caption.decoders import DeepOutput, Gate, LSTMDecoder, ShowAndTellDecoder
from caption.encoders import SmallCNN
from caption.errors import CheckpointError, UserError
from caption.objectives import (
    Critic,
    CrossEntropy,
    GuidedAttention,
    LeaveOneOut,
    NoBaseline,
    Reinforce,
    SelfCritical,
)
from caption.search import BeamSearch, Greedy
from caption.text.vocabulary import Vocabulary
from caption.training.diagnostics import StillMaps
from caption.training.fine_tuning import FrozenStatistics
from caption.training.module import CaptionTraining


@pytest.fixture(scope="module")
def reader(shapes: Path) -> Shapes:
    return Shapes(str(shapes), train=40, val=8, test=8, size=48)


def make_data(reader: Shapes, **options: Any) -> CaptionData:
    made: dict[str, Any] = {"batch_size": 8, "captions_per_image": 3, "min_count": 1}
    return CaptionData(reader, ImageTransform(48, "squash"), **made | options)


def make_training(data: CaptionData, alignment: Alignment | None = None, **options: Any) -> CaptionTraining:
    score = AdditiveScore(8, previous_word=options.pop("previous_word", False))
    attention = ScoredAttention(score, alignment or Softmax())
    decoder = LSTMDecoder(attention, 8, 12, gate=Gate(), readout=DeepOutput(dropout=0.1))
    made: dict[str, Any] = {
        "encoder": SmallCNN((4, 4, 8)),
        "search": BeamSearch(2, max_length=10),
        "validation_search": Greedy(10),
        "decoder": decoder,
    }
    return CaptionTraining(vocabulary=data.vocabulary, transform=data.transform, **made | options)


def make_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    made: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "num_sanity_val_steps": 0}
    return Trainer(default_root_dir=folder, callbacks=list(callbacks), **quiet | made | options)


def fit(folder: Path, reader: Shapes, *callbacks: Callback, seed: int = 0, **options: Any) -> CaptionTraining:
    """Train with parts of `make_training` and, under other names, of the trainer."""
    for_trainer = ("max_epochs", "max_steps", "limit_val_batches", "precision", "gradient_clip_val")
    trainer = make_trainer(
        folder, *callbacks, **{name: options.pop(name) for name in for_trainer if name in options}
    )
    seed_everything(seed, verbose=False)
    data = make_data(reader, **options.pop("data", {}))
    training = make_training(data, **options)
    trainer.fit(training, data)
    return training


def weights(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


class Watch(Callback):
    """Records a value at each step or epoch."""

    def __init__(self, look: Any, each: str = "on_train_batch_start") -> None:
        self.seen: list[Any] = []
        setattr(self, each, lambda trainer, module, *args: self.seen.append(look(module, *args)))


# -- reproducibility -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [Softmax, Multinoulli])
def test_the_same_seed_gives_the_same_weights_to_the_last_bit(tmp_path: Path, reader: Shapes, alignment):
    objective = CrossEntropy if alignment is Softmax else Reinforce
    runs = [
        fit(tmp_path, reader, seed=seed, max_steps=2, alignment=alignment(), objective=objective())
        for seed in (3, 3, 4)
    ]
    states = [weights(run) for run in runs]
    assert differing(states[0], states[1]) == set()
    assert len(differing(states[0], states[2])) > 10


def test_epochs_are_shuffled_differently(tmp_path: Path, reader: Shapes):
    watch = Watch(lambda module, batch, index: (module.current_epoch, batch.ids))
    fit(tmp_path, reader, watch, max_epochs=2, limit_val_batches=0)
    epochs = [[ids for epoch, ids in watch.seen if epoch == wanted] for wanted in (0, 1)]
    assert len(epochs[0]) == len(epochs[1]) == 5
    assert epochs[0] != epochs[1]


def test_training_learns(tmp_path: Path, reader: Shapes):
    watch = Watch(
        lambda module, *args: float(module.trainer.callback_metrics["train/NLL"]), "on_train_batch_end"
    )
    fit(
        tmp_path,
        reader,
        watch,
        max_epochs=4,
        limit_val_batches=0,
        optimizer=lambda groups: Adam(groups, lr=0.01),
    )
    assert watch.seen[-1] < watch.seen[0] - 0.5


# -- frozen and unfrozen encoders ------------------------------------------------------------------------------


LATE = {"encoder_learning_rate": 1e-3, "encoder_from_epoch": 1}


def test_a_frozen_encoder_does_not_change_in_any_way(tmp_path: Path, reader: Shapes):
    modes = Watch(lambda module, *args: {each.training for each in module.captioner.encoder.modules()})
    start = Watch(lambda module: weights(module.captioner), "on_fit_start")
    training = fit(tmp_path, reader, modes, start, max_epochs=2)
    changed = differing(start.seen[0], weights(training.captioner))
    assert modes.seen == [{False}] * 10
    assert not [name for name in changed if name.startswith("encoder.")]  # running statistics included
    assert [name for name in changed if name.startswith("decoder.")]
    assert all(parameter.grad is None for parameter in training.captioner.encoder.parameters())


@pytest.mark.parametrize(
    ("options", "learns"), [({}, False), (LATE, False), ({"encoder_learning_rate": 1e-3}, True)]
)
def test_trainable_weights_are_set_before_processes_start(reader: Shapes, options: dict, learns: bool):
    """DistributedDataParallel would wait forever for gradients of parameters that are frozen later."""
    encoder = make_training(make_data(reader), **options).captioner.encoder
    assert {parameter.requires_grad for parameter in encoder.parameters()} == {learns}


def test_a_fine_tuned_encoder_learns_and_its_statistics_move(tmp_path: Path, reader: Shapes):
    start = Watch(lambda module: weights(module.captioner.encoder), "on_fit_start")
    training = fit(tmp_path, reader, start, max_steps=2, encoder_learning_rate=1e-3)
    changed = differing(start.seen[0], weights(training.captioner.encoder))
    assert {name.rpartition(".")[2] for name in changed} == {
        *("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_frozen_statistics_stay_and_everything_else_learns(tmp_path: Path, reader: Shapes):
    start = Watch(lambda module: weights(module.captioner.encoder), "on_fit_start")
    callbacks = (FrozenStatistics(), start)
    training = fit(tmp_path, reader, *callbacks, max_epochs=2, encoder_learning_rate=1e-3)
    changed = differing(start.seen[0], weights(training.captioner.encoder))
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}


def test_fine_tuning_starts_with_its_epoch(tmp_path: Path, reader: Shapes):
    states = Watch(lambda module: weights(module.captioner.encoder), "on_train_epoch_end")
    modes = Watch(lambda module, *args: module.captioner.encoder.training)
    start = Watch(lambda module: weights(module.captioner.encoder), "on_fit_start")
    fit(tmp_path, reader, states, modes, start, max_epochs=3, **LATE)
    assert modes.seen == [False] * 5 + [True] * 10
    assert differing(start.seen[0], states.seen[0]) == set()
    assert len(differing(states.seen[0], states.seen[1])) > 10
    assert len(differing(states.seen[1], states.seen[2])) > 10


def test_a_resumed_run_is_thawed_where_an_uninterrupted_one_would_be(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    trainer = make_trainer(tmp_path, max_epochs=2)
    trainer.fit(make_training(data, **LATE), data)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    modes = Watch(lambda module, *args: (module.current_epoch, module.captioner.encoder.training))
    again = make_training(data, **LATE)
    make_trainer(tmp_path, modes, max_epochs=3).fit(again, data, ckpt_path=tmp_path / "two.ckpt")
    assert modes.seen == [(2, True)] * 5
    assert all(parameter.requires_grad for parameter in again.captioner.encoder.parameters())


# -- optimizers ------------------------------------------------------------------------------------------------


def groups(training: CaptionTraining) -> list[tuple[int, float]]:
    configured = training.configure_optimizers()
    optimizer = configured[0][0] if isinstance(configured, tuple) else configured
    return [(sum(p.numel() for p in group["params"]), group["lr"]) for group in optimizer.param_groups]


def sizes(training: CaptionTraining) -> tuple[int, int]:
    encoder = sum(parameter.numel() for parameter in training.captioner.encoder.parameters())
    return sum(parameter.numel() for parameter in training.captioner.parameters()) - encoder, encoder


def test_a_frozen_encoder_is_not_in_the_optimizer(reader: Shapes):
    training = make_training(make_data(reader), optimizer=lambda groups: Adam(groups, lr=0.5))
    assert groups(training) == [(sizes(training)[0], 0.5)]


@pytest.mark.parametrize("from_epoch", [0, 3])
def test_an_encoder_has_its_own_learning_rate(reader: Shapes, from_epoch: int):
    options = {"encoder_learning_rate": 0.25, "encoder_from_epoch": from_epoch}
    training = make_training(make_data(reader), optimizer=lambda groups: SGD(groups, lr=0.5), **options)
    rest, encoder = sizes(training)
    assert groups(training) == [(rest, 0.5), (encoder, 0.25)]


def test_a_schedule_goes_by_epochs(tmp_path: Path, reader: Shapes):
    rates = Watch(lambda module, *args: [group["lr"] for group in module.optimizers().param_groups])
    fit(
        tmp_path,
        reader,
        rates,
        max_epochs=2,
        limit_val_batches=0,
        optimizer=lambda groups: Adam(groups, lr=0.02),
        scheduler=lambda optimizer: CosineAnnealingLR(optimizer, T_max=2),
        encoder_learning_rate=0.01,
    )
    assert rates.seen[:5] == [[0.02, 0.01]] * 5
    assert rates.seen[5:] == [pytest.approx([0.01, 0.005])] * 5


def test_a_plateau_is_one_of_cider(reader: Shapes):
    training = make_training(make_data(reader), scheduler=lambda optimizer: ReduceLROnPlateau(optimizer))
    _, (schedule,) = training.configure_optimizers()
    assert schedule["monitor"] == "val/CIDEr"


# -- diagnostics -----------------------------------------------------------------------------------------------

HARD_NUMBERS = ("NLL", "entropy", "baseline", "advantage", "advantage_variance", "sampled")
MAP_NUMBERS = ("attention_entropy", "attention_change", "coverage_min", "coverage_max")


def test_training_logs_how_the_attention_is_doing(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    training = make_training(data, alignment=Multinoulli(), objective=Reinforce())
    trainer = make_trainer(tmp_path, max_steps=1)
    trainer.fit(training, data)
    logged = {name.removeprefix("train/") for name in trainer.logged_metrics if name.startswith("train/")}
    assert logged == {"loss", "gradient_norm", *HARD_NUMBERS, *MAP_NUMBERS}
    assert 0 < float(trainer.logged_metrics["train/attention_entropy"]) <= math.log(144) + 1e-4


def test_constant_maps_cause_a_warning(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    training = make_training(data)
    training.still_maps = StillMaps(threshold=1.1, window=2, patience=2)  # maps cannot move by more than 1
    with pytest.warns(UserWarning, match=r"attention maps have stopped moving.*model\.warm_start"):
        make_trainer(tmp_path, max_steps=5).fit(training, data)


def test_a_decoder_without_attention_gets_no_such_warning(
    tmp_path: Path, reader: Shapes, recwarn: pytest.WarningsRecorder
):
    data = make_data(reader)
    training = make_training(data, decoder=ShowAndTellDecoder(8, 8))
    training.still_maps = StillMaps(threshold=1.1, window=2, patience=2)
    make_trainer(tmp_path, max_steps=5).fit(training, data)
    assert not [each for each in recwarn if "attention maps" in str(each.message)]


def test_weights_of_the_objective_are_in_the_optimizer_and_resume(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    options: dict[str, Any] = {"alignment": Multinoulli(expectation=0)}
    training = make_training(data, objective=Reinforce(Critic(4)), **options)
    before = weights(training.objective)
    trainer = make_trainer(tmp_path)
    trainer.fit(training, data)
    assert differing(before, weights(training.objective)) == set(before)
    trainer.save_checkpoint(tmp_path / "critic.ckpt")
    start = Watch(lambda module: weights(module.objective), "on_train_start")
    again = make_training(data, objective=Reinforce(Critic(4)), **options)
    make_trainer(tmp_path, start, max_epochs=2).fit(again, data, ckpt_path=tmp_path / "critic.ckpt")
    assert differing(start.seen[0], weights(training.objective)) == set()


def test_guidance_learns_and_counts_its_words_again_when_it_resumes(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    trainer = make_trainer(tmp_path)
    training = make_training(data, objective=GuidedAttention(words=20))
    trainer.fit(training, data)
    assert trainer.callback_metrics["train/detection"] > 0
    trainer.save_checkpoint(tmp_path / "guided.ckpt")
    start = Watch(lambda module: module.objective.detectors.index.clone(), "on_train_start")
    learnt = Watch(lambda module: weights(module.objective), "on_train_start")
    again = make_training(data, objective=GuidedAttention(words=20))
    make_trainer(tmp_path, start, learnt, max_epochs=2).fit(again, data, ckpt_path=tmp_path / "guided.ckpt")
    assert (start.seen[0] >= 0).sum() > 5
    assert torch.equal(start.seen[0], training.objective.detectors.index)
    assert differing(learnt.seen[0], weights(training.objective)) == set()


@pytest.mark.parametrize(
    ("alignment", "objective", "remedy"),
    [(Multinoulli(), CrossEntropy(), "Reinforce"), (Softmax(), Reinforce(), "CrossEntropy")],
    ids=["sampled attention", "soft attention"],
)
def test_an_objective_for_other_attention_is_refused(
    tmp_path: Path, reader: Shapes, alignment, objective, remedy
):
    data = make_data(reader)
    training = make_training(data, alignment=alignment, objective=objective)
    with pytest.raises(UserError, match=remedy):
        make_trainer(tmp_path, max_steps=1).fit(training, data)


@pytest.mark.parametrize(
    ("alignment", "objective"),
    [
        (Multinoulli(expectation=0), Reinforce(NoBaseline(), credit="future")),
        (Multinoulli(expectation=0), Reinforce(LeaveOneOut(), samples=2, reward="sum")),
        (Multinoulli(share="caption"), Reinforce(SelfCritical())),
        (GumbelSoftmax(0.5), CrossEntropy([])),
    ],
    ids=["none", "leave-one-out", "self-critical", "gumbel"],
)
def test_every_estimator_trains(tmp_path: Path, reader: Shapes, alignment, objective):
    seed_everything(0, verbose=False)
    data = make_data(reader)
    training = make_training(data, alignment=alignment, objective=objective)
    trainer = make_trainer(tmp_path, max_epochs=4)
    before = weights(training.captioner.decoder.attention)
    nll = Watch(lambda module: float(trainer.callback_metrics["val/NLL"]), "on_validation_end")
    trainer.callbacks.append(nll)
    trainer.fit(training, data)
    assert nll.seen[-1] < nll.seen[0]
    assert differing(before, weights(training.captioner.decoder.attention)) == set(before)


# -- starting from another model -------------------------------------------------------------------------------


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


def test_warm_start_refuses_another_vocabulary(tmp_path: Path, reader: Shapes, soft: Path):
    with pytest.raises(CheckpointError, match="another vocabulary"):
        fit(tmp_path, reader, warm_start=str(soft), data={"min_count": 60})


def test_warm_start_refuses_other_shapes(tmp_path: Path, reader: Shapes, soft: Path):
    with pytest.raises(CheckpointError, match="other shapes"):
        fit(tmp_path, reader, warm_start=str(soft), encoder=SmallCNN((4, 4, 6)))


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


def test_resuming_does_not_start_again_from_the_other_model(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    trainer = make_trainer(tmp_path)
    trainer.fit(make_training(data), data)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    start = Watch(lambda module: weights(module.captioner), "on_train_start")
    training = make_training(data, warm_start=str(tmp_path / "no longer there.ckpt"))
    make_trainer(tmp_path, start, max_epochs=2).fit(training, data, ckpt_path=tmp_path / "one.ckpt")
    assert differing(start.seen[0], weights(checkpoint.load(tmp_path / "one.ckpt"))) == set()


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


# -- reported numbers ------------------------------------------------------------------------------------------


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


def test_the_last_number_is_that_of_the_last_epoch(tmp_path: Path, reader: Shapes):
    """Answers of one epoch must not be counted in the next."""
    counted = Watch(lambda module: len(module.evaluation.scores.ids), "on_validation_end")
    fit(tmp_path, reader, counted, max_epochs=2)
    assert counted.seen == [8, 8]


def test_the_numbers_of_a_split_are_of_no_other(tmp_path: Path, reader: Shapes, evaluated):
    data = make_data(reader)
    for split in ("val", "test"):
        evaluate(evaluated, tmp_path, data, split)
        assert set(evaluated.evaluation.scores.ids) == {each.id for each in data.splits[split]}
        assert f"split:{split}" in evaluated.evaluation.signature


def test_every_number_is_logged_with_its_split(tmp_path: Path, reader: Shapes):
    training = fit(tmp_path, reader)
    logged = set(training.trainer.callback_metrics)
    for name in ("BLEU-1", "BLEU-4", "CIDEr", "NLL", "attention_entropy", "pointing_accuracy"):
        assert f"val/{name}" in logged
    assert {"train/loss", "train/NLL"} <= logged


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


@pytest.mark.parametrize("how", ["expectation", "argmax", "sample"])
def test_at_test_of_hard_attention_can_be_overridden(tmp_path: Path, reader: Shapes, how):
    """The answers equal those of a model made with this setting, the signature names it, and the saved model keeps its
    own."""
    data = make_data(reader)
    seed_everything(0, verbose=False)
    chosen = make_training(data, alignment=Multinoulli(), at_test=how)
    made_so = make_training(data, alignment=Multinoulli(at_test=how))
    made_so.captioner.load_state_dict(chosen.captioner.state_dict())
    for training in (chosen, made_so):
        torch.manual_seed(1)
        make_trainer(tmp_path).test(training, data, verbose=False)
    assert chosen.evaluation.numbers == made_so.evaluation.numbers
    assert f"hard:{how}" in chosen.evaluation.signature == made_so.evaluation.signature
    assert (
        chosen.captioner.decoder.spec["init_args"]["attention"]["init_args"]["alignment"]
        == Multinoulli().spec
    )
    assert chosen.captioner.decoder.attention.alignment.at_test == "expectation"


def test_the_ways_to_look_at_test_differ(tmp_path: Path, reader: Shapes):
    data, found = make_data(reader), set()
    for how in ("expectation", "argmax", "sample"):
        seed_everything(0, verbose=False)
        training = make_training(data, alignment=Multinoulli(), at_test=how)
        make_trainer(tmp_path).test(training, data, verbose=False)
        found.add(training.evaluation.numbers["NLL"])
    assert len(found) == 3


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


def test_precomputed_regions_evaluate_as_images_do(
    tmp_path: Path, reader: Shapes, frozen: CaptionTraining, store: str
):
    by_store, by_image = (
        evaluate(frozen, tmp_path, make_data(reader, features=f), "test") for f in (store, None)
    )
    assert by_store["NLL"] == pytest.approx(by_image["NLL"], abs=1e-2)


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


# -- precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [Softmax, Multinoulli])
def test_bfloat16(tmp_path: Path, reader: Shapes, alignment):
    objective = CrossEntropy() if alignment is Softmax else Reinforce()
    options = {"alignment": alignment(), "objective": objective, "encoder_learning_rate": 1e-3}
    training = fit(tmp_path, reader, precision="bf16-mixed", max_steps=2, gradient_clip_val=5.0, **options)
    assert all(value.dtype == torch.float32 for value in training.captioner.parameters())
    assert all(value.isfinite().all() for value in training.state_dict().values())
    metrics = training.trainer.callback_metrics
    assert math.isfinite(metrics["train/loss"])
    assert metrics["train/loss"].dtype == torch.float32


# -- checkpoints -----------------------------------------------------------------------------------------------


def test_training_saves_a_model(evaluated, tmp_path: Path, reader: Shapes):
    evaluated.trainer.save_checkpoint(tmp_path / "model.ckpt")
    torch.load(tmp_path / "model.ckpt", weights_only=True)
    loaded = caption.load(tmp_path / "model.ckpt")
    assert differing(weights(loaded), weights(evaluated.captioner)) == set()
    photo = str(make_data(reader).splits["test"][0].path)
    assert loaded.search == BeamSearch(2, max_length=10)
    assert loaded.describe(photo).to_dict() == evaluated.captioner.eval().describe(photo).to_dict()


def test_hard_attention_resumes_with_its_baseline(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    options: dict[str, Any] = {"alignment": Multinoulli(), "objective": Reinforce()}
    training, trainer = make_training(data, **options), make_trainer(tmp_path)
    trainer.fit(training, data)
    assert training.objective.baseline.value < -0.5
    trainer.save_checkpoint(tmp_path / "hard.ckpt")
    start = Watch(lambda module: float(module.objective.baseline.value), "on_train_start")
    again = make_training(data, alignment=Multinoulli(), objective=Reinforce())
    make_trainer(tmp_path, start, max_epochs=2).fit(again, data, ckpt_path=tmp_path / "hard.ckpt")
    assert start.seen == [float(training.objective.baseline.value)]


def test_a_checkpoint_of_other_captions_is_not_resumed(tmp_path: Path, reader: Shapes, soft: Path):
    data = make_data(reader, vocabulary=Vocabulary(["other", "words"]))
    with pytest.raises(CheckpointError, match="other captions"):
        make_trainer(tmp_path).fit(make_training(data), data, ckpt_path=soft)


# -- parts -----------------------------------------------------------------------------------------------------


def test_the_model_is_the_captioner_and_training_holds_nothing_else_that_learns(reader: Shapes):
    training = make_training(make_data(reader), alignment=Multinoulli(), objective=Reinforce())
    assert isinstance(training, LightningModule)
    assert {name.partition(".")[0] for name, _ in training.named_parameters()} == {"captioner"}
    assert {name for name in training.state_dict() if not name.startswith("captioner.")} == {
        "objective.baseline.value"
    }


# -- compiling -------------------------------------------------------------------------------------------------


def test_a_compiled_model_learns_the_same_under_the_same_names(
    tmp_path: Path, reader: Shapes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    steps: dict[str, Any] = {"max_steps": 2, "limit_val_batches": 0, "encoder_learning_rate": 1e-3}
    plain = fit(tmp_path, reader, **steps)
    torch._dynamo.reset()
    compiled = fit(tmp_path, reader, compile=True, **steps)
    assert compiled.captioner.encoder.compiled
    assert not plain.captioner.encoder.compiled
    assert list(compiled.state_dict()) == list(plain.state_dict())
    for ours, theirs in zip(compiled.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert compiled.hparams == plain.hparams  # a checkpoint does not need a compiler
