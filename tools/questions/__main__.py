"""Questions about attention that surveys leave open, and that Shapes can answer: docs/results/questions.md.

    python -m tools.questions                      # all of them, about 75 minutes on one core
    python -m tools.questions relations hops       # some, about 5 minutes each; sentinel takes 25
    python -m tools.questions hops --seeds 0 1 2

Each question trains what it needs by `caption fit` into --out, measures, and writes its section of the document and a
figure beside it. Stop it at any moment: the same command goes on, and trainings that are done are not repeated. Further
arguments go to `caption fit`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from caption.runtime.files import replacing_own
from caption.visualize import save_figure
from tools import make_parser
from tools.documents import write_sections
from tools.questions import dilution, encoders, hops, knowing, relations, sentinel
from tools.questions.bench import Answer, Bench

QUESTIONS: dict[str, Callable[[Bench, Sequence[int]], Answer]] = {
    "relations": relations.ask,
    "hops": hops.ask,
    "dilution": dilution.ask,
    "encoders": encoders.ask,
    "knowing": knowing.ask,
    "sentinel": sentinel.ask,
}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "results" / "questions.md"


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("questions", __doc__)
    add = parser.add_argument
    add("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; default all")
    add(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="of the trainings; default 0 1 2"
    )
    add("--out", type=Path, default=Path("runs/questions"), metavar="DIR", help="default runs/questions")
    add(
        "--document", type=Path, default=DOCUMENT, metavar="FILE.md", help="default docs/results/questions.md"
    )
    options, more = parser.parse_known_args(args)
    if unknown := [name for name in options.questions if name not in QUESTIONS]:
        parser.error(f"no question is called {unknown[0]}: choose from {', '.join(QUESTIONS)}")
    bench = Bench(options.out, more)
    for name in options.questions or QUESTIONS:
        answer = QUESTIONS[name](bench, options.seeds)
        document: Path = options.document
        picture = document.with_name(f"{document.stem}_{name}.png")
        save_figure(answer.figure, picture, dpi=110, opener=replacing_own)
        write_sections(document, {name: answer.text})
        print(answer.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
