"""Beam search: worked out by hand, against a naive implementation, against enumeration, and in edge cases."""

from __future__ import annotations

import math
from functools import partial
from unittest.mock import patch

import pytest
import torch
from helpers import search_reference as reference
from helpers.search_models import END, START, A, B, Chain, HashModel, captions, check
from hypothesis import given
from hypothesis import strategies as st

from caption.kernels import top_k
from caption.search import BeamSearch


@pytest.mark.parametrize(
    ("beam_size", "normalization", "words", "probability", "score", "steps"),
    [
        # A, A A, A A A, A A A A: never the end word.
        (1, 0.0, [A, A, A, A], 0.5 * 0.4**3, math.log(0.032), 4),
        # Step 1 keeps A 0.5, B 0.4; step 2 keeps B end 0.36 and A A 0.2, which can no longer win.
        (2, 0.0, [B], 0.36, math.log(0.36), 2),
        # log 0.36 / 2 = −0.51; A A could still reach log 0.2 / 4 = −0.40; A A A only log 0.08 / 4 = −0.63.
        (2, 1.0, [B], 0.36, math.log(0.36) / 2, 3),
        # log 0.36 / 2² = −0.26 against log 0.063 / 4² = −0.17.
        (2, 2.0, [A, A, B], 0.063, math.log(0.063) / 16, 4),
    ],
)
def test_by_hand(
    beam_size: int, normalization: float, words: list[int], probability: float, score: float, steps: int
) -> None:
    chain = Chain()
    hypotheses = chain.search(BeamSearch(beam_size, 4, normalization))
    assert hypotheses.words.tolist() == [[words]]
    assert hypotheses.lengths.tolist() == [[len(words)]]
    assert hypotheses.finished.tolist() == [[beam_size > 1]]
    torch.testing.assert_close(float(hypotheses.log_probs), math.log(probability))
    torch.testing.assert_close(float(hypotheses.scores), score)
    assert hypotheses.trace.tolist() == [[[START, *words[:-1]]]], (
        "the trace of the step that emitted each word"
    )
    assert chain.calls == steps


def test_candidates_Chain() -> None:
    hypotheses = Chain().search(BeamSearch(2, 4, candidates=2))
    assert captions(hypotheses, 0) == [[B], [A, A, B]]
    torch.testing.assert_close(hypotheses.log_probs.exp(), torch.tensor([[0.36, 0.063]], dtype=torch.float64))
    terms = [[0.4, 0.9, 1.0, 1.0], [0.5, 0.4, 0.35, 0.9]]
    torch.testing.assert_close(hypotheses.word_log_probs.exp(), torch.tensor([terms], dtype=torch.float64))
    assert hypotheses.trace.tolist() == [[[START, 0, 0], [START, A, A]]]


def test_unfinished_ranks_behind_finished() -> None:
    # After two steps: B end 0.36 and the unfinished A A 0.2; A end 0.125 fell out of the beam.
    hypotheses = Chain().search(BeamSearch(2, 2, candidates=2))
    assert captions(hypotheses, 0) == [[B], [A, A]]
    assert hypotheses.finished.tolist() == [[True, False]]
    # Here the unfinished B, more probable than the end word, still comes second.
    hypotheses = Chain().search(BeamSearch(3, 1, candidates=3))
    assert captions(hypotheses, 0) == [[], [A], [B]]
    assert hypotheses.finished.tolist() == [[True, False, False]]
    assert hypotheses.word_log_probs.exp()[0].flatten().tolist() == pytest.approx([0.1, 1, 0.5, 1, 0.4, 1])


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 7),
    images=st.integers(1, 5),
    search=st.builds(
        lambda beam_size, candidates, *rest: BeamSearch(beam_size, *rest, min(candidates, beam_size)),
        st.integers(1, 8),
        st.integers(1, 8),
        st.integers(1, 8),
        st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    ),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    forbidden=st.sets(st.integers(0, 2), max_size=3),
    block=st.sampled_from([1, 2, 64]),
)
def test_equals_the_naive_search(
    seed: int, words: int, images: int, search: BeamSearch, holes: float, forbidden: set[int], block: int
) -> None:
    """The naive search never stops early, so this also tests that early stopping is exact."""
    model = HashModel(words, seed, holes)
    barred = sorted(word for word in forbidden if word < words)
    model.barred = barred
    batch = list(range(images))
    with patch.object(top_k, "BLOCK", block):
        hypotheses = search(model.step, model.start(batch), images, START, END, barred)
    check(hypotheses, model, batch, search.max_length, barred)
    for image in batch:
        wanted = reference.beam(
            partial(model.next_log_probs, image),
            END,
            barred,
            beam_size=search.beam_size,
            max_length=search.max_length,
            normalization=search.length_normalization,
            candidates=search.candidates,
        )
        missing = search.candidates - len(wanted)
        assert captions(hypotheses, image) == [one.words for one in wanted] + [[]] * missing
        assert hypotheses.finished[image].tolist() == [one.finished for one in wanted] + [False] * missing
        scores = [one.score for one in wanted] + [-math.inf] * missing
        assert hypotheses.scores[image].tolist() == pytest.approx(scores, rel=1e-12)
        assert hypotheses.log_probs[image, len(wanted) :].tolist() == [-math.inf] * missing


def test_finished_images_leave_the_batch() -> None:
    model, batch = HashModel(6, seed=3), list(range(12))
    BeamSearch(3, 15, candidates=2)(model.step, model.start(batch), len(batch), START, END)
    assert model.batches == sorted(model.batches, reverse=True)
    assert model.batches[-1] < len(batch) / 2


@pytest.mark.parametrize("normalization", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("words", "max_length"), [(3, 5), (4, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all_captions(
    seed: int, words: int, max_length: int, normalization: float
) -> None:
    model = HashModel(words, seed)
    every = words**max_length
    hypotheses = BeamSearch(every, max_length, normalization, candidates=5)(
        model.step, model.start([0, 1]), 2, START, END
    )
    for image in range(2):
        best = reference.exhaustive(
            partial(model.next_log_probs, image),
            words,
            END,
            max_length,
            normalization,
        )[:5]
        assert captions(hypotheses, image) == [one.words for one in best]
        assert hypotheses.scores[image].tolist() == pytest.approx([one.score for one in best], rel=1e-12)
