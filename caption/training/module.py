"""The LightningModule that trains and evaluates a captioner."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from caption.attention.stochastic import AtTest
from caption.captioner import Captioner
from caption.core.batch import Batch
from caption.core.errors import CheckpointError, UserError
from caption.core.regions import Views
from caption.core.runtime.atomic_files import OwnFolder
from caption.core.runtime.distributed import mean_of_each
from caption.core.runtime.seeds import derive_seed
from caption.data.photos import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders import Refiner
from caption.encoders.base import Encoder
from caption.encoders.fine_tuning import batch_norm_warning
from caption.kernels import accelerate
from caption.models import checkpoint
from caption.objectives import CrossEntropy, Objective
from caption.search import BeamSearch, Greedy, Search
from caption.text.vocabulary import Vocabulary
from caption.training.defaults import MONITOR
from caption.training.diagnostics import AttentionDiagnostics
from caption.training.divergence import StopOnDivergence
from caption.training.evaluator import RESULTS, Evaluation, Evaluator
from caption.training.lightning_state import check_state
from caption.training.optimizers import (
    Interval,
    check_length,
    interval_of,
    make_optimizer,
    make_schedule,
    step_plateau_schedules,
)
from caption.training.precision import warn_if_slower
from caption.training.rates import adopt_rates, check_rates, configured_rates
from caption.training.resuming import check_optimizer_state
from caption.training.warm_start import load_detectors, load_model, load_pretrained
from caption.training.watched import AUTO, mode_of
from caption.training.weight_averaging import check_averages

RATES = ("learning_rate", "encoder_learning_rate")
"""Names of the optimizer's rates in the logs, in the order of its groups."""


class CaptionTraining(LightningModule):
    """Trains a captioner on images and captions.

    Validation reports the teacher-forced NLL per word and, from free-running captions, BLEU and CIDEr. Use BLEU or
    CIDEr for early stopping and for the choice of the checkpoint: NLL starts to rise while captions still improve.

    Args:
        encoder: image -> regions.
        decoder: regions -> words, with its attention.
        vocabulary: linked from the data.
        transform: linked from the data.
        refiner: maps the regions before the decoder reads them; None = no refiner.
        objective: the training objective; None = `CrossEntropy()`, for soft attention.
        optimizer: optimizer, with the learning rate of all weights but the encoder's.
        scheduler: learning rate scheduler; None = constant.
        scheduler_interval: "epoch" or "step": whether the scheduler is stepped after each epoch or after each step of
            the optimizer; None = after each step for `OneCycleLR` and `CyclicLR`, after each epoch for others.
        encoder_learning_rate: learning rate for fine-tuning the encoder; None = the encoder stays frozen.
        frozen_statistics: whether the BatchNorm layers of an encoder that learns keep the mean and variance of their
            weights; scale and shift learn in either case.
        warm_start: model with the initial weights of encoder, refiner, decoder and word detectors: a checkpoint, the
            name of an installed model, or hf://owner/name; for instance a soft-attention model for hard attention.
            None = new weights. Parts that only this configuration has start untrained, with a warning that names them.
            Words that only this vocabulary has start as unknown words; `caption fit` keeps all words of that model.
        search: for testing and predicting, and the default of the saved model; None = beam search with 5 hypotheses.
        validation_search: None = greedy.
        at_test: what hard attention reads in validation, test and prediction; None = the mechanism's own setting, which
            is also the one that is saved.
        accelerate: whether to exchange parts of the model for faster forms that compute the same, see
            `caption.kernels.accelerate`.
        compile: whether to compile the encoder and, on a GPU, the decoder's step with torch.compile when they first
            run. It takes about a minute, and needs a C++ compiler or Triton.
        graphs: whether to record the decoder's unroll and step as CUDA graphs, see `caption.kernels.graphs`. On one GPU
            only, where nobody has tried it yet.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        transform: ImageTransform,
        refiner: Refiner | None = None,
        objective: Objective | None = None,
        optimizer: OptimizerCallable = Adam,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Interval | None = None,
        encoder_learning_rate: float | None = None,
        frozen_statistics: bool = False,
        warm_start: str | None = None,
        search: Search | None = None,
        validation_search: Search | None = None,
        at_test: AtTest | None = None,
        accelerate: bool = True,
        compile: bool = False,
        graphs: bool = False,
    ) -> None:
        super().__init__()
        self.captioner = Captioner(encoder, decoder, vocabulary, transform, search or BeamSearch(), refiner)
        self.objective = objective or CrossEntropy()
        self.objective.build(decoder.query_size, encoder.region_sizes, len(vocabulary))
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scheduler_interval: Interval | None = scheduler_interval
        self.encoder_learning_rate = encoder_learning_rate
        encoder.frozen_statistics = frozen_statistics
        encoder.freeze(encoder_learning_rate is None)
        self.warm_start = warm_start
        self.validation_search = validation_search or Greedy()
        self.evaluator = Evaluator(self.captioner, at_test)
        self.evaluation: Evaluation | None = None
        """The evaluation of the last evaluated split."""
        self.accelerates, self.compiles, self.graphs = accelerate, compile, graphs
        self.rates: dict[str, Any] = {}
        """The configuration's options of optimizer and schedule."""
        self.earlier_rates: dict[str, Any] | None = None
        """Those stored in the resumed checkpoint, if they differ."""
        self.restored = False
        """Whether the weights come from a checkpoint of this training."""
        self.seed = torch.initial_seed()
        self._began = False
        self.monitor, self.mode = MONITOR, mode_of(MONITOR, AUTO, "--checkpoint")
        """The metric that schedules watch that wait for a plateau, and its better direction."""
        self.data_section: dict[str, Any] | None = None
        """The section data of the configuration, in plain types, which checkpoints carry; None without one."""
        self.options: dict[str, str] | None = None
        """The options that a resumed training keeps, which checkpoints carry; None without a command line."""
        self.trust: Sequence[str] = ()
        """Packages whose classes the checkpoint of `warm_start` may name; see `caption.core.runtime.trust`."""
        # `--ckpt_path` restores these over the configuration: only the architecture, no options that a
        # command may change.
        parts = {"encoder": encoder, "refiner": refiner, "decoder": decoder, "objective": self.objective}
        specs = {name: None if part is None else part.spec for name, part in parts.items()}
        self.save_hyperparameters(specs, logger=False)

    def configure_callbacks(self) -> list[Callback]:
        return [StopOnDivergence(), AttentionDiagnostics()]

    def setup(self, stage: str) -> None:
        warn_if_slower(str(self.trainer.precision), self.trainer.strategy.root_device)
        if self.accelerates:
            graphs = self.graphs and self.trainer.world_size == 1
            accelerate(self, self.trainer.strategy.root_device, self.compiles, graphs)
        if (folder := self._folder()) is not None:
            folder.check(RESULTS.get(stage, ()))

    def views(self, batch: Batch) -> Views:
        """The batch's regions, precomputed or encoded now."""
        if batch.views is not None:
            return batch.views
        assert batch.images is not None
        return self.captioner.encoder(batch.images)

    def _check_store(self) -> None:
        """Check that precomputed regions are this encoder's. Called once its weights are loaded or restored."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        precision = str(self.trainer.precision)
        if data.store is not None and precision in ("16-true", "bf16-true", "64-true"):
            raise UserError(
                f"trainer.precision {precision} converts the encoder, and data.features has the regions of one in "
                "32-true: take 32-true or a mixed precision, or leave out data.features"
            )
        for store, mirrored in ((data.store, False), (data.mirrored, True)):
            if store is not None:
                store.matches(self.captioner.encoder, self.captioner.transform.to_dict(), mirrored)

    # -- fitting --------------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        if self.encoder_learning_rate is not None and self.trainer.datamodule.store is not None:  # type: ignore[attr-defined]
            raise UserError(
                "the encoder cannot be fine-tuned on precomputed regions: leave out data.features, or "
                "model.encoder_learning_rate"
            )
        begins = not (self.restored or self._began)  # a second `fit` goes on from the weights of the first
        self._began = True
        if self.warm_start is not None and begins:
            load_model(self.captioner, self.warm_start, self.trust)
        elif begins:
            load_pretrained(self.captioner)
        self._check_store()
        self.objective.prepare(self.trainer.datamodule.training_captions())  # type: ignore[attr-defined]
        if self.warm_start is not None and begins:
            load_detectors(self.objective, self.warm_start, self.captioner.vocabulary)

    def _make_optimizer(self) -> tuple[Optimizer, LRScheduler | None]:
        optimizer = make_optimizer(self.optimizer, self, self.captioner.encoder, self.encoder_learning_rate)
        return optimizer, make_schedule(optimizer, self.scheduler, self.monitor, self.mode)

    def configure_optimizers(self) -> Any:
        optimizer, schedule = self._make_optimizer()
        interval = interval_of(schedule, self.scheduler_interval)
        self.rates = configured_rates(optimizer, schedule, interval)
        if schedule is None:
            return optimizer
        config = {"scheduler": schedule, "monitor": self.monitor, "interval": interval}
        if isinstance(schedule, ReduceLROnPlateau):  # never by Lightning, see `on_train_epoch_end`
            config["frequency"] = sys.maxsize
        return [optimizer], [config]

    def on_train_start(self) -> None:
        encoder = self.captioner.encoder
        own_statistics = self.encoder_learning_rate is not None and not encoder.frozen_statistics
        if self.trainer.world_size > 1 and own_statistics:
            warning = batch_norm_warning(encoder, self.device.type)
            if warning is not None:
                rank_zero_warn(warning)
        schedule: Any = next((config.scheduler for config in self.trainer.lr_scheduler_configs), None)
        interval = interval_of(schedule, self.scheduler_interval)
        check_length(schedule, interval, self.trainer.estimated_stepping_batches, self.trainer.max_epochs)
        if self.earlier_rates is not None:
            steps = self.trainer.global_step if interval == "step" else self.current_epoch
            if interval == self.earlier_rates["interval"]:
                steps = self.earlier_rates["counts"].get("last_epoch", steps)
            adopt_rates(
                self.trainer.optimizers[0], schedule, *self._make_optimizer(), self.earlier_rates, steps
            )

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        scheduler.step()

    def on_train_epoch_end(self) -> None:
        step_plateau_schedules(self.trainer)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Set at each step, so that a resumed run equals an uninterrupted one. Each process has its own seed,
        # so that dropout and samples differ between processes.
        # `torch.manual_seed` prepares all devices, and formats a stack trace for each that is absent.
        set_seed = torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
        set_seed(derive_seed(self.seed, self.current_epoch, batch_idx, self.global_rank))

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """The loss of a batch.

        Returns:
            "loss": a scalar with gradient; and for `AttentionDiagnostics` "weights": (B, K, T, L) α without gradient, 0
            where there is no step, and "real": (B, K, T) bool, True where there is a step.
        """
        loss = self.objective(self.captioner, self.views(batch), batch.captions)
        size, logged = len(batch.ids), mean_of_each({"loss": loss.value.detach()} | loss.logged)
        # None of them is for Lightning's bar, which would wait for the GPU in every step.
        groups = self.trainer.optimizers[0].param_groups
        logged |= dict(zip(RATES, (torch.tensor(float(group["lr"])) for group in groups), strict=False))
        self.log_dict({f"train/{name}": value for name, value in logged.items()}, batch_size=size)
        unrolled = loss.unrolled
        real = torch.ones_like(unrolled.positions, dtype=torch.bool)
        weights = unrolled.trace.weights.detach()
        return {"loss": loss.value, "weights": unrolled.unpack(weights), "real": unrolled.unpack(real)}

    # -- evaluation -----------------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        self.evaluator.forget()  # what a validation that was interrupted has left
        if self.trainer.state.fn == "validate":  # during fit, on_fit_start has checked it
            self._check_store()
        else:  # sampled attention may decide which epoch is the best
            torch.manual_seed(derive_seed(self.seed, self.global_step, self.global_rank))

    def on_test_start(self) -> None:
        self.evaluator.forget()
        self._check_store()

    def on_predict_start(self) -> None:
        self.evaluator.forget()
        self._check_store()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluator.evaluate(batch, self.views(batch), self.validation_search)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluator.evaluate(batch, self.views(batch), self.captioner.search)

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        return self.evaluator.predict(batch, self.views(batch), self.captioner.search)

    def on_validation_epoch_end(self) -> None:
        self._score("val", self.validation_search)

    def on_test_epoch_end(self) -> None:
        self._score("test", self.captioner.search, self._folder())

    def on_predict_epoch_end(self) -> None:
        self.evaluator.write_predictions(self._folder())

    def _score(self, split: str, search: Search, folder: OwnFolder | None = None) -> None:
        boxes = self.trainer.datamodule.reader.boxes(split)  # type: ignore[attr-defined]
        self.evaluation = self.evaluator.score(split, search, boxes, folder, self.trainer.ckpt_path)
        self.log_dict({f"{split}/{name}": value for name, value in self.evaluation.numbers.items()})

    def _folder(self) -> OwnFolder | None:
        """The folder for result files: the run's log folder in the first process, else None."""
        folder = self.trainer.log_dir
        if not folder or not self.trainer.is_global_zero:
            return None
        return OwnFolder(Path(folder), "--trainer.default_root_dir")

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint_contents: dict[str, Any]) -> None:
        checkpoint_contents["captioner"] = checkpoint.section(self.captioner)
        checkpoint_contents["seed"] = self.seed
        checkpoint_contents["rates"] = self.rates
        if self.options is not None:
            checkpoint_contents["options"] = self.options
        if self.data_section is not None:
            checkpoint_contents["data"] = self.data_section

    def on_load_checkpoint(self, checkpoint_contents: dict[str, Any]) -> None:
        self.restored = True
        vocabulary = checkpoint_contents.get("captioner", {}).get("vocabulary")
        if vocabulary is not None and vocabulary != self.captioner.vocabulary.to_dict():
            raise CheckpointError(
                "the checkpoint's vocabulary is not the one of this data: it was trained on other captions"
            )
        if self.trainer.state.fn == "fit":
            check_averages(checkpoint_contents, self.trainer)
            optimizer, schedule = self._make_optimizer()
            interval = interval_of(schedule, self.scheduler_interval)
            rates = configured_rates(optimizer, schedule, interval)
            earlier = checkpoint_contents.get("rates")
            check_optimizer_state(checkpoint_contents, self.trainer.ckpt_path, optimizer)
            if earlier is not None and earlier != rates:
                schedule_state = next(iter(checkpoint_contents["lr_schedulers"]), None)
                self.earlier_rates = check_rates(earlier, schedule_state)
                checkpoint_contents["lr_schedulers"], schedule = [], None
            check_state(checkpoint_contents, self.trainer, [] if schedule is None else [schedule])
            self.seed = checkpoint_contents.get("seed", self.seed)
        else:  # weights alone; the objective is not evaluated, and a model without training state has none
            objective_weights = self.objective.state_dict(prefix="objective.")
            weights = objective_weights | checkpoint_contents["state_dict"]
            checkpoint_contents.clear()
            checkpoint_contents["state_dict"] = weights
