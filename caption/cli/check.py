"""`caption check`: what is wrong with a data set, before anything is trained on it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from caption.cli.arguments import count
from caption.data.readers.captions import SPLIT_NAMES
from caption.data.readers.findings import KINDS
from caption.errors import DataError

DESCRIPTION = """\
Read a data set as training would, go on behind every fault, decode and compare all images, count words. The report
goes to stdout. DATA is a training configuration (.yaml), whose section data is used, or a file or folder of captions:
COCO captions JSON, Karpathy's JSON, a Flickr token file, CSV with the columns image and caption, JSON lines with such
keys. Which of these it is shows in its content.
"""
EPILOG = f"""\
faults: {", ".join(kind.name for kind in KINDS if kind.is_fault)}.
notes: {", ".join(kind.name for kind in KINDS if not kind.is_fault)}.

exit code: 0 no faults, whatever the notes; 1 faults: training on the data would be wrong; 2 wrong usage, or DATA is
nothing that can be checked; 130 stopped by Ctrl-C, after a report of what was found until then. See docs/data.md.
"""

CONFIGURATIONS = (".yaml", ".yml")
INTERRUPTED = 130


def main(args: list[str]) -> int:
    """Run `caption check`.

    Returns:
        0: no faults; 1: faults; 130: stopped.

    Raises:
        UserError: DATA is nothing that can be checked, or the options do not fit it.
        SystemExit: with code 2 for wrong usage, with 0 after --help.
    """
    parser = _parser()
    options = parser.parse_args(args)
    images, splits = _by_split(options.images), _by_split(options.splits)
    if "" in splits:
        parser.error("argument --splits: expected SPLIT=FILE or SPLIT=FRACTION")
    is_config = PurePath(options.data).suffix.lower() in CONFIGURATIONS
    if is_config and (images or splits):
        parser.error("--images and --splits are for captions, a configuration says these itself")

    # Not before: these import torch, which takes seconds, and --help must not wait for it.
    from caption.cli.check_report import as_json, as_text
    from caption.data.check.dataset import MAX_WORDS, MIN_COUNT, check_data
    from caption.data.check.readers import reader_for
    from caption.data.readers.captions import CaptionReader
    from caption.parts import make

    section = _data_section(options.data) if is_config else {}
    spec = section["reader"] if is_config else reader_for(options.data, images, splits)
    limits: dict[str, Any] = {
        "tokenizer": options.tokenizer or section.get("tokenizer") or "ptb",
        "min_count": options.min_count or section.get("min_count") or MIN_COUNT,
        "max_words": options.max_words or section.get("max_words") or MAX_WORDS,
    }
    reader = make(spec, CaptionReader)  # type: ignore[type-abstract]
    check = check_data(reader, **limits, workers=options.workers, progress=True)
    if options.format == "json":
        print(as_json(options.data, spec, limits, check))
    else:
        print(as_text(options.data, spec, limits, check, recognised=not is_config))
    if not check.complete:
        return INTERRUPTED
    return 1 if check.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "caption check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="configuration, caption file, or folder with caption files")
    add(
        "--images",
        nargs="+",
        default=[],
        metavar="[SPLIT=]DIR",
        help="folder of the images, for COCO one for each split if need be; default: where they are found, beside "
        "the captions or in a folder there",
    )
    add(
        "--splits",
        nargs="+",
        default=[],
        metavar="SPLIT=FILE|FRACTION",
        help="captions JSON of each split (COCO), list of each split's images (Flickr), or fractions, for CSV and JSON "
        "lines without splits: train=0.8 val=0.1 test=0.1; default for files: what their names tell",
    )
    add(
        "--max-words",
        type=count,
        metavar="N",
        help="more are an over-long caption; default the data's, or 50",
    )
    add(
        "--min-count",
        type=count,
        metavar="N",
        help="rarer words of the training captions are unknown; default the data's, or 5",
    )
    add("--tokenizer", metavar="T", help="what cuts captions into words; default the data's, or ptb")
    add("--workers", type=count, metavar="N", help="threads that decode (default: the processors, up to 16)")
    add(
        "--format",
        choices=("text", "json"),
        default="text",
        help="of stdout; default text; json cuts no list",
    )
    return parser


def _by_split(entries: list[str]) -> dict[str, str]:
    """`SPLIT=VALUE` by split; a value without split under ""."""
    found: dict[str, str] = {}
    for entry in entries:
        split, equals, value = entry.partition("=")
        if not (equals and split in SPLIT_NAMES):
            split, value = "", entry
        if split in found:
            raise DataError(f"'{entry}' is one too many: give one value for {split or 'all splits'}.")
        found[split] = value
    return found


def _data_section(path: str) -> Mapping[str, Any]:
    """The section data of a configuration, its reader as class path and arguments."""
    from caption.cli.configuration import read_configuration

    section = read_configuration(path).get("data")
    reader = section.get("reader") if isinstance(section, dict) else None
    if isinstance(reader, str):  # a class that needs no arguments
        reader = {"class_path": reader}
    if not (isinstance(section, dict) and isinstance(reader, dict) and "class_path" in reader):
        raise DataError(f"'{path}' has no data.reader with a class_path: add it.")
    spec = {"class_path": reader["class_path"], "init_args": reader.get("init_args") or {}}
    return {**section, "reader": spec}
