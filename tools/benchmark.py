"""What training and search cost, beside the form in which attention in captioning is usually written.

    python tools/benchmark.py [--quick] [--only training,search] [--device cuda] [--write docs/performance.md]

Each section is measured by a module of its own, `speed_NAME.py`, in a process of its own. Contestants take turns, so
that other work on the machine slows all of them, and what counts is their ratio. With --only, the other sections of the
document stay as they are; those of a CPU and of a GPU stand side by side.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import platform
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from speed_common import Setting, say

FOLDER = Path(__file__).resolve().parent
ORDER = (
    "training",
    "gains",
    "search",
    "images",
    "folder",
    "kernel",
    "roofline",
    "startup",
    "pictures",
    "growth",
)
"""Of the sections in the document; others follow."""
HEAD = """\
# Performance

What a training step, a search and their parts cost, and how that compares with the form in which "Show, Attend and
Tell" is usually written ([`tools/textbook.py`](../tools/textbook.py)): the image projected at every step, the output
layer inside the loop, one copy of the image per caption, one photo at a time in search. Both forms have the same
weights; that they give the same results is part of every comparison. All of this is written by

```sh
python tools/benchmark.py --write docs/performance.md
```

Each section says on what machine, and how busy that was. Times are medians; *times as fast* is the median of the ratios
of neighbouring runs, with the smallest and the largest."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the sections as they are done, and write them into a document if asked to."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    names = sections()
    parser.add_argument("--only", metavar="NAMES", help=f"sections, with commas: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--rounds", metavar="N", type=int, help="turns of each contestant (5; 2 with --quick)"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="of a CPU; as many as PyTorch takes")
    parser.add_argument("--write", metavar="FILE", type=Path, help="document to write the sections into")
    options = parser.parse_args(given)
    wanted = options.only.split(",") if options.only else names
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"no section is called {', '.join(unknown)}: choose from {', '.join(names)}")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: leave out --device cuda")
    setting = Setting(device, options.quick, options.rounds or (2 if options.quick else 5))
    started = time.perf_counter()
    for name in wanted:
        say(f"--- {name}")
        text = measured(name, setting, options.threads or torch.get_num_threads(), given)
        print(f"{text}\n", flush=True)
        if options.write:
            put_into(options.write, key(name, device), text)
    say(f"done in {(time.perf_counter() - started) / 60:.1f} minutes")
    return 0


def sections() -> list[str]:
    """What can be measured, in the document's order."""
    found = {path.stem.removeprefix("speed_") for path in FOLDER.glob("speed_*.py")} - {"common"}
    return sorted(found, key=place)


def place(section: str) -> tuple[int, str]:
    """Sorts names or keys of sections."""
    name = section.partition(" ")[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER)), section


def key(name: str, device: torch.device) -> str:
    """A section's name in the document."""
    return name if device.type == "cpu" else f"{name} on {device.type}"


def measured(name: str, setting: Setting, threads: int, command: list[str]) -> str:
    """A section, in Markdown: its heading, what it was measured on, and what its module says.

    In a process of its own: what one section keeps of memory or sets for the whole process does not reach the next.
    """
    before = os.getloadavg()[0]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        lines = process.submit(measure, name, setting, threads).result()
    load = f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    ran = " ".join(["python tools/benchmark.py", *without_write(command)])
    heading, *rest = lines
    on = f"*{machine(setting.device, threads)}; {load}; `{ran}`.*"
    return "\n".join(
        [f"{heading}{', on a GPU' if setting.device.type == 'cuda' else ''}", "", on, *rest]
    ).rstrip()


def measure(name: str, setting: Setting, threads: int) -> list[str]:
    """The same, in this process."""
    torch.set_num_threads(threads)
    lines: list[str] = importlib.import_module(f"speed_{name}").measure(setting)
    return lines


def without_write(command: list[str]) -> list[str]:
    """Where a document was written to says nothing about how it was measured."""
    kept = [argument for argument in command if not argument.startswith("--write=")]
    if "--write" in kept:
        at = kept.index("--write")
        del kept[at : at + 2]
    return kept


def machine(device: torch.device, threads: int) -> str:
    """What it runs on."""
    processors = f"{cpu()}, {os.cpu_count()} CPUs, {threads} {'thread' if threads == 1 else 'threads'}"
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{time.strftime('%Y-%m-%d')}, {platform.system()} {platform.machine()}, {processors}{gpu}; {versions}"


def cpu() -> str:
    """The processor's name, and what it has for matrices in lower precision, where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"model name\s*: (.*)", text)
    flags = [
        name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if re.search(rf"\b{name}\b", text)
    ]
    name = found[1] if found else platform.processor() or "unknown processor"
    return f"{name} ({flags[0]})" if flags else name


def put_into(document: Path, section: str, text: str) -> None:
    """Write a section into the document, in place of the one of that name, and leave the others."""
    found = read(document) | {section: text}
    if "|" not in text and any(
        place(other)[0] == place(section)[0] and "|" in found[other] for other in found
    ):
        say(f"{section}: nothing was measured; the document keeps what was measured elsewhere")
        found.pop(section)
    parts = [HEAD, *(f"{begin(name)}\n\n{found[name]}\n\n{end(name)}" for name in sorted(found, key=place))]
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def read(document: Path) -> dict[str, str]:
    """The sections that a document has."""
    if not document.exists():
        return {}
    text = document.read_text(encoding="utf-8")
    names = re.findall(r"^<!-- section (.+) begins -->$", text, re.MULTILINE)
    return {name: text.partition(begin(name))[2].partition(end(name))[0].strip() for name in names}


def begin(section: str) -> str:
    """The line before a section."""
    return f"<!-- section {section} begins -->"


def end(section: str) -> str:
    """The line after a section."""
    return f"<!-- section {section} ends -->"


if __name__ == "__main__":
    sys.exit(main())
