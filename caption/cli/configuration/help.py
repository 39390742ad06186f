"""The help of Lightning's verbs, whose options would fill twenty screens: the main ones, or those with a word."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Sequence

from caption.cli.configuration.errors import keys
from caption.cli.main import VERBS
from caption.errors import UserError, did_you_mean

ALL = "all"
SUMMARY = """\
usage: caption {verb} -c CONFIG [-c CONFIG ...] [--GROUP.OPTION VALUE ...]

{summary}. Every entry of a configuration is an option: --trainer.max_epochs 3.

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

groups: trainer, model, data, checkpoint (which epoch is kept), last_checkpoint (how often the state is saved),
early_stopping, attention_figures (in TensorBoard), attention_temperature, optimizer, lr_scheduler. --help GROUP lists
one, --help WORD all options with this word in their name, --help all all.

--model.decoder.help CLASS, and so on for other parts, lists the arguments of a class.
"""


def help_word(args: Sequence[str]) -> str | None:
    """The word about which a command line asks help; "" for the summary, None if it does not ask."""
    place = next((place for place, arg in enumerate(args) if arg in ("-h", "--help")), None)
    if place is None:
        return None
    return next((word for word in args[place + 1 : place + 2] if not word.startswith("-")), "")


def help_text(verb: str, parser: ArgumentParser, word: str) -> str:
    """The help of one of Lightning's verbs.

    Args:
        verb: its name.
        parser: its parser; it is changed.
        word: "" for the summary, "all", or a part of the names of the options that are wanted.

    Raises:
        UserError: no option has the word.
    """
    if not word:
        return SUMMARY.format(verb=verb, summary=VERBS[verb][1].capitalize())
    parser.usage = SUPPRESS
    if word == ALL:
        return parser.format_help()
    for group in parser._action_groups:
        group._group_actions = [
            action for action in group._group_actions if word in " ".join(action.option_strings)
        ]
    parser._action_groups = [group for group in parser._action_groups if group._group_actions]
    if not parser._action_groups:
        names = set(keys(parser))
        hint = did_you_mean(word, names | {name.partition(".")[0] for name in names})
        raise UserError(f"no option has {word!r} in its name{hint}; caption {verb} --help lists the groups")
    return parser.format_help()
