"""`caption fit`, `validate`, `test` and `predict`: Lightning's verbs, their help and their errors."""

from __future__ import annotations

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from caption.cli.configuration.config_files import with_layers
from caption.cli.configuration.from_checkpoint import with_checkpoint_configuration
from caption.cli.exit_codes import DONE
from caption.cli.main import VERBS
from caption.cli.training.lightning_cli import CaptionCLI, ConfigurationFile, Parser, weights_do_not_fit
from caption.cli.training.quiet import quiet
from caption.core.errors import CheckpointError, Stopped, UserError
from caption.core.runtime.distributed import leave_process_group
from caption.data.module import CaptionData
from caption.training.module import CaptionTraining

HELP = """\
Every entry of a configuration is an option: --trainer.max_epochs 3.

options that are changed most often:
  -c, --config                      a YAML file, or a name that `caption configs` lists; may be repeated, the last one
                                    counts
  --ckpt_path                       the checkpoint; auto, best, last: those of the run's folder
  --seed_everything                 seed of all random numbers
  --trust                           import classes of this package that a checkpoint names; its code runs
  --print_config                    print the whole configuration, and do nothing
  --trainer.max_epochs              number of epochs
  --trainer.default_root_dir        folder of the run: checkpoints and logs
  --trainer.accelerator             cpu, gpu, mps, auto
  --trainer.precision               32-true, bf16-mixed, 16-mixed, ...
  --data.reader                     reads the captions
  --data.batch_size                 images in a batch
  --data.features                   folder of precomputed regions, from caption features
  --model.encoder                   image to regions
  --model.decoder                   regions to words, with its attention
  --model.objective                 what is minimised
  --model.optimizer                 for the decoder
  --model.encoder_learning_rate     fine-tunes the encoder
  --model.warm_start                model with initial weights: a checkpoint, or the name of an installed one
  --early_stopping.patience         validations without progress after which training ends
  --epoch_report.samples            number of captions to print after each validation

groups: trainer, model, data, checkpoint (which epoch is kept), last_checkpoint (how often the state is saved),
early_stopping, epoch_report (what is printed), attention_figures (in TensorBoard), attention_temperature, optimizer,
lr_scheduler. --help all lists all options of all groups.

--model.decoder.help CLASS, and so on for other parts, lists the arguments of a class.
"""


def main(args: list[str]) -> int:
    """Run one of Lightning's verbs; `args` begins with the verb."""
    if asked := [place for place, arg in enumerate(args) if arg in ("-h", "--help")]:
        if args[asked[0] + 1 :] == ["all"]:
            run([args[0], "--help"])  # exits
        usage = f"usage: caption {args[0]} -c CONFIG [-c CONFIG ...] [--GROUP.OPTION VALUE ...]"
        print(f"{usage}\n\n{VERBS[args[0]][1].capitalize()}. {HELP}", end="")
        return DONE
    enough = ("-c", "--config", "--model.decoder", *["--ckpt_path"] * (args[0] != "fit"))
    if not any(arg.startswith(enough) or ".help" in arg for arg in args):
        raise UserError(
            f"caption {args[0]} needs a configuration: name one, such as -c shapes_soft (caption configs lists them)"
        )
    try:
        run(args)
    except Stopped as stop:
        if args[0] == "fit":
            stop.hint = "continue with the same command and --ckpt_path auto"
        leave_process_group()
        raise
    leave_process_group()
    return DONE


def run(args: list[str]) -> CaptionCLI:
    """Like `main`, but returns the command with its trainer, model and data."""
    args = with_checkpoint_configuration(with_layers(args))
    torch.set_float32_matmul_precision("high")
    try:
        with quiet(evaluating=args[0] != "fit"):
            return CaptionCLI(
                CaptionTraining,
                CaptionData,
                args=args,
                seed_everything_default=0,
                save_config_callback=ConfigurationFile,
                save_config_kwargs={"save_to_log_dir": False},
                parser_class=Parser,
                parser_kwargs={"prog": "caption", "default_env": False},
            )
    except SystemExit as leaving:  # Lightning exits like this after Ctrl-C
        if isinstance(leaving.__context__, KeyboardInterrupt):
            raise leaving.__context__ from None
        raise
    except MisconfigurationException as error:
        raise UserError(f"the configuration cannot be used: {error}") from error
    except RuntimeError as error:
        if str(error).startswith("DataLoader worker (pid"):
            raise UserError(
                "a process that reads images was ended by the system, usually because the memory was full: lower "
                "data.workers or data.batch_size, and go on from the last checkpoint with --ckpt_path auto"
            ) from error
        if not weights_do_not_fit(error):
            raise
        raise CheckpointError(f"the checkpoint does not fit this configuration: {error}") from error
