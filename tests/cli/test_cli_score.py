"""`caption score`, from files to stdout."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Cli

IMAGES = range(1, 9)
COLORS = ["red", "blue", "green", "black", "white", "brown", "gray", "pink"]
REFERENCES = {
    "images": [{"id": image, "file_name": f"photo_{image}.jpg"} for image in IMAGES],
    "annotations": [
        {"id": 10 * image + place, "image_id": image, "caption": f"A {color} dog runs on {count} mats."}
        for image, color in zip(IMAGES, COLORS, strict=True)
        for place, count in enumerate(("two", "three", "some"))
    ],
}
GOOD = [{"image_id": image, "caption": f"a {COLORS[image - 1]} dog runs on two mats"} for image in IMAGES]
BAD = [{"image_id": image, "caption": "a cat"} for image in IMAGES]
Score = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def score(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Score:
    """Runs the command on files of the working directory; gives exit code, stdout (parsed, if JSON) and stderr."""
    monkeypatch.chdir(tmp_path)
    files = {"references": REFERENCES, "good": GOOD, "bad": BAD, "part": GOOD[:3]}
    for name, content in files.items():
        Path(f"{name}.json").write_text(json.dumps(content))

    def run(*candidates: str, options: str = "", json_: bool = True) -> tuple[int, Any, str]:
        files = ("--references", "references.json", "--candidates", *candidates)
        ran = cli("score", *files, *options.split(), *["--format", "json"] * json_)
        return ran.code, json.loads(ran.out) if json_ and ran.out else ran.out, ran.err

    return run


def test_one_file_as_json_and_as_text(score: Score):
    code, plain, err = score("good.json")
    assert (code, err) == (0, "")
    assert set(plain) == {"scores", "signature"}
    assert plain["scores"]["BLEU-4"] == pytest.approx(1)
    assert plain["signature"].startswith("tok:ptb-1|case:lower|punct:removed|refs:3|bp:on|n:8|")
    _, out, _ = score("bad.json", json_=False)
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert float(lines["BLEU-1"][0]) == pytest.approx(0.5 * 0.0821, abs=1e-4)  # 1 of 2 words, e^(1 − 7/2)
    assert lines["ROUGE-L"]
    assert out.splitlines()[-1].startswith("tok:ptb-1|")


def test_candidates_from_standard_input_named_by_file(score: Score, monkeypatch):
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["image", "text"])
    writer.writerows([f"/photos/photo_{entry['image_id']}.jpg", entry["caption"]] for entry in GOOD)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.getvalue().encode())))
    code, plain, _ = score("-")
    assert (code, plain["scores"]["BLEU-4"]) == (0, pytest.approx(1))


def test_several_files_are_compared_with_the_first(score: Score):
    code, plain, _ = score("bad.json", "good.json")
    bad, good = plain["candidates"]
    assert (code, bad["file"], good["file"]) == (0, "bad.json", "good.json")
    assert "comparison" not in bad
    assert good["comparison"]["BLEU-1"]["difference"] > 0.9
    assert good["comparison"]["BLEU-1"]["p_value"] < 0.05
    steering = "a\x1b[2J\nb\u202e.json"
    shutil.copy("good.json", steering)
    code, out, err = score("bad.json", steering, options="--protocol x=\x1b[2J", json_=False)
    assert (code, r"a\x1b[2J\nb\u202e less bad" in out) == (0, True)
    assert not {"\x1b", "\u202e"} & {*out, *err}


def test_different_scores_that_are_printed_as_zero_are_not_compared(score: Score):
    """Without a 4-gram that matches, BLEU-4 depends on its smoothing alone."""
    captions = [{"image_id": image, "caption": f"a {COLORS[image - 1]} dog sits on mats"} for image in IMAGES]
    Path("other.json").write_text(json.dumps(captions))
    _, plain, _ = score("bad.json", "other.json")
    bad, other = plain["candidates"]
    assert 0 < bad["scores"]["BLEU-4"] != other["scores"]["BLEU-4"] < 5e-5
    assert other["comparison"]["BLEU-4"] is None
    assert other["comparison"]["BLEU-1"]["difference"] > 0
    assert other["comparison"]["CIDEr"] is not None
    _, out, _ = score("bad.json", "other.json", json_=False)
    lines = out.partition("other less bad")[2].splitlines()
    assert [line.split()[0] for line in lines if line.startswith("BLEU")] == ["BLEU-1", "BLEU-2", "BLEU-3"]
    _, plain, _ = score("bad.json", "bad.json")
    assert plain["candidates"][1]["comparison"]["BLEU-4"]["p_value"] == 1


def test_scores_of_one_image_have_no_table_of_differences(score: Score):
    Path("one.json").write_text(json.dumps(GOOD[:1]))
    code, out, _ = score("one.json", "one.json", options="--partial", json_=False)
    assert (code, "less" in out) == (0, False)


def test_one_bad_file_does_not_take_the_others_along(score: Score):
    code, plain, err = score("missing.json", "part.json", "good.json")
    assert code == 1
    assert [entry["file"] for entry in plain["candidates"]] == ["good.json"]
    assert "missing.json' does not exist" in err
    assert "part.json': 5 of 8 images have no candidate: 4, 5, 6 and 2 more" in err
    assert "--partial" in err
    code, plain, _ = score("part.json", options="--partial")
    assert code == 0
    assert "|n:3|" in plain["signature"]
    code, plain, err = score("good.json", "part.json", options="--partial")
    assert "part.json has different images than" in err
    assert not any("comparison" in entry for entry in plain["candidates"])


def test_odd_captions_are_counted_and_blank_references_refused(score: Score):
    data = json.loads(json.dumps(REFERENCES))
    for note, text in zip(
        data["annotations"], ("un garÃ§on", "un garÃ§on", "a dog<br>", "a dog"), strict=False
    ):
        note["caption"] = text
    data["annotations"][3]["is_rejected"] = True
    data["annotations"][-1]["caption"] = "..."
    Path("references.json").write_text(json.dumps(data))
    code, _, err = score("good.json")
    assert code == 0
    assert "'references.json' has 2 captions in a wrong encoding: entry 0 of 'annotations' in" in err
    assert "has 1 caption with markup" in err
    assert "has 1 rejected caption" in err
    assert "1 images have a reference without words, which lowers scores: 8" in err
    data["annotations"][0]["caption"] = " "
    Path("references.json").write_text(json.dumps(data))
    code, _, err = score("good.json")
    assert code == 2
    assert "1 images have a blank reference: 1. Delete it" in err


def test_languages_without_spaces(score: Score):
    data = json.loads(json.dumps(REFERENCES))
    for note in data["annotations"]:
        note["caption"] = "一只 黑色 的 狗 在 草地 上 奔跑"
    Path("references.json").write_text(json.dumps(data))
    ids = sorted({note["image_id"] for note in data["annotations"]})
    whole = [{"image_id": number, "caption": "一只黑色的狗在草地上奔跑"} for number in ids]
    Path("whole.json").write_text(json.dumps(whole))
    code, _, err = score("whole.json")
    assert code != 0
    assert "the candidates give no words: they are Chinese" in err
    for note in data["annotations"]:
        note["caption"] = whole[0]["caption"]
    Path("references.json").write_text(json.dumps(data))
    code, scored, err = score("whole.json", options="--tokenizer characters --conventions")
    assert (code, scored["scores"]["BLEU-4"]) == (0, pytest.approx(1.0))
    assert "--conventions is left out: in the tokenizer ptb, the references give no words" in err


def test_intervals_conventions_and_other_options(score: Score):
    options = "--confidence --conventions"
    _, plain, _ = score("bad.json", options=options)
    low, high = plain["intervals"]["BLEU-1"]
    assert (low, high) == pytest.approx((plain["scores"]["BLEU-1"],) * 2)  # all images score the same
    without = plain["conventions"]["without brevity penalty"]
    assert without["scores"]["BLEU-1"] == pytest.approx(0.5)
    assert "|bp:off|" in without["signature"]
    _, out, _ = score("bad.json", options=options, json_=False)
    assert "conventions, bad" in out
    assert "without brevity penalty" in out
    assert "[0.0410, 0.0410]" in out
    _, plain, _ = score("bad.json", options="--tokenizer none --protocol beam=5 --metrics BLEU")
    assert plain["signature"].startswith("tok:none-1|case:kept|punct:kept|refs:3|bp:on|n:8|beam:5|v:")
    assert plain["scores"]["BLEU-1"] == pytest.approx(0)  # "a" is not in "A red dog runs on two mats."


def test_unavailable_scores_are_null_with_a_reason(score: Score, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, plain, _ = score("good.json", options="--metrics BLEU METEOR-1.5")
    assert (code, plain["scores"]["METEOR-1.5"]) == (0, None)
    assert "Java" in plain["reasons"]["METEOR-1.5"]
    code, out, _ = score("good.json", options="--metrics METEOR-1.5", json_=False)
    assert code == 1  # without any score
    assert "not computed" in out
    assert "METEOR-1.5: Java is missing" in out


def test_splits_of_the_references(cli: Cli, tmp_path: Path):
    (tmp_path / "r.csv").write_text("image,caption,split\n1,a dog,test\n2,a cat,train\n")
    (tmp_path / "c.csv").write_text("image,caption\n1,a dog\n")
    files = ("--references", tmp_path / "r.csv", "--candidates", tmp_path / "c.csv")
    scores = json.loads(cli("score", *files, "--split", "test", "--format", "json").out)
    assert "|split:test|" in scores["signature"]
    assert scores["reasons"]["CIDEr"].startswith("0 for any captions, because there is one image")
