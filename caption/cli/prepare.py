"""`caption prepare`: check a downloaded data set and lay out the folder that the configurations expect."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from caption.cli.arguments import add_noun, verb_parser
from caption.cli.exit_codes import DONE, SOME_FAILED

DESCRIPTION = """\
Check a data set that you downloaded, and lay it out in the folder that the configurations expect. Nothing is
downloaded, and existing files are never overwritten. `caption prepare DATASET --help` says where to get it.
"""
EPILOG = """\
Zip and tar archives, unpacked folders and single files may be given in any number and order.

exit code: 0 all is well; 1 some photos are damaged, each is named; 2 wrong usage, or incomplete downloads; 130 stopped
by Ctrl-C: the same command goes on from there
"""


def main(args: list[str]) -> int:
    """Run `caption prepare`; EPILOG tells the exit codes."""
    from caption.data.prepare.datasets import DATASETS
    from caption.data.prepare.downloads import open_download
    from caption.data.prepare.layout import damaged_images, lay_out

    parser = verb_parser("prepare", DESCRIPTION)
    nouns = parser.add_subparsers(dest="dataset", required=True, metavar="DATASET")
    for name, dataset in DATASETS.items():
        add = add_noun(nouns, name, inspect.getdoc(dataset) or "", EPILOG).add_argument
        add("downloads", nargs="*", metavar="PATH", help="archives, folders or files, as downloaded")
        help_ = f"folder to lay out (default {dataset.folder})"
        add("--out", metavar="DIR", default=dataset.folder, help=help_)
        add("--check-only", action="store_true", help="write nothing; without PATH, check what is in --out")
    options = parser.parse_args(args)
    if not (options.downloads or options.check_only):
        nouns.choices[options.dataset].error("give the downloads, or --check-only to check what is in --out")
    paths = options.downloads or [options.out]
    plan = DATASETS[options.dataset].plan([open_download(path) for path in paths])
    print("\n".join(plan.summary), file=sys.stderr)
    if options.check_only:
        damaged = damaged_images(plan, progress=True)
    else:
        damaged = lay_out(plan, Path(options.out).expanduser(), progress=True)
    for fault in damaged:
        print(f"damaged: {fault}", file=sys.stderr)
    done = "checked" if options.check_only else f"in '{options.out}'"
    print(f"{len(plan.images) - len(damaged):,} images {done}, {len(damaged)} damaged", file=sys.stderr)
    return SOME_FAILED if damaged else DONE
