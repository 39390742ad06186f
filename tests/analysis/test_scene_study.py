"""The study of models on scenes: what is measured, and its tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from caption.analysis import scene_study
from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.adversary import Adversaries
from caption.analysis.faithfulness.curves import FaithfulnessCurves
from caption.analysis.faithfulness.interchange import WEIGHTS, Interchange
from caption.analysis.faithfulness.permutation import Permutation
from caption.analysis.pointing_game import Grounding, Pointing
from caption.analysis.scene_study import TRAINING_SCENES, Scenes, Study, make_scenes, play
from caption.analysis.study_tables import make_tables
from caption.errors import UserError
from caption.models.model_zoo import load
from caption.result import Caption
from caption.text.mentions import Mention

WORDS = ("red", "circle", "above", "the")
SCENES = 40
COUNTS = (0, 1, 2, 4, 8, 16)


def grounding(accuracy: float) -> Grounding:
    mention = Mention("red circle", 1, ((0, 0, 1, 1),))
    hits = [1.0] * round(accuracy * SCENES) + [0.0] * round((1 - accuracy) * SCENES)
    return Grounding(tuple(Pointing(k, mention, hit, 0.1, hit / 2, 0.1) for k, hit in enumerate(hits)))


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

    def share(of: float) -> np.ndarray:
        return (np.arange(SCENES) < of * SCENES).astype(float)

    came = dict(zip(WEIGHTS, (share(0), share(follows), share(permuted)), strict=True))
    stayed = {name: 1 - values for name, values in came.items()}
    others = np.array(["blue"] * SCENES)
    return Interchange(("red",) * SCENES, np.arange(SCENES), others, came, stayed, came)


def study(name: str = "mine", **given: Any) -> Any:
    """A study in which attention is right about everything, unless overridden."""
    words = tuple(WORDS) * SCENES
    images = np.repeat(np.arange(SCENES), len(WORDS))
    heights = {
        "attention": 0.2, "random": 0.6, "gradient": 0.3, "gradient x input": 0.35, "gradient of hiding": 0.32,
        "occlusion": 0.19,
    }  # fmt: skip
    numbers = {"permuted": np.ones(len(words)), "uniform": np.zeros(len(words))}
    caption = Caption(
        "red circle", ["red", "circle"], np.full((2, 4, 4), 1 / 16), 0, np.zeros(2), (0, 0, 8, 8)
    )
    maps = {"its own maps": 0.9, "maps of another image": 0.2, "uniform": 0.1}
    fields = {
        "captions": [caption] * SCENES,
        "groundings": {drawn: grounding(accuracy) for drawn, accuracy in maps.items()},
        "curves": {way: curves(heights, {"above": 0.9, "the": 0.8}) for way in ("removed", "replaced")},
        "permutation": Permutation(words, images, np.zeros(len(words)), numbers, numbers, numbers),
        "adversaries": Adversaries(
            words,
            images,
            *(np.full(len(words), value) for value in (0.5, 0.04, 0.75, 0.8)),
            np.zeros((len(words), 16)),
        ),
        "exchanges": {"colours": exchanged(1), "shapes": exchanged(0.9)},
        "captioner": None,
    }
    return Study(name=name, **{**fields, **given})


def tables(*studies: Any, agreements: Any = None) -> dict[str, str]:
    return make_tables(studies, agreements or {}, Scenes([""] * SCENES, [], [], 0.22), "curves.png")


def rows(table: str, *cells: str) -> list[list[str]]:
    """The other cells of the rows that begin with some cells."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [line[len(cells) :] for line in lines if line[: len(cells)] == [*cells]]


def test_tables_have_a_row_for_everything_measured():
    found = tables(study("one"), study("two"))
    for name in ("one", "two"):
        assert [row[:2] for row in rows(found["grounding"], name)] == [
            ["its own maps", "0.900 [0.800, 0.975]"],
            ["maps of another image", "0.200 [0.100, 0.350]"],
            ["uniform", "0.100 [0.025, 0.200]"],
        ]
        # Uniform maps: log 16 = 2.77 nats, without change.
        assert rows(found["maps"], name)[0][:2] == ["2.77 [2.77, 2.77]", "0.00 [0.00, 0.00]"]
        for order in ("**α**", "random", "gradient", "gradient x input", "gradient of hiding", "occlusion"):
            assert len(rows(found["faithfulness"], name, order)) == 2  # removed and replaced
        for words, count in (("colours", 40), ("shapes", 40), ("relations", 40), ("other words", 40)):
            assert len(rows(found["classes"], name, f"{words} ({count})")) == 1
            assert len(rows(found["adversary"], name, f"{words} ({count})")) == 1
        assert [row[0] for row in rows(found["permuted"], name)] == ["permuted", "uniform"]
        for weights in ("its own", "of the other", "of the other, permuted"):
            assert len(rows(found["exchanged"], name, "shapes (40)", weights)) == 1
    assert found["agreement"] == "Only one model was given."
    assert "](curves.png)" in found["faithfulness"]
    assert f"{SCENES} scenes" in found["setting"]
    assert "σ = 0.22" in found["setting"]
    assert "log L = 2.77" in found["setting"]


def test_cells_have_the_measure_of_their_column():
    found = tables(study())
    # Of naming words: heights 0.2 (0.8) and 0.6 (0.4) between the ends 1 and 0.1, at COUNTS of 16 regions.
    deletion, insertion, fall = rows(found["faithfulness"], "mine", "**α**")[0]
    assert deletion.startswith("0.200 [")
    assert insertion.startswith("0.828 [")
    assert fall.startswith("1.61 [")  # log 5
    assert rows(found["faithfulness"], "mine", "random")[0][0].startswith("0.488 [")
    relations = rows(found["classes"], "mine", "relations (40)")[0]
    assert [cell.partition(" ")[0] for cell in relations] == ["1.000", "0.900", "0.400", "0.688"]
    assert rows(found["permuted"], "mine", "permuted") == [
        ["1.00 [1.00, 1.00]", "1.000 [1.000, 1.000]", "100 % [100, 100]"]
    ]
    adversary = rows(found["adversary"], "mine", "colours (40)")[0]
    assert [cell.partition(" ")[0] for cell in adversary] == ["0.500", "0.040", "0.750", "0.800"]
    other = rows(found["exchanged"], "mine", "shapes (40)", "of the other")[0]
    assert [cell.partition(" [")[0] for cell in other] == ["90 %", "10 %", "0.90"]


def test_agreement_of_two_models():
    words, images = ("red", "the"), np.array([0, 1])
    measures = {"same cell": np.array([1.0, 0.0]), "overlap": np.array([0.5, 0.25])}
    unknown = {name: np.array([0.25, np.nan]) for name in measures}
    agreed = {("one", "two"): Agreement(words, images, measures, measures, unknown)}
    table = tables(study("one"), study("two"), agreements=agreed)["agreement"]
    every, naming = "0.500 [0.000, 1.000]", "0.500 [0.500, 0.500]"
    assert rows(table, "one / two", "all", "same cell") == [[every, every, "0.250 [0.250, 0.250]"]]
    assert rows(table, "one / two", "naming", "overlap") == [[naming, naming, "0.250 [0.250, 0.250]"]]


def test_the_maps_played_are_those_they_are_called(tmp_path):
    scenes = make_scenes(tmp_path, 6)
    captions = load("shapes").describe(list(scenes.photos))
    played = play(captions, scenes)
    assert list(played) == [
        "its own maps", "maps of another word", "maps of another image", "centre prior", "uniform",
    ]  # fmt: skip
    assert played["uniform"].accuracy == pytest.approx(played["its own maps"].chance)
    assert played["its own maps"].accuracy > 0.5 > played["maps of another image"].accuracy
    assert played["centre prior"].mass > played["uniform"].mass
    assert 0.15 < scenes.sigma < 0.3
    assert len(scenes.training) == TRAINING_SCENES


@pytest.mark.parametrize("spoken", [0, 1])
def test_maps_are_not_exchanged_between_fewer_than_two_captions(
    spoken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scenes, captioner = make_scenes(tmp_path, 3), load("shapes")
    spoke = [SimpleNamespace(words=["a"] * (number < spoken)) for number in range(3)]
    monkeypatch.setattr(captioner, "describe", lambda photos: spoke)
    with pytest.raises(UserError, match=f"--model mine: {spoken} of its 3 captions have words"):
        scene_study.study("mine", captioner, scenes)
