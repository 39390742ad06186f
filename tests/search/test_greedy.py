"""Greedy search."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import pytest
from helpers import search_reference as reference
from helpers.search_models import END, START, HashModel, captions, check
from hypothesis import given
from hypothesis import strategies as st

from caption.errors import UserError
from caption.kernels import top_k
from caption.search import Greedy


@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 7),
    images=st.integers(1, 5),
    max_length=st.integers(1, 8),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    forbidden=st.sets(st.integers(0, 1), max_size=2),
    block=st.sampled_from([1, 2, 3, 64]),
)
def test_equals_the_naive_search(
    seed: int, words: int, images: int, max_length: int, holes: float, forbidden: set[int], block: int
) -> None:
    model = HashModel(words, seed, holes)
    batch = list(range(images))
    with patch.object(top_k, "BLOCK", block):
        hypotheses = Greedy(max_length)(model.step, model.start(batch), images, START, END, sorted(forbidden))
    check(hypotheses, model, batch, max_length, sorted(forbidden))
    for image in batch:
        wanted = reference.greedy(
            partial(model.next_log_probs, image),
            END,
            max_length,
            sorted(forbidden),
        )
        assert captions(hypotheses, image) == [wanted.words]
        assert hypotheses.finished[image].tolist() == [wanted.finished]
        assert hypotheses.log_probs[image].tolist() == [wanted.log_prob]


def test_room_for_a_word() -> None:
    for max_length in (0, 2.5):
        with pytest.raises(UserError, match="max_length"):
            Greedy(max_length)  # type: ignore[arg-type]
