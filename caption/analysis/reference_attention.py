"""The attention of a model that is fed people's captions word by word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from caption.analysis.replay import Replay, sentences
from caption.captioner import Captioner
from caption.data.decoding import Photo, open_image
from caption.result import Caption


def attend_references(
    captioner: Captioner, photos: Sequence[Photo], references: Sequence[Sequence[str]], batch_size: int = 32
) -> list[Caption]:
    """The attention of a model that is fed people's captions.

    Args:
        captioner: the model; words are split by its tokenizer, and unknown ones are fed as `<unk>`.
        photos: any number.
        references: the captions of each photo.
        batch_size: captions at once.

    Returns:
        the captions of the first photo, then of the second, ...: with the person's words, the weights α[t] at each
        word, and the model's log-probability of each; unfinished, since the end token is not fed.

    Raises:
        caption.errors.ImageError: a photo cannot be read.
    """
    texts = [(photo, text) for photo, of_photo in zip(photos, references, strict=True) for text in of_photo]
    rows, cols = captioner.grids(captioner.encode([texts[0][0]]))[0] if texts else (1, 1)
    seen = {id(photo): captioner.transform.box(*open_image(photo).size) for photo in photos}
    captions = [_blank(captioner.vocabulary.tokenizer(text), rows, cols) for _, text in texts]
    replay = Replay(captioner.decoder)
    for batch in sentences(captioner, [photo for photo, _ in texts], captions, batch_size):
        for step in replay.steps(batch):
            of_word = step.of_word(step.log_probs[:, None])[:, 0]
            for row, weights, log_prob in zip(
                step.rows.tolist(), step.weights, of_word.tolist(), strict=True
            ):
                caption = batch.captions[row]
                caption.weights[step.number] = weights.float().view(rows, cols).cpu().numpy()
                caption.word_log_probs[step.number] = log_prob
    for (photo, _), caption in zip(texts, captions, strict=True):
        caption.image = photo
        caption.seen = seen[id(photo)]
        caption.box = captioner.boxes(caption.seen)[0]
        caption.log_prob = float(caption.word_log_probs.sum())
        caption.properties = captioner.decoder.properties
    return captions


def _blank(words: list[str], rows: int, cols: int) -> Caption:
    """A caption whose weights and boxes are yet to be filled in."""
    steps = len(words)
    zeros = np.zeros((steps, rows, cols))
    return Caption(" ".join(words), words, zeros, 0.0, np.zeros(steps), (0, 0, 1, 1), finished=False)
