"""`caption shards`: write a dataset's training split as WebDataset shards."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from caption.cli.configuration.arguments import add_config, count
from caption.cli.exit_codes import DONE
from caption.cli.printing import say
from caption.core.errors import number_of, printable

HELP = """\
Write the training split as WebDataset shards: tar files of images and captions, in a shuffled order, for training
from a disk that is read from front to back or from another machine. The other splits are copied as files. The section
of the configuration that reads both is printed. Needs the extra webdataset.

exit code: 0 everything is written; 2 wrong usage or data; 128 + N stopped by signal N (130: Ctrl-C): the same command
continues from there
"""

SECTION = """\
data:
  shards: {{url: '{folder}'}}
  reader:
    class_path: caption.data.readers.JsonLines
    init_args: {{captions: '{folder}/evaluation.jsonl', images: '{folder}/evaluation'}}
  features: null"""


def main(options: argparse.Namespace) -> int:
    """Run `caption shards`."""
    # These import torch, which takes seconds; --help must not wait for it.
    from caption.cli.configuration.parts import read_splits
    from caption.core.runtime.atomic_files import make_folder
    from caption.data.shards.writing import write_shards

    folder = Path(os.path.expanduser(options.out))
    make_folder(folder, "--out")
    splits = read_splits(options.config, options.overrides)
    index = write_shards(splits, folder, options.samples, options.tokenizer)
    counts = f"{number_of(index.samples, 'sample')} in {number_of(len(index.shards), 'shard')}"
    say("shards", f"{counts} in '{folder}'")
    print(SECTION.format(folder=printable(folder)))
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption shards`."""
    add = parser.add_argument
    add_config(add, "whose data.reader reads the data")
    add("--out", metavar="DIR", required=True, help="folder of the shards; created, or continued")
    add("--tokenizer", metavar="NAME", default="ptb", help="as data.tokenizer (default ptb)")
    add("--samples", metavar="N", type=count, default=1000, help="images in a shard (default 1000)")
