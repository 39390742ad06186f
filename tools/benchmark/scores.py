"""Tokenizing and scoring (BLEU, ROUGE-L, CIDEr) beside pycocoevalcap with Java, on the same captions.

Each system runs in a process of its own, in turns, so that neither profits from the other's caches.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import time
from pathlib import Path

from caption.metrics import evaluate
from caption.metrics.files import read_captions
from tools.benchmark.harness import Setting, in_process, made_up, resident_peak, say, seconds
from tools.documents import table

IMAGES, REFERENCES = 5000, 5
NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr")
Texts = dict[str, list[str]]
Scored = tuple[dict[str, float], float, int]
"""Scores, seconds, and the most bytes held, without Java's."""


def scores(setting: Setting) -> str:
    """Time and memory of both systems. Both must come to the same scores, or the comparison means nothing."""
    if shutil.which("java") is None or importlib.util.find_spec("pycocoevalcap") is None:
        return "Not measured: this needs Java and `pip install pycocoevalcap`."
    images = IMAGES // 10 if setting.quick else IMAGES
    if setting.captions:
        texts = read(setting.captions)
    else:
        drawn = made_up(images * REFERENCES, parts=(2, 4), common=10_000)
        texts = [[next(drawn) for _ in range(REFERENCES)] for _ in range(images)]
    references, candidates = task(texts, images)
    systems = {"caption": ours, "pycocoevalcap": theirs}
    found: dict[str, list[Scored]] = {name: [] for name in systems}
    for _ in range(setting.rounds):
        for name, system in systems.items():
            found[name].append(in_process(measure, system, references, candidates))
            say(f"{name}: {found[name][-1][1]:.2f} s")
    return report(found, images)


def read(path: Path) -> list[list[str]]:
    """The captions of a file, for images with enough of them."""
    texts = read_captions(str(path)).captions.values()
    return [list(several[:REFERENCES]) for several in texts if len(several) >= REFERENCES]


def task(captions: list[list[str]], images: int) -> tuple[Texts, dict[str, str]]:
    """References, and as candidates the first caption of the next image: wrong, but made of the same words."""
    if len(captions) < images:
        raise SystemExit(f"{len(captions)} images have {REFERENCES} captions or more; {images} are needed")
    references = {str(image): texts for image, texts in enumerate(captions[:images])}
    return references, {str(image): captions[(image + 1) % images][0] for image in range(images)}


def measure(system, references: Texts, candidates: dict[str, str]) -> Scored:  # type: ignore[no-untyped-def]
    """Score, in this process."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        found = system(references, candidates)
    return found, time.perf_counter() - started, resident_peak()


def ours(references: Texts, candidates: dict[str, str]) -> dict[str, float]:
    return dict(evaluate(candidates, references))


def theirs(references: Texts, candidates: dict[str, str]) -> dict[str, float]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenize = PTBTokenizer().tokenize
    truth = tokenize({image: [{"caption": text} for text in texts] for image, texts in references.items()})
    tested = tokenize({image: [{"caption": text}] for image, text in candidates.items()})
    bleu, _ = Bleu(4).compute_score(truth, tested, verbose=0)
    found = [*bleu, Rouge().compute_score(truth, tested)[0], Cider().compute_score(truth, tested)[0]]
    return {name: float(score) for name, score in zip(NAMES, found, strict=True)}


def report(found: dict[str, list[Scored]], images: int) -> str:
    """The table, the ratio of the fastest runs, and how far the scores differ.

    Raises:
        SystemExit: they differ by more than rounding.
    """
    rows, fastest = [], {}
    for name, rounds in found.items():
        times = [taken for _, taken, _ in rounds]
        fastest[name] = min(times)
        memory = max(peak for _, _, peak in rounds) / 1e6
        rows.append([name, seconds(min(times)), seconds(max(times)), f"{memory:.0f} MB"])
    mine, other = (found[name][0][0] for name in found)
    furthest = max(abs(mine[name] - other[name]) for name in NAMES)
    if furthest > 1e-6:
        raise SystemExit(f"the scores of the two systems differ, by up to {furthest:.1e}: {mine} and {other}")
    ratio = fastest["caption"] / fastest["pycocoevalcap"]
    head = ["", "fastest", "slowest", "memory, without Java's"]
    return (
        f"{images:,} images, {REFERENCES} references each.\n\n{table(head, rows)}\n\n"
        f"The ratio is {ratio:.2f}; the largest difference of a score {furthest:.0e}."
    )
