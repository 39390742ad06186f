"""Check a data set that you downloaded, and lay it out in the folder that the configurations expect. Nothing is
downloaded, and existing files are never overwritten. `caption prepare DATASET --help` says where to get it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from caption.cli.configuration.arguments import add_config, add_noun, count
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say
from caption.core.errors import UserError, printable

EPILOG = """\
Zip and tar archives, unpacked folders and single files may be given in any number and order.

exit code: 0 all is well; 1 some photos are damaged, each is named; 2 wrong usage, or incomplete downloads; 128 + N
stopped by signal N (130: Ctrl-C): the same command goes on from there
"""


SECTION = """\
data:
  shards: {{url: '{folder}'}}
  reader:
    class_path: caption.data.readers.JsonLines
    init_args: {{captions: '{folder}/evaluation.jsonl', images: '{folder}/evaluation'}}"""


def main(options: argparse.Namespace) -> int:
    """Run `caption prepare`."""
    from caption.data.prepare.datasets import DATASETS
    from caption.data.prepare.downloads import open_download
    from caption.data.prepare.layout import damaged_images, lay_out

    if options.dataset == "shards":
        return _write_shards(options)
    if not (options.downloads or options.check_only):
        raise UserError(
            "give the downloads, or --check-only to check what is in --out "
            f"(caption prepare {options.dataset} --help says where to get them)"
        )
    paths = options.downloads or [options.out]
    plan = DATASETS[options.dataset].plan([member for path in paths for member in open_download(path)])
    say("prepare", *plan.summary)
    out = Path(os.path.expanduser(options.out))
    damaged = damaged_images(plan) if options.check_only else lay_out(plan, out)
    for fault in damaged:
        say("prepare", f"damaged: {fault}")
    done = "checked" if options.check_only else f"in '{options.out}'"
    say("prepare", f"{len(plan.images) - len(damaged):,} images {done}, {len(damaged)} damaged")
    return SOME_FAILED if damaged else DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption prepare`."""
    from caption.data.prepare.datasets import DATASETS

    nouns = parser.add_subparsers(dest="dataset", required=True, metavar="DATASET")
    for name, dataset in DATASETS.items():
        add = add_noun(nouns, name, dataset.__doc__, EPILOG).add_argument
        add("downloads", nargs="*", metavar="PATH", help="archives, folders or files, as downloaded")
        help_ = f"folder to lay out (default {dataset.folder})"
        add("--out", metavar="DIR", default=dataset.folder, help=help_)
        add("--check-only", action="store_true", help="write nothing; without PATH, check what is in --out")
    _add_shards(nouns)


def _add_shards(nouns: Any) -> None:
    epilog = (
        "exit code: 0 all is written; 2 wrong usage or data; 128 + N stopped by signal N (130: Ctrl-C): the same "
        "command goes on from there"
    )
    add = add_noun(nouns, "shards", _write_shards.__doc__, epilog).add_argument
    add_config(add, "whose data.reader reads the data")
    add("--out", metavar="DIR", required=True, help="folder of the shards; made, or continued")
    add("--tokenizer", metavar="NAME", default="ptb", help="as data.tokenizer (default ptb)")
    add("--samples", metavar="N", type=count, default=1000, help="images in a shard (default 1000)")


def _write_shards(options: argparse.Namespace) -> int:
    """Write the training split as WebDataset shards

    The images and captions of the training split go into tar files, in a shuffled order, for training from a disk that
    is read from front to back or from another machine. The other splits are copied as files. The section of the
    configuration that reads both is printed. Needs the extra webdataset.
    """
    from caption.cli.configuration.parts import read_splits
    from caption.core.runtime.files import make_folder
    from caption.data.shards.writing import write_shards

    folder = Path(os.path.expanduser(options.out))
    make_folder(folder, "--out")
    index = write_shards(
        read_splits(options.config, options.overrides), folder, options.samples, options.tokenizer
    )
    say("prepare", f"{index.samples:,} samples in {len(index.shards):,} shards in '{folder}'")
    print(SECTION.format(folder=printable(folder)))
    return DONE
