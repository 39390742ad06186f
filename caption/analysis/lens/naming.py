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
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from caption.analysis.lens.lens import Lens, read_weights
from caption.box import Box
from caption.captioner import LIKELIEST_WORDS, Captioner, Postprocessor
from caption.lens_reading import Seen
from caption.regions import Regions, Views
from caption.result import Caption
from caption.search import BeamSearch, ConstrainedBeamSearch
from caption.search.constrained import Automaton, mentioning
from caption.search.step_functions import with_word_aliases
from caption.tensor_tree import select_images
from caption.text.nouns import GENERAL, Nouns
from caption.text.vocabulary import UNKNOWN, Vocabulary

FREQUENT = 500
"""Words that stand in for others are among so many of the most frequent ones: the model knows how to use them."""


LEAST = 0.7
"""Probability from which things are named in photos unlike those that the model knows: less costs CIDEr there."""


class ThingWords(NamedTuple):
    """The words for the nouns of a lens, beside those of a model."""

    vocabulary: Vocabulary
    """The model's, and after its words the new ones: singular and plural of nouns."""
    word_aliases: list[int]
    """For each word the one of the model that stands in for it; for most it is the word itself."""
    of_noun: dict[str, list[int]]
    """The words for each noun that is not too general."""
    untaught: set[str]
    """Nouns none of whose words the model knows well; stand-ins are used for them."""

    @classmethod
    def of(cls, lens: Lens, vocabulary: Vocabulary, well_known: int) -> ThingWords:
        """The words for the nouns of a lens.

        Args:
            lens: with the nouns.
            vocabulary: of the model, most frequent words first.
            well_known: how many words the model knows well.
        """
        nouns = [noun for noun in lens.nouns.names if noun not in GENERAL]
        examples = _examples(lens.nouns, vocabulary, min(FREQUENT, well_known))
        rows = _directions(lens)
        similar = rows @ rows[[lens.places[noun] for noun in examples]].T
        of_noun, forms = dict[str, list[int]](), dict[str, int]()
        for noun in nouns:
            known = {vocabulary[form] for pair in lens.nouns.forms[noun] for form in pair} - {UNKNOWN}
            if known and min(known) < well_known:
                of_noun[noun] = sorted(known)
            else:
                alike = list(examples)[int(similar[lens.places[noun]].argmax())]
                forms |= dict(zip(lens.nouns.forms[noun][0], examples[alike], strict=True))
        wider = vocabulary.widened(Vocabulary([*forms], vocabulary.tokenizer.name))
        word_aliases = [forms.get(word, number) for number, word in enumerate(wider)]
        untaught = {noun for noun in nouns if noun not in of_noun}
        of_noun |= {noun: sorted({wider[form] for form in lens.nouns.forms[noun][0]}) for noun in untaught}
        return cls(wider, word_aliases, of_noun, untaught)


def _examples(nouns: Nouns, vocabulary: Vocabulary, frequent: int) -> dict[str, tuple[int, int]]:
    """Singular and plural of the nouns that can stand in for others."""
    examples = {}
    for noun in nouns.names:
        if noun in GENERAL or "person" in nouns.chain(noun):
            continue
        for singular, plural in nouns.forms[noun]:
            if UNKNOWN < vocabulary[singular] < frequent:
                number = vocabulary[plural]
                examples[noun] = vocabulary[singular], vocabulary[singular] if number == UNKNOWN else number
                break
    return examples


def _directions(lens: Lens) -> Tensor:
    """(N, D) of each noun the mean of its classes' rows, less the mean of all classes, with length 1."""
    rows = lens.classifier.linear.weight.float()
    rows = rows - rows.mean(0)
    return functional.normalize(lens.membership.T @ rows, dim=1)


class Namer:
    """Writes captions again that leave out what a lens is sure of, without the words that it doubts.

    Args:
        captioner: with a beam search.
        lens: of its encoder, calibrated.
        least: probability from which the lens is sure, at any word of the caption.
        most: things that a caption is made to name.
        well_known: how many of its most frequent words the model knows well; None = all. Nouns without such a word are
            said with a stand-in.
        taught: also name things for which the model knows a word well.
        unlike: leave captions of photos alone that are like those which the model knows, and captions with nouns that
            the lens knows and does not doubt.
    """

    def __init__(
        self,
        captioner: Captioner,
        lens: Lens,
        least: float,
        most: int = 1,
        well_known: int | None = None,
        taught: bool = False,
        unlike: bool = False,
    ) -> None:
        self.captioner, self.lens = captioner, lens
        self.least, self.most, self.unlike = least, most, unlike
        words = len(captioner.vocabulary)
        self.words = ThingWords.of(lens, captioner.vocabulary, words if well_known is None else well_known)
        self.candidates = [
            place
            for place, noun in enumerate(lens.nouns.names)
            if noun in self.words.of_noun and (taught or lens.nouns.everyday(noun) in self.words.untaught)
        ]

    def missing(self, regions: Regions, caption: Caption) -> list[Seen]:
        """The things that the lens is sure of and the caption does not name, surest first.

        Args:
            regions: (1, L, D) of the encoder.
            caption: of this model, with weights over them.
        """
        if not caption.words or (self.unlike and not self.lens.unlike(regions)):
            return []
        probabilities = self._probabilities(regions, caption)
        if self.unlike and not self._questionable(caption, probabilities):
            return []
        highest = probabilities.amax(0)
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
        regions = [_regions(views, index) for index in range(len(captions))]
        missing = [self.missing(one, caption) for one, caption in zip(regions, captions, strict=True)]
        again = [index for index, things in enumerate(missing) if things]
        if not again:
            return list(captions)
        written = self.write(
            select_images(views, torch.tensor(again, device=views[0].vectors.device)),
            [captions[index] for index in again],
            [[seen.noun for seen in missing[index]] for index in again],
            [self._doubted(regions[index], captions[index]) for index in again],
        )
        changed = dict(zip(again, written, strict=True))
        return [changed.get(index, caption) for index, caption in enumerate(captions)]

    def write(
        self,
        views: Views,
        captions: Sequence[Caption],
        wanted: Sequence[Sequence[str]],
        unwanted: Sequence[set[str]] | None = None,
    ) -> list[Caption]:
        """Captions that name the nouns which are wanted of each of B images.

        Args:
            views: of the images, from the encoder.
            captions: earlier ones, which know what part of the photo the regions cover.
            wanted: see `missing`; some of each image.
            unwanted: words that captions of each image must not say; None = none.
        """
        unwanted = unwanted or [set() for _ in wanted]
        search = self.captioner.search
        search = search if isinstance(search, BeamSearch) else BeamSearch()
        constrained = ConstrainedBeamSearch(search, self._automaton(wanted, unwanted))
        word_aliases = partial(with_word_aliases, word_aliases=self.words.word_aliases)
        hypotheses = self.captioner.generate(views, constrained, [LIKELIEST_WORDS, word_aliases])
        seen = [Box(*(caption.seen or caption.box)) for caption in captions]
        grids = self.captioner.grids(views)
        written = list(self.captioner.captions(hypotheses, grids, seen, vocabulary=self.words.vocabulary))
        for new, caption, nouns in zip(written, captions, wanted, strict=True):
            new.image, new.named, new.replaced = caption.image, list(nouns), caption.text
        return written

    def _probabilities(self, regions: Regions, caption: Caption) -> Tensor:
        """(T, N)."""
        return self.lens.probabilities(regions, torch.from_numpy(read_weights(caption))[None])[0]

    def _questionable(self, caption: Caption, probabilities: Tensor) -> bool:
        """Whether the lens doubts a word of the caption, or knows none of its nouns but people."""
        known = {noun for word in caption.words for noun in self.lens.nouns.of_word(word)}
        return known <= {"person"} or bool(self.lens.doubts(caption.words, probabilities))

    def _doubted(self, regions: Regions, caption: Caption) -> set[str]:
        """The words where the lens sees something else, and other words for the same."""
        nouns = self.lens.nouns
        return {
            form
            for doubt in self.lens.doubts(caption.words, self._probabilities(regions, caption))
            for noun in nouns.of_word(doubt.says)
            for pair in nouns.forms[noun]
            for form in pair
        }

    def _automaton(self, wanted: Sequence[Sequence[str]], unwanted: Sequence[set[str]]) -> Automaton:
        """Captions that name these nouns, say no other word for which one stands in, and none that is not wanted."""
        ids = [[self.words.of_noun[noun] for noun in nouns] for nouns in wanted]
        vocabulary = self.words.vocabulary
        automaton = mentioning(ids, len(vocabulary))
        own = torch.tensor([number == word for word, number in enumerate(self.words.word_aliases)])
        allowed = own.repeat(len(wanted), 1)
        for image, (constraints, words) in enumerate(zip(ids, unwanted, strict=True)):
            allowed[image, [vocabulary[word] for word in words if word in vocabulary]] = False
            allowed[image, [word for constraint in constraints for word in constraint]] = True
        return automaton._replace(transitions=automaton.transitions.where(allowed[:, None], -1))


def _regions(views: Views, index: int) -> Regions:
    """(1, L, D) the regions of one image in the first view."""
    vectors, grid, mask = views[0]
    part = slice(index, index + 1)
    return Regions(vectors[part].cpu(), grid, None if mask is None else mask[part].cpu())


def lens_postprocessors(captioner: Captioner, lens: Lens) -> list[Postprocessor]:
    """What `Captioner.postprocessors` takes to read captions with a lens.

    Before the lens comes a namer for photos that are unlike those which the model knows, if the lens can tell them.
    """
    if lens.calibration is None or lens.calibration.known is None:
        return [lens]
    return [Namer(captioner, lens, LEAST, well_known=FREQUENT, taught=True, unlike=True), lens]
