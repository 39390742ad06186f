"""A run that is stopped at any step and resumed ends with the same bits as one that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.training import Watch, make_data, make_trainer, make_training
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from pytorch_lightning.plugins.precision import MixedPrecision
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR, ReduceLROnPlateau, StepLR

from caption.attention import Multinoulli, Softmax
from caption.core.errors import CheckpointError, Stopped, UserError
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.objectives import Critic, CrossEntropy, GuidedAttention, Reinforce
from caption.search import Greedy
from caption.training.attention_temperature import AttentionTemperature
from caption.training.module import CaptionTraining
from caption.training.resuming import CheckpointFile, LastCheckpoint
from caption.training.weight_averaging import AveragedWeights

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Stands for SIGKILL: the process has no time to write anything."""


STATE = (
    *("state_dict", "optimizer_states", "lr_schedulers", "current_model_state", "MixedPrecision"),
    *("seed", "epoch", "global_step"),
)


class Run:
    """Training in a folder: 3 epochs of 5 batches, each followed by one batch of validation, which are its events."""

    def __init__(self, reader: Shapes, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.reader = reader
        self.options = options

    def fit(self, resume: bool = False, at: int = -1, event: Callable[[], object] = int) -> None:
        """Train; `event` happens in the event number `at`, counted from 1."""
        seed_everything(0, verbose=False)
        training, data = self._prepare(**self.options)
        self.events = 0

        def count(*_: Any) -> None:
            self.events += 1
            if self.events == at:
                event()

        training.captioner.encoder.register_forward_pre_hook(count)
        last = self.folder / "last.ckpt"
        self.trainer.fit(training, data, ckpt_path=str(last) if resume and last.exists() else None)

    def _prepare(
        self, data=None, adam=None, scheduler=None, interval=None, alignment=Softmax, objective=CrossEntropy,
        callback=None, scale=None, monitor="val/NLL", mode="min", patience=50, every="1 step", **options,
    ) -> tuple[CaptionTraining, CaptionData]:  # fmt: skip
        """Training and data; the trainer is kept, and has the other options."""
        images = make_data(self.reader, captions_per_image=2, **(data or {}))
        training = make_training(
            images,
            alignment(),
            objective=objective(),
            optimizer=lambda groups: Adam(groups, **(adam or {"lr": 0.01})),
            scheduler=scheduler,
            scheduler_interval=interval,
            encoder_learning_rate=0.01,
            validation_search=Greedy(8),
        )
        plugins: list[Any] = [CheckpointFile()]
        if scale is not None:
            scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
            plugins.append(MixedPrecision("16-mixed", "cpu", scaler))
        callbacks = [
            EarlyStopping(monitor, patience=patience, mode=mode),
            ModelCheckpoint(self.folder, "best", monitor=monitor, enable_version_counter=False),
            LastCheckpoint(str(self.folder), every),
            *([callback()] if callback else []),
        ]
        options = {"max_epochs": 3, "enable_checkpointing": True, **options}
        self.trainer = make_trainer(self.folder, *callbacks, plugins=plugins, **options)
        return training, images

    def state(self, name: str = "last.ckpt") -> dict[str, Any]:
        """What training has to restore."""
        contents = torch.load(self.folder / name, weights_only=True)
        kept = {name: contents.get(name) for name in STATE}
        kept["skipped"] = contents["callbacks"]["StopOnDivergence"]["skipped"]
        kept["early"] = [state for key, state in contents["callbacks"].items() if key.startswith("Early")]
        return plain(kept)

    def rates(self) -> list[float]:
        """Of decoder and encoder."""
        return [group["lr"] for group in self.trainer.optimizers[0].param_groups]

    def stop(self, at: int, how: signal.Signals | None) -> None:
        """Train until an event; None stands for SIGKILL."""

        def killed() -> None:
            if how is None:
                raise Killed
            os.kill(os.getpid(), how)

        with pytest.raises(Killed if how is None else Stopped) as stopped:
            self.fit(at=at, event=killed)
        assert how is None or stopped.value.number == how


def plain(tree: Any) -> Any:
    """With lists in place of tensors."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(value) for value in tree]
    return tree.tolist() if isinstance(tree, torch.Tensor) else tree


def differing(run: Run, other: Run, name: str = "last.ckpt") -> list[str]:
    """What differs between the checkpoints of two runs."""
    one, two = run.state(name), other.state(name)
    return [key for key in one if one[key] != two[key]]


TERM, INTERRUPT, KILL = signal.SIGTERM, signal.SIGINT, None
PLATEAU = {"scheduler": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, mode="max")}
COSINE = {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=3)}
CYCLE = {"scheduler": lambda optimizer: OneCycleLR(optimizer, 0.02, 15)}
CRITIC = {"alignment": partial(Multinoulli, expectation=0), "objective": lambda: Reinforce(Critic(4))}
EARLY = {"monitor": "val/attention_entropy_max", "patience": 2, "max_epochs": 9}
# Options and stops. Events: steps 1 to 5, validation 6, steps 7 to 11, validation 12, ... in most cases.
CASES: dict[str, tuple[dict[str, Any], list[tuple[int, signal.Signals | None]]]] = {
    "soft": ({}, [(1, TERM), (3, KILL), (5, INTERRUPT), (6, KILL), (12, TERM), (18, KILL)]),
    "hard": ({"alignment": Multinoulli, "objective": Reinforce}, [(4, KILL), (6, TERM)]),
    "critic": (CRITIC, [(7, KILL)]),
    "guided": ({"objective": lambda: GuidedAttention(words=20)}, [(8, TERM)]),
    "lengths": ({"data": {"batching": "lengths", "batch_size": 40}}, [(8, TERM)]),
    "workers": ({"data": {"workers": 2}}, [(8, TERM)]),
    "plateau": (PLATEAU, [(7, KILL), (12, TERM)]),
    "cosine": (COSINE, [(4, TERM), (8, KILL)]),
    "cycle": (CYCLE, [(3, TERM), (8, KILL)]),
    "steps": ({"max_epochs": -1, "max_steps": 13}, [(6, TERM), (7, KILL), (15, TERM)]),
    "every other": ({"check_val_every_n_epoch": 2, "max_epochs": 4}, [(5, TERM), (11, TERM)]),
    "twice": ({"val_check_interval": 2}, [(3, TERM), (4, KILL)]),
    "accumulated": ({"accumulate_grad_batches": 2}, [(2, KILL), (3, TERM)]),
    "early": (EARLY, [(13, KILL), (18, TERM)]),
    "limited": ({"limit_train_batches": 4}, [(5, KILL), (7, TERM)]),
    "scaled": ({"scale": 2.0**17}, [(4, KILL), (9, TERM)]),
    "averaged": ({"callback": lambda: AveragedWeights(0.8)}, [(4, TERM), (6, TERM), (8, KILL), (12, KILL)]),
    "tempered": ({"callback": lambda: AttentionTemperature(16.0, 1.0)}, [(8, TERM)]),
    "moving average": ({"callback": lambda: EMAWeightAveraging(decay=0.8)}, [(12, TERM)]),
}
FEW = {("soft", 3), ("soft", 12), ("hard", 4), ("cycle", 3)}
"""The others run at night."""


@pytest.fixture(scope="module")
def whole(reader: Shapes, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of a case that is never stopped."""
    runs: dict[str, Run] = {}

    def get(case: str) -> Run:
        if case not in runs:
            runs[case] = Run(reader, tmp_path_factory.mktemp(case.replace(" ", "_")), **CASES[case][0])
            runs[case].fit()
        return runs[case]

    return get


@pytest.mark.parametrize(
    ("case", "at", "how"),
    [
        pytest.param(case, *stop, marks=() if (case, stop[0]) in FEW else pytest.mark.nightly)
        for case, (_, stops) in CASES.items()
        for stop in stops
    ],
)
def test_stopped_and_resumed_is_never_stopped(
    whole: Callable[[str], Run], tmp_path: Path, case: str, at: int, how: signal.Signals | None
):
    expected = whole(case)
    run = Run(expected.reader, tmp_path, **CASES[case][0])
    run.stop(at, how)
    before = run.events
    run.fit(resume=True)
    assert differing(expected, run) == []
    assert differing(expected, run, "best.ckpt") == []
    # Nothing that was saved is done again: a signal saves the step it interrupts, a kill loses at most two.
    assert before + run.events - expected.events <= (1 if how else 3)


@pytest.mark.nightly
def test_some_steps_are_skipped_and_others_are_not(whole: Callable[[str], Run]):
    """With a scale so large that gradients are infinite, each time it has grown: resuming has to restore it."""
    state = whole("scaled").state()
    assert 3 < state["skipped"] < 12
    assert state["skipped"] + state["optimizer_states"][0]["state"][0]["step"] == 15
    assert state["MixedPrecision"]["scale"] != 2.0**17


@pytest.mark.nightly
def test_the_number_of_workers_may_change(whole: Callable[[str], Run], tmp_path: Path):
    run = Run(whole("workers").reader, tmp_path, data={"workers": 2})
    run.stop(3, None)
    run.options = {}
    run.fit(resume=True)
    assert differing(whole("soft"), run) == []
    assert differing(whole("workers"), run) == []


@pytest.mark.nightly
def test_stopped_again_and_again(whole: Callable[[str], Run], tmp_path: Path):
    run = Run(whole("hard").reader, tmp_path, **CASES["hard"][0])
    for _ in range(40):
        try:
            run.fit(resume=True, at=2, event=lambda: os.kill(os.getpid(), signal.SIGTERM))
        except Stopped:
            continue
        break
    assert differing(whole("hard"), run) == []


@pytest.mark.parametrize(
    "case", ["soft", *(pytest.param(case, marks=pytest.mark.nightly) for case in ("early", "steps"))]
)
def test_a_finished_run_stays_finished(whole: Callable[[str], Run], tmp_path: Path, case: str):
    run = Run(whole(case).reader, shutil.copytree(whole(case).folder, tmp_path / "run"), **CASES[case][0])
    before = (run.folder / "last.ckpt").read_bytes()
    run.fit(resume=True)
    assert run.events == 0
    assert (run.folder / "last.ckpt").read_bytes() == before


class StopAfter(Callback):
    """Stops training after a batch, as `max_time` does."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.batches -= 1
        trainer.should_stop = trainer.should_stop or self.batches <= 0


@pytest.mark.parametrize(
    ("case", "shorter"),
    [
        ("soft", {"max_steps": 8}),
        pytest.param("soft", {"callback": lambda: StopAfter(8)}, marks=pytest.mark.nightly),
        pytest.param("soft", {"callback": lambda: StopAfter(10)}, marks=pytest.mark.nightly),
        pytest.param("accumulated", {"callback": lambda: StopAfter(7)}, marks=pytest.mark.nightly),
        pytest.param("plateau", {"max_steps": 8}, marks=pytest.mark.nightly),
        pytest.param("steps", {"max_steps": 8}, marks=pytest.mark.nightly),
        pytest.param("twice", {"max_steps": 8}, marks=pytest.mark.nightly),
        pytest.param("twice", {"max_steps": 9}, marks=pytest.mark.nightly),
    ],
)
def test_a_run_that_ends_inside_an_epoch_goes_on_there(
    whole: Callable[[str], Run], tmp_path: Path, case: str, shorter: dict[str, Any]
):
    run = Run(whole(case).reader, tmp_path, **CASES[case][0] | shorter)
    run.fit()
    run.options = CASES[case][0]
    run.fit(resume=True)
    assert differing(whole(case), run) == []


@pytest.mark.nightly
def test_early_stopping_inside_an_epoch_goes_on_there(reader: Shapes, tmp_path: Path):
    options = EARLY | {"val_check_interval": 2, "max_epochs": 3}
    patient = Run(reader, tmp_path / "patient", **options | {"patience": 50})
    patient.fit()
    run = Run(reader, tmp_path / "run", **options | {"patience": 1})
    run.fit()
    assert run.state()["global_step"] % 5  # inside an epoch
    run.fit(resume=True)
    assert run.events == 0
    run.options = options | {"patience": 50}
    run.fit(resume=True)
    assert differing(patient, run) == ["early"]  # which remembers that it had stopped


def test_early_stopping_between_two_micro_batches_waits_for_the_step(reader: Shapes, tmp_path: Path):
    """The gradients of the first would be lost."""
    options = {"mode": "max", "val_check_interval": 3, "accumulate_grad_batches": 2}
    patient = Run(reader, tmp_path / "patient", **options | {"patience": 50})
    patient.fit()
    run = Run(reader, tmp_path / "run", **options | {"patience": 1})
    run.fit()
    assert run.trainer.global_step < patient.trainer.global_step
    run.options = options | {"patience": 50}
    run.fit(resume=True)
    assert differing(patient, run) == ["early"]


@pytest.mark.nightly
def test_more_patience_continues_a_run_that_had_ended(whole: Callable[[str], Run], tmp_path: Path):
    folder = shutil.copytree(whole("early").folder, tmp_path / "early")
    run = Run(whole("early").reader, folder, **EARLY | {"patience": 4})
    run.fit(resume=True)
    assert run.state()["epoch"] == whole("early").state()["epoch"] + 2


def test_the_seed_of_the_checkpoint_counts(whole: Callable[[str], Run], tmp_path: Path, monkeypatch):
    run = Run(whole("soft").reader, tmp_path)
    run.stop(3, None)
    monkeypatch.setattr(f"{__name__}.seed_everything", lambda *args, **options: torch.manual_seed(7))
    run.fit(resume=True)
    assert differing(whole("soft"), run) == []


@pytest.mark.nightly
def test_how_often(reader: Shapes, tmp_path: Path):
    """At the end of the epoch, the best checkpoint is written, too."""
    always = [1, 2, 3, 4, 5, 5, 5]  # before and after validation
    often = {"2 steps": [2, 4, 5, 5], "epoch": [5, 5], "10 minutes": [5, 5], "0.000001 seconds": always}
    for every, expected in often.items():
        saved = Watch(lambda module, contents: contents["global_step"], "on_save_checkpoint")
        Run(reader, tmp_path / every, every=every, max_epochs=1, callback=lambda saved=saved: saved).fit()
        assert saved.seen == expected


def test_a_stop_in_a_validation_does_not_mark_later_checkpoints(monkeypatch):
    """The same callback may serve another run, as in a notebook."""

    def stop(trainer: Any) -> None:
        raise Stopped(signal.SIGTERM, "")

    last, checkpoint = LastCheckpoint("folder", "epoch"), {}
    monkeypatch.setattr(last, "_save_if_due", stop)
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(fn="fit"), sanity_checking=False, callback_metrics={}
    )
    with pytest.raises(Stopped):
        last.on_validation_batch_end(trainer, None)  # type: ignore[arg-type]
    last.on_save_checkpoint(trainer, None, checkpoint)  # type: ignore[arg-type]
    assert checkpoint == {"metrics": {}}  # nothing of a validation that is to start anew


@pytest.mark.parametrize("every", ["", "often", "0 steps", "-1 minutes", "3 days"])
def test_a_wrong_interval(every: str):
    with pytest.raises(UserError, match="10 minutes"):
        LastCheckpoint("folder", every)


SHORT = {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=2)}
LONGER = {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=4)}
STEPS = {"scheduler": lambda optimizer: StepLR(optimizer, 1, 0.1)}


# The run is stopped in its 7th step, 2 steps into the second epoch.
EACH_STEP = {"scheduler": lambda optimizer: LinearLR(optimizer, 0.1, 1.0, 10), "interval": "step"}
CHANGES = [
    (SHORT, LONGER, [0.01 * (1 + 0.5**0.5) / 2] * 2),
    (SHORT, EACH_STEP, [0.01 * (0.1 + 0.9 * 7 / 10)] * 2),
    ({}, {"adam": {"lr": 0.001, "weight_decay": 0.1}}, [0.001, 0.01]),
    (SHORT, SHORT | {"adam": {"lr": 0.002}}, [0.001, 0.005]),  # halfway, after one of two epochs
    (SHORT, {}, [0.01, 0.01]),
    ({}, SHORT, [0.005, 0.005]),
    (SHORT, STEPS, [0.001, 0.001]),
    (SHORT, SHORT, [0.005, 0.005]),
    (EACH_STEP, SHORT, [0.005, 0.005]),
    (EACH_STEP, EACH_STEP | {"interval": "epoch"}, [0.01 * (0.1 + 0.9 / 10)] * 2),
]


@pytest.mark.parametrize(
    ("before", "after", "rates"),
    [
        pytest.param(*change, marks=() if number == 0 else pytest.mark.nightly)
        for number, change in enumerate(CHANGES)
    ],
)
def test_changed_rates_take_effect_from_where_the_run_goes_on(
    reader: Shapes, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], rates: list[float]
):
    """The encoder's rate, the second one, is 0.01; the run stops in the second epoch."""
    run = Run(reader, tmp_path, max_epochs=2, **before)
    run.stop(8, signal.SIGTERM)
    run.options = {"max_epochs": 2} | after
    seen: list[float] = []
    run.fit(resume=True, at=1, event=lambda: seen.extend(run.rates()))
    assert seen == pytest.approx(rates)
    decays = {group["weight_decay"] for group in run.trainer.optimizers[0].param_groups}
    assert decays == {after.get("adam", {}).get("weight_decay", 0)}
    if "scheduler" in after:  # as if it had been there from the first epoch
        new = Run(reader, tmp_path / "new", max_epochs=2, **after)
        new.fit()
        assert run.rates() == pytest.approx(new.rates())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"adam": {"lr": 0.01, "amsgrad": True}}, r"does not fit model.optimizer \(KeyError"),
        ({"callback": AveragedWeights}, {"callback": None}, "the weights in the checkpoint are averages"),
    ],
)
def test_a_state_that_the_configuration_cannot_use_is_refused(
    reader: Shapes, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], message: str
):
    run = Run(reader, tmp_path, **before)
    run.stop(3, signal.SIGTERM)
    run.options = after
    with pytest.raises(CheckpointError, match=message):
        run.fit(resume=True)


@pytest.mark.nightly
def test_a_plateau_keeps_its_reductions_of_a_changed_rate(reader: Shapes, tmp_path: Path):
    plateau = {"scheduler": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, threshold=1e9)}
    never_stopped = Run(reader, tmp_path / "whole", **plateau)
    never_stopped.fit()
    run = Run(reader, tmp_path, **plateau)
    run.stop(14, signal.SIGTERM)
    run.options = plateau | {"adam": {"lr": 0.004}}
    run.fit(resume=True)
    (decoder, encoder), after = never_stopped.rates(), run.rates()
    assert decoder < 0.01
    assert after == pytest.approx([0.4 * decoder, encoder])
