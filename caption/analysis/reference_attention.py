"""The attention of a model that is fed captions word by word, by people or by another model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from caption.analysis.replay import Replay, sentences, words_alone
from caption.captioner import Captioner
from caption.data.photos import Photo
from caption.results.caption import Caption


def attend(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    batch_size: int = 32,
) -> list[Caption]:
    """The attention of a model that is fed the words of captions.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`.

    Returns:
        the captions with the weights α[t] at each word, and the model's log-probability of each; unfinished, since the
        end token is not fed.

    Raises:
        UserError: the decoder has no attention.
        ValueError: photos and captions differ in number.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    replay = Replay(captioner.decoder)
    fed: list[Caption] = []
    for batch in sentences(captioner, photos, captions, batch_size):
        grid = batch.views[0].grid
        weights = np.zeros((*batch.words.shape, *grid))
        log_probs = np.zeros(batch.words.shape)
        for step in replay.steps(batch):
            rows = step.rows.cpu().numpy()
            weights[rows, step.number] = step.weights.float().unflatten(1, grid).cpu().numpy()
            log_probs[rows, step.number] = step.log_prob.float().cpu().numpy()
        for row, (caption, photo) in enumerate(zip(batch.captions, batch.photos, strict=True)):
            steps, box = len(caption.words), captioner.boxes(photo.box)[0]
            of_words = log_probs[row, :steps]
            fed.append(captioner.joined(Caption(
                caption.text, caption.words, weights[row, :steps], float(of_words.sum()), of_words, box, finished=False,
                image=photo.photo, properties=captioner.decoder.properties, seen=photo.box,
            )))  # fmt: skip
    return fed


def attend_references(
    captioner: Captioner, photos: Sequence[Photo], references: Sequence[Sequence[str]], batch_size: int = 32
) -> list[Caption]:
    """The attention of a model that is fed people's captions; see `attend`.

    Args:
        captioner: the model; words are split by its tokenizer, and unknown ones are fed as `<unk>`.
        photos: any number.
        references: the captions of each photo.
        batch_size: captions at once.

    Returns:
        the captions of the first photo, then of the second, ...

    Raises:
        UserError: the decoder has no attention.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    texts = [(photo, text) for photo, several in zip(photos, references, strict=True) for text in several]
    captions = [words_alone(captioner.vocabulary.tokenizer(text)) for _, text in texts]
    return attend(captioner, [photo for photo, _ in texts], captions, batch_size)
