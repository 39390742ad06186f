"""Lightning's command line for this package: the parts of a training, from a configuration or a checkpoint."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from jsonargparse import Namespace
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only

from caption.cli.configuration.arguments import TRUST
from caption.cli.configuration.errors import jsonargparse_message, reason
from caption.cli.configuration.resumed import (
    changed_options,
    kept_options,
    recorded_options,
    restored_options,
)
from caption.cli.printing import say
from caption.core.errors import CheckpointError, DataError, UserError, kind_and_reason, printable, reported_as
from caption.core.runtime.atomic_files import locked, make_folder, make_parents, write_new
from caption.core.runtime.distributed import torchrun_settings
from caption.core.runtime.trust import class_paths
from caption.data.module import CaptionData
from caption.data.photos import ImageTransform
from caption.metrics.cider import ALIKE
from caption.models import checkpoint, model_zoo
from caption.text.ngrams import alike
from caption.text.tokenizer import get_tokenizer
from caption.text.vocabulary import Vocabulary
from caption.training import defaults
from caption.training.attention_temperature import AttentionTemperature
from caption.training.callbacks import AttentionFigures, EpochReport, TrainingBar
from caption.training.module import CaptionTraining
from caption.training.resuming import CheckpointFile, LastCheckpoint
from caption.training.run_folder import check_free, find_checkpoint
from caption.training.trainer_options import check_trainer
from caption.training.trial import try_configuration
from caption.training.watched import AUTO, mode_of


class Parser(LightningArgumentParser):
    """Lightning's parser with error messages of one line, and without abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # an inner parser, whose message becomes part of a longer one
            super().error(message, ex)
        verb = self.prog.split()[-1] if self.prog.split()[-1] in CaptionCLI.subcommands() else "fit"
        message = jsonargparse_message(message, self)
        raise UserError(f"{message} (caption {verb} --help lists the options)") from ex


class ConfigurationFile(SaveConfigCallback):
    """Writes the whole configuration of a command into the log folder, without replacing another one."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Here, because `log_dir` is communicated among all processes.
        self.path = Path(trainer.log_dir or trainer.default_root_dir) / self.config_filename
        super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        make_parents(self.path)
        write_new(self.path, self.parser.dump(self.config, skip_none=False).encode())


class CaptionCLI(LightningCLI):
    """One folder per training run: `trainer.default_root_dir` holds best.ckpt, last.ckpt and the logs of each start."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help=TRUST)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(LastCheckpoint, "last_checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_lightning_class_args(EpochReport, "epoch_report")
        parser.add_lightning_class_args(AttentionFigures, "attention_figures")
        parser.add_lightning_class_args(AttentionTemperature, "attention_temperature")
        parser.set_defaults(defaults.OPTIONS)
        parser.link_arguments("trainer.default_root_dir", "checkpoint.dirpath")
        parser.link_arguments("trainer.default_root_dir", "last_checkpoint.folder")
        parser.link_arguments("data", "model.vocabulary", self._vocabulary, apply_on="instantiate")
        parser.link_arguments("data", "model.transform", self._transform, apply_on="instantiate")

    kept: dict[str, str] | None = None
    """The options that a resumed training keeps."""

    def _option(self, name: str) -> Any:
        """The value of an option of the verb, from the command line or the configuration."""
        return self.config[self.config["subcommand"]].get(name)

    def _checkpoint(self) -> dict[str, Any] | None:
        """The contents of the checkpoint given with --ckpt_path, if one is given."""
        path = self._option("ckpt_path")
        return None if path is None else checkpoint.read(path)

    def _vocabulary(self, data: CaptionData) -> Vocabulary:
        """The checkpoint's vocabulary, if there is a checkpoint, otherwise that of the data.

        A model that training starts from keeps its words, and gets the other words of the data in addition.
        """
        if (contents := self._checkpoint()) is not None:
            data.vocabulary = Vocabulary.from_dict(contents["captioner"]["vocabulary"])
        elif (model := self._option("model").get("warm_start")) is not None:
            data.vocabulary = model_zoo.vocabulary(model).widened(data.vocabulary)
        return data.vocabulary

    def _transform(self, data: CaptionData) -> ImageTransform:
        if (contents := self._checkpoint()) is not None:
            data.transform = ImageTransform.from_dict(contents["captioner"]["transform"])
        return data.transform

    def _parse_ckpt_path(self) -> None:
        options = self.config[self.config["subcommand"]]
        folder = Path(options["trainer"]["default_root_dir"])
        options["ckpt_path"] = find_checkpoint(options["ckpt_path"], folder, self.config["subcommand"])
        if self._option("ckpt_path") is None and self.config["subcommand"] != "fit":
            raise UserError(
                f"caption {self.config['subcommand']} needs a trained model: give it with --ckpt_path FILE"
            )
        # Lightning's own method imports and calls whatever the file's hyper-parameters name. The modules of the
        # class paths in the user's configuration are imported by now, so the checkpoint may name them, too.
        if (contents := self._checkpoint()) is not None:
            with reported_as(CheckpointError, self._option("ckpt_path"), CheckpointError):
                model = checkpoint.architecture(contents, self._option("trust"))
            changes = {"model": model}
            if self.config["subcommand"] == "fit":
                changes |= self._keep_options(contents)
            self.config = self.parser.parse_object({self.config["subcommand"]: changes}, self.config)

    def _keep_options(self, contents: Mapping[str, Any]) -> dict[str, Any]:
        """Report the options that have no effect on a resumed training, and return those to restore."""
        now = kept_options(self.config["fit"].as_dict())
        self.kept = recorded_options(contents, now)
        changed = changed_options(self.kept, now)
        say_once = rank_zero_only(say)
        for name, (before, after) in changed.items():
            say_once(
                "fit",
                f"{name} stays {before}, though the configuration says {after}: a resumed training keeps it",
            )
        if changed:
            remedy = f"--model.warm_start {self._option('ckpt_path')} in place of --ckpt_path"
            say_once(
                "fit", f"to change {'it' if len(changed) == 1 else 'them'}, start a new training: {remedy}"
            )
        return restored_options(changed, contents)

    def _set_seed(self) -> None:
        with reported_as(UserError, "the configuration cannot be used: seed_everything", ValueError):
            super()._set_seed()

    def before_instantiate_classes(self) -> None:
        """Write the monitored number and its mode into the configuration, and try the model before data is read."""
        options = self.config[self.subcommand]
        checkpoints, stopping = options["checkpoint"], options["early_stopping"]
        callbacks = class_paths(options["trainer"].as_dict().get("callbacks"))
        own = any(not path.startswith(("caption.", "pytorch_lightning.")) for path in callbacks)
        if checkpoints["monitor"] is not None:
            checkpoints["mode"] = mode_of(checkpoints["monitor"], checkpoints["mode"], "--checkpoint", own)
        if stopping["monitor"] == AUTO:
            stopping["monitor"] = checkpoints["monitor"] or defaults.MONITOR
            if stopping["mode"] == AUTO:
                stopping["mode"] = checkpoints["mode"]
        stopping["mode"] = mode_of(stopping["monitor"], stopping["mode"], "--early_stopping", own)
        if checkpoints["monitor"] is None:
            checkpoints["mode"] = stopping["mode"]
        if self.subcommand == "fit":
            check_trainer(options["trainer"])
            self._try_configuration(options)

    def _try_configuration(self, options: Any) -> None:
        """See `caption.training.trial`."""
        parser = Parser(exit_on_error=False, default_env=False)
        linked = {"vocabulary", "transform"}
        parser.add_class_arguments(
            CaptionTraining, "model", fail_untyped=False, instantiate=False, skip=linked
        )
        model = {name: value for name, value in vars(options["model"]).items() if name not in linked}

        def arguments() -> dict[str, Any]:
            try:
                return vars(parser.instantiate_classes(Namespace(model=Namespace(**model))).model)
            except ValueError as error:
                raise UserError(reason(error)) from error

        with reported_as(UserError, "the configuration cannot be used", DataError):
            transform = ImageTransform(**(options["data"]["transform"] or {}))
        try_configuration(arguments, transform, options["trainer"]["max_epochs"])

    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
            self.model.trust = self._option("trust")
            watched = self._option("checkpoint")
            if watched["monitor"] is not None:
                self.model.monitor, self.model.mode = watched["monitor"], watched["mode"]
            self.model.data_section = self._option("data").as_dict()
            self.model.options = self.kept or kept_options(self.config[self.subcommand].as_dict())
        except ValueError as error:  # a value of the right type that a part refuses
            raise UserError(f"the configuration cannot be used: {reason(error)}") from error

    def _monitor_nll_if_cider_is_zero(self) -> None:
        """Monitor NLL if CIDEr is 0 for any captions."""
        vocabulary, images = self.datamodule.vocabulary, self.datamodule.splits.get("val", ())
        watched = self._option("checkpoint")["monitor"]
        tokenize = get_tokenizer(vocabulary.scored_by)
        if (
            watched != "val/CIDEr"
            or not images
            or not alike(map(tokenize, image.captions) for image in images)
        ):
            return
        note = f"val/CIDEr is {ALIKE}. The best checkpoint is that of the lowest val/NLL instead"
        rank_zero_only(say)("fit", note)
        for name, kind in (("checkpoint", ModelCheckpoint), ("early_stopping", EarlyStopping)):
            options = self._option(name)
            if options["monitor"] == watched:
                options["monitor"], options["mode"] = "val/NLL", "min"
                self.config_init[self.subcommand][name] = kind(**options)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Lightning's trainer, with this package's logs, progress bar and marked checkpoints. Creates the run's folder.

        Raises:
            UserError: the folder cannot be written to; or see `torchrun_settings`.
        """
        if self.subcommand == "fit":
            self._monitor_nll_if_cider_is_zero()
        config = self.config_init[self.config_init["subcommand"]]["trainer"]
        folder = Path(config["default_root_dir"])
        if config.get("logger") is not False and (folder / "logs").is_symlink():
            raise UserError(
                f"'{folder / 'logs'}' is a link, and logs would be written where it leads: remove it, or choose "
                "another folder with --trainer.default_root_dir"
            )
        if config.get("logger") in (None, True):
            tensorboard = TensorBoardLogger(str(folder), name="logs")
            kwargs["logger"] = [tensorboard, CSVLogger(str(folder), name="logs", version=tensorboard.version)]
        show = config.get("enable_progress_bar") is not False
        self.trainer_defaults["callbacks"] = [TrainingBar()] if show else []
        unwanted = [] if show else ["epoch_report"]
        if config.get("enable_checkpointing") is False:
            unwanted += ["checkpoint", "last_checkpoint"]
        for key in unwanted:
            self._parser(self.subcommand).callback_keys.remove(key)
        plugins = config.get("plugins") or []
        kwargs["plugins"] = [*(plugins if isinstance(plugins, list) else [plugins]), CheckpointFile()]
        trainer = super().instantiate_trainer(**torchrun_settings(config), **kwargs)
        make_folder(folder, "--trainer.default_root_dir")
        return trainer

    def fit(self, **options: Any) -> None:
        """Train, with the run's folder locked.

        Raises:
            UserError: the folder is in use, or has checkpoints of another run or files of the user under their names.
            CheckpointError: the state of the training in the checkpoint is malformed.
        """
        folder = Path(self.trainer.default_root_dir)
        with locked(folder, "--trainer.default_root_dir") if self.trainer.is_global_zero else nullcontext():
            watching: list[Any] = [*self.trainer.checkpoint_callbacks, *self.trainer.early_stopping_callbacks]
            for callback in watching:
                if getattr(callback, "monitor", None) is not None:  # of the user's own callbacks, too
                    mode_of(callback.monitor, callback.mode, type(callback).__name__)
                if not isinstance(callback, ModelCheckpoint):
                    continue
                if callback.save_last == "link":
                    # Lightning would delete whatever has the link's name, even a whole folder.
                    callback.save_last = True
                check_free(folder, callback, self._option("ckpt_path"))
            try:
                self.trainer.fit(**options)
            except Exception as error:
                # Lightning reads the file, makes the optimizers, and drops the contents when all states have been
                # restored. Callbacks, loops and schedulers restore their own states, and raise errors of any type.
                connector = self.trainer._checkpoint_connector
                restoring = connector._loaded_checkpoint or (
                    connector._ckpt_path and not self.trainer.optimizers
                )
                if not restoring or isinstance(error, UserError) or weights_do_not_fit(error):
                    raise
                raise CheckpointError(
                    f"{self.trainer.ckpt_path}: the state of the training in it is malformed, or of another version of "
                    f"Lightning ({kind_and_reason(error)}): start from its weights with model.warm_start"
                ) from error
            finally:
                # After an error in validation, Lightning keeps the workers of training, and Python would wait for them.
                self.trainer.fit_loop.teardown()

    def after_fit(self) -> None:
        """Print the best model and its score, and the next command."""
        for callback in self.trainer.checkpoint_callbacks:
            score = getattr(callback, "best_model_score", None)
            if isinstance(callback, ModelCheckpoint) and score is not None:
                path = callback.best_model_path.removeprefix(f"{os.getcwd()}{os.sep}")
                self._say(
                    f"the best model, {callback.monitor} {score:.4f}, is {path}. Next:",
                    shlex.join(["caption", "describe", "PHOTO", "--model", path]),
                )
                self._say_if_start_is_better(callback, float(score))

    def _say_if_start_is_better(self, callback: ModelCheckpoint, score: float) -> None:
        """Say that the model that training started from is better than all epochs."""
        reports = [part for part in self.trainer.callbacks if isinstance(part, EpochReport)]  # type: ignore[attr-defined]
        start = reports[0].start if reports and callback.monitor == self.model.monitor else math.nan
        if start > score if callback.mode == "max" else start < score:
            self._say(
                f"the model that training started from is better, {callback.monitor} {start:.4f}: no epoch has "
                "improved it"
            )

    def validate(self, verbose: bool, **options: Any) -> None:
        self.trainer.validate(**options, verbose=False)
        self._report(verbose)

    def test(self, verbose: bool, **options: Any) -> None:
        self.trainer.test(**options, verbose=False)
        self._report(verbose)
        self._say(f"captions and scores are in {self.trainer.log_dir}")

    def after_predict(self) -> None:
        self._say(f"captions are in {self.trainer.log_dir}/predictions.json")

    def _report(self, verbose: bool) -> None:
        """Print the scores and their signature to stdout, in place of Lightning's own table."""
        evaluation = self.model.evaluation
        if verbose and self.trainer.is_global_zero and evaluation is not None:
            for name, value in evaluation.numbers.items():
                print(f"{printable(name):25}{value:.4f}")
            for name, why in evaluation.scores.reasons.items():
                self._say(f"{name} is {why}")
            print(printable(evaluation.scores.signature))

    def _say(self, *lines: str) -> None:
        if self.trainer.is_global_zero:
            say(str(self.subcommand), *lines)


def weights_do_not_fit(error: Exception) -> bool:
    """Whether the error is from `load_state_dict`, since the weights of a checkpoint do not fit the model."""
    return isinstance(error, RuntimeError) and extract_tb(error.__traceback__)[-1].name == "load_state_dict"
