"""The LightningModule that trains and evaluates a captioner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# isort: split
import torch
from pytorch_lightning import Callback, LightningModule
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, distributed
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from caption import checkpoint
from caption.attention.stochastic import AtTest, override_at_test, stochastic_parts
from caption.captioner import Captioner, search_spec
from caption.data.batches import Batch
from caption.data.order import seed_of
from caption.data.resize import ImageTransform
from caption.decoders.base import Decoder, Unrolled
from caption.decoders.word_embeddings import load_word_vectors
from caption.encoders import Refiner
from caption.encoders.base import Encoder
from caption.errors import CheckpointError, UserError, first_few, kind_and_reason
from caption.objectives import CaptionBatch, CrossEntropy, Objective, word_log_likelihoods
from caption.regions import Views
from caption.runtime.distributed import mean_of_each
from caption.search import BeamSearch, Greedy, Search
from caption.text.vocabulary import Vocabulary
from caption.training.batch_norm import FrozenStatistics, batch_norm_warning
from caption.training.compiling import compile_captioner
from caption.training.diagnostics import StillMaps, diagnose
from caption.training.divergence import StopOnDivergence
from caption.training.evaluation import (
    Answer,
    CaptionText,
    Evaluation,
    gather,
    summarise,
    write_evaluation,
    write_results,
)
from caption.training.precision import warn_if_slower


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
        scheduler: learning rate scheduler, stepped once per epoch; None = constant.
        encoder_learning_rate: learning rate for fine-tuning the encoder; None = the encoder stays frozen.
        encoder_from_epoch: first epoch of fine-tuning, counted from 0.
        warm_start: checkpoint with initial weights of encoder, refiner and decoder, for instance a soft-attention model
            for hard attention; None = new weights. Parts that only this configuration has start untrained, with a
            warning that names them.
        search: for testing and predicting, and the default of the saved model; None = beam search with 5 hypotheses.
        validation_search: None = greedy.
        at_test: what hard attention reads in validation, test and prediction; None = the mechanism's own setting, which
            is also the one that is saved.
        compile: whether to compile the encoder and, on a GPU, the decoder's step with torch.compile when they first
            run. It takes about a minute, and needs a C++ compiler or Triton.
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
        encoder_learning_rate: float | None = None,
        encoder_from_epoch: int = 0,
        warm_start: str | None = None,
        search: Search | None = None,
        validation_search: Search | None = None,
        at_test: AtTest | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.captioner = Captioner(encoder, decoder, vocabulary, transform, search or BeamSearch(), refiner)
        self.objective = objective or CrossEntropy()
        self.objective.build(decoder.query_size, encoder.region_sizes, len(vocabulary))
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.encoder_learning_rate = encoder_learning_rate
        self.encoder_from_epoch = encoder_from_epoch
        self.warm_start = warm_start
        self.validation_search = validation_search or Greedy()
        self.at_test = at_test
        self.compiles = compile
        self.still_maps = StillMaps()
        self.answers: list[Answer] = []
        self.predicted: list[CaptionText] = []
        self.restored = False
        self.state_untried = False
        """Whether the optimizer's state comes from a checkpoint, and no step has used it."""
        self.data_section: dict[str, Any] | None = None
        """The section data of the configuration, in plain types, which checkpoints carry; None without one."""
        self.trust: Sequence[str] = ()
        """Packages whose classes the checkpoint of `warm_start` may name; see `caption.runtime.trust`."""
        self.evaluation: Evaluation | None = None
        """The evaluation of the last evaluated split."""
        self.seed = torch.initial_seed()
        # `--ckpt_path` restores these over the configuration: only the architecture, no options that a
        # command may change.
        parts = {"encoder": encoder, "refiner": refiner, "decoder": decoder, "objective": self.objective}
        specs = {name: None if part is None else part.spec for name, part in parts.items()}
        self.save_hyperparameters(specs, logger=False)
        encoder.freeze(not self._finetuning(epoch=0))

    def configure_callbacks(self) -> list[Callback]:
        return [StopOnDivergence()]

    def setup(self, stage: str) -> None:
        warn_if_slower(str(self.trainer.precision), self.trainer.strategy.root_device)
        if self.compiles:
            compile_captioner(self.captioner, self.trainer.strategy.root_device)

    # -- weights to start from ------------------------------------------------------------------------------------

    def _start_weights(self) -> None:
        """Load the initial weights, unless training resumes from a checkpoint, which has all of them."""
        if self.restored:
            return
        if self.warm_start is not None:
            self._load_weights(self.warm_start)
        else:
            self.captioner.encoder.load_pretrained()
            for file, found in load_word_vectors(self.captioner.decoder, self.captioner.vocabulary).items():
                rank_zero_info(f"{file}: vectors of {found} of the {len(self.captioner.vocabulary)} words")

    def _load_weights(self, path: str) -> None:
        source = checkpoint.load(path, trust=self.trust)
        if source.vocabulary != self.captioner.vocabulary:
            raise CheckpointError(
                f"{path} was trained with another vocabulary ({len(source.vocabulary)} words, the data here gives "
                f"{len(self.captioner.vocabulary)}): warm-start from a model trained on the same data"
            )
        try:
            new, unknown = self.captioner.load_state_dict(source.state_dict(), strict=False)
        except RuntimeError as error:
            raise CheckpointError(
                f"{path} has parts of other shapes than this configuration: {error}"
            ) from error
        if unknown:
            raise CheckpointError(
                f"{path} has parts that this configuration has no place for: {first_few(unknown)}"
            )
        if new:
            rank_zero_warn(f"{path} has no weights of these parts, which start untrained: {first_few(new)}")

    def _check_store(self) -> None:
        """Check that precomputed regions are this encoder's. Called once its weights are loaded or restored."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        for store, mirrored in ((data.store, False), (data.mirrored, True)):
            if store is not None:
                store.matches(self.captioner.encoder, self.captioner.transform, mirrored)

    def on_fit_start(self) -> None:
        if self.trainer.datamodule.store is not None and self.encoder_learning_rate is not None:  # type: ignore[attr-defined]
            raise UserError(
                "the encoder cannot be fine-tuned on precomputed regions: leave out data.features, or "
                "model.encoder_learning_rate"
            )
        self._start_weights()
        self._check_store()
        self.objective.prepare(self.trainer.datamodule.training_captions())  # type: ignore[attr-defined]

    def on_train_start(self) -> None:
        # A run that was stopped inside an epoch does not start that epoch again.
        self.captioner.encoder.freeze(not self._finetuning(self.current_epoch))
        moving = not any(isinstance(each, FrozenStatistics) for each in self.trainer.callbacks)  # type: ignore[attr-defined]
        if self.trainer.world_size > 1 and self.encoder_learning_rate is not None and moving:
            warning = batch_norm_warning(self.captioner.encoder, self.trainer.strategy.root_device.type)
            if warning is not None:
                rank_zero_warn(warning)

    def on_validation_start(self) -> None:
        if self.trainer.state.fn == "validate":  # during fit, on_fit_start has checked it
            self._check_store()
        else:  # sampled attention may decide which epoch is the best
            torch.manual_seed(seed_of(self.seed, self.global_step, self.global_rank))

    def on_test_start(self) -> None:
        self._check_store()

    def on_predict_start(self) -> None:
        self._check_store()

    # -- fitting --------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer()
        if self.scheduler is None:
            return optimizer
        scheduler = self.scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            return [optimizer], [{"scheduler": scheduler, "monitor": "val/CIDEr"}]
        return [optimizer], [scheduler]

    def _optimizer(self) -> Optimizer:
        encoder = list(self.captioner.encoder.parameters())
        known = set(encoder)
        groups: list[dict[str, Any]] = [{"params": [p for p in self.parameters() if p not in known]}]
        if self.encoder_learning_rate is not None:
            # In the optimizer from the start; it skips frozen parameters, which have no gradient.
            groups.append({"params": encoder, "lr": self.encoder_learning_rate})
        return self.optimizer(groups)

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    def on_train_epoch_end(self) -> None:
        # Lightning would step it after the epoch's checkpoint is written, and a resumed run would miss the step.
        for config in self.trainer.lr_scheduler_configs:
            found = self.trainer.callback_metrics.get(str(config.monitor))
            if isinstance(config.scheduler, ReduceLROnPlateau) and found is not None:
                config.scheduler.step(found.item())

    def _finetuning(self, epoch: int) -> bool:
        return self.encoder_learning_rate is not None and epoch >= self.encoder_from_epoch

    def on_train_epoch_start(self) -> None:
        self.captioner.encoder.freeze(not self._finetuning(self.current_epoch))

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Set at each step, so that a resumed run equals an uninterrupted one. Each process has its own seed,
        # so that dropout and samples differ between processes.
        torch.manual_seed(seed_of(self.seed, self.current_epoch, batch_idx, self.global_rank))

    def views(self, batch: Batch) -> Views:
        """The batch's regions, precomputed or encoded now."""
        if batch.views is not None:
            return batch.views
        assert batch.images is not None
        return self.captioner.encoder(batch.images)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        views = self.views(batch)
        memory = self.captioner.project(views)
        captions = CaptionBatch(batch.inputs, batch.targets, batch.lengths)
        loss = self.objective(self.captioner.decoder, memory, captions, views)
        size = len(batch.ids)
        shares = {
            "loss": loss.value.detach(),
            **loss.logged,
            **diagnose(loss.unrolled, self.captioner.decoder.properties),
        }
        logged = mean_of_each(shares)
        self.log("train/loss", logged.pop("loss"), prog_bar=True, batch_size=size)
        self.log_dict({f"train/{name}": value for name, value in logged.items()}, batch_size=size)
        looks = bool(self.captioner.decoder.attentions)
        if looks and (warning := self.still_maps.watch(logged["attention_change"])) is not None:
            rank_zero_warn(warning)
        return loss.value

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """The first step after resuming is where an optimizer meets the values in its state: it loads any."""
        assert optimizer_closure is not None
        if not self.state_untried:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            return
        has_gradients = False

        def closure() -> Any:
            nonlocal has_gradients
            loss = optimizer_closure()
            has_gradients = True
            return loss

        try:
            super().optimizer_step(epoch, batch_idx, optimizer, closure)
        except (UserError, OSError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if not has_gradients:
                raise
            raise self._does_not_fit(error) from error
        self.state_untried = False

    def on_after_backward(self) -> None:
        # DistributedDataParallel averages only gradients of parameters that were trainable when it was
        # created, not of those unfrozen later.
        unfrozen_late = self.encoder_from_epoch > 0 and self._finetuning(self.current_epoch)
        if unfrozen_late and self.trainer.world_size > 1:
            for parameter in self.captioner.encoder.parameters():
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)
                    parameter.grad /= self.trainer.world_size

    # -- evaluation -----------------------------------------------------------------------------------------------

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.answers += self._answers(batch, self.validation_search)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.answers += self._answers(batch, self.captioner.search)

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        answers = list(self._answers(batch, self.captioner.search))
        self.predicted += [answer.without_maps() for answer in answers]
        return [{"image_id": answer.id, **answer.caption.to_dict()} for answer in answers]

    def _answers(self, batch: Batch, search: Search) -> Iterator[Answer]:
        views = self.views(batch)
        with override_at_test(self.captioner, self.at_test):
            unrolled = self.captioner(views, batch.inputs, batch.lengths)
            found = self.captioner.generate(views, search)
        nll, steps = _per_image(unrolled, batch.targets)
        captions = self.captioner.captions(found, self.captioner.grids(views), batch.boxes)
        for image, caption in enumerate(captions):
            yield Answer(batch.ids[image], caption, batch.references[image], nll[image], steps[image])

    def on_validation_epoch_end(self) -> None:
        evaluation = self._evaluate("val", self.validation_search)
        self.log_dict({f"val/{name}": value for name, value in evaluation.items()})
        self.log("val_CIDEr", evaluation["CIDEr"], prog_bar=True, logger=False)

    def on_test_epoch_end(self) -> None:
        numbers = self._evaluate("test", self.captioner.search, folder=self._folder())
        self.log_dict({f"test/{name}": value for name, value in numbers.items()})

    def on_predict_epoch_end(self) -> None:
        predicted, self.predicted = gather(self.predicted), []
        folder = self._folder()
        if folder is not None:
            write_results(predicted, folder / "predictions.json")

    def _evaluate(self, split: str, search: Search, folder: Path | None = None) -> dict[str, float]:
        answers, self.answers = gather(self.answers), []
        reader = self.trainer.datamodule.reader  # type: ignore[attr-defined]
        evaluation = summarise(answers, self.protocol(split, search), reader.boxes(split))
        if folder is not None:
            write_results([answer.without_maps() for answer in answers], folder / f"{split}_captions.json")
            write_evaluation(evaluation, folder / f"{split}_scores.json")
        self.evaluation = evaluation
        return evaluation.numbers

    def protocol(self, split: str, search: Search) -> dict[str, object]:
        """The conditions of an evaluation, without the conventions of the metrics."""
        described = search_spec(search)
        options = ",".join(f"{name}={value}" for name, value in described["init_args"].items())
        protocol: dict[str, object] = {
            "split": split,
            "search": f"{described['class_path'].rpartition('.')[2]}({options})",
        }
        chosen = ",".join(self.at_test or part.at_test for part in stochastic_parts(self.captioner.decoder))
        return protocol | ({"hard": chosen} if chosen else {})

    def _folder(self) -> Path | None:
        """The folder for result files: the run's log folder in the first process, else None."""
        folder = self.trainer.log_dir
        return Path(folder) if folder and self.trainer.is_global_zero else None

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint_contents: dict[str, Any]) -> None:
        checkpoint_contents["captioner"] = checkpoint.section(self.captioner)
        checkpoint_contents["seed"] = self.seed
        if self.data_section is not None:
            checkpoint_contents["data"] = self.data_section

    def on_load_checkpoint(self, checkpoint_contents: dict[str, Any]) -> None:
        self.restored = True
        self.seed = checkpoint_contents.get("seed", self.seed)
        stored = checkpoint_contents.get("captioner", {}).get("vocabulary")
        if stored is not None and stored != self.captioner.vocabulary.to_dict():
            raise CheckpointError(
                "the checkpoint's vocabulary is not the one of this data: it was trained on other captions"
            )
        if self.trainer.state.fn == "fit":
            if "optimizer_states" not in checkpoint_contents:
                raise CheckpointError(
                    "the checkpoint is a model without training state, which cannot be resumed: start from its weights "
                    "with model.warm_start"
                )
            self._check_optimizer(checkpoint_contents["optimizer_states"])
            self.state_untried = True
        else:  # the objective is not evaluated, and a model without training state has none
            own = self.objective.state_dict(prefix="objective.")
            checkpoint_contents["state_dict"] = own | checkpoint_contents["state_dict"]

    def _check_optimizer(self, states: Any) -> None:
        """Check that the optimizer can load the state to be resumed.

        It has a group for the encoder if and only if the encoder is fine-tuned.
        """
        finetuning = self.encoder_learning_rate is not None
        try:
            finetuned = len(states[0]["param_groups"]) > 1
            if finetuned == finetuning:
                self._optimizer().load_state_dict(states[0])
        except Exception as error:
            raise self._does_not_fit(error) from error
        if finetuned != finetuning:
            was, remedy = ("frozen", "leave out") if finetuning else ("fine-tuned", "set")
            raise CheckpointError(
                f"the encoder was {was} when the checkpoint was written: {remedy} model.encoder_learning_rate to "
                "resume it, or start from its weights with model.warm_start"
            )

    def _does_not_fit(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"{self.trainer.ckpt_path}: the optimizer's state in it is malformed or does not fit model.optimizer "
            f"({kind_and_reason(error)}): resume with the optimizer of that training, or start from its "
            "weights with model.warm_start"
        )


def _per_image(unrolled: Unrolled, targets: Tensor) -> tuple[list[float], list[int]]:
    """−log p of all captions of each image, and their number of words."""
    nll = -unrolled.unpack(word_log_likelihoods(unrolled, targets)).sum((1, 2))
    steps = unrolled.unpack(torch.ones_like(unrolled.positions)).sum((1, 2))
    return nll.tolist(), steps.tolist()
