"""METEOR in two versions with different numbers: 1.5 in Java, which papers report, and nltk's in Python.

"METEOR-1.5" (Denkowski and Lavie 2014) matches words, stems, synonyms and paraphrases; function words weigh less:

    P, R = weighted matches / weighted words of candidate, of reference ,  F = P R / (α P + (1 − α) R)
    METEOR = F · (1 − γ (chunks / matches)^β) ,  α = 0.85, β = 0.2, γ = 0.6, the reference with the highest score

"METEOR-nltk" (Banerjee and Lavie 2005; α = 0.9, β = 3, γ = 0.5) matches words, stems and WordNet's synonyms; all words
weigh the same. On the captions of coco-caption's demo it is nearly twice as high. Never report one as the other.
"""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from caption.metrics.corpus import Corpus
from caption.metrics.java import java_fault
from caption.metrics.score import MetricScore

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
MATCHERS = (1.0, 0.6, 0.8, 0.6)  # the weights of same word, same stem, synonym, paraphrase
_SEPARATOR = "|||"


def meteor_15(corpus: Corpus) -> MetricScore:
    """METEOR 1.5 as a fraction, by the jar in pycocoevalcap; not computed if that package or Java is missing."""
    name = "METEOR-1.5"
    fault = java_fault("pycocoevalcap.meteor")
    if fault:
        return MetricScore(name, None, fault)
    try:
        statistics = _matches(corpus)
    except (OSError, RuntimeError, ValueError) as error:
        return MetricScore(name, None, f"METEOR's Java program failed: {error}.")
    return MetricScore.from_statistics(name, corpus.ids, statistics, corpus_meteor)


def corpus_meteor(statistics: np.ndarray) -> np.ndarray:
    """METEOR 1.5 (...) of the statistics (..., 23) that its program reports, summed over images or not.

    They are: words and function words of candidate and reference (4); for each of the four matchers, the matched
    content and function words, each counted in candidate and reference (16); chunks (1); matched words of candidate
    and of reference (2). A sentence that is matched as a whole has 0 chunks.
    """
    test, reference, test_function, reference_function = np.moveaxis(statistics[..., :4], -1, 0)
    stages = statistics[..., 4:20].reshape(*statistics.shape[:-1], 4, 4)
    weights = np.array(MATCHERS)
    content_test, content_reference, function_test, function_reference = np.moveaxis(stages, -1, 0)
    precision = _weighted(content_test @ weights, function_test @ weights) / _positive(
        _weighted(test - test_function, test_function)
    )
    recall = _weighted(content_reference @ weights, function_reference @ weights) / _positive(
        _weighted(reference - reference_function, reference_function)
    )
    mean = precision * recall / _positive(ALPHA * precision + (1 - ALPHA) * recall)
    chunks, matched = statistics[..., 20], statistics[..., 21:23].mean(axis=-1)
    fragmentation = chunks / _positive(matched)
    return mean * (1 - GAMMA * fragmentation**BETA)


def _weighted(content: np.ndarray, function: np.ndarray) -> np.ndarray:
    return DELTA * content + (1 - DELTA) * function


def _positive(divisor: np.ndarray) -> np.ndarray:
    """The divisor with 1 in place of 0. Here the dividend is then 0, too, and so is the quotient."""
    return np.where(divisor == 0, 1.0, divisor)


def _matches(corpus: Corpus) -> np.ndarray:
    """(N, 23): the program's statistics of each candidate with its best reference."""
    spec = find_spec("pycocoevalcap.meteor.meteor")
    assert spec is not None  # java_fault has checked this
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    lines = [
        f" {_SEPARATOR} ".join(["SCORE", *(_plain(words) for words in references), _plain(candidate)])
        for candidate, references in zip(corpus.words, corpus.references.words, strict=True)
    ]
    command = ["java", "-Xmx2G", "-jar", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
    process = subprocess.run(
        command, cwd=folder, input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8"
    )
    if process.returncode:
        raise RuntimeError(
            process.stderr.strip().splitlines()[-1] if process.stderr.strip() else "no message"
        )
    answers = process.stdout.split("\n")[: len(lines)]
    statistics = np.array([[float(number) for number in answer.split()] for answer in answers]).reshape(
        -1, 23
    )
    chunks, test, reference = statistics[:, 20], statistics[:, 0], statistics[:, 1]
    # The program counts 0 chunks if a sentence is matched as a whole; otherwise a perfect caption would not score 1.
    chunks[(chunks == 1) & (statistics[:, 21] == test) & (statistics[:, 22] == reference)] = 0
    return statistics


def _plain(words: list[str]) -> str:
    return " ".join(words).replace(_SEPARATOR, "")


def meteor_nltk(corpus: Corpus) -> MetricScore:
    """nltk's METEOR as a fraction, the mean over images of the best reference; needs nltk's WordNet data."""
    name = "METEOR-nltk"
    from nltk.corpus import wordnet  # takes a second to import
    from nltk.translate.meteor_score import meteor_score

    try:
        wordnet.ensure_loaded()
    except (LookupError, OSError) as error:
        fault = "missing" if isinstance(error, LookupError) else f"damaged ({error})"
        return MetricScore(name, None, f"WordNet is {fault}: run python -m nltk.downloader wordnet.")
    per_image = [
        float(meteor_score(references, candidate))
        for candidate, references in zip(corpus.words, corpus.references.words, strict=True)
    ]
    return MetricScore.from_mean(name, corpus.ids, per_image)
