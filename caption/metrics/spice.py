"""SPICE (Anderson et al. 2016): agreement of scene graphs. It exists only in Java, in pycocoevalcap."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from pathlib import Path

from caption.metrics.corpus import Corpus
from caption.metrics.java import java_fault
from caption.metrics.score import Score

NAME = "SPICE"


def spice(corpus: Corpus) -> Score:
    """SPICE as a fraction, the mean over images of F1; not computed where Java or its models are missing.

    pycocoevalcap would download the models (400 MB) unasked; here that is the user's to do.
    """
    fault = java_fault("pycocoevalcap.spice") or _models_fault()
    if fault:
        return Score.missing(NAME, fault)
    from pycocoevalcap.spice.spice import Spice

    candidates = {place: [" ".join(words)] for place, words in enumerate(corpus.words)}
    references = {
        place: [" ".join(words) for words in group] for place, group in enumerate(corpus.references.words)
    }
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it reports its progress there; stdout is for results
            _, per_image = Spice().compute_score(references, candidates)
        values = [float(scores["All"]["f"]) for scores in per_image]
    except (
        Exception
    ) as error:  # a program of 2016 has many ways to fail, and none may take the other scores along
        return Score.missing(NAME, f"SPICE's Java program failed: {type(error).__name__}: {error}.")
    return Score.from_mean(NAME, corpus.ids, values)


def _models_fault() -> str | None:
    spec = find_spec("pycocoevalcap.spice")
    assert spec is not None  # java_fault has looked
    assert spec.submodule_search_locations is not None
    library = Path(spec.submodule_search_locations[0]) / "lib"
    if not list(library.glob("stanford-corenlp-*-models.jar")):
        return "SPICE's language models are missing: run python -m pycocoevalcap.spice.get_stanford_models."
    return None
