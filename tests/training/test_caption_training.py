"""Training: reproducible by seed, and for every objective and precision. States are resumed in test_resuming.py."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights

from caption.attention import GumbelSoftmax, HeadGates, Multinoulli
from caption.data.shapes import Shapes
from caption.decoders import ShowAndTellDecoder
from caption.encoders import SelfAttentionRefiner
from caption.objectives import CrossEntropy, GreedyAttentionBaseline, LeaveOneOut, RefinerPenalty, Reinforce
from caption.training.diagnostics import AttentionDiagnostics, StillMaps

HARD_NUMBERS = ("NLL", "entropy", "baseline", "advantage", "advantage_variance", "sampled", "learning_rate")
MAP_NUMBERS = ("attention_entropy", "attention_change", "coverage_min", "coverage_max")


def test_a_seed_gives_the_same_bits_and_attention_is_measured(tmp_path: Path, reader: Shapes):
    parts = {"alignment": Multinoulli(), "max_steps": 2}
    runs = [fit(tmp_path, reader, seed=seed, objective=Reinforce(), **parts) for seed in (3, 3, 4)]
    states = [weights(run) for run in runs]
    assert differing(states[0], states[1]) == set()
    assert len(differing(states[0], states[2])) > 10
    logged = runs[0].trainer.callback_metrics
    of_training = {name.removeprefix("train/") for name in logged if name.startswith("train/")}
    assert of_training == {"loss", "gradient_norm", *HARD_NUMBERS, *MAP_NUMBERS}
    assert 0 < float(logged["train/attention_entropy"]) <= math.log(144) + 1e-4


def test_the_penalty_of_the_refiner_closes_its_heads(tmp_path: Path, reader: Shapes):
    refiner = SelfAttentionRefiner(None, 2, gates=HeadGates())
    parts = {"refiner": refiner, "objective": CrossEntropy(terms=[RefinerPenalty(5.0)])}
    before = Watch(lambda module: refiner.penalty().item(), "on_train_start")
    training = fit(tmp_path, reader, before, max_steps=1, limit_val_batches=0, **parts)
    logged = training.trainer.logged_metrics
    assert float(logged["train/refiner_penalty"]) == pytest.approx(before.seen[0])
    assert float(logged["train/loss"]) > 5.0 * before.seen[0]
    assert refiner.penalty().item() < before.seen[0]


def test_constant_maps_cause_a_warning_except_without_attention(tmp_path: Path, reader: Shapes, recwarn):
    data = make_data(reader)
    for options in ({"decoder": ShowAndTellDecoder(8, 8)}, {}):
        assert not [warning for warning in recwarn if "attention maps" in str(warning.message)]
        training = make_training(data, **options)
        watch = StillMaps(threshold=1.1, window=2, patience=2)  # maps move by 1 at most
        training.configure_callbacks = lambda watch=watch: [AttentionDiagnostics(watch)]
        make_trainer(tmp_path, max_steps=5, limit_val_batches=0).fit(training, data)
    (warning,) = (w for w in recwarn if "attention maps have stopped moving" in str(w.message))
    assert "model.warm_start" in str(warning.message)


@pytest.mark.parametrize(
    ("alignment", "objective"),
    [
        (Multinoulli(expectation=0), Reinforce(LeaveOneOut(), samples=2, credit="future")),
        (Multinoulli(share="caption"), Reinforce(GreedyAttentionBaseline())),
        (GumbelSoftmax(0.5), CrossEntropy([])),
    ],
    ids=["leave-one-out", "greedy attention", "gumbel"],
)
def test_every_estimator_trains(tmp_path: Path, reader: Shapes, alignment, objective):
    nll = Watch(lambda module: float(module.trainer.callback_metrics["val/NLL"]), "on_validation_end")
    before = Watch(lambda module: weights(module.captioner.decoder.attention), "on_fit_start")
    training = fit(tmp_path, reader, nll, before, max_epochs=2, alignment=alignment, objective=objective)
    assert nll.seen[-1] < nll.seen[0]
    after = weights(training.captioner.decoder.attention)
    assert differing(before.seen[0], after) == set(after)


def test_bfloat16(tmp_path: Path, reader: Shapes):
    options = {"alignment": Multinoulli(), "objective": Reinforce(), "encoder_learning_rate": 1e-3}
    training = fit(tmp_path, reader, precision="bf16-mixed", max_steps=2, gradient_clip_val=5.0, **options)
    loss = training.trainer.callback_metrics["train/loss"]
    for value in (loss, *training.captioner.parameters()):
        assert value.dtype == torch.float32
        assert value.isfinite().all()
