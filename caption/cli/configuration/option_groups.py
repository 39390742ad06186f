"""The help of Lightning's verbs, whose options would fill twenty screens: by groups, or those with a word."""

from __future__ import annotations

import re
import shutil
import textwrap
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable

from caption.cli.configuration.errors import keys
from caption.errors import UserError, did_you_mean

ALL = "all"
HELP = ("-h", "--help")
SUMMARIES = {
    "fit": "Train as a configuration says.",
    "validate": "Evaluate a checkpoint on the validation split.",
    "test": "Evaluate a checkpoint on the test split: captions, scores and their signature.",
    "predict": "Caption a whole split.",
}
MAIN = (
    *("config", "ckpt_path", "seed_everything", "trust", "print_config"),
    *("trainer.max_epochs", "trainer.default_root_dir", "trainer.accelerator", "trainer.precision"),
    *("data.reader", "data.batch_size", "data.features", "model.encoder", "model.decoder", "model.objective"),
    *("model.optimizer", "model.encoder_learning_rate", "model.warm_start", "early_stopping.patience"),
)
"""The options that are changed most often; the help without a group lists these."""
OPTIONS = {
    "config": "a YAML file, or a name that `caption configs` lists; may be repeated, the last one counts",
    "ckpt_path": "the checkpoint; auto, best, last: those of the run's folder",
    "print_config": "print the whole configuration, and do nothing",
    "seed_everything": "seed of all random numbers",
    "trainer.max_epochs": "number of epochs",
    "trainer.default_root_dir": "folder of the run: checkpoints and logs",
    "trainer.accelerator": "cpu, gpu, mps, auto",
    "trainer.precision": "32-true, bf16-mixed, 16-mixed, ...",
    "model.warm_start": "model with initial weights: a checkpoint, or the name of an installed one",
    "early_stopping.patience": "validations without progress after which training ends",
    "trust": "import classes of this package that a checkpoint names; its code runs",
}
"""Summaries of options, where the first sentence of their help is none or is long."""
GROUPS = {
    "trainer": "epochs, devices, precision, loggers, callbacks: Lightning's Trainer",
    "model": "encoder, decoder with its attention, objective, optimizer, search",
    "data": "captions and images, their transform, batches, vocabulary",
    "checkpoint": "which epoch is kept: Lightning's ModelCheckpoint",
    "last_checkpoint": "how often the state is saved for --ckpt_path auto",
    "early_stopping": "when training ends: Lightning's EarlyStopping",
    "attention_figures": "pictures of the attention in TensorBoard and other loggers",
    "attention_temperature": "a temperature of the attention's scores that falls to 1 early in training",
    "optimizer": "an optimizer, in place of model.optimizer",
    "lr_scheduler": "a schedule of the learning rate, in place of model.scheduler",
}


def help_topic(args: Iterable[str]) -> str | None:
    """The group or word for which a command line asks help; "" for the summary, None if it does not ask."""
    args = list(args)
    places = [place for place, arg in enumerate(args) if arg in HELP]
    if not places:
        return None
    after = args[places[0] + 1 :]
    return after[0] if after and not after[0].startswith("-") else ""


def help_text(verb: str, parser: ArgumentParser, topic: str) -> str:
    """The help of one of Lightning's verbs.

    Args:
        verb: its name.
        parser: its parser; it is changed.
        topic: "" for a summary, "all", a group, or a word of which the options are wanted.

    Raises:
        UserError: there is no such group, and no option has the word.
    """
    parser.prog = f"caption {verb}"
    if not topic:
        return _summary(verb, parser)
    parser.usage, parser.description = SUPPRESS, None
    if topic == ALL:
        return parser.format_help()
    word = topic.lstrip("-").lower()
    shown = 0
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_about(action, word)]
        shown += len(actions)
        group._group_actions, group.description = actions, None
    if not shown:
        raise UserError(
            f"no option of caption {verb} is about {topic!r}{did_you_mean(word, {*GROUPS, *keys(parser)})}: give a "
            f"word, {ALL}, or a group, which caption {verb} --help lists"
        )
    parser._action_groups = [group for group in parser._action_groups if group._group_actions]
    return parser.format_help()


def _is_about(action: Action, word: str) -> bool:
    """Whether an option belongs to a group, or else has a word in its name or its help."""
    name = _name(action)
    if word in GROUPS:
        return name.partition(".")[0] == word
    return word in name or re.search(rf"\b{re.escape(word)}", action.help or "", re.IGNORECASE) is not None


def _name(action: Action) -> str:
    """Without dashes, as a configuration has it; "" for what is no option, such as a linked argument."""
    long = (option for option in action.option_strings if option.startswith("--"))
    return next(long, "").lstrip("-").removesuffix("+")


def _summary(verb: str, parser: ArgumentParser) -> str:
    width = min(shutil.get_terminal_size().columns, 110)
    actions = {_name(action): action for action in parser._actions if _name(action)}
    main = {_spelled(actions[name]): _first_sentence(actions[name]) for name in MAIN if name in actions}
    groups = {}
    for group, summary in GROUPS.items():
        names = [name for name in actions if name.partition(".")[0] == group and not name.endswith(".help")]
        options = [name for name in names if name != group] or names
        if options:
            groups[group] = f"{summary} ({len(options)} option{'s' * (len(options) != 1)})"
    return "\n".join(
        [
            f"usage: caption {verb} -c CONFIG [-c CONFIG ...] [--GROUP.OPTION VALUE ...]",
            "",
            f"{SUMMARIES[verb]} Every entry of a configuration is an option: --trainer.max_epochs 3.",
            "",
            "options that are changed most often:",
            *_columns(main, width),
            "",
            f"groups of options; --help GROUP lists one, --help WORD all options with this word, --help {ALL} all:",
            *_columns(groups, width),
            "",
            "--model.decoder.help CLASS, and so on for other parts, lists the arguments of a class.",
            "",
        ]
    )


def _spelled(action: Action) -> str:
    return ", ".join(option for option in action.option_strings if not option.endswith("+"))


def _first_sentence(action: Action) -> str:
    if (known := OPTIONS.get(_name(action))) is not None:
        return known
    text = " ".join((action.help or "").replace("``", "").split())
    sentence = re.split(r"[.;](?:\s|$)", text, maxsplit=1)[0]
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _columns(rows: dict[str, str], width: int) -> list[str]:
    """Names and texts in two columns; the second one is wrapped."""
    left = max(map(len, rows), default=0) + 4
    lines = []
    for name, text in rows.items():
        first, *others = textwrap.wrap(text, max(30, width - left)) or [""]
        lines += [f"  {name:<{left - 2}}{first}".rstrip(), *(" " * left + line for line in others)]
    return lines
