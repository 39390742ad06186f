"""Captions that name what a lens is sure of, with a tiny model and a lens made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner as tiny_captioner
from helpers.tiny_captioner import photo
from helpers.tiny_lens import hand_lens

from caption.analysis.lens import Calibration, Lens, novel_objects
from caption.analysis.lens.novel_objects import NovelObjectCaptioning, ThingWords, lens_postprocessors
from caption.captioner import Captioner
from caption.cli.describe.printer import remarks
from caption.core.box import Box
from caption.core.regions import Regions
from caption.results.caption import Caption
from caption.search import BeamSearch
from caption.text.nouns import Nouns
from caption.text.vocabulary import END, START, Vocabulary

NOUNS = Nouns(
    [("tabby", "cat"), ("Irish terrier", "terrier"), ("zebra", "zebra"), ("kettle", "kettle"), ("groom", "groom")],
    [("animal", "", []), ("cat", "animal", ["kitten"]), ("dog", "animal", ["pup"]), ("terrier", "dog", []),
     ("zebra", "animal", []), ("kettle", "", ["pot"]), ("person", "", []), ("groom", "person", [])],
)  # fmt: skip
CAT, TERRIER, ZEBRA, KETTLE, GROOM = range(5)
LOOKS = torch.eye(5, 6)
LOOKS[ZEBRA, TERRIER] = LOOKS[KETTLE, CAT] = 0.2
"""Regions of six numbers, the first five of which are the classes; a zebra looks a little like a terrier."""
CALIBRATION = Calibration(
    (1.0, 0.0, 0.0, 0.0, 0.0),
    known=torch.eye(6, dtype=torch.uint8)[:1] * 255,  # photos of cats
    neighbours=1,
    farthest=0.5,
    doubtful={"dog": 0.3, "cat": 0.3},  # where the thing has less probability
)


def lens_of(sharpness: float = 12.0, **known: Any) -> Lens:
    return hand_lens(NOUNS, sharpness * LOOKS, replace(CALIBRATION, **known))


def seeing(*classes: int) -> Regions:
    """64 regions of a photo in each quarter of which another class is seen."""
    vectors = torch.zeros(1, 64, 6)
    for place, number in enumerate(classes):
        vectors[0, 16 * place : 16 * (place + 1), number] = 1.0
    return Regions(vectors, (8, 8))


def looking(words: Sequence[str], *quarters: int) -> Caption:
    """A caption each of whose words looks at a quarter."""
    weights = np.zeros((len(words), 4, 16))
    weights[np.arange(len(quarters)), list(quarters)] = 1 / 16
    maps = weights.reshape(-1, 8, 8)
    return Caption(" ".join(words), list(words), maps, -1.0, np.zeros(len(words)), (0, 0, 8, 8))


@pytest.fixture
def model() -> Captioner:
    """Its decoder reads six numbers, as the lens does, and often ends its captions."""
    model = tiny_captioner(search=BeamSearch(3, 8, length_normalization=2.5))
    with torch.no_grad():
        model.decoder.readout.to_words.bias[END] = 2.0  # type: ignore[union-attr, operator, index]
    return model


@pytest.fixture
def any_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random weights of the model know no grammar."""
    monkeypatch.setattr(novel_objects, "agrees", lambda words, thing: True)


ZEBRAS = seeing(ZEBRA, ZEBRA, ZEBRA, ZEBRA)


def test_new_words_have_the_most_similar_known_ones_as_aliases() -> None:
    vocabulary = Vocabulary(["a", "cat", "dog", "dogs", "sits", "terrier"])
    words = ThingWords.of(lens_of(), vocabulary)
    assert words.vocabulary.words[: len(vocabulary)] == vocabulary.words
    new = words.vocabulary.words[len(vocabulary) :]
    assert sorted(new) == ["groom", "grooms", "kettle", "kettles", "zebra", "zebras"]
    assert words.word_aliases[: len(vocabulary)] == [*range(len(vocabulary))]
    stand_in = {word: vocabulary[words.word_aliases[words.vocabulary[word]]] for word in new}
    # A terrier is a dog, whose only class it is; "dog" comes first among equals.
    assert (stand_in["zebra"], stand_in["zebras"]) == ("dog", "dogs")
    # "cats" is not known, so "cat" stands in for both.
    assert (stand_in["kettle"], stand_in["kettles"]) == ("cat", "cat")
    of_noun = {noun: [words.vocabulary[number] for number in ids] for noun, ids in words.of_noun.items()}
    assert of_noun["zebra"] == ["zebra"], "new words are said in the singular"
    assert of_noun["dog"] == ["dog", "dogs"]
    assert "animal" not in of_noun


def test_words_that_the_model_hardly_knows_have_aliases_too() -> None:
    vocabulary = Vocabulary(["a", "cat", "dog", "zebra", "zebras"])
    words = ThingWords.of(lens_of(), vocabulary, vocabulary["zebra"])
    for word in ("dog", "zebra", "zebras"):
        assert words.word_aliases[vocabulary[word]] == vocabulary["dog"]


def test_missing_is_what_the_lens_is_surest_of_and_the_caption_does_not_say(model: Captioner) -> None:
    naming, regions = NovelObjectCaptioning(model, lens_of()), seeing(KETTLE, ZEBRA, TERRIER, GROOM)

    def missing(words: list[str], *quarters: int, seen: Regions = regions) -> str | None:
        return naming.missing(seen, looking(words, *quarters))

    assert missing(["a", "dog"], 0, 1) in ("kettle", "zebra")
    assert missing(["a", "dog"], 2, 1) in ("zebra", "terrier"), "known words can be wanted, too"
    assert missing(["dog", "zebra"], 1, 1) is None, "it is said"
    assert missing(["dog", "zebras"], 0, 1) == "kettle"
    assert missing([]) is None
    assert missing(["person", "sits"], 1, 1) == "zebra", "nothing could be doubted"
    assert missing(["kettle"], 1) is None, "nothing is known about how kettles are read"
    cats = seeing(CAT, ZEBRA, CAT, CAT)
    assert missing(["dog"], 1, seen=cats) is None, "it is mostly of cats, as known photos"
    unsure = NovelObjectCaptioning(model, lens_of(1.0))
    assert unsure.missing(regions, looking(["dog"], 1)) is None


@pytest.mark.usefixtures("any_english")
def test_captions_are_written_again_with_what_was_missing(model: Captioner) -> None:
    lens = lens_of(doubtful=dict.fromkeys(model.vocabulary.words, 0.5))
    generator = torch.Generator().manual_seed(0)
    noise = 0.01 * torch.rand(3, 64, 6, generator=generator)
    seen = [seeing(number, number, number, number) for number in (ZEBRA, CAT, KETTLE)]
    views = (Regions(torch.cat([one.vectors for one in seen]) + noise, (8, 8)),)
    first = list(model.captions(model.generate(views), [(8, 8)], [Box(0, 0, 32, 32)] * 3))
    assert all(caption.words for caption in first)
    written = NovelObjectCaptioning(model, lens)(views, first)
    assert "zebra" in written[0].words
    assert "kettle" in written[2].words
    assert written[1] is first[1], "it is like the photos that the lens knows"
    for caption in written:
        assert caption.weights.shape == (len(caption.words), 8, 8)
        new = {*caption.words} - {*model.vocabulary.words}
        assert len(new) <= 1, "no other new word is said"


@pytest.mark.usefixtures("any_english")
def test_a_new_word_is_as_likely_as_its_stand_in(model: Captioner) -> None:
    """With the new word in the stand-in's place the model gives the caption the same log-probability."""
    naming, views = NovelObjectCaptioning(model, lens_of()), (ZEBRAS,)
    written = naming.write(views, [looking(["a"], 0)], ["zebra"], [set()])[0]
    assert written is not None
    ids = [naming.words.word_aliases[naming.words.vocabulary[word]] for word in written.words]
    assert max(ids) < len(model.vocabulary)
    inputs, count = torch.tensor([[[START, *ids]]]), torch.tensor([[len(ids) + 1]])
    with torch.no_grad():
        unrolled = model.unroll(views, inputs, count)
    targets = torch.tensor([*ids, END])
    terms = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0].gather(1, targets[:, None])
    assert written.finished
    assert written.log_prob == pytest.approx(float(terms.sum()), abs=1e-4)


@pytest.mark.usefixtures("any_english")
def test_words_where_another_thing_is_seen_are_not_said_again(model: Captioner) -> None:
    naming = NovelObjectCaptioning(model, lens_of())
    zebra = ZEBRAS._replace(vectors=ZEBRAS.vectors + 0.01 * torch.rand(1, 64, 6))
    first = looking(["cat", "sits"], 0, 1)
    written = naming((zebra,), [first])[0]
    assert "zebra" in written.words
    assert not {"cat", "cats"} & {*written.words}
    allowed = naming.write((zebra,), [first], ["zebra"], [set()])[0]
    assert allowed is not None
    assert "cat" in allowed.words


@pytest.mark.usefixtures("any_english")
def test_a_caption_stays_if_no_sentence_with_the_thing_reads_well(
    model: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that is less probable than captions of known photos nor one that is not English; a note says what is
    seen."""
    lens = lens_of()
    naming, first = NovelObjectCaptioning(model, lens), looking(["cat", "sits"], 0, 1)
    zebra = (ZEBRAS,)
    written = naming(zebra, [first])[0]
    assert (written.named, written.unnamed) == (["zebra"], [])
    assert lens.calibration is not None
    lens.calibration = replace(lens.calibration, least_fluency=lens.fluency(written))
    assert naming(zebra, [first])[0].text == written.text, "it is as probable as it must be"
    lens.calibration = replace(lens.calibration, least_fluency=-0.001)
    (kept,) = lens(zebra, naming(zebra, [first]))
    assert kept is first
    assert (kept.named, kept.unnamed, kept.to_dict()["unnamed"]) == ([], ["zebra"], ["zebra"])
    assert "sees zebra, and has no good sentence with it" in remarks(kept)
    lens.calibration = replace(lens.calibration, least_fluency=-100.0)
    monkeypatch.setattr(novel_objects, "agrees", lambda words, thing: False)
    assert naming(zebra, [first])[0] is first


def test_fluency_leaves_out_the_nouns() -> None:
    caption = looking(["a", "cat", "sits"], 0, 1, 2)
    caption.word_log_probs, caption.log_prob = np.array([-1.0, -50.0, -3.0]), -56.0
    assert lens_of().fluency(caption) == pytest.approx((-1 - 3 - 2) / 3)


@pytest.mark.usefixtures("any_english")
def test_the_model_for_photos_names_what_is_seen_in_photos_that_are_unlike(model: Captioner) -> None:
    lens = lens_of(doubtful=dict.fromkeys(model.vocabulary.words, 0.5), known=None)
    assert lens_postprocessors(model, lens) == [lens], "it cannot tell them"
    lens = lens_of(doubtful=dict.fromkeys(model.vocabulary.words, 0.5))
    model.postprocessors = lens_postprocessors(model, lens)
    model.encoder.forward = lambda images: (ZEBRAS,)  # type: ignore[method-assign]
    caption = model(photo())
    assert caption.named == ["zebra"]
    assert "zebra" in caption.words
    assert remarks(caption)[1] == f"names zebra, which is seen; was: {caption.replaced}"
    assert caption.lens is not None
    assert len(caption.lens.words) == len(caption.words) == len(caption.likeliest or [])
    assert caption.to_dict()["replaced"] == caption.replaced != caption.text
    model.postprocessors = [lens]
    assert (model(photo()).text, model(photo()).named) == (caption.replaced, [])
