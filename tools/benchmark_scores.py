"""Time and memory of scoring, beside pycocoevalcap with Java on the same captions: tokenizing, BLEU, ROUGE-L, CIDEr.

    python tools/benchmark_scores.py [--captions FILE] [--images 5000] [--rounds 3]

Each system runs in a process of its own, in turns, so that neither profits from the other's caches, and start-up
counts. Both must come to the same scores, or the comparison means nothing. Needs Java and pycocoevalcap.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time

REFERENCES = 5
SCORES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr")
SYSTEMS = ("caption", "pycocoevalcap")


def main() -> int:
    """Measure both systems and print a table; 1 where their scores differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--captions", metavar="FILE", help="any caption file of five captions per image; default: made up"
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", choices=SYSTEMS, help=argparse.SUPPRESS)  # the process of one system
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(_measure(options.run, options.data)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data.json")
        captions = _read(options.captions) if options.captions else _made_up(options.images)
        with open(data, "w", encoding="utf-8") as file:
            json.dump(_task(captions, options.images), file)
        runs = {system: [_run(system, data) for _ in range(options.rounds)] for system in SYSTEMS}
    return _report(runs, options)


def _read(path: str) -> list[list[str]]:
    from caption.metrics.files import read_captions

    return [texts[:REFERENCES] for texts in read_captions(path).captions.values() if len(texts) >= REFERENCES]


def _made_up(images: int) -> list[list[str]]:
    """Captions with a long tail of words, about as long as people's."""
    generator = random.Random(0)
    words = [
        "".join(generator.choices("aeioubcdfghklmnprst", k=generator.randint(2, 9))) for _ in range(10_000)
    ]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [
        [
            " ".join(generator.choices(words, weights, k=generator.randint(7, 16))) + " ."
            for _ in range(REFERENCES)
        ]
        for _ in range(images)
    ]


def _task(captions: list[list[str]], images: int) -> dict[str, object]:
    """References, and as candidates the first caption of the next image: wrong, but made of the same words."""
    if len(captions) < images:
        raise SystemExit(f"the captions cover {len(captions)} images, fewer than --images {images}")
    captions = captions[:images]
    references = {str(image): texts for image, texts in enumerate(captions)}
    candidates = {str(image): captions[(image + 1) % images][0] for image in range(images)}
    return {"references": references, "candidates": candidates}


def _run(system: str, data: str) -> dict[str, object]:
    started = time.perf_counter()
    command = [sys.executable, __file__, "--run", system, "--data", data]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": _root()})
    if done.returncode:
        raise SystemExit(f"{system} failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result, "process": time.perf_counter() - started}


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _measure(system: str, data: str) -> dict[str, object]:
    """Seconds of work, megabytes at the peak (Java's apart), and the scores."""
    with open(data, encoding="utf-8") as file:
        task = json.load(file)
    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        scores = (_ours if system == "caption" else _theirs)(task["references"], task["candidates"])
    seconds = time.perf_counter() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "megabytes": own, "scores": scores}


def _ours(references: dict[str, list[str]], candidates: dict[str, str]) -> dict[str, float]:
    from caption.metrics import evaluate

    return dict(evaluate(candidates, references))  # type: ignore[arg-type]


def _theirs(references: dict[str, list[str]], candidates: dict[str, str]) -> dict[str, float]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenizer = PTBTokenizer()
    truth = tokenizer.tokenize(
        {image: [{"caption": text} for text in texts] for image, texts in references.items()}
    )
    tested = tokenizer.tokenize({image: [{"caption": text}] for image, text in candidates.items()})
    bleu, _ = Bleu(4).compute_score(truth, tested, verbose=0)
    scores = [*bleu, Rouge().compute_score(truth, tested)[0], Cider().compute_score(truth, tested)[0]]
    return {name: float(score) for name, score in zip(SCORES, scores, strict=True)}


def _report(runs: dict[str, list[dict[str, object]]], options: argparse.Namespace) -> int:
    print(
        f"{options.images} images, {REFERENCES} references each; {options.rounds} rounds, fastest (slowest) counts"
    )
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    best = {}
    for system, results in runs.items():
        seconds = sorted(float(str(result["seconds"])) for result in results)
        process = min(float(str(result["process"])) for result in results)
        memory = max(float(str(result["megabytes"])) for result in results)
        best[system] = seconds[0]
        print(
            f"{system:14} {seconds[0]:6.2f} s ({seconds[-1]:.2f}), process {process:.2f} s, "
            f"{memory:.0f} MB without Java's"
        )
    print(f"ratio {best['caption'] / best['pycocoevalcap']:.2f}")
    ours, theirs = (runs[system][0]["scores"] for system in SYSTEMS)
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    furthest = max(abs(ours[name] - theirs[name]) for name in SCORES)
    print(f"largest difference of a score: {furthest:.1e}")
    return 0 if furthest < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
