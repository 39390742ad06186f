"""The unroll of a CPU: captions that have ended leave the loop."""

from __future__ import annotations

import torch
from helpers.dispatched import Dispatched
from helpers.shapes_of_calls import shapes
from helpers.tiny_decoder import decoder, images, sentences, unroll
from helpers.tiny_views import one_row

from caption.decoders import ShowAttendAndTellDecoder
from caption.kernels import accelerate


def packed() -> ShowAttendAndTellDecoder:
    model = decoder()
    accelerate(model, "cpu")
    return model


def test_finished_captions_leave_the_loop():
    model = packed()
    embeddings, attended = shapes(model.embed), shapes(model.attention)
    lengths = torch.tensor([[1, 2], [4, 3], [2, 0]])
    unroll(model, images(3), sentences(lengths, longest=9), lengths)
    assert embeddings == [(15,)]
    assert [shape[:2] for shape in attended] == [(3, 2), (3, 2), (1, 2), (1, 1)]


def test_a_gradient_of_the_memory_is_no_larger_than_what_the_step_before_read():
    """The gradient of a slice of the whole would be as large as the whole at each step."""
    model, lengths = packed(), torch.tensor([[5], [3], [3], [1]])
    logits = unroll(model, images(4), sentences(lengths), lengths).logits
    with Dispatched() as ran:
        logits.sum().backward()
    keys = model.attention.score.keys(one_row(images(1))[0]).tensor.shape[1:]
    slices = [result for name, _, result in ran.calls if name == "slice_backward"]
    made_whole = sorted(shape for shape in slices if shape[1:] == keys)
    assert made_whole == [(3, *keys), (4, *keys)]
