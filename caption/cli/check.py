"""`caption check`: find faults in a dataset before training on it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from caption.cli.configuration.arguments import count
from caption.cli.configuration.config_files import config_names
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import json_text, say, text_table
from caption.core.errors import DataError, UserError, did_you_mean, number_of, printable
from caption.core.runtime.outputs import new_file
from caption.data.findings import Kind
from caption.data.splits import SPLIT_NAMES

if TYPE_CHECKING:
    from caption.core.parts import Spec
    from caption.data.check import Check, Limits
    from caption.text.vocabulary import Vocabulary

HELP = """\
Read a data set as training does, continue after every fault, decode and compare all images, and count words. The
report goes to stdout. DATA is a training configuration (.yaml, or a name), whose section data is used, or a file or
folder of captions: COCO captions JSON, Karpathy's JSON, a Flickr token file, CSV with the columns image and caption, or
JSON lines with these keys. The format is detected from the content.
"""

EPILOG = f"""\
faults: {", ".join(kind.label for kind in Kind if kind.is_fault)}.
notes: {", ".join(kind.label for kind in Kind if not kind.is_fault)}.

exit code: 0 no faults, with or without notes; 1 faults, which would spoil training or its scores; 2 wrong usage, or
DATA cannot be checked; 128 + N stopped by signal N (130: Ctrl-C), after a report of the findings so far. See
docs/data.md.
"""

CONFIGURATIONS = (".yaml", ".yml")
BASE = "own_photos"
FRACTIONS = {"train": "0.7", "val": "0.15", "test": "0.15"}
"""Fractions for data without splits."""
SHOWN = 10
"""Number of findings of a kind that the text report lists."""


def main(options: argparse.Namespace) -> int:
    """Run `caption check`."""
    plan = _plan(options)

    # These import torch, which takes seconds that --help should not take.
    from caption.core.runtime.trust import class_paths, make
    from caption.data.check import check_data
    from caption.data.readers.base import CaptionReader

    config, spec = _config_and_reader(plan)
    limits = _limits(plan.options, config)
    reader = make(spec, CaptionReader, trust=class_paths(spec))  # type: ignore[type-abstract]
    check = check_data(reader, limits, _base_vocabulary(config))
    report = make_report(plan.options.data, spec, limits, check)
    as_json = plan.options.format == "json"
    print(json_text(report, indent=1) if as_json else as_text(report, check, detected=not plan.is_config))
    if check.stop is not None:
        raise check.stop
    if plan.output and not check.faults:
        _write(plan.output, plan.options, spec, limits, check)
    return SOME_FAILED if check.faults else DONE


class Plan(NamedTuple):
    """The checked options."""

    options: argparse.Namespace
    is_config: bool
    """Whether DATA is a configuration."""
    images: Mapping[str, str]
    """Folders by split; one for all under ""."""
    splits: Mapping[str, str]
    """Files or fractions."""
    output: Path | None
    """The configuration to write."""


def _plan(options: argparse.Namespace) -> Plan:
    images, splits = _by_split(options.images), _by_split(options.splits)
    if "" in splits:
        name, equals, _ = splits[""].partition("=")
        known = f"the splits are {', '.join(SPLIT_NAMES)}{did_you_mean(name, SPLIT_NAMES)}"
        problem = known if equals else "write SPLIT=FILE or SPLIT=FRACTION, such as train=0.8"
        raise UserError(f"--splits {printable(splits[''])}: {problem}")
    is_config = PurePath(options.data).suffix.lower() in CONFIGURATIONS or (
        options.data in config_names() and not Path(options.data).exists()
    )
    if is_config and (images or splits):
        raise UserError("--images and --splits are for captions; a configuration has its own")
    if is_config and options.write:
        raise UserError("--write is for captions: here, DATA is a configuration already")
    for folder in map(Path, images.values()):
        if not folder.is_dir():
            beside = [path.name for path in folder.parent.glob("*") if path.is_dir()]
            raise UserError(f"--images {folder}: there is no such folder{did_you_mean(folder.name, beside)}")
    output = new_file(options.write, CONFIGURATIONS, "--write") if options.write else None
    return Plan(options, is_config, images, splits, output)


def _config_and_reader(plan: Plan) -> tuple[Mapping[str, Any], Spec]:
    """The configuration that is checked, or else the base, and the reader of the data."""
    from caption.cli.configuration.config_files import read_config
    from caption.data.readers.detect import reader_for

    data = plan.options.data
    if plan.is_config:
        from caption.cli.configuration.parts import read_parts

        return read_config(data), read_parts([data], names=["data.reader"])["data.reader"].as_dict()
    splits = plan.splits or _missing_splits(data, plan.images)
    return read_config(plan.options.base), reader_for(data, plan.images, splits)


def _limits(options: argparse.Namespace, config: Mapping[str, Any]) -> Limits:
    """The limits of the command line, otherwise those of the configuration, otherwise the defaults."""
    from caption.data.check import Limits
    from caption.data.text_files import field

    section = config.get("data") or {}
    limits = asdict(Limits())
    for key, default in limits.items():
        if section.get(key) is not None:
            kind = str if key == "tokenizer" else int
            field(section, key, kind, f"the section data of '{options.data}'")
        limits[key] = getattr(options, key, None) or section.get(key) or default
    return Limits(**limits)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption check`."""
    parser.epilog = EPILOG
    add = parser.add_argument
    add("data", metavar="DATA", help="configuration, caption file, or folder with caption files")
    help_ = (
        "folder of the images, for COCO one for each split if they differ (default: found beside the captions or in a "
        "folder there)"
    )
    add("--images", nargs="+", default=[], metavar="[SPLIT=]DIR", help=help_)
    help_ = (
        "fractions for data without splits: train=0.8 val=0.1 test=0.1; or the captions JSON of each split (COCO), or "
        "the list of each split's images (Flickr) (default for files: by their names; train=0.7 val=0.15 test=0.15 for "
        "data that names none)"
    )
    add("--splits", nargs="+", default=[], metavar="SPLIT=FILE|FRACTION", help=help_)
    from_data = "(default: the configuration's, or {})"
    add("--max-words", type=count, metavar="N", help=f"words of the longest caption {from_data.format(50)}")
    help_ = f"how often a training word must occur to be known {from_data.format(5)}"
    add("--min-count", type=count, metavar="N", help=help_)
    add("--tokenizer", metavar="T", help=f"splits captions into words {from_data.format('ptb')}")
    help_ = "write a whole configuration for this data, if it has no faults"
    add("--write", metavar="FILE.yaml", help=help_)
    help_ = (
        "configuration to train with, a file or a name, whose words are known and which --write changes (default "
        f"{BASE}, which starts from the model photos)"
    )
    add("--base", default=BASE, metavar="CONFIG", help=help_)
    help_ = "of the report (default text); json names every finding"
    add("--format", choices=("text", "json"), default="text", help=help_)


def _write(path: Path, options: argparse.Namespace, spec: Spec, limits: Limits, check: Check) -> None:
    """Write the configuration for --write, and print the commands that use it."""
    from caption.cli.configuration.own_data import (
        next_commands,
        own_data_configuration,
        write_configuration,
    )

    used: dict[str, Any] = {"tokenizer": limits.tokenizer, "min_count": limits.min_count}
    if options.max_words:  # otherwise training does not cut
        used["max_words"] = options.max_words
    config = own_data_configuration(options.base, path.stem, spec, used, check)
    write_configuration(path, config, options.data, options.base)
    say("check", f"wrote {path}. Next:", *next_commands(path, config))


def _base_vocabulary(config: Mapping[str, Any]) -> Vocabulary | None:
    """The vocabulary of the model that training starts from; None without such a model, or if it does not exist yet."""
    from caption.cli.configuration.own_data import warm_start
    from caption.core.errors import UserError
    from caption.models import model_zoo

    if (model := warm_start(config)) is None:
        return None
    try:
        return model_zoo.vocabulary(model)
    except UserError:  # training reports the reason
        return None


def _missing_splits(data: str, images: Mapping[str, str]) -> Mapping[str, str]:
    """Fractions for data without splits, with a note on stderr; {} for other data.

    Raises:
        DataError: the data has no known format.
    """
    from caption.core.runtime.trust import make
    from caption.data.findings import Findings
    from caption.data.readers.base import CaptionReader
    from caption.data.readers.detect import reader_for

    try:
        spec = reader_for(data, images, {})
        reader = make(spec, CaptionReader)  # type: ignore[type-abstract]
        if spec["init_args"].get("splits") or set(reader.survey(Findings())) != {"train"}:
            return {}
    except DataError as error:  # a token file without lists
        try:
            reader_for(data, images, FRACTIONS)
        except DataError:
            raise error from None
    else:
        try:  # the data may name training images alone
            make(reader_for(data, images, FRACTIONS), CaptionReader).survey(Findings())  # type: ignore[type-abstract]
        except DataError:
            return {}
    fractions = " ".join(f"{split}={fraction}" for split, fraction in FRACTIONS.items())
    say("check", f"the data has no splits, so they are {fractions} (change with --splits)")
    return FRACTIONS


def _by_split(entries: list[str]) -> dict[str, str]:
    """`SPLIT=VALUE` by split; a value without split under ""."""
    by_split: dict[str, str] = {}
    for entry in entries:
        split, equals, value = entry.partition("=")
        if not (equals and split in SPLIT_NAMES):
            split, value = "", entry
        if split in by_split:
            raise DataError(f"'{entry}' is one too many: give one value for {split or 'all splits'}.")
        by_split[split] = value
    return by_split


def make_report(data: str, reader: Spec, limits: Limits, check: Check) -> dict[str, Any]:
    """The report in plain types, with all findings: faults first, by kind."""
    findings = [finding for kind in Kind for finding in check.findings.of_kind(kind)]
    return {
        "data": data,
        "reader": reader,
        "limits": asdict(limits),
        "complete": check.stop is None,
        "faults": len(check.faults),
        "notes": len(check.notes),
        "images": {"files": check.images, "examined": check.examined},
        "vocabulary": check.words,
        "splits": {split: summary.to_dict() for split, summary in check.splits.items()},
        "findings": [
            {
                "kind": finding.kind.label,
                "fault": finding.kind.is_fault,
                "text": finding.text,
                "images": list(finding.images),
            }
            for finding in findings
        ],
    }


def as_text(report: Mapping[str, Any], check: Check, detected: bool) -> str:
    """The report for people: the numbers, the findings by kind, faults first, and the verdict.

    If the reader was `detected` from the content of the data, the report shows how to configure it.
    """
    data, reader, limits = report["data"], report["reader"], report["limits"]
    parts = [data]
    if check.splits:
        parts = [f"{data}: {reader['class_path']}", _table(report["splits"])]
    if check.vocabulary is not None:
        rule = f"training captions, count {limits['min_count']} or more, tokenizer {limits['tokenizer']}"
        if check.base_vocabulary is not None:
            new = len(check.vocabulary) - len(check.base_vocabulary)
            rule = f"those of the model that training starts from, and {new:,} new; {rule}"
        parts.append(f"vocabulary: {check.words:,} words ({rule})")
    if check.images:
        of_all = "" if check.stop is None else f" of {check.images:,}"
        stopped = "" if check.stop is None else ", then stopped"
        parts[-1] += f"\nimages: {check.examined:,}{of_all} decoded and compared{stopped}"
    for kind in Kind:
        if findings := check.findings.of_kind(kind):
            lines = [f"{'FAULT' if kind.is_fault else 'note'}: {kind.counted(len(findings))}. {kind.remedy}"]
            lines += [f"  {printable(finding.text)}" for finding in findings[:SHOWN]]
            if len(findings) > SHOWN:
                lines.append(f"  and {len(findings) - SHOWN:,} more, which --format json lists")
            parts.append("\n".join(lines))
    if detected:
        import yaml

        section = yaml.safe_dump({"data": {"reader": dict(reader)}}, sort_keys=False, allow_unicode=True)
        parts.append("\n  ".join(["in a configuration:", *section.splitlines()]))
    faults, notes = len(check.faults), len(check.notes)
    counts = f"{number_of(faults, 'fault')}, {number_of(notes, 'note')}"
    if faults:
        parts.append(f"{counts}: mend the faults before training on this data.")
    else:
        parts.append(f"{counts} so far." if check.stop else f"{counts}: this data can be trained on.")
    return "\n\n".join(parts)


def _table(splits: Mapping[str, dict[str, Any]]) -> str:
    rows = [["", "images", "captions", "per image", "words", "per caption", "longest", "unknown words"]]
    for split, numbers in splits.items():
        captions, words, unknown = (
            numbers[key] for key in ("captions_per_image", "words_per_caption", "unknown_rate")
        )
        spread = f"{captions['most']}"
        if captions["fewest"] < captions["most"]:
            spread = f"{captions['fewest']} to {captions['most']}, mean {captions['mean']:.2f}"
        counts = [f"{numbers['images']:,}", f"{numbers['captions']:,}", spread, f"{numbers['words']:,}"]
        share = "–" if unknown is None else f"{100 * unknown:.2f} %"
        rows.append([split, *counts, f"{words['mean']:.1f}", f"{words['most']}", share])
    return text_table(rows)
