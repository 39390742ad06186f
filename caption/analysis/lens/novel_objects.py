"""Captions that name what a lens is sure of, also in words that no caption taught.

A model knows the words of its captions. Its encoder's classifier knows a thousand kinds of things, and a lens reads
them where the decoder looks. A caption that leaves out what the lens is sure of is written once more, by constrained
beam search with this thing as a constraint (Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with
Constrained Beam Search"). For a word that the model has never read, the known word whose things look most alike stands
in (direct transfer, Hendricks et al. 2016, "Deep Compositional Captioning", section 3.3); alike are things whose rows
in the classifier have a small angle.

    captions = NovelObjectCaptioning(captioner, lens)(views, captions)

Of the likeliest sentences that name it, the first is taken that is English (`caption.text.agreement`) and as probable,
given its nouns, as captions of photos that the model knows. If there is none, the caption stays. Captions of photos
like those that the model knows are left alone, and so are those with nouns that the lens knows and does not doubt:
there this costs CIDEr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from caption.analysis.lens.lens import Lens, read_weights, regions_of
from caption.captioner import LIKELIEST_WORDS, Captioner, Postprocessor
from caption.core.box import Box
from caption.core.regions import Regions, Views
from caption.core.tensor_tree import select_images
from caption.results.caption import Caption
from caption.search import BeamSearch, ConstrainedBeamSearch
from caption.search.constrained import Automaton, mentioning
from caption.search.step_functions import with_word_aliases
from caption.text.agreement import agrees, noun_letter, with_articles
from caption.text.nouns import GENERAL, Nouns
from caption.text.vocabulary import UNKNOWN, Vocabulary

FREQUENT = 500
"""Words that the model knows how to use: so many of the most frequent ones. Only they stand in for others."""
LEAST = 0.7
"""Probability from which the lens is sure, at any word of the caption: less costs CIDEr."""
SENTENCES = 10
"""Those that name the thing, from which one that reads well is taken."""


class ThingWords(NamedTuple):
    """The words for the nouns of a lens, beside those of a model."""

    vocabulary: Vocabulary
    """The model's, and after its words the new ones: singular and plural of nouns."""
    word_aliases: list[int]
    """For each word the one of the model that stands in for it; for most it is the word itself."""
    of_noun: dict[str, list[int]]
    """The words for each noun that is not too general. Those that the model does not know well have stand-ins, and are
    said in the singular."""

    @classmethod
    def of(cls, lens: Lens, vocabulary: Vocabulary, well_known: int = FREQUENT) -> ThingWords:
        """The words for the nouns of a lens.

        Args:
            lens: with the nouns.
            vocabulary: of the model, most frequent words first.
            well_known: how many words the model knows well.
        """
        nouns = [noun for noun in lens.nouns.names if noun not in GENERAL]
        examples = _examples(lens.nouns, vocabulary, well_known)
        rows = _directions(lens)
        similar = rows @ rows[[lens.places[noun] for noun in examples]].T
        of_noun, forms = dict[str, list[int]](), dict[str, int]()
        for noun in nouns:
            known = {vocabulary[form] for pair in lens.nouns.forms[noun] for form in pair} - {UNKNOWN}
            if known and min(known) < well_known:
                of_noun[noun] = sorted(known)
            else:
                alike = list(examples)[int(similar[lens.places[noun]].argmax())]
                singular, plural = lens.nouns.forms[noun][0]
                one, many = examples[alike]
                forms |= {plural: many, singular: many if noun_letter(singular) == "p" else one}
        wider = vocabulary.widened(Vocabulary([*forms], vocabulary.tokenizer.name))
        word_aliases = [forms.get(word, number) for number, word in enumerate(wider)]
        novel = {noun for noun in nouns if noun not in of_noun}
        of_noun |= {noun: [wider[noun]] for noun in novel}
        return cls(wider, word_aliases, of_noun)


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


class NovelObjectCaptioning:
    """Writes captions again that leave out what a lens is sure of, without the words that it doubts.

    Args:
        captioner: with a beam search.
        lens: of its encoder, calibrated with photos.
    """

    def __init__(self, captioner: Captioner, lens: Lens) -> None:
        self.captioner, self.lens = captioner, lens
        self.words = ThingWords.of(lens, captioner.vocabulary)
        self.candidates = [place for place, noun in enumerate(lens.nouns.names) if noun in self.words.of_noun]

    def missing(self, regions: Regions, caption: Caption) -> str | None:
        """The noun that the lens is surest of and the caption does not name; None if there is none.

        Args:
            regions: (1, L, D) of the encoder.
            caption: of this model, with weights over them.
        """
        if not caption.words or not self.lens.out_of_distribution(regions, caption.image):
            return None
        probabilities = self._probabilities(regions, caption)
        if not self._questionable(caption, probabilities):
            return None
        highest, nouns = probabilities.amax(0), self.lens.nouns
        surest = highest[self.candidates]
        said = nouns.said([caption.text])
        for place in surest.argsort(descending=True).tolist():
            if float(surest[place]) < LEAST:
                break
            noun = nouns.names[self.candidates[place]]
            kind = nouns.everyday(self.lens.less_general(noun, highest))
            noun = kind if self.lens.places[kind] in self.candidates else noun
            if noun not in said:
                return noun
        return None

    def __call__(self, views: Views, captions: Sequence[Caption]) -> list[Caption]:
        """The captions, those written again that leave something out.

        Args:
            views: of B images, from the encoder.
            captions: of this model, one of each image, with weights over the first view.
        """
        captions = list(captions)
        wanted: dict[int, str] = {}
        unwanted: list[set[str]] = []
        for index, caption in enumerate(captions):
            regions = regions_of(views, index)
            if noun := self.missing(regions, caption):
                wanted[index] = noun
                unwanted.append(self._doubted(regions, caption))
        if wanted:
            again = select_images(views, torch.tensor([*wanted], device=views[0].vectors.device))
            written = self.write(again, [captions[index] for index in wanted], [*wanted.values()], unwanted)
            for index, new in zip(wanted, written, strict=True):
                if new is None:
                    captions[index].unnamed = [wanted[index]]
                else:
                    captions[index] = new
        return captions

    def write(
        self,
        views: Views,
        captions: Sequence[Caption],
        wanted: Sequence[str],
        unwanted: Sequence[set[str]],
    ) -> list[Caption | None]:
        """Captions that name the noun which is wanted of each of B images; None where none reads well.

        Args:
            views: of the images, from the encoder.
            captions: earlier ones, which know what part of the photo the regions cover.
            wanted: see `missing`.
            unwanted: words that captions of each image must not say.
        """
        search = self.captioner.search
        search = search if isinstance(search, BeamSearch) else BeamSearch()
        search = replace(search, beam_size=SENTENCES, candidates=SENTENCES)
        constrained = ConstrainedBeamSearch(search, self._automaton(wanted, unwanted))
        word_aliases = partial(with_word_aliases, word_aliases=self.words.word_aliases)
        hypotheses = self.captioner.generate(views, constrained, [LIKELIEST_WORDS, word_aliases])
        seen = [Box(*(caption.seen or caption.box)) for caption in captions]
        grids = self.captioner.grids(views)
        written: list[Caption | None] = []
        found = self.captioner.captions(hypotheses, grids, seen, vocabulary=self.words.vocabulary)
        for best, caption, noun in zip(found, captions, wanted, strict=True):
            new = next((one for one in (best, *best.alternatives) if self._reads_well(one, noun)), None)
            if new is not None:
                new.words = with_articles(new.words)
                new.text = self.words.vocabulary.tokenizer.join(new.words)
                new.image, new.named, new.replaced = caption.image, [noun], caption.text
                new.alternatives = caption.alternatives
            written.append(new)
        return written

    def _reads_well(self, caption: Caption, noun: str) -> bool:
        """Whether a caption that names a noun is English, and as probable as captions of known photos."""
        calibration = self.lens.calibration
        fluent = calibration is None or self.lens.fluency(caption) >= calibration.least_fluency
        words = {self.words.vocabulary[number] for number in self.words.of_noun[noun]} & {*caption.words}
        return fluent and len(words) == 1 and agrees(caption.words, *words)

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

    def _automaton(self, wanted: Sequence[str], unwanted: Sequence[set[str]]) -> Automaton:
        """Captions that name these nouns, say no other word for which one stands in, and none that is not wanted."""
        ids, vocabulary = [self.words.of_noun[noun] for noun in wanted], self.words.vocabulary
        automaton = mentioning([[words] for words in ids], len(vocabulary))
        known = torch.tensor([number == word for word, number in enumerate(self.words.word_aliases)])
        allowed = known.repeat(len(wanted), 1)
        for image, words in enumerate(unwanted):
            allowed[image, [vocabulary[word] for word in words if word in vocabulary]] = False
            allowed[image, ids[image]] = True
        return automaton._replace(transitions=automaton.transitions.where(allowed[:, None], -1))


def lens_postprocessors(captioner: Captioner, lens: Lens) -> list[Postprocessor]:
    """What `Captioner.postprocessors` takes to read captions with a lens.

    Before the lens comes the naming of novel objects, if the lens can tell photos that are unlike its own.
    """
    if lens.calibration is None or lens.calibration.known is None:
        return [lens]
    return [NovelObjectCaptioning(captioner, lens), lens]
