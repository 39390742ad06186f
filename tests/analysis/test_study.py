"""The study of models: what is measured, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import planted, tiny_captioner

from caption.analysis.agreement import agree
from caption.analysis.faithfulness.interchange import interchange
from caption.analysis.faithfulness.permutation import permute
from caption.analysis.map_statistics import entropies
from caption.analysis.named_groups import count_named
from caption.analysis.study import Images, Subject, dependence, looking, report, study
from caption.analysis.study import images as images_module
from caption.analysis.study import subject as subject_module
from caption.analysis.study.images import Pointed
from caption.analysis.study.scale import Scale
from caption.analysis.table import AnalysisTable, Value
from caption.attention import MultiHeadAttention
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photo_boxes import BoxedPhoto
from caption.decoders import ShowAttendAndTellDecoder
from caption.metrics.significance import Estimate
from caption.models.model_zoo import load
from caption.results.caption import AttentionMaps, Caption
from caption.search import Greedy

MAPS = ([0.1, 0.6, 0.1, 0.1, 0.1, 0.0], [0.0, 0.1, 0.8, 0.1, 0.0, 0.0], [0.0, 0.2, 0.1, 0.0, 0.1, 0.6])
UPPER_MIDDLE = (8 / 3, 0.0, 16 / 3, 4.0)
"""The cell of the word "one"."""


def planted_model(*maps: Sequence[float]) -> Captioner:
    """It says "one two five", each word depending on its region."""
    model = planted.captioner(*maps)
    model.search = Greedy(3)
    return model


def photos(folder: Path, *turns: int) -> list[str]:
    paths = [str(folder / f"{number}.png") for number in range(len(turns))]
    for path, turn in zip(paths, turns, strict=True):
        planted.photo(turn).save(path)
    return paths


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    """Two models on three photos, of which the truth about every word is known."""
    paths = photos(tmp_path_factory.mktemp("study"), 0, 0, 1)
    images = Images(
        paths,
        [BoxedPhoto(Path(path), {word: [UPPER_MIDDLE] for word in planted.WORDS}, {}) for path in paths],
        naming={"low": frozenset({"one", "two"}), "high": frozenset({"four", "five"})},
        other_words={"naught": frozenset({"zero"})},
        training=paths,
    )
    models = {"mine": planted_model(*MAPS), "other": planted_model(*MAPS[::-1])}
    return [Subject(name, model, images) for name, model in models.items()]


def cells(table: AnalysisTable | None, *first: str) -> list[float]:
    """The means in the row that begins with some cells."""
    assert table is not None
    (row,) = [row[len(first) :] for row in table.rows if row[: len(first)] == [*first]]
    return [cell.estimate.mean for cell in row if isinstance(cell, Value)]


NAMING = {"one", "two", "four", "five"}


def test_measures_of_single_words_are_about_naming_words_and_by_class_about_all(subjects: list[Subject]):
    mine, faithfulness = subjects[0], dependence.faithfulness(subjects)
    for way in ("removed", "replaced"):
        for order in ("attention", "random"):
            some = mine.curves[way].only(NAMING)
            areas = [some.area(kind, order) for kind in ("deletion", "insertion")]
            expected = np.mean([*areas, some.fall(order, 4)], 1)
            assert cells(faithfulness, "mine", way, order) == pytest.approx(expected)
    some = mine.curves["removed"].only(NAMING)
    gains = [
        (some.area(kind, "attention") - some.area(kind, "random")).mean()
        for kind in ("deletion", "insertion")
    ]
    assert cells(faithfulness, "mine", "removed", "attention less random") == pytest.approx(gains)
    classes, adversary = dependence.classes([mine]), dependence.adversary([mine])
    for name, words in {"low (5)": {"one", "two"}, "high (2)": {"five"}, "naught (1)": {"zero"},
                        "other words (1)": {"three"}}.items():  # fmt: skip
        curves, maps = mine.curves["removed"].only(words), mine.adversaries.only(words)
        curve = curves.curve("deletion", "attention")
        areas = [curves.area("deletion", order) for order in ("attention", "random")]
        assert cells(classes, "mine", name) == pytest.approx(np.mean([curve[:, 0], curve[:, -1], *areas], 1))
        measures = (maps.divergences, maps.distances, maps.permuted, maps.permuted_distances)
        assert cells(adversary, "mine", name) == pytest.approx(np.mean(measures, 1))
    entropy = looking.entropy([mine])
    values = np.concatenate([entropies(caption) for caption in mine.captions])
    assert cells(entropy, "mine", "its own")[0] == pytest.approx(values.mean())
    assert entropy.rows[0][3] == "1.79", "log L of six regions"


def test_five_captions_of_a_photo_are_no_more_certain_than_one(tmp_path: Path):
    paths = photos(tmp_path, 0, 1, 2)
    boxed = [BoxedPhoto(Path(path), {"one": [UPPER_MIDDLE]}, {}) for path in paths]
    texts = ["one two", "one two five", "five"]

    def intervals(captions: int) -> list[Estimate]:
        references = {path: [text] * captions for path, text in zip(paths, texts, strict=True)}
        model = Subject("mine", planted_model(*MAPS), Images(paths, boxed, references))
        (row,) = [row for row in looking.entropy([model]).rows if row[1] == "people's, with boxes"]
        return [cell.estimate for cell in row if isinstance(cell, Value)]

    for one, five in zip(intervals(1), intervals(5), strict=True):
        assert tuple(five) == pytest.approx(tuple(one))


def test_other_maps_have_the_measure_of_their_column(subjects: list[Subject]):
    mine, table = subjects[0], dependence.permutation(subjects)
    found = permute(mine.captioner, mine.photos, mine.captions).only(NAMING)
    for name, falls in found.falls.items():
        columns = (falls, found.distances[name], found.changed[name])
        assert cells(table, "mine", name) == pytest.approx(np.nanmean(columns, 1))
    table = dependence.exchange([mine])
    pairs = interchange(mine.captioner, mine.photos, {"one", "two"}, mine.captions)
    for name in pairs.follows:
        columns = (pairs.follows[name], pairs.stays[name], pairs.leads[name])
        assert cells(table, "mine", f"low ({len(pairs)})", name) == pytest.approx(np.mean(columns, 1))
    table = looking.agreement(subjects)
    models = {subject.name: subject.captioner for subject in subjects}
    (agreed,) = agree(models, mine.photos, mine.captions).values()
    for words, part in {"all": agreed, "naming": agreed.only(NAMING)}.items():
        for name in part.measures:
            columns = (part.measures[name], part.other_word[name], part.other_image[name])
            assert cells(table, "mine / other", words, name) == pytest.approx(np.nanmean(columns, 1))
    assert "Give several models" in looking.agreement([mine]).missing


def test_numbers_that_round_to_zero_have_no_sign():
    assert str(Value(Estimate(-0.0004, -0.1, -0.0001))) == "0.000 [-0.100, 0.000]"
    assert str(Value(Estimate(-0.004, -0.1, 0.25), is_share=True)) == "0 % [-10, 25]"
    assert str(Value(Estimate(*[np.nan] * 3))) == "–"


def test_a_photo_counts_for_the_group_that_three_people_agree_on():
    said = planted.caption_of("a man with a dog", np.ones((5, 2, 3)))
    references = {
        "man": ["a man", "the man runs", "a guy and his dog"],
        "dog": ["a dog", "two dogs", "a puppy"],
        "man and dog": ["a man and a dog", "a dog", "dogs"],
        "two agree": ["a man", "a man", "nobody"],
    }
    counts = count_named(references, dict.fromkeys(references, said))
    assert {group: photos for group, (photos, _) in counts.items() if photos} == {"man": 1, "dog": 1}
    assert counts["man"][1]["man"] == counts["man"][1]["dog"] == 1
    assert counts["dog"][1]["woman"] == 0


def test_the_maps_played_are_those_they_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def away(captioner: Any, photos: Any, captions: list[Caption]) -> SimpleNamespace:
        """Maps of an adversary: the model's own, turned by half of the grid."""
        numbers = np.repeat(np.arange(len(captions)), [len(caption.words) for caption in captions])
        maps = np.concatenate([caption.weights.reshape(len(caption.words), -1) for caption in captions])
        return SimpleNamespace(images=numbers, weights=np.roll(maps, 36, axis=1))

    monkeypatch.setattr(subject_module, "adversarial_maps", away)
    monkeypatch.setattr(images_module, "TRAINING_SCENES", 20)
    images = Images.of_shapes(tmp_path, 6)
    played = Subject("mine", load("shapes"), images).groundings
    assert list(played) == [
        "own maps", "another word", "another image", "mean map", "middle cell", "any cell (chance)",
        "an adversary's map", "centre prior",
    ]  # fmt: skip
    assert played["any cell (chance)"].accuracy == pytest.approx(played["own maps"].chance)
    assert played["own maps"].accuracy > 0.5 > played["another image"].accuracy
    assert played["centre prior"].mass > played["any cell (chance)"].mass
    assert played["an adversary's map"].accuracy < played["own maps"].accuracy
    assert images.sigma is not None
    assert 0.15 < images.sigma < 0.3
    assert len(images.training) == 20


def test_the_middle_stands_beside_each_kind_and_each_frequent_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """People's words look at the upper middle first, then beside it; the middle is shared with the cell below. A word
    of no kind is in the whole alone."""
    monkeypatch.setattr(subject_module, "WORDS", 2)
    paths = photos(tmp_path, 0, 0)
    boxes = {word: [UPPER_MIDDLE] for word in ("one", "two", "three", "five")}
    kinds = {"one": "small", "two": "small", "five": "large"}
    boxed = [BoxedPhoto(Path(path), boxes, kinds) for path in paths]
    people = {paths[0]: ["one one five", "three"], paths[1]: ["one five two"]}
    mine = Subject("mine", planted_model(*MAPS), Images(paths, boxed, people))
    table = looking.grounding([mine])
    assert table is not None
    found = {name: (words, round(hits.estimate.mean, 2)) for _, name, words, hits, _ in table.rows}
    assert {name: found[name] for name in found if "own" in name or "middle" in name} == {
        "own maps": (7, 0.43),
        "own maps, large": (2, 0),
        "middle cell, large": (2, 0.5),
        "own maps, small": (4, 0.5),
        "middle cell, small": (4, 0.5),
        'own maps, "one"': (3, 0.67),
        'middle cell, "one"': (3, 0.5),
        'own maps, "five"': (2, 0),
        'middle cell, "five"': (2, 0.5),
        "middle cell": (7, 0.5),
        "own maps less middle cell": (7, -0.07),
    }


def test_each_single_map_plays_and_the_best_is_chosen_on_other_images():
    heads = np.array([[[[0.4, 0.6]], [[1.0, 0.0]]]])  # (T, M, rows, cols): the second head points at the dog
    first, second = (
        Caption(
            "dog", ["dog"], of_image[:, 0], 0, np.zeros(1), (0, 0, 20, 10),
            maps=AttentionMaps({"layer 0 heads": of_image}),
        )
        for of_image in (heads, heads[:, ::-1])
    )  # fmt: skip
    boxed = [BoxedPhoto(Path(name), {"dog": [(0, 0, 10, 10)]}, {}) for name in "ab"]
    fake: Any = SimpleNamespace(
        name="mine", pointed=Pointed([first, second], boxed, np.arange(2)), images=Images(["a", "b"], boxed),
        images_of=lambda grounding: grounding.captions, grounding=lambda captions: Subject.grounding(fake, captions),
    )  # fmt: skip
    table = looking.single_maps([fake])
    assert table is not None
    found = [(name, words, hit.estimate.mean, mass.estimate.mean) for _, name, words, hit, mass in table.rows]
    assert found == [
        ("the best, chosen on other images", 2, 0, pytest.approx(0.4)),
        ("mean of layer 0 heads", 2, 1, pytest.approx(0.7)),
        ("layer 0 heads[0]", 2, 0.5, pytest.approx(0.7)),
        ("layer 0 heads[1]", 2, 0.5, pytest.approx(0.7)),
    ]


@pytest.mark.parametrize("spoken", [0, 1])
def test_maps_are_not_exchanged_between_fewer_than_two_captions(spoken: int, monkeypatch: pytest.MonkeyPatch):
    captioner = tiny_captioner.captioner()
    spoke = [SimpleNamespace(words=["a"] * (number < spoken)) for number in range(3)]
    monkeypatch.setattr(captioner, "describe_each", lambda photos: iter(spoke))
    with pytest.raises(UserError, match=f"--model mine: {spoken} of its 3 captions have words"):
        Subject("mine", captioner, Images(["a", "b", "c"]))


def test_a_model_that_names_nothing_of_shapes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images_module, "TRAINING_SCENES", 2)
    with pytest.raises(UserError, match="--model mine"):
        study({"mine": tiny_captioner.captioner()}, Images.of_shapes(tmp_path, 2))


def test_measures_are_chosen_by_name():
    with pytest.raises(UserError, match="'faith'"):
        study({"mine": tiny_captioner.captioner()}, Images(["a", "b"]), ["faith"])


def test_a_study_of_a_model_with_heads_removes_them(tmp_path: Path):
    decoder = ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), 6, 7)
    model = tiny_captioner.captioner(decoder=decoder)
    paths = [str(tmp_path / f"{seed}.png") for seed in range(2)]
    for seed, path in enumerate(paths):
        tiny_captioner.photo(seed=seed).save(path)
    result = study({"mine": model}, Images(paths), ["heads", "faithfulness"])
    assert [row[1] for row in result.tables["heads"].rows] == [0, 1, 2]
    assert result.text().startswith("How many of its heads does it need?\nmodel  heads removed")
    assert set(result.to_dict()) == {"models", "heads", "faithfulness", "captions"}
    pytest.importorskip("pandas")
    frame = result.to_frame("heads")
    assert frame["heads removed"].tolist() == [0, 1, 2]
    falls = result.tables["heads"].rows[2][-1].estimate
    assert frame[["fall of log p", "fall of log p low", "fall of log p high"]].iloc[2].tolist() == [
        *falls[:3]
    ]
    with pytest.raises(UserError, match="no measure 'tails': there are heads, faithfulness"):
        result.to_frame("tails")
    with pytest.raises(UserError, match="no measure 'grounding': Give boxes"):
        study({"mine": model}, Images(paths), ["grounding"]).to_frame("grounding")


def test_the_p_value_of_a_difference_is_that_of_all_exchanges_of_whole_photos():
    images = np.repeat(np.arange(7), 3)
    values = np.random.default_rng(0).normal(0.4, 1, 21)
    values[4] = np.nan
    sums = np.array([np.nansum(values[images == image]) for image in range(7)])
    every = [abs(float(sums @ signs)) for signs in product((-1, 1), repeat=7)]
    exact = np.mean([total >= abs(sums.sum()) - 1e-9 for total in every])
    scale = Scale(values, images)
    assert scale.p_value == pytest.approx(exact, abs=0.01)
    assert scale.words == 20
    assert Scale(np.zeros(3), np.arange(3)).p_value == 1


def test_a_photo_that_is_named_twice_is_taken_once():
    assert Images(["a.jpg", "b.jpg", "./a.jpg"]).photos == ["a.jpg", "b.jpg"]


def test_examples_mark_the_measured_word_of_a_captioner_that_writes_in_pieces(tmp_path: Path):
    tiny_foreign = pytest.importorskip("helpers.tiny_foreign", exc_type=ImportError)
    model = load(f"transformers:{tiny_foreign.save(tiny_foreign.vit_gpt2(), tmp_path / 'model')}")
    paths = photos(tmp_path, 0, 1)
    measured = study({"mine": model}, Images(paths), measures=["faithfulness"])
    curves, captions = measured.subjects[0].curves["removed"], measured.subjects[0].captions
    assert any(len(caption.words) < len(caption.stepwise.words) for caption in captions)
    gains = curves.area("deletion", "random") - curves.area("deletion", "attention")
    shown = report.examples(measured.subjects[0])
    for example in (*shown["best"], *shown["worst"]):
        assert example.caption.words[example.word] == curves.words[gains.tolist().index(example.score)]
    assert "<figure>" in report.report_html(measured, "photos")
