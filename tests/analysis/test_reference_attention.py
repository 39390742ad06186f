"""People's captions fed to a model: the maps are those of teacher forcing, word by word."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.analysis.reference_attention import attend_references
from caption.data.resize import ImageTransform
from caption.text.vocabulary import START

TEXTS = [["A dog runs .", "the cat sits"], ["a dog"]]


def test_weights_and_log_probabilities_are_those_of_teacher_forcing():
    made = captioner(ImageTransform(32, "crop"))
    photos = [photo(80, 40), photo(40, 60, seed=1)]
    found = attend_references(made, photos, TEXTS, batch_size=2)
    assert [each.words for each in found] == [["a", "dog", "runs"], ["the", "cat", "sits"], ["a", "dog"]]
    assert [each.image for each in found] == [photos[0], photos[0], photos[1]]
    for caption, source in zip(found, (photos[0], photos[0], photos[1]), strict=True):
        ids = torch.tensor([[[made.vocabulary[word] for word in caption.words]]])
        fed = torch.cat((torch.full_like(ids[..., :1], START), ids[..., :-1]), -1)
        with torch.no_grad():
            unrolled = made.unroll(made.encode([source]), fed, torch.tensor([[ids.shape[2]]]))
        weights = unrolled.unpack(unrolled.trace.weights)[0, 0].view(-1, *caption.weights.shape[1:])
        np.testing.assert_allclose(caption.weights, weights.numpy(), rtol=1e-5)
        log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0].gather(1, ids[0, 0][:, None])[:, 0]
        np.testing.assert_allclose(caption.word_log_probs, log_probs.numpy(), rtol=1e-4)
        assert caption.log_prob == pytest.approx(float(log_probs.sum()), rel=1e-4)
        assert not caption.finished
    assert found[0].box == (20, 0, 60, 40)
    assert found[2].box == (0, 10, 40, 50)


def test_no_photos_no_captions():
    assert attend_references(captioner(), [], []) == []
    with pytest.raises(ValueError, match=r"shorter|longer"):
        attend_references(captioner(), [photo()], [])
