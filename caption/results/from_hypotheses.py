"""The hypotheses of a search as captions: words, maps over their grids, and boxes in the photo's pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from caption.attention.maps import has_location
from caption.core.box import Box
from caption.core.regions import Grid
from caption.core.tensor_tree import map_tensors
from caption.decoders.base import Decoder
from caption.results.beam_tree import beam_tree
from caption.results.caption import AttentionMaps, Caption
from caption.search import Hypotheses
from caption.text.vocabulary import END, PAD, START, Vocabulary

if TYPE_CHECKING:
    from caption.data.photos import Photo


def captions_of(
    hypotheses: Hypotheses,
    decoder: Decoder,
    vocabulary: Vocabulary,
    grids: Sequence[Grid],
    boxes: Sequence[Sequence[Box]],
    seen: Sequence[Box],
    photos: Sequence[Photo | None],
) -> Iterator[Caption]:
    """Convert the hypotheses of B images to B captions, with the other candidates as their alternatives.

    Args:
        hypotheses: of the B images.
        decoder: the decoder that was searched.
        vocabulary: of their words.
        grids: (rows, cols) of the views that the decoder attends to.
        boxes: for each of the B photos, the part of it that the grid of each view of the encoder covers, in its pixels.
        seen: the part of each photo that the transform shows to the model.
        photos: stored in the captions.
    """
    record, hypotheses = map_tensors(Tensor.cpu, (hypotheses.record, hypotheses._replace(record=None)))
    for image, of_photo in enumerate(zip(boxes, seen, photos, strict=True)):
        best, *alternatives = [
            _caption(
                map_tensors(itemgetter((image, rank)), hypotheses), decoder, vocabulary, grids, *of_photo
            )
            for rank in range(hypotheses.words.shape[1])
        ]
        # Ranks without a hypothesis are empty and unfinished, with log-probability -inf.
        best.alternatives = [caption for caption in alternatives if caption.log_prob > -torch.inf]
        if record is not None:
            of_image = map_tensors(itemgetter(image), record)
            best.beam_tree = beam_tree(
                of_image, of_image.trace.weights, grids[0], lambda word: vocabulary[word], END
            )
        yield best


def _caption(
    hypothesis: Hypotheses,
    decoder: Decoder,
    vocabulary: Vocabulary,
    grids: Sequence[Grid],
    boxes: Sequence[Box],
    seen: Box,
    photo: Photo | None,
) -> Caption:
    """The caption of one hypothesis, whose tensors have lost the dimensions of images and ranks."""
    length = int(hypothesis.lengths)
    trace, likeliest = map_tensors(itemgetter(slice(length)), (hypothesis.trace, hypothesis.likeliest))
    words = vocabulary.decode(hypothesis.words[:length].tolist())
    box = boxes[0]
    map_grids = decoder.map_grids(grids)
    # Views that a refiner has added cover what the first view covers.
    map_boxes = {
        name: boxes[view] if view < len(boxes) else box
        for name, view in decoder.map_views.items()
        if name in trace.maps
    }
    return Caption(
        text=vocabulary.tokenizer.join(words),
        words=words,
        weights=trace.weights.float().view(length, *grids[0]).numpy(),
        log_prob=float(hypothesis.log_probs),
        word_log_probs=hypothesis.word_log_probs[:length].float().numpy(),
        box=box,
        gates=None if trace.gate is None else trace.gate.float().numpy(),
        finished=bool(hypothesis.finished),
        image=photo,
        maps=AttentionMaps(
            {
                name: values.float().unflatten(-1, map_grids[name]).numpy()
                for name, values in trace.maps.items()
                if name in map_grids
            },
            boxes={name: of_map for name, of_map in map_boxes.items() if of_map != box},
            locations=_locations(trace.location, grids[0][1]),
            points=_points(trace.location, box),
        ),
        properties=decoder.properties,
        likeliest=None if likeliest is None else _likeliest(likeliest[0], likeliest[1], vocabulary),
        seen=seen,
    )


def _likeliest(log_probs: Tensor, words: Tensor, vocabulary: Vocabulary) -> list[list[tuple[str, float]]]:
    """The likeliest words of each step (T, C), without those that are impossible, padding and the start token."""
    return [
        [
            ("(end)" if word == END else vocabulary[word], log_prob)
            for word, log_prob in zip(of_words, of_log_probs, strict=True)
            if log_prob > -torch.inf and word not in (PAD, START)
        ]
        for of_words, of_log_probs in zip(words.tolist(), log_probs.tolist(), strict=True)
    ]


def _locations(location: Tensor | None, cols: int) -> np.ndarray | None:
    """Region numbers (T,) -> rows and columns (T, 2); None if no region was chosen."""
    if location is None or location.is_floating_point() or not has_location(location).all():
        return None
    return torch.stack((location // cols, location % cols), -1).numpy()


def _points(location: Tensor | None, box: Box) -> np.ndarray | None:
    """Points (T, 2) across the grid -> x and y in the photo's pixels; None if no point was chosen."""
    if location is None or not location.is_floating_point() or not has_location(location).all():
        return None
    left, top, right, bottom = box
    return location.double().numpy() * (right - left, bottom - top) + (left, top)
