"""The study of models: what is measured, and its tables."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import planted, tiny_captioner

from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.adversary import Adversaries
from caption.analysis.faithfulness.curves import FaithfulnessCurves
from caption.analysis.faithfulness.interchange import WEIGHTS, Interchange
from caption.analysis.faithfulness.permutation import Permutation
from caption.analysis.named_groups import count_named
from caption.analysis.pointing_game import Grounding, Pointing
from caption.analysis.study import Images, Subject, study, tables
from caption.analysis.study import subject as subject_module
from caption.analysis.study.subject import TRAINING_SCENES, Pointed
from caption.analysis.table import Table, Value
from caption.attention import MultiHeadAttention
from caption.data.photo_boxes import BoxedPhoto
from caption.decoders import ShowAttendAndTellDecoder
from caption.errors import UserError
from caption.metrics.significance import Estimate, difference
from caption.models.model_zoo import load
from caption.result import AttentionMaps, Caption
from caption.text.mentions import Mention

WORDS = ("red", "circle", "above", "the")
SCENES = 40
COUNTS = (0, 1, 2, 4, 8, 16)


def curves(heights: dict[str, float], left: dict[str, float] | None = None) -> FaithfulnessCurves:
    """Curves of every word in every scene: from 1 to `left` of the word, over a height given for each order."""
    words = [(scene, word) for scene in range(SCENES) for word in WORDS]
    ends = [(left or {}).get(word, 0.1) for _, word in words]
    curves = {}
    for order, height in heights.items():
        deletion = [[[1.0, *[height] * 4, end]] for end in ends]
        curves["deletion", order] = np.log(deletion)
        curves["insertion", order] = np.log([[[end, *[1 - height] * 4, 1.0]] for end in ends])
    return FaithfulnessCurves(
        tuple(word for _, word in words), np.array([scene for scene, _ in words]), COUNTS, curves
    )


def exchanged(follows: float, permuted: float = 0.1) -> Interchange:
    """One pair in every scene; the other word comes in the given number of scenes."""

    def share(part: float) -> np.ndarray:
        return (np.arange(SCENES) < part * SCENES).astype(float)

    came = dict(zip(WEIGHTS, (share(0), share(follows), share(permuted)), strict=True))
    stayed = {name: 1 - values for name, values in came.items()}
    others = np.array(["blue"] * SCENES)
    return Interchange(("red",) * SCENES, np.arange(SCENES), others, came, stayed, came)


def subject(name: str = "mine") -> Any:
    """What was measured of a model whose attention is right about everything."""
    words = tuple(WORDS) * SCENES
    images = np.repeat(np.arange(SCENES), len(WORDS))
    heights = {"attention": 0.2, "random": 0.6, "occlusion": 0.19}
    caption = Caption(
        "red circle", ["red", "circle"], np.full((2, 4, 4), 1 / 16), 0, np.zeros(2), (0, 0, 8, 8)
    )
    numbers = (0.5, 0.04, 0.75, 0.8)
    ways = {way: curves(heights, {"above": 0.9, "the": 0.8}) for way in ("removed", "replaced")}
    naming = Images([""] * SCENES, naming={"colours": frozenset({"red"}), "shapes": frozenset({"circle"})},
                    other_words={"relations": frozenset({"above"})})  # fmt: skip
    about = naming.about(ways["removed"])
    areas = [about.area("deletion", order) for order in ("attention", "random")]
    return SimpleNamespace(
        name=name, captioner=None, images=naming, photos=naming.photos, captions=[caption] * SCENES, curves=ways,
        faithfulness=difference(*areas, about.images),
        adversaries=Adversaries(words, images, *(np.full(len(words), n) for n in numbers), np.zeros((len(words), 16))),
        counted=lambda activity: nullcontext(iter(naming.photos)),
    )  # fmt: skip


def test_numbers_that_round_to_zero_have_no_sign():
    assert str(Value(Estimate(-0.0004, -0.1, -0.0001))) == "0.000 [-0.100, 0.000]"
    assert str(Value(Estimate(-0.004, -0.1, 0.25), is_share=True)) == "0 % [-10, 25]"


def rows(table: Table | None, *cells: str) -> list[list[str]]:
    """The other cells of the rows that begin with some cells."""
    assert table is not None
    lines = [list(map(str, row)) for row in table.rows]
    return [line[len(cells) :] for line in lines if line[: len(cells)] == [*cells]]


def test_curves_are_about_naming_words_and_by_class_about_all():
    table = tables.faithfulness([subject("one"), subject("two")])
    # Of naming words: heights 0.2 (0.8) and 0.6 (0.4) between the ends 1 and 0.1, at COUNTS of 16 regions.
    for name in ("one", "two"):
        for way in ("removed", "replaced"):
            ((deletion, insertion, fall),) = rows(table, name, way, "attention")
            assert deletion.startswith("0.200 [")
            assert insertion.startswith("0.828 [")
            assert fall.startswith("1.61 [")  # log 5
            assert rows(table, name, way, "random")[0][0].startswith("0.488 [")
    assert table.headline[0].startswith("0.288 [")
    assert "by 0.288 [0.287, 0.288] more than hiding them at random" in table.findings[0]
    by_class = tables.classes([subject()])
    assert [row[0] for row in rows(by_class, "mine")] == [
        f"{words} (40)" for words in ("colours", "shapes", "relations", "other words")
    ]
    relations = rows(by_class, "mine", "relations (40)")[0]
    assert [cell.partition(" ")[0] for cell in relations] == ["1.000", "0.900", "0.400", "0.688"]


def test_maps_are_measured_by_words_and_captions():
    found = tables.adversary([subject()])
    cells = rows(found, "mine", "colours (40)")[0]
    assert [cell.partition(" ")[0] for cell in cells] == ["0.500", "0.040", "0.750", "0.800"]
    # Uniform maps: log 16 = 2.77 nats, without change.
    entropy = tables.entropy([subject()])
    assert rows(entropy, "mine", "its own")[0][:2] == ["2.77 [2.77, 2.77]", "0.00 [0.00, 0.00]"]
    assert "of log L = 2.77 nats, as if α were even over 16 of 16 regions" in entropy.findings[0]


def test_other_maps_have_the_measure_of_their_column(monkeypatch: pytest.MonkeyPatch):
    words = tuple(WORDS) * SCENES
    images = np.repeat(np.arange(SCENES), len(WORDS))
    is_naming = np.isin(words, ["red", "circle"])
    numbers = {"permuted": np.where(is_naming, 1.0, 9.0), "other word": np.full(len(words), np.nan)}
    measured = Permutation(words, images, np.zeros(len(words)), numbers, numbers, numbers)
    monkeypatch.setattr(tables, "permute", lambda *args: measured)
    table = tables.permutation([subject()])
    assert rows(table, "mine", "permuted") == [
        ["1.00 [1.00, 1.00]", "1.000 [1.000, 1.000]", "100 % [100, 100]"]
    ]
    assert rows(table, "mine", "other word") == [["–", "–", "–"]]
    monkeypatch.setattr(tables, "interchange", lambda *args: exchanged(0.9))
    other = rows(tables.exchange([subject()]), "mine", "shapes (40)", "of the other")[0]
    assert [cell.partition(" [")[0] for cell in other] == ["90 %", "10 %", "0.90"]


def test_agreement_of_two_models(monkeypatch: pytest.MonkeyPatch):
    words, images = ("red", "the"), np.array([0, 1])
    measures = {"same cell": np.array([1.0, 0.0]), "overlap": np.array([0.5, 0.25])}
    unknown = {name: np.array([0.25, np.nan]) for name in measures}
    agreed = {("one", "two"): Agreement(words, images, measures, measures, unknown)}
    monkeypatch.setattr(tables, "agree", lambda *args: agreed)
    table = tables.agreement([subject("one"), subject("two")])
    every, naming = "0.500 [0.000, 1.000]", "0.500 [0.500, 0.500]"
    assert rows(table, "one / two", "all", "same cell") == [[every, every, "0.250 [0.250, 0.250]"]]
    assert rows(table, "one / two", "naming", "overlap") == [[naming, naming, "0.250 [0.250, 0.250]"]]
    assert "Give several models" in tables.agreement([subject()]).missing


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
    assert len(images.training) == TRAINING_SCENES


MAN, DOG = Mention("man", 0, ((0, 0, 1, 1),)), Mention("dog", 1, ((0, 0, 1, 1),))
UNKNOWN = Mention("sky", 2, ((0, 0, 1, 1),))


def test_the_middle_stands_beside_each_kind_and_each_frequent_word(monkeypatch: pytest.MonkeyPatch):
    """The maps hit each man and no dog, and the middle the reverse; a word of no kind is in the whole alone."""
    mentions = [
        (0, MAN),
        (0, DOG),
        (0, UNKNOWN),
        (1, MAN),
        (1, Mention("woman", 0, MAN.boxes)),
        (1, DOG),
        (1, MAN),
    ]

    def played(hit: str) -> Grounding:
        return Grounding(tuple(Pointing(n, one, float(one.name == hit), 0, 0.5, 0) for n, one in mentions))

    kinds = {"man": "person", "woman": "person", "dog": "animal"}
    photos = [BoxedPhoto(Path(name), {}, kinds) for name in "ab"]
    fake = SimpleNamespace(
        groundings={"own maps": played("man"), "middle cell": played("dog")},
        pointed=Pointed([], photos, np.arange(2)), images=Images([]), parts=lambda maps: Subject.parts(fake, maps),
        images_of=lambda grounding: grounding.captions,
    )  # fmt: skip
    monkeypatch.setattr(subject_module, "WORDS", 2)
    found = [
        (name, words, round(hits.estimate.mean, 2)) for name, words, hits, _ in tables._grounding_rows(fake)
    ]
    assert found == [
        ("own maps", 7, 0.43),
        *[("own maps, animal", 2, 0), ("middle cell, animal", 2, 1)],
        *[("own maps, person", 4, 0.75), ("middle cell, person", 4, 0)],
        *[('own maps, "man"', 3, 1), ('middle cell, "man"', 3, 0)],
        *[('own maps, "dog"', 2, 0), ('middle cell, "dog"', 2, 1)],
        ("middle cell", 7, 0.29),
    ]


def test_each_single_map_plays_and_the_best_is_chosen_on_other_images():
    heads = np.array([[[[0.4, 0.6]], [[1.0, 0.0]]]])  # (T, M, rows, cols): the second head points at the dog
    first, second = (
        Caption(
            "dog", ["dog"], of_image[:, 0], 0, np.zeros(1), (0, 0, 2, 1),
            maps=AttentionMaps({"layer 0 heads": of_image}),
        )
        for of_image in (heads, heads[:, ::-1])
    )  # fmt: skip
    photos = [BoxedPhoto(Path(name), {"dog": DOG.boxes}, {}) for name in "ab"]
    fake: Any = SimpleNamespace(
        name="mine", pointed=Pointed([first, second], photos, np.arange(2)), images=Images(["a", "b"], photos),
        images_of=lambda grounding: grounding.captions, grounding=lambda captions: Subject.grounding(fake, captions),
    )  # fmt: skip
    table = tables.single_maps([fake])
    assert [row[:2] + [cell.split(" [")[0] for cell in row[2:]] for row in rows(table, "mine")] == [
        ["the best, chosen on other images", "2", "0 %", "40 %"],
        ["mean of layer 0 heads", "2", "100 %", "70 %"],
        ["layer 0 heads[0]", "2", "50 %", "70 %"],
        ["layer 0 heads[1]", "2", "50 %", "70 %"],
    ]
    assert (
        "of 3 maps, mean of layer 0 heads points best; chosen on other images, the best map points at 0 %"
        in (table.findings[0])
    )


@pytest.mark.parametrize("spoken", [0, 1])
def test_maps_are_not_exchanged_between_fewer_than_two_captions(spoken: int, monkeypatch: pytest.MonkeyPatch):
    captioner = tiny_captioner.captioner()
    spoke = [SimpleNamespace(words=["a"] * (number < spoken)) for number in range(3)]
    monkeypatch.setattr(captioner, "describe_each", lambda photos: iter(spoke))
    with pytest.raises(UserError, match=f"--model mine: {spoken} of its 3 captions have words"):
        Subject("mine", captioner, Images(["a", "b", "c"]))


def test_a_model_that_names_nothing_of_shapes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject_module, "TRAINING_SCENES", 2)
    with pytest.raises(UserError, match="--model mine: its captions name no object of Shapes, such as"):
        study({"mine": tiny_captioner.captioner()}, Images.of_shapes(tmp_path, 2))


def test_measures_are_chosen_by_name():
    with pytest.raises(UserError, match="there is no measure 'faith': the measures are grounding, "):
        study({"mine": tiny_captioner.captioner()}, Images(["a", "b"]), ["faith"])


def test_a_study_of_a_model_with_heads_removes_them(tmp_path: Path):
    decoder = ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), 6, 7)
    model = tiny_captioner.captioner(decoder=decoder)
    paths = [str(tmp_path / f"{seed}.png") for seed in range(2)]
    for seed, path in enumerate(paths):
        tiny_captioner.photo(seed=seed).save(path)
    result = study({"mine": model}, Images(paths), ["heads", "faithfulness"])
    assert [row[1] for row in result.tables["heads"].rows] == [0, 1, 2]
    assert "without the 1 of its 2 heads" in result.text()
    assert set(result.to_dict()) == {"models", "heads", "faithfulness", "captions"}
