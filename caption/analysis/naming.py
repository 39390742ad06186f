"""Captions that name what a lens is sure of, also in words that no caption taught.

A model knows the words of its captions. Its encoder's classifier knows a thousand kinds of things, and a lens reads
them where the decoder looks. A caption that leaves out what the lens is sure of is written once more, by constrained
beam search with this thing as a constraint (Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with
Constrained Beam Search"). For a word that the model has never read, the known word whose things look most alike stands
in (direct transfer, Hendricks et al. 2016, "Deep Compositional Captioning", section 3.3); alike are things whose rows
in the classifier have a small angle.

    namer = Namer(captioner, lens, least=0.6)
    captions = namer(views, captions)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from caption.analysis.lens import Lens, read_weights
from caption.box import Box
from caption.captioner import Captioner
from caption.lens_reading import Seen
from caption.regions import Regions, Views
from caption.result import Caption
from caption.search import BeamSearch, ConstrainedBeamSearch
from caption.search.constrained import Automaton, mentioning
from caption.tensor_tree import select_images
from caption.text.nouns import GENERAL, Nouns
from caption.text.vocabulary import UNKNOWN, Vocabulary

FREQUENT = 500
"""Words that stand in for others are among so many of the most frequent ones: the model knows how to use them."""


class ThingWords(NamedTuple):
    """The words for the nouns of a lens, beside those of a model."""

    vocabulary: Vocabulary
    """The model's, and after its words the new ones: of nouns none of whose words it has, the singular and plural."""
    stand_ins: list[int]
    """For each new word a known one."""
    of_noun: dict[str, list[int]]
    """The words for each noun; the new ones only if it has no others."""

    @classmethod
    def of(cls, lens: Lens, vocabulary: Vocabulary) -> ThingWords:
        """The words for all nouns of a lens that are not too general."""
        nouns = [noun for noun in lens.nouns.names if noun not in GENERAL]
        known = {
            noun: [vocabulary[form] for pair in lens.nouns.forms[noun] for form in pair if form in vocabulary]
            for noun in nouns
        }
        examples = _examples(lens.nouns, vocabulary)
        rows = _directions(lens)
        similar = rows @ rows[[lens.places[noun] for noun in examples]].T
        new: dict[str, int] = {}
        of_noun = {noun: sorted({*ids}) for noun, ids in known.items() if ids}
        for noun in nouns:
            if noun in of_noun:
                continue
            alike = list(examples)[int(similar[lens.places[noun]].argmax())]
            pair = lens.nouns.forms[noun][0]
            for form, stand_in in zip(pair, examples[alike], strict=True):
                new.setdefault(form, stand_in)
            of_noun[noun] = [len(vocabulary) + place for place, form in enumerate(new) if form in pair]
        return cls(
            vocabulary.widened(Vocabulary([*new], vocabulary.tokenizer.name)), [*new.values()], of_noun
        )


def _examples(nouns: Nouns, vocabulary: Vocabulary) -> dict[str, tuple[int, int]]:
    """Singular and plural of the nouns that can stand in for others."""
    examples = {}
    for noun in nouns.names:
        if noun in GENERAL or "person" in nouns.chain(noun):
            continue
        for singular, plural in nouns.forms[noun]:
            if UNKNOWN < vocabulary[singular] < FREQUENT:
                number = vocabulary[plural]
                examples[noun] = vocabulary[singular], number if number > UNKNOWN else vocabulary[singular]
                break
    return examples


def _directions(lens: Lens) -> Tensor:
    """(N, D) of each noun the mean of its classes' rows, less the mean of all classes, with length 1."""
    rows = lens.classifier.linear.weight.float()
    rows = rows - rows.mean(0)
    return functional.normalize(lens.membership.T @ rows, dim=1)


class Namer:
    """Writes captions again that leave out what a lens is sure of.

    Args:
        captioner: with a beam search.
        lens: of its encoder, calibrated.
        least: probability from which the lens is sure, at any word of the caption.
        most: things that a caption is made to name.
        taught: also name things for which the model knows a word.
    """

    def __init__(
        self, captioner: Captioner, lens: Lens, least: float, most: int = 1, taught: bool = False
    ) -> None:
        self.captioner, self.lens = captioner, lens
        self.least, self.most = least, most
        self.words = ThingWords.of(lens, captioner.vocabulary)
        first_new = len(captioner.vocabulary)
        self.candidates = [
            place
            for place, noun in enumerate(lens.nouns.names)
            if noun in self.words.of_noun
            and (taught or min(self.words.of_noun[lens.nouns.everyday(noun)]) >= first_new)
        ]

    def missing(self, regions: Regions, caption: Caption) -> list[Seen]:
        """The things that the lens is sure of and the caption does not name, surest first.

        Args:
            regions: (1, L, D) of the encoder.
            caption: of this model, with weights over them.
        """
        if not caption.words:
            return []
        weights = torch.from_numpy(read_weights(caption))[None]
        highest = self.lens.probabilities(regions, weights)[0].amax(0)
        surest = highest[self.candidates]
        nouns, found = self.lens.nouns, list[Seen]()
        said = nouns.said([caption.text])
        for place in surest.argsort(descending=True).tolist():
            probability = float(surest[place])
            if probability < self.least or len(found) == self.most:
                break
            noun = nouns.names[self.candidates[place]]
            kind = nouns.everyday(self.lens.less_general(noun, highest))
            noun = kind if self.lens.places[kind] in self.candidates else noun
            if noun not in said and not any(nouns.related(noun, seen.noun) for seen in found):
                found.append(Seen(noun, probability))
        return found

    def __call__(self, views: Views, captions: Sequence[Caption]) -> list[Caption]:
        """The captions, those written again that leave something out.

        Args:
            views: of B images, from the encoder.
            captions: of this model, one of each image, with weights over the first view.
        """
        vectors, grid, mask = views[0]
        missing = [
            self.missing(
                Regions(vectors[i : i + 1].cpu(), grid, None if mask is None else mask[i : i + 1].cpu()),
                caption,
            )
            for i, caption in enumerate(captions)
        ]
        again = [index for index, things in enumerate(missing) if things]
        if not again:
            return list(captions)
        written = self.write(
            select_images(views, torch.tensor(again, device=vectors.device)),
            [captions[index] for index in again],
            [[seen.noun for seen in missing[index]] for index in again],
        )
        changed = dict(zip(again, written, strict=True))
        return [changed.get(index, caption) for index, caption in enumerate(captions)]

    def write(
        self, views: Views, captions: Sequence[Caption], wanted: Sequence[Sequence[str]]
    ) -> list[Caption]:
        """Captions that name the nouns which are wanted of each of B images.

        Args:
            views: of the images, from the encoder.
            captions: earlier ones, which know what part of the photo the regions cover.
            wanted: see `missing`; some of each image.
        """
        search = self.captioner.search
        search = search if isinstance(search, BeamSearch) else BeamSearch()
        constrained = ConstrainedBeamSearch(search, self._automaton(wanted))
        hypotheses = self.captioner.generate(views, constrained, stand_ins=self.words.stand_ins)
        seen = [Box(*(caption.seen or caption.box)) for caption in captions]
        grids = self.captioner.grids(views)
        written = list(self.captioner.captions(hypotheses, grids, seen, vocabulary=self.words.vocabulary))
        for new, caption in zip(written, captions, strict=True):
            new.image = caption.image
        return written

    def _automaton(self, wanted: Sequence[Sequence[str]]) -> Automaton:
        """Captions that name these nouns, and say no new word but for them."""
        ids = [[self.words.of_noun[noun] for noun in nouns] for nouns in wanted]
        automaton = mentioning(ids, len(self.words.vocabulary))
        first_new = len(self.captioner.vocabulary)
        allowed = torch.zeros(len(wanted), len(self.words.vocabulary), dtype=torch.bool)
        allowed[:, :first_new] = True
        for image, constraints in enumerate(ids):
            allowed[image, [word for constraint in constraints for word in constraint]] = True
        return automaton._replace(transitions=automaton.transitions.where(allowed[:, None], -1))
