"""The cost of training and search, beside that of the usual implementations of attention in captioning."""

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
from tools.benchmark import sgrvinod
from tools.benchmark.harness import Setting, measure_section, new_process, say
from tools.documents import read_sections, write_sections

HELP = """\
The cost of training and search, beside that of the usual implementations of attention in captioning.

    python -m tools.benchmark [--quick] [--only training,search] [--device cuda] [--write docs/results/benchmarks.md]

Each section is measured in a process of its own. Contestants take turns, so that other work on the machine slows all of
them; only their ratio counts. --write replaces the sections measured, those of a GPU apart from those of a CPU.
"""

SECTIONS = ("training", "search", "sgrvinod", "photos", "foreign", "explore", "forms", "parts")
"""Each is measured by the function of this name in the module of this name."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the sections one after the other, and with --write, write them into a document."""
    parser = make_parser("benchmark", HELP)
    parser.add_argument("--only", metavar="NAMES", help=f"sections, with commas: {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--rounds", metavar="N", type=int, help="turns of each contestant (5; 2 with --quick)"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads of the CPU; default: PyTorch's")
    parser.add_argument(
        "--sgrvinod",
        metavar="FOLDER",
        type=Path,
        help="a clone of sgrvinod's tutorial, for the section sgrvinod",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="for the numbers of the section forms or parts"
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help="document to write the sections into")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else SECTIONS
    if unknown := sorted(set(names) - set(SECTIONS)):
        parser.error(f"no section is called {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: leave out --device cuda")
    folder = options.sgrvinod
    if missing := [file for file in sgrvinod.FILES if folder and not (folder / file).is_file()]:
        parser.error(f"{folder} has no {' and no '.join(missing)}: {sgrvinod.CLONE}, and name its folder")
    rounds = options.rounds or (2 if options.quick else 5)
    setting = Setting(
        device, options.quick, rounds, options.threads or torch.get_num_threads(), folder, options.json
    )
    if options.write and (
        missing := sorted({section_name(name, device) for name in names} - {*read_sections(options.write)})
    ):
        parser.error(
            f"{options.write} has no section {', '.join(missing)}: add the lines of tools/documents.py"
        )
    for name in names:
        say(f"--- {name}")
        load = os.getloadavg()[0]
        with new_process(threads=setting.threads) as process:
            text = process.submit(measure_section, name, setting).result()
        if "|" not in text:
            say(text)  # the reason why nothing was measured
            continue
        text = f"{about(setting, name, load)}\n\n{text}"
        print(f"## {name}\n\n{text}\n", flush=True)
        if options.write:
            write_sections(options.write, {section_name(name, device): text})
    return 0


def section_name(name: str, device: torch.device) -> str:
    """The name of a section in its document."""
    return name if device.type == "cpu" else f"{name} on {device.type}"


def about(setting: Setting, section: str, load: float) -> str:
    """The machine, its load, and the command that repeats the measurement."""
    parts = [time.strftime("%Y-%m-%d"), f"{platform.system()} {platform.machine()}", cpu()]
    parts += [
        f"{os.cpu_count()} CPUs",
        f"{setting.threads} {'thread' if setting.threads == 1 else 'threads'}",
    ]
    if setting.device.type == "cuda":
        parts.append(torch.cuda.get_device_name(setting.device))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    busy = f"load average {load:.1f} before and {os.getloadavg()[0]:.1f} after"
    options = ["--only", section, "--device", setting.device.type, "--rounds", str(setting.rounds)]
    if section == "sgrvinod":
        options += ["--sgrvinod", "FOLDER"]
    command = shlex.join(["python", "-m", "tools.benchmark", *options, *["--quick"] * setting.quick])
    return f"*{', '.join(parts)}; {versions}; {busy}; `{command}`.*"


def cpu() -> str:
    """The processor's name, and its instructions for matrices in lower precision, where the system has both."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"model name\s*: (.*)", text)
    name = match[1] if match else platform.processor() or "unknown processor"
    extensions = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
    flags = [flag for flag in extensions if re.search(rf"\b{flag}\b", text)]
    return f"{name} ({flags[0]})" if flags else name


if __name__ == "__main__":
    sys.exit(main())
