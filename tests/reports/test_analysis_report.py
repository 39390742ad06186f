"""The tool that writes docs/analysis.md: a short run, and the agreement of its sentences with its numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.curves import Erasure
from caption.analysis.faithfulness.interchange import WEIGHTS, Interchange
from caption.analysis.faithfulness.permutation import Permutation
from caption.analysis.grounding import Grounding, Mention, Pointing
from caption.cli import analyse as verb
from caption.decoders.initial import ConstantState, InitialState
from caption.errors import UserError
from caption.models.model_zoo import load
from caption.reports import analysis as tool
from caption.reports.analysis_tables import Setting, write_report
from caption.reports.documents import read_sections
from caption.result import Caption

WORDS = ("red", "circle", "above", "the")
SCENES = 40
COUNTS = (0, 1, 2, 4, 8, 16)


def grounding(accuracy: float) -> Grounding:
    mention = Mention("red circle", 1, ((0, 0, 1, 1),))
    hits = [1.0] * round(accuracy * SCENES) + [0.0] * round((1 - accuracy) * SCENES)
    return Grounding(tuple(Pointing(k, mention, hit, 0.1, hit / 2, 0.1) for k, hit in enumerate(hits)))


def noisy(values: Any) -> np.ndarray:
    values = np.asarray(values)
    return values * np.random.default_rng(0).uniform(0.97, 1.0, (len(values), 1, 1))


def erasure(heights: dict[str, float], left: dict[str, float] | None = None) -> Erasure:
    """Curves of every word in every scene: from 1 to `left` of the word, over a height given for each order."""
    words = [(scene, word) for scene in range(SCENES) for word in WORDS]
    ends = [(left or {}).get(word, 0.1) for _, word in words]
    curves = {}
    for order, height in heights.items():
        deletion = [[[1.0, *[height] * 4, end]] for end in ends]
        curves["deletion", order] = np.log(noisy(deletion))
        curves["insertion", order] = np.log(noisy([[[end, *[1 - height] * 4, 1.0]] for end in ends]))
    return Erasure(tuple(word for _, word in words), np.array([scene for scene, _ in words]), COUNTS, curves)


def exchanged(follows: float, permuted: float = 0.1) -> Interchange:
    """One pair in every scene; the other word comes in the given number of scenes."""

    def share(of: float) -> np.ndarray:
        return (np.arange(SCENES) < of * SCENES).astype(float)

    came = dict(zip(WEIGHTS, (share(0), share(follows), share(permuted)), strict=True))
    stayed = {name: 1 - values for name, values in came.items()}
    others = np.array(["blue"] * SCENES)
    return Interchange(("red",) * SCENES, np.arange(SCENES), others, came, stayed, came)


def analysis(name: str = "mine", **given: Any) -> Any:
    """An analysis in which attention is right about everything, unless overridden."""
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
        "erasures": {way: erasure(heights, {"above": 0.9, "the": 0.8}) for way in ("removed", "replaced")},
        "permutation": Permutation(words, images, np.zeros(len(words)), numbers, numbers, numbers),
        "exchanges": {"colours": exchanged(1), "shapes": exchanged(0.9)},
        "seconds": 2.34,
        "captioner": starting(ConstantState()),
    }
    return tool.Analysis(name=name, **{**fields, **given})


def starting(initial: Any) -> Any:
    return SimpleNamespace(decoder=SimpleNamespace(initial=initial))


def page(*analyses: Any, agreements: Any = None) -> dict[str, str]:
    return write_report(analyses, agreements or {}, Setting(SCENES, 0.22, 2, "curves.png"))


def answer(question: str, **given: Any) -> list[str]:
    """What was measured for a question of the summary, and the answer."""
    rows = page(analysis(**given))["summary"].split("\n")[2:]
    (row,) = [row for row in rows if row.startswith(f"| mine | {question}")]
    return [cell.strip() for cell in row.split("|")[3:-1]]


def test_an_attention_that_is_right_about_everything():
    assert page(analysis())["summary"].split("\n")[2:] == [
        "| mine | looks at what it names | more accurate than maps of another image and uniform | yes |",
        "| mine | attention is the reason for these words | "
        "97 to 97 % of the way to the best order; ahead of α: occlusion in 4 | faithful |",  # 0.40 of 0.41
        "| mine | needs the look at its step | colours 100 % [100, 100], shapes 100 % [100, 100], "
        "relations 0 % [0, 0] and other words 0 % [0, 0] | colours and shapes |",
        "| mine | the word follows the look | more than by chance, and mostly: colours and shapes | yes |",
    ]


def test_a_lead_within_the_interval_is_not_reported():
    close = {"its own maps": grounding(0.5), "uniform": grounding(0.1), "centre prior": grounding(0.55)}
    assert answer("looks", groundings=close) == ["more accurate than uniform", "not shown"]


@pytest.mark.parametrize(
    ("heights", "measured", "verdict"),
    [
        ({"attention": 0.6, "random": 0.6}, "ahead of α: none", "not shown: beats chance in 0 of 4 tests"),
        (
            {"attention": 0.8, "random": 0.6},
            "ahead of α: random in 4",
            "not shown: beats chance in 0 of 4 tests",
        ),
        (
            {"attention": 0.3, "random": 0.6, "gradient": 0.25},
            "85 to 85 % of the way to the best order; ahead of α: gradient in 4",
            "in part",
        ),
    ],
)
def test_attention_that_is_no_reason_is_not_called_one(heights, measured, verdict):
    found = answer("attention", erasures={way: erasure(heights) for way in ("removed", "replaced")})
    assert found[0].endswith(measured)
    assert found[1] == verdict


@pytest.mark.parametrize(
    ("replaced", "measured", "verdict"),
    [
        ({"attention": 0.4, "random": 0.6, "occlusion": 0.2}, "50 to 100 %", "in part"),
        ({"attention": 0.6, "random": 0.6}, "0 to 100 %", "not shown: beats chance in 2 of 4 tests"),
    ],
)
def test_the_least_of_the_tests_decides(replaced, measured, verdict):
    curves = {"removed": erasure({"attention": 0.2, "random": 0.6}), "replaced": erasure(replaced)}
    found = answer("attention", erasures=curves)
    assert found[0].startswith(measured)
    assert found[1] == verdict


def test_a_word_independent_of_attention_is_not_reported_as_dependent():
    heights, left = {"attention": 0.2, "random": 0.6}, dict.fromkeys(WORDS, 0.9)
    knowing = {way: erasure(heights, left) for way in ("removed", "replaced")}
    assert answer("needs", erasures=knowing)[1] == "none"
    needing = {way: erasure(heights) for way in ("removed", "replaced")}
    assert answer("needs", erasures=needing)[1] == "colours, shapes, relations and other words"


@pytest.mark.parametrize(
    ("colours", "shapes", "verdict"),
    [
        (exchanged(0.9), exchanged(0.8), "yes"),
        (exchanged(0.9), exchanged(0.4), "in part"),
        (exchanged(0.9), exchanged(0.9, permuted=0.9), "in part"),
        (exchanged(0.1), exchanged(0.4, permuted=0.5), "not shown"),
        (exchanged(0.9), exchanged(0.9).only([]), "yes"),
        (exchanged(0.9).only([]), exchanged(0.9).only([]), "not measured"),
    ],
)
def test_a_word_that_does_not_follow_is_not_said_to(colours, shapes, verdict):
    assert answer("the word", exchanges={"colours": colours, "shapes": shapes})[1] == verdict


def test_the_effect_of_the_first_state_is_reported():
    blind, told = analysis("one"), analysis("two", captioner=starting(InitialState()))
    both = page(blind, told)["setting"]
    assert "The LSTM of one starts from a learned constant" in both
    assert "The LSTM of two starts from the image" in both
    assert "starts from the image" not in page(blind)["setting"]
    assert "learned constant" not in page(told)["setting"]


def test_tables_have_a_row_for_everything_measured():
    words, images = ("red", "the"), np.array([0, 1])
    measures = {"same cell": np.array([1.0, 0.0]), "overlap": np.array([0.5, 0.25])}
    unknown = {name: np.array([0.25, np.nan]) for name in measures}
    agreed = {("one", "two"): Agreement(words, images, measures, measures, unknown)}
    sections = page(analysis("one"), analysis("two"), agreements=agreed)
    text = "\n\n".join(sections.values())
    for name in ("one", "two"):
        for maps in ("its own maps", "maps of another image", "uniform"):
            assert text.count(f"| {name} | {maps} |") == (2 if maps == "uniform" else 1)
        for order in ("**α**", "random", "gradient", "gradient x input", "gradient of hiding", "occlusion"):
            assert text.count(f"| {name} | {order} |") == 2  # removed and replaced
        for weights in ("its own", "of the other", "of the other, permuted"):
            assert f"| {name} | shapes (40) | {weights} |" in text
        for kind in ("colours (40)", "shapes (40)", "relations (40)", "other words (40)"):
            assert f"| {name} | {kind} |" in text
    assert (
        "| one / two | all | same cell | 0.500 [0.000, 1.000] | 0.500 [0.000, 1.000] | 0.250 [0.250, 0.250] |"
        in text
    )
    assert "| one / two | naming | overlap | 0.500 [0.500, 0.500] |" in text
    assert page(analysis())["agreement"] == "Only one model was given."
    assert "](curves.png)" in text
    assert "σ = 0.22" in text
    assert "took 2.3 s (one) and 2.3 s (two) on 2 threads." in text
    # Uniform maps: log 16 = 2.77 nats, without change.
    assert "log L = 2.77" in text
    assert "| one | 2.77 [2.77, 2.77] | 0.00 [0.00, 0.00] |" in text


def test_the_whole_run_writes_page_and_figure(tmp_path, capsys):
    out = tmp_path / "page.md"
    assert verb.main(["--limit", "3", "--model", "soft=shapes", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "soft: grounding, captions included:" in said.err
    text = out.read_text(encoding="utf-8")
    assert "`caption analyse --model soft=shapes --limit 3`" in text
    assert read_sections(out)["setting"].startswith("3 scenes, by `caption analyse")
    assert "## Limits" in text
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert "](page.png)" in text
    assert "The LSTM of soft starts from a learned constant" in text


def test_the_maps_played_are_those_they_are_called(tmp_path):
    scenes = tool.make_scenes(tmp_path, 6)
    captions = load("shapes").describe(list(scenes.photos))
    played = tool.play(captions, scenes)
    assert list(played) == [
        "its own maps", "maps of another word", "maps of another image", "centre prior", "uniform",
    ]  # fmt: skip
    assert played["uniform"].accuracy == pytest.approx(played["its own maps"].chance)
    assert played["its own maps"].accuracy > 0.5 > played["maps of another image"].accuracy
    assert played["centre prior"].mass > played["uniform"].mass
    assert 0.15 < scenes.sigma < 0.3
    assert len(scenes.training) == tool.TRAINING_SCENES


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "shapes"], "--model shapes: write NAME=MODEL"),
        (["--model", "a=shapes", "--model", "a=shapes-hard"], "--model a=shapes-hard: write NAME=MODEL"),
        (["--model", "a=nowhere"], "no checkpoint nowhere"),
        (["--limit", "1"], "--limit 1"),
        (["--out", "nowhere/page.md"], "--out nowhere/page.md"),
        (["--out", "page.txt"], "--out page.txt"),
    ],
)
def test_wrong_usage_is_named_before_the_work_begins(arguments, complaint):
    with pytest.raises(UserError, match=complaint):
        verb.main(arguments)
