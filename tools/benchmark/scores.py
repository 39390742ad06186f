"""Tokenizing and scoring (BLEU, ROUGE-L, CIDEr) beside pycocoevalcap with Java, on the same captions.

Each system runs in a process of its own, in turns, so that neither profits from the other's caches.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import time

from caption.metrics import evaluate
from caption.metrics.files import read_captions
from tools.benchmark.harness import Setting, made_up, new_process, resident_peak, say, seconds
from tools.documents import table

IMAGES, REFERENCES = 5000, 5
NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr")
Texts = dict[str, list[str]]
Scored = tuple[dict[str, float], float, int]
"""Scores, seconds, and the most bytes held, without Java's."""


def scores(setting: Setting) -> str:
    """Time and memory of both systems. Both must come to the same scores, or the comparison means nothing."""
    if shutil.which("java") is None or importlib.util.find_spec("pycocoevalcap") is None:
        return "not measured: this needs Java and `pip install pycocoevalcap`"
    images = IMAGES // 10 if setting.quick else IMAGES
    if setting.captions:
        read = read_captions(str(setting.captions)).captions.values()
        texts = [list(several[:REFERENCES]) for several in read if len(several) >= REFERENCES][:images]
    else:
        drawn = made_up(images * REFERENCES, parts=(2, 4), common=10_000)
        texts = [[next(drawn) for _ in range(REFERENCES)] for _ in range(images)]
    if len(texts) < images:
        raise SystemExit(f"{len(texts)} images have {REFERENCES} captions or more; {images} are needed")
    references = {str(image): several for image, several in enumerate(texts)}
    # The first caption of the next image: wrong, but made of the same words.
    candidates = {str(image): texts[(image + 1) % images][0] for image in range(images)}
    systems = {"caption": ours, "pycocoevalcap": theirs}
    found: dict[str, list[Scored]] = {name: [] for name in systems}
    for _ in range(setting.rounds):
        for name, system in systems.items():
            with new_process() as process:
                found[name].append(process.submit(measure, system, references, candidates).result())
            say(f"{name}: {found[name][-1][1]:.2f} s")
    return f"{images:,} images, {REFERENCES} references each.\n\n{report(found)}"


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


def report(found: dict[str, list[Scored]]) -> str:
    """The table, the ratio of the fastest runs, and how far the scores differ.

    Raises:
        SystemExit: they differ by more than rounding.
    """
    (mine, *_), (other, *_) = ([scored for scored, _, _ in rounds] for rounds in found.values())
    furthest = max(abs(mine[name] - other[name]) for name in NAMES)
    if furthest > 1e-6:
        raise SystemExit(f"the scores of the two systems differ, by up to {furthest:.1e}: {mine} and {other}")
    rows, fastest = [], []
    for name, rounds in found.items():
        times = [taken for _, taken, _ in rounds]
        fastest.append(min(times))
        memory = max(peak for _, _, peak in rounds) / 1e6
        rows.append([name, seconds(min(times)), seconds(max(times)), f"{memory:.0f} MB"])
    text = table(["", "fastest", "slowest", "memory, without Java's"], rows)
    ratio = f"{fastest[0] / fastest[1]:.2f}"
    return f"{text}\n\nThe ratio is {ratio}; the largest difference of a score {furthest:.0e}."
