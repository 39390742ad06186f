"""A run that is stopped at any step and resumed ends with the same bits as one that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.training import make_data, make_trainer, make_training
from pytorch_lightning import seed_everything
from pytorch_lightning.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from pytorch_lightning.plugins.precision import MixedPrecision
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR

from caption.attention import Multinoulli, Softmax
from caption.data.shapes import Shapes
from caption.errors import Stopped, UserError
from caption.objectives import CrossEntropy, Reinforce
from caption.search import Greedy
from caption.training.callbacks import AveragedWeights
from caption.training.module import CaptionTraining
from caption.training.resuming import CheckpointFile, LastCheckpoint

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Stands for SIGKILL: the process has no time to write anything."""


DATA = ("workers", "batching", "batch_size")
MODEL = ("scheduler",)


class Run:
    """Training in a folder: 3 epochs of 5 batches, each followed by one batch of validation, which are its events."""

    def __init__(self, reader: Shapes, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.reader = reader
        self.options = options

    def fit(self, resume: bool = False, at: int = -1, event: Callable[[], object] = int) -> None:
        """Train; `event` happens in the event number `at`, counted from 1."""
        options: dict[str, Any] = {"max_epochs": 3, "enable_checkpointing": True, **self.options}
        seed_everything(0, verbose=False)
        for_data = {name: options.pop(name) for name in DATA if name in options}
        data = make_data(self.reader, captions_per_image=2, **for_data)
        options.pop("adam", None)
        for_model = {name: options.pop(name) for name in MODEL if name in options}
        training = make_training(
            data,
            options.pop("alignment", Softmax)(),
            objective=options.pop("objective", CrossEntropy)(),
            optimizer=lambda groups: Adam(groups, **self.options.get("adam", {"lr": 0.01})),
            encoder_learning_rate=0.01,
            validation_search=Greedy(8),
            **for_model,
        )
        self._count(training, at, event)
        plugins: list[Any] = [CheckpointFile()]
        if "scale" in options:
            scaler = torch.amp.GradScaler("cpu", init_scale=options.pop("scale"), growth_interval=2)
            plugins.append(MixedPrecision("16-mixed", "cpu", scaler))
        monitor = options.pop("monitor", "val/NLL")
        callbacks = [
            EarlyStopping(monitor, patience=options.pop("patience", 50)),
            ModelCheckpoint(self.folder, "best", monitor=monitor, enable_version_counter=False),
            LastCheckpoint(str(self.folder), options.pop("every", "1 step")),
        ]
        callbacks += [options.pop("averages")()] if "averages" in options else []
        self.trainer = make_trainer(self.folder, *callbacks, plugins=plugins, **options)
        last = self.folder / "last.ckpt"
        self.trainer.fit(training, data, ckpt_path=str(last) if resume and last.exists() else None)

    def _count(self, training: CaptionTraining, at: int, event: Callable[[], object]) -> None:
        self.events = 0

        def counted(step: Callable[..., Any]) -> Callable[..., Any]:
            def run(batch: Any, batch_idx: int) -> Any:
                self.events += 1
                if self.events == at:
                    event()
                return step(batch, batch_idx)

            return run

        training.training_step = counted(training.training_step)  # type: ignore[method-assign]
        training.validation_step = counted(training.validation_step)  # type: ignore[method-assign]

    def state(self, name: str = "last.ckpt") -> dict[str, Any]:
        """What training has to restore, flat."""
        contents = torch.load(self.folder / name, weights_only=True)
        kept = {name: contents[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "seed")}
        kept["current"] = contents.get("current_model_state")
        kept["early"] = [state for key, state in contents["callbacks"].items() if key.startswith("Early")]
        kept["scaler"] = contents.get("MixedPrecision")
        kept["progress"] = (contents["epoch"], contents["global_step"])
        return dict(leaves(kept))

    def stop(self, at: int, how: signal.Signals | None) -> None:
        """Train until an event; None stands for SIGKILL."""

        def killed() -> None:
            raise Killed

        if how is None:
            with pytest.raises(Killed):
                self.fit(at=at, event=killed)
        else:
            with pytest.raises(Stopped) as stopped:
                self.fit(at=at, event=lambda: os.kill(os.getpid(), how))
            assert stopped.value.number == how


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}.{key}")]
    if isinstance(tree, (list, tuple)):
        return [leaf for key, value in enumerate(tree) for leaf in leaves(value, f"{path}.{key}")]
    return [(path, tree)]


def differing(run: Run, other: Run, name: str = "last.ckpt") -> list[str]:
    """What differs between the checkpoints of two runs."""
    one, two = run.state(name), other.state(name)
    assert one.keys() == two.keys()

    def equal(x: Any, y: Any) -> bool:
        return torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y

    return [leaf for leaf in one if not equal(one[leaf], two[leaf])]


CASES: dict[str, dict[str, Any]] = {
    "soft": {},
    "hard": {"alignment": Multinoulli, "objective": Reinforce},
    "lengths": {"batching": "lengths", "batch_size": 40},
    "workers": {"workers": 2},
    "plateau": {"scheduler": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, mode="max")},
    "cosine": {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=3)},
    "steps": {"max_epochs": -1, "max_steps": 13},
    "every other": {"check_val_every_n_epoch": 2, "max_epochs": 4},
    "twice": {"val_check_interval": 2},
    "accumulated": {"accumulate_grad_batches": 2},
    "early": {"monitor": "val/attention_entropy_max", "patience": 2, "max_epochs": 9},
    "limited": {"limit_train_batches": 4},
    "scaled": {"scale": 2.0**17},
    "averaged": {"averages": lambda: AveragedWeights(0.8)},
    "moving average": {"averages": lambda: EMAWeightAveraging(decay=0.8)},
}


# Events: steps 1 to 5, validation 6, steps 7 to 11, validation 12, ... in most cases.
STOPS = {
    "soft": [(1, signal.SIGTERM), (3, None), (5, signal.SIGINT), (6, None), (12, signal.SIGTERM), (18, None)],
    "hard": [(4, None), (6, signal.SIGTERM)],
    "lengths": [(8, signal.SIGTERM)],
    "workers": [(8, signal.SIGTERM)],
    "plateau": [(7, None), (12, signal.SIGTERM)],
    "cosine": [(4, signal.SIGTERM), (8, None)],
    "steps": [(6, signal.SIGTERM), (7, None), (15, signal.SIGTERM)],
    "every other": [(5, signal.SIGTERM), (11, signal.SIGTERM)],
    "twice": [(3, signal.SIGTERM), (4, None)],
    "accumulated": [(2, None), (3, signal.SIGTERM)],
    "early": [(13, None), (18, signal.SIGTERM)],
    "limited": [(5, None), (7, signal.SIGTERM)],
    "scaled": [(4, None), (9, signal.SIGTERM)],
    "averaged": [(4, signal.SIGTERM), (6, signal.SIGTERM), (8, None), (12, None)],
    "moving average": [(12, signal.SIGTERM)],
}


FEW = {("soft", 3), ("soft", 12), ("hard", 4), ("averaged", 6)}
"""The others run at night."""


@pytest.fixture(scope="module")
def whole(reader: Shapes, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of a case that is never stopped."""
    runs: dict[str, Run] = {}

    def get(case: str) -> Run:
        if case not in runs:
            runs[case] = Run(reader, tmp_path_factory.mktemp(case.replace(" ", "_")), **CASES[case])
            runs[case].fit()
        return runs[case]

    return get


@pytest.mark.parametrize(
    ("case", "at", "how"),
    [
        pytest.param(case, *stop, marks=() if (case, stop[0]) in FEW else pytest.mark.nightly)
        for case in STOPS
        for stop in STOPS[case]
    ],
)
def test_stopped_and_resumed_is_never_stopped(
    whole: Callable[[str], Run], tmp_path: Path, case: str, at: int, how: signal.Signals | None
):
    expected = whole(case)
    run = Run(expected.reader, tmp_path, **CASES[case])
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
    contents = torch.load(whole("scaled").folder / "last.ckpt", weights_only=True)
    assert 3 < contents["callbacks"]["StopOnDivergence"]["skipped"] < 12  # of 15
    assert contents["MixedPrecision"]["scale"] != CASES["scaled"]["scale"]


@pytest.mark.nightly
def test_the_number_of_workers_may_change(whole: Callable[[str], Run], tmp_path: Path):
    run = Run(whole("workers").reader, tmp_path, workers=2)
    run.stop(3, None)
    run.options["workers"] = 0
    run.fit(resume=True)
    assert differing(whole("soft"), run) == []
    assert differing(whole("workers"), run) == []


@pytest.mark.nightly
def test_stopped_again_and_again(whole: Callable[[str], Run], tmp_path: Path):
    run = Run(whole("hard").reader, tmp_path, **CASES["hard"])
    for _ in range(40):
        try:
            run.fit(resume=True, at=2, event=lambda: os.kill(os.getpid(), signal.SIGTERM))
        except Stopped:
            continue
        break
    assert differing(whole("hard"), run) == []


def copied(run: Run, folder: Path) -> Run:
    """The run in another folder, from which it can go on."""
    shutil.copytree(run.folder, folder)
    return Run(run.reader, folder, **run.options)


@pytest.mark.parametrize(
    "case", ["soft", *(pytest.param(case, marks=pytest.mark.nightly) for case in ("early", "steps"))]
)
def test_a_finished_run_stays_finished(whole: Callable[[str], Run], tmp_path: Path, case: str):
    run = copied(whole(case), tmp_path / "run")
    before = (run.folder / "last.ckpt").read_bytes()
    run.fit(resume=True)
    assert run.events == 0
    assert (run.folder / "last.ckpt").read_bytes() == before


@pytest.mark.nightly
def test_more_patience_continues_a_run_that_had_ended(whole: Callable[[str], Run], tmp_path: Path):
    run = copied(whole("early"), tmp_path / "early")
    run.options["patience"] = 4
    run.fit(resume=True)
    assert run.state()[".progress.0"] == whole("early").state()[".progress.0"] + 2


def test_the_seed_of_the_checkpoint_counts(whole: Callable[[str], Run], tmp_path: Path, monkeypatch):
    run = Run(whole("soft").reader, tmp_path)
    run.stop(3, None)
    monkeypatch.setattr(f"{__name__}.seed_everything", lambda *args, **options: torch.manual_seed(7))
    run.fit(resume=True)
    assert differing(whole("soft"), run) == []


@pytest.mark.nightly
def test_how_often(whole: Callable[[str], Run], tmp_path: Path, monkeypatch):
    reader, saved = whole("soft").reader, []
    save = CheckpointFile.save_checkpoint
    monkeypatch.setattr(
        CheckpointFile,
        "save_checkpoint",
        lambda self, contents, path, storage_options=None: (
            saved.append((contents["epoch"], contents["global_step"])) if Path(path).stem == "last" else None,
            save(self, contents, path),
        ),
    )
    for every, expected in {"2 steps": [2, 4, 5], "epoch": [5], "10 minutes": [5]}.items():
        saved.clear()
        Run(reader, tmp_path / every, every=every, max_epochs=1).fit()
        assert [step for _, step in saved] == expected
    saved.clear()
    Run(reader, tmp_path / "often", every="0.000001 seconds", max_epochs=1).fit()
    assert [step for _, step in saved] == [1, 2, 3, 4, 5, 5]  # before and after validation


def test_a_stop_in_a_validation_does_not_mark_later_checkpoints(tmp_path: Path):
    """The same callback may serve another run, as in a notebook."""
    last = LastCheckpoint(str(tmp_path), "epoch")
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(fn="fit"), sanity_checking=False, callback_metrics={}, global_step=1, current_epoch=0,
        strategy=SimpleNamespace(reduce_boolean_decision=lambda wanted, all: wanted), fast_dev_run=True,
    )  # fmt: skip
    last._saved_step = 0
    last._saved_at = 0.0
    last.stop.received = signal.SIGTERM
    with pytest.raises(Stopped):
        last.on_validation_batch_end(trainer, None)  # type: ignore[arg-type]
    checkpoint: dict[str, Any] = {}
    last.on_save_checkpoint(trainer, None, checkpoint)  # type: ignore[arg-type]
    assert checkpoint == {"metrics": {}}  # nothing of a validation that is to start anew


@pytest.mark.parametrize("every", ["", "often", "0 steps", "-1 minutes", "3 days"])
def test_a_wrong_interval(every: str):
    with pytest.raises(UserError, match="10 minutes"):
        LastCheckpoint("folder", every)


COSINE = {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=2)}
LONGER = {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=4)}
STEPS = {"scheduler": lambda optimizer: StepLR(optimizer, 1, 0.1)}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("before", "after", "rates"),
    [
        ({}, {"adam": {"lr": 0.001, "weight_decay": 0.1}}, [0.001, 0.01]),
        (COSINE, COSINE | {"adam": {"lr": 0.002}}, [0.001, 0.005]),  # halfway, after one of two epochs
        (COSINE, LONGER, [0.01 * (1 + 0.5**0.5) / 2] * 2),
        (COSINE, {}, [0.01, 0.01]),
        ({}, COSINE, [0.005, 0.005]),
        (COSINE, STEPS, [0.001, 0.001]),
        (COSINE, COSINE, [0.005, 0.005]),
    ],
)
def test_changed_rates_take_effect_from_where_the_run_goes_on(
    reader: Shapes, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], rates: list[float]
):
    """The encoder's rate, the second one, is 0.01; the run stops in the second epoch."""
    run = Run(reader, tmp_path, max_epochs=2, **before)
    run.stop(8, signal.SIGTERM)
    run.options = {"max_epochs": 2} | after
    seen: list[list[dict[str, Any]]] = []

    def look() -> None:
        seen.append([dict(group) for group in run.trainer.optimizers[0].param_groups])

    run.fit(resume=True, at=1, event=look)
    assert [group["lr"] for group in seen[0]] == pytest.approx(rates)
    assert {group["weight_decay"] for group in seen[0]} == {after.get("adam", {}).get("weight_decay", 0)}
    if "scheduler" in after:  # as if it had been there from the first epoch
        new = Run(reader, tmp_path / "new", max_epochs=2, **after)
        new.fit()
        ends = [[group["lr"] for group in each.trainer.optimizers[0].param_groups] for each in (run, new)]
        assert ends[0] == pytest.approx(ends[1])


@pytest.mark.nightly
def test_a_plateau_keeps_its_reductions_of_a_changed_rate(reader: Shapes, tmp_path: Path):
    plateau = {"scheduler": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, threshold=1e9)}
    never_stopped = Run(reader, tmp_path / "whole", **plateau)
    never_stopped.fit()
    run = Run(reader, tmp_path, **plateau)
    run.stop(14, signal.SIGTERM)
    run.options = plateau | {"adam": {"lr": 0.004}}
    run.fit(resume=True)
    (decoder, encoder), after = (
        [group["lr"] for group in each.trainer.optimizers[0].param_groups] for each in (never_stopped, run)
    )
    assert decoder < 0.01
    assert after == pytest.approx([0.4 * decoder, encoder])
