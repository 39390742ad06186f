"""SPICE (Anderson et al. 2016): agreement of scene graphs, by the Java program in pycocoevalcap."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from pathlib import Path

from caption.metrics.corpus import Corpus
from caption.metrics.java import java_fault
from caption.metrics.score import MetricScore

NAME = "SPICE"


def spice(corpus: Corpus) -> MetricScore:
    """SPICE as a fraction, the mean over images of F1; not computed if Java or its models are missing.

    pycocoevalcap would download the models (400 MB) without asking. Here the user has to download them.
    """
    fault = java_fault("pycocoevalcap.spice") or _models_fault()
    if fault:
        return MetricScore(NAME, None, fault)
    from pycocoevalcap.spice.spice import Spice

    candidates = {place: [" ".join(words)] for place, words in enumerate(corpus.words)}
    references = {
        place: [" ".join(words) for words in group] for place, group in enumerate(corpus.references.words)
    }
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results, not for its progress
            _, per_image = Spice().compute_score(references, candidates)
        values = [float(scores["All"]["f"]) for scores in per_image]
    except Exception as error:  # whatever fails in this old program, the other scores must survive
        return MetricScore(NAME, None, f"SPICE's Java program failed: {type(error).__name__}: {error}.")
    return MetricScore.from_mean(NAME, corpus.ids, values)


def _models_fault() -> str | None:
    spec = find_spec("pycocoevalcap.spice")
    assert spec is not None  # java_fault has checked this
    assert spec.submodule_search_locations is not None
    library = Path(spec.submodule_search_locations[0]) / "lib"
    if not list(library.glob("stanford-corenlp-*-models.jar")):
        return "SPICE's language models are missing: run python -m pycocoevalcap.spice.get_stanford_models."
    return None
