"""Training: reproducible by seed, for every objective and precision, and saved as a model."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights
from pytorch_lightning import seed_everything

from caption.attention import GumbelSoftmax, HeadGates, Multinoulli, Softmax
from caption.data.shapes import Shapes
from caption.decoders import ShowAndTellDecoder
from caption.encoders import SelfAttentionRefiner
from caption.objectives import (
    Critic,
    CrossEntropy,
    GuidedAttention,
    LeaveOneOut,
    NoBaseline,
    Objective,
    RefinerPenalty,
    Reinforce,
    SelfCritical,
)
from caption.training.diagnostics import StillMaps


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(tmp_path: Path, reader: Shapes):
    parts = {"alignment": Multinoulli(), "max_steps": 2}
    runs = [fit(tmp_path, reader, seed=seed, objective=Reinforce(), **parts) for seed in (3, 3, 4)]
    states = [weights(run) for run in runs]
    assert differing(states[0], states[1]) == set()
    assert len(differing(states[0], states[2])) > 10


HARD_NUMBERS = ("NLL", "entropy", "baseline", "advantage", "advantage_variance", "sampled")
MAP_NUMBERS = ("attention_entropy", "attention_change", "coverage_min", "coverage_max")


def test_training_logs_how_the_attention_is_doing(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    training = make_training(data, alignment=Multinoulli(), objective=Reinforce())
    trainer = make_trainer(tmp_path, max_steps=1, limit_val_batches=0)
    trainer.fit(training, data)
    logged = {name.removeprefix("train/") for name in trainer.logged_metrics if name.startswith("train/")}
    assert logged == {"loss", "gradient_norm", *HARD_NUMBERS, *MAP_NUMBERS}
    assert 0 < float(trainer.logged_metrics["train/attention_entropy"]) <= math.log(144) + 1e-4


def test_the_penalty_of_the_refiner_closes_its_heads(tmp_path: Path, reader: Shapes):
    closed = []
    for weight in (0.0, 5.0):
        refiner = SelfAttentionRefiner(None, 2, gates=HeadGates())
        objective = CrossEntropy(terms=[RefinerPenalty(weight)])
        training = fit(
            tmp_path, reader, refiner=refiner, objective=objective, max_steps=1, limit_val_batches=0
        )
        metrics = training.trainer.logged_metrics
        assert float(metrics["train/refiner_penalty"]) == pytest.approx(1.884, abs=0.01)
        closed.append((float(metrics["train/loss"]), refiner.penalty().item()))
    (loss, unpressed), (with_penalty, pressed) = closed
    assert with_penalty - loss == pytest.approx(5.0 * 1.884, abs=0.01)
    assert pressed < unpressed


def test_constant_maps_cause_a_warning_except_without_attention(
    tmp_path: Path, reader: Shapes, recwarn: pytest.WarningsRecorder
):
    data = make_data(reader)
    for options in ({"decoder": ShowAndTellDecoder(8, 8)}, {}):
        assert not [warning for warning in recwarn if "attention maps" in str(warning.message)]
        training = make_training(data, **options)
        training.still_maps = StillMaps(threshold=1.1, window=2, patience=2)  # maps move by 1 at most
        make_trainer(tmp_path, max_steps=5, limit_val_batches=0).fit(training, data)
    (warning,) = (w for w in recwarn if "attention maps have stopped moving" in str(w.message))
    assert "model.warm_start" in str(warning.message)


@pytest.mark.parametrize(
    ("alignment", "objective"),
    [
        (Multinoulli(expectation=0), Reinforce(NoBaseline(), credit="future")),
        (Multinoulli(expectation=0), Reinforce(LeaveOneOut(), samples=2, reward="sum")),
        (Multinoulli(share="caption"), Reinforce(SelfCritical())),
        (GumbelSoftmax(0.5), CrossEntropy([])),
        (Softmax(), CrossEntropy()),
    ],
    ids=["none", "leave-one-out", "self-critical", "gumbel", "soft"],
)
def test_every_estimator_trains(tmp_path: Path, reader: Shapes, alignment, objective):
    seed_everything(0, verbose=False)
    data = make_data(reader)
    training = make_training(data, alignment=alignment, objective=objective)
    nll = Watch(lambda module: float(module.trainer.callback_metrics["val/NLL"]), "on_validation_end")
    before = weights(training.captioner.decoder.attention)
    make_trainer(tmp_path, nll, max_epochs=2).fit(training, data)
    assert nll.seen[-1] < nll.seen[0]
    assert differing(before, weights(training.captioner.decoder.attention)) == set(before)


def test_bfloat16(tmp_path: Path, reader: Shapes):
    options = {"alignment": Multinoulli(), "objective": Reinforce(), "encoder_learning_rate": 1e-3}
    training = fit(tmp_path, reader, precision="bf16-mixed", max_steps=2, gradient_clip_val=5.0, **options)
    assert all(value.dtype == torch.float32 for value in training.captioner.parameters())
    assert all(value.isfinite().all() for value in training.state_dict().values())
    loss = training.trainer.callback_metrics["train/loss"]
    assert loss.isfinite()
    assert loss.dtype == torch.float32


# -- objectives with a state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alignment", "objective"),
    [
        (Multinoulli, Reinforce),
        (partial(Multinoulli, expectation=0), lambda: Reinforce(Critic(4))),
        (Softmax, lambda: GuidedAttention(words=20)),
    ],
    ids=["moving average", "critic", "guided"],
)
def test_the_state_of_an_objective_learns_and_resumes(tmp_path: Path, reader: Shapes, alignment, objective):
    data = make_data(reader)
    training, trainer = make_training(data, alignment(), objective=objective()), make_trainer(tmp_path)
    before = weights(training.objective)
    trainer.fit(training, data)
    assert differing(before, weights(training.objective)) == set(before) != set()
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    start = Watch(lambda module: (weights(module.objective), detected(module.objective)), "on_train_start")
    again = make_training(data, alignment(), objective=objective())
    make_trainer(tmp_path, start, max_epochs=2).fit(again, data, ckpt_path=tmp_path / "one.ckpt")
    state, words = start.seen[0]
    assert differing(state, weights(training.objective)) == set()
    assert words == detected(training.objective)
    if isinstance(again.objective, GuidedAttention):
        assert sum(index >= 0 for index in words) > 5  # counted again
        assert trainer.callback_metrics["train/detection"] > 0


def detected(objective: Objective) -> list[int]:
    """The words' detectors, which are not saved."""
    return objective.detectors.index.tolist() if isinstance(objective, GuidedAttention) else []
