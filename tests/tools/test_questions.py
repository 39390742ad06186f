"""The tool that asks open questions on Shapes: zones, frames, and what is measured of models whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner as tiny
from torch import nn

from caption.analysis.lens import Lens
from caption.analysis.lens.unnamed_nouns import NounUses
from caption.analysis.replay import Replay, Step
from caption.attention import AdditiveScore, MultiHopAttention, SentinelAttention
from caption.attention.sentinel import SentinelMaps
from caption.box import Box
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.data.shapes import Shapes
from caption.data.shapes.render import render
from caption.data.shapes.scene import COLOURS, JITTER, NAMES, Object, Scene
from caption.decoders import AdaptiveDecoder, ShowAttendAndTellDecoder
from caption.encoders import CrossAttentionRefiner, MetaEmbeddingRefiner, Refiner, SeveralEncoders, SmallCNN
from caption.encoders.classifier import Classifier
from caption.models.model_zoo import load
from caption.visualize.figure_file import NotebookFigure
from tools.questions import __main__ as tool
from tools.questions import dilution, encoders, hops, knowing, relations
from tools.questions import sentinel as sentinels
from tools.questions.bench import Answer, Sentence
from tools.questions.zones import PLACES, ZONES, even_on, zones

LEFT, RIGHT = Object("red", "circle", 4, 24, 16), Object("blue", "square", 44, 24, 16)


@pytest.fixture(scope="module")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> Sentence:
    """Two objects beside each other, named from left to right."""
    path = tmp_path_factory.mktemp("scene") / "scene.png"
    render(Scene((LEFT, RIGHT))).save(path)
    words = ["a", "red", "circle", "to", "the", "left", "of", "a", "blue", "square"]
    boxes: dict[str, Any] = {thing.name: [Box(*map(float, thing.box))] for thing in (LEFT, RIGHT)}
    return Sentence(str(path), 0, words, 2, 9, boxes)


def small(refiner: Refiner | None = None, **parts: Any) -> Captioner:
    """A model of 64 pixels that knows no word of the sentence."""
    return tiny(transform=ImageTransform(64, "squash"), refiner=refiner, **parts)


def test_zones_cover_the_scene_once(sentence: Sentence):
    parts = zones(small(), (16, 16), sentence)
    assert parts.shape == (len(ZONES), 256)
    assert parts.sum(0) == pytest.approx(np.ones(256))
    first, second, between, third, _ = parts
    assert (
        first.reshape(16, 16).sum(0).nonzero()[0].max()
        < 8
        <= second.reshape(16, 16).sum(0).nonzero()[0].min()
    )
    assert between.reshape(16, 16)[8] == pytest.approx([0] * 5 + [1] * 6 + [0] * 5)
    assert third.sum() == 0
    places = even_on(torch.from_numpy(parts)[None])
    assert places.shape == (1, len(PLACES) - 1, 256)
    assert places.sum(-1)[0].tolist() == pytest.approx([1] * 6)


def test_a_frame_has_the_objects_at_0_and_1(sentence: Sentence):
    map_ = zones(small(), (64, 64), sentence)
    at = {"first": 0.0, "second": 1.0}
    for number, place in enumerate(at.values()):
        picture = relations.framed(sentence, map_[number].reshape(64, 64))
        heavy = np.argwhere(np.nan_to_num(picture) > 0.5 * np.nanmax(picture))
        rows, columns = heavy.mean(0)
        assert (columns + 0.5) / relations.CELLS * 4 - 1.5 == pytest.approx(place, abs=0.15)
        assert (rows + 0.5) / relations.CELLS * 4 - 2 == pytest.approx(0, abs=0.15)


def test_a_trained_model_is_made_to_look_at_the_deciding_word(sentence: Sentence):
    looked = relations.look(load("shapes"), [sentence])
    assert sentence.words[sentence.relation] == "to"
    assert looked.masses.sum() == pytest.approx(1, abs=1e-4)
    assert looked.areas.sum() == pytest.approx(1)
    assert looked.log_probs.shape == looked.right.shape == (1, len(PLACES))
    assert looked.log_probs[0, 0] > -1
    assert len(set(looked.log_probs[0].round(3))) == len(PLACES)


def test_hops_that_are_even_are_not_missed(sentence: Sentence):
    torch.manual_seed(0)
    decoder = ShowAttendAndTellDecoder(
        MultiHopAttention(AdditiveScore(6), hops=3), embedding_size=6, hidden_size=7
    )
    model = small(decoder=decoder)
    measured = hops.measure(model, [sentence])
    assert list(measured) == list(hops.KINDS)
    for of in measured.values():
        assert of.masses.shape == (1, 3, len(ZONES))
        assert of.masses.sum(-1) == pytest.approx(np.ones((1, 3)), abs=1e-4)
        assert of.falls.shape == (1, 4)
    with torch.no_grad():
        decoder.attention.score.energy.weight.zero_()
    for of in hops.measure(model, [sentence]).values():
        assert of.falls == pytest.approx(np.zeros((1, 4)), abs=1e-5)
        assert of.apart == pytest.approx([0], abs=1e-6)
    assert "| 0 | 3 |" in hops.report({0: measured})
    assert len(hops.draw({0: measured}).axes) == 2


def test_a_finer_grid_has_the_same_weights(sentence: Sentence):
    model = load("shapes")
    for regions in dilution.REGIONS:
        other = dilution.on_grid(model, regions)
        (view,) = other.encode([sentence.photo])
        assert view.vectors.shape == (1, regions, 128)
        assert other.decoder is model.decoder
    assert model.transform.size == 64
    spread = dilution.measure(dilution.on_grid(model, 256), [sentence])
    assert len(spread.mass) == 2  # both shapes
    assert ((spread.in_use > 1 / 256) & (spread.in_use <= 1)).all()


@pytest.mark.parametrize("make", [MetaEmbeddingRefiner, CrossAttentionRefiner])
def test_an_encoder_that_nothing_is_read_from_is_not_missed(make: Any, sentence: Sentence):
    two = SeveralEncoders([SmallCNN((4, 4, 6)), SmallCNN((4, 4, 6))])
    model = small(make(8) if make is MetaEmbeddingRefiner else make(8, heads=2, dropout=0), encoder=two)
    found = encoders.measure(model, [sentence])
    assert set(found.kinds) == set(hops.KINDS)
    assert ((found.shares > 0) & (found.shares < 1)).all()
    assert found.falls.any(0).all()
    with torch.no_grad():
        if make is MetaEmbeddingRefiner:  # the second's score is far below the first's
            model.refiner.score.weight.fill_(1)
            for project, bias in zip(model.refiner.project, (50.0, -50.0), strict=True):
                project.bias.fill_(bias)
        else:
            model.refiner.layers.attend[0].join.weight.zero_()
            model.refiner.layers.attend[0].join.bias.zero_()
    found = encoders.measure(model, [sentence])
    assert found.shares == pytest.approx(np.zeros(len(found.shares)), abs=1e-6)
    assert found.falls[:, 1] == pytest.approx(np.zeros(len(found.falls)), abs=1e-5)


def test_a_sentinel_that_nothing_is_read_from_is_not_missed(sentence: Sentence):
    torch.manual_seed(0)
    decoder = AdaptiveDecoder(SentinelAttention(AdditiveScore(6)), embedding_size=6, hidden_size=7)
    model = small(decoder=decoder)
    of = sentinels.measure(model, [sentence])
    assert list(of.words) == sentence.words
    naming = ["colours", "shapes"]
    assert list(of.kinds) == ["others", *naming, "relation", *["others"] * 4, *naming]
    assert ((of.shares > 0) & (of.shares < 1)).all()
    assert [number for number, hit in enumerate(of.hits) if hit in (0, 1)] == [
        sentence.subject,
        sentence.object,
    ]
    assert (np.abs(of.falls) > 1e-4).any(0).all()
    with torch.no_grad():
        decoder.from_context.weight.zero_()
    of = sentinels.measure(model, [sentence])
    assert of.falls == pytest.approx(np.zeros((len(sentence.words), 2)), abs=1e-6)

    models = {sentinels.Model(sentinels.LEARNS, dropout, 0): of for dropout in sentinels.DROPOUTS}
    assert "| learns with it | 0.5 | 0 |" in sentinels.report(models)
    (ax,) = sentinels.draw(models).axes
    assert len(ax.get_xticklabels()) == len(set(sentence.words))


def test_a_word_is_made_to_read_the_regions_alone_or_the_sentinel_alone():
    given: list[SentinelMaps] = []

    class Recorder:
        def rerun(self, step: Step, maps: dict[str, SentinelMaps]) -> Any:
            given.extend(maps.values())

    weights = SentinelMaps(torch.tensor([[[0.1, 0.3]]]), torch.tensor([[[0.6]]]))
    step = Step(**{**dict.fromkeys(Step._fields), "maps": {"attention": weights}})  # type: ignore[arg-type]
    sentinels.forced(cast("Replay", Recorder()), step)
    (forced,) = given
    torch.testing.assert_close(forced.regions, torch.tensor([[[0.25, 0.75], [0, 0]]]))
    torch.testing.assert_close(forced.sentinel, torch.tensor([[[0.0], [1.0]]]))


def test_the_pictures_of_single_things_are_what_their_labels_say():
    pictures, labels = knowing.single_things(8, seed=3)
    assert pictures.shape == (8, 3, 64, 64)
    again, _ = knowing.single_things(8, seed=3)
    assert torch.equal(pictures, again)
    for picture, label in zip(pictures, labels, strict=True):
        colour, _ = NAMES[label].split()
        far = (picture.permute(1, 2, 0).int() - torch.tensor(COLOURS[colour])).abs().amax(-1)
        assert 30 < (far <= JITTER).sum() < 22 * 22


def test_the_words_of_several_models_are_told_together(tmp_path: Path):
    images = Shapes(str(tmp_path), train=1, val=1, test=3).read()["test"]
    torch.manual_seed(0)
    lens = Lens(Classifier(nn.Linear(128, len(NAMES))), knowing.things())
    model = load("shapes")
    one, two = (knowing.measure([model] * count, lens, images) for count in (1, 2))
    assert set(one.words) <= set(NAMES)
    assert len(one) >= 4
    assert not one.unnamed.any()
    assert two.words == one.words * 2
    assert two.images.tolist() == one.images.tolist() * 2
    assert two.surprise["own map"] == pytest.approx(np.tile(one.surprise["own map"], (2, 1)), rel=1e-5)


def test_a_wrong_pair_may_join_what_two_things_have():
    words, wrong = (
        ("red circle", "red square", "blue star", "red circle"),
        np.array([True, True, True, False]),
    )
    uses = NounUses(words, np.array([0, 0, 1, 1]), wrong, {}, {})
    scenes = [{"red square", "blue circle"}, {"red circle", "blue square"}]
    assert knowing.joining(uses, scenes) == pytest.approx(2 / 3)


def test_a_classifier_learns_what_single_things_are():
    pictures, labels = knowing.single_things(20, seed=0)
    network = knowing.train_classifier(pictures, labels, epochs=60)
    with torch.no_grad():
        found = network(pictures).argmax(-1)
    assert float((found == labels).double().mean()) > 0.8


def test_an_answer_is_written_into_its_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    document = tmp_path / "questions.md"
    document.write_text("# Mine\n\n<!-- section hops begins -->\nold\n<!-- section hops ends -->\n")
    monkeypatch.setitem(
        tool.QUESTIONS, "hops", lambda bench, seeds: Answer(f"seeds {seeds}", NotebookFigure())
    )
    places = ["--out", str(tmp_path / "runs"), "--document", str(document)]
    assert tool.main(["hops", "--seeds", "4", *places]) == 0
    assert "seeds [4]" in document.read_text()
    assert (tmp_path / "questions_hops.png").exists()
    with pytest.raises(SystemExit, match="2"):
        tool.main(["hope", *places])
    assert "no question is called hope" in capsys.readouterr().err
