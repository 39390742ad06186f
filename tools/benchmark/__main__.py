"""What training and search cost, beside the form in which attention in captioning is usually written.

    python -m tools.benchmark [--quick] [--only training,search] [--device cuda] [--write docs/performance.md]
    python -m tools.benchmark --against ../other-checkout [--rounds 5]

Each section is measured in a process of its own. Contestants take turns, so that other work on the machine slows all of
them; their ratio is what counts. With --only, the other sections of the document stay as they are; the sections of a
GPU stand behind those of a CPU. With --against, training step, beam search and memory of two checkouts are compared.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import time
from pathlib import Path

import torch

from tools import make_parser
from tools.benchmark.against import compare
from tools.benchmark.harness import Setting, in_process, measure_section, say
from tools.documents import add_section, read_sections

SECTIONS = (
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
    "scores",
)
MODULES = {"gains": "training", "images": "photos", "folder": "photos"}
"""Where a section is measured, if not in the module of its name."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the sections as they are done, and write them into a document if asked to."""
    parser = make_parser("benchmark", __doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"sections, with commas: {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--rounds", metavar="N", type=int, help="turns of each contestant (5; 2 with --quick)"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads of the CPU; default: PyTorch's")
    parser.add_argument("--captions", metavar="FILE", type=Path, help="captions to score; default: made up")
    parser.add_argument("--write", metavar="FILE", type=Path, help="document to write the sections into")
    parser.add_argument(
        "--against", metavar="CHECKOUT", type=Path, help="compare with this checkout, and print only"
    )
    options = parser.parse_args(arguments)
    wanted = options.only.split(",") if options.only else SECTIONS
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        parser.error(f"no section is called {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: leave out --device cuda")
    setting = Setting(device, options.quick, options.rounds or (2 if options.quick else 5), options.captions)
    threads = options.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    if options.against:
        load = os.getloadavg()[0]
        text = compare(options.against, setting)
        print(f"{about(setting, ['--against', str(options.against)], load)}\n\n{text}")
        return 0
    started = time.perf_counter()
    for name in wanted:
        say(f"--- {name}")
        before = os.getloadavg()[0]
        text = in_process(measure_section, MODULES.get(name, name), name, setting, threads)
        text = f"{about(setting, ['--only', name], before)}\n\n{text}"
        print(f"## {name}\n\n{text}\n", flush=True)
        if options.write:
            write(options.write, name, device, text)
    say(f"done in {(time.perf_counter() - started) / 60:.1f} minutes")
    return 0


def write(document: Path, name: str, device: torch.device, text: str) -> None:
    """Write a section, unless nothing was measured and the document has figures from elsewhere."""
    section = name if device.type == "cpu" else f"{name} on {device.type}"
    found = read_sections(document)
    if "|" not in text and any("|" in found.get(other, "") for other in (name, section, f"{name} on cuda")):
        say(f"{section}: nothing was measured; the document keeps what was measured elsewhere")
        return
    add_section(document, section, text, after=name)


def about(setting: Setting, what: list[str], load: float) -> str:
    """The machine, how busy it was, and the command that measures the same again."""
    threads = torch.get_num_threads()
    parts = [time.strftime("%Y-%m-%d"), f"{platform.system()} {platform.machine()}", cpu()]
    parts += [f"{os.cpu_count()} CPUs", f"{threads} {'thread' if threads == 1 else 'threads'}"]
    if setting.device.type == "cuda":
        parts.append(torch.cuda.get_device_name(setting.device))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    busy = f"load average {load:.1f} before and {os.getloadavg()[0]:.1f} after"
    options = [*what, "--device", setting.device.type, "--rounds", str(setting.rounds)]
    ran = shlex.join(["python", "-m", "tools.benchmark", *options, *(["--quick"] if setting.quick else [])])
    return f"*{', '.join(parts)}; {versions}; {busy}; `{ran}`.*"


def cpu() -> str:
    """The processor's name, and what it has for matrices in lower precision, where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"model name\s*: (.*)", text)
    name = found[1] if found else platform.processor() or "unknown processor"
    extensions = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
    flags = [flag for flag in extensions if re.search(rf"\b{flag}\b", text)]
    return f"{name} ({flags[0]})" if flags else name


if __name__ == "__main__":
    sys.exit(main())
