"""`caption score`, from files to stdout."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys

import pytest

from caption.cli.main import run_verb
from caption.errors import UserError

IMAGES = range(1, 9)
COLORS = ["red", "blue", "green", "black", "white", "brown", "gray", "pink"]


def captions(image):
    color = COLORS[image - 1]
    return [f"A {color} dog runs on {count} mats." for count in ("two", "three", "some")]


REFERENCES = {
    "images": [{"id": image, "file_name": f"photo_{image}.jpg"} for image in IMAGES],
    "annotations": [
        {"id": 10 * image + place, "image_id": image, "caption": text}
        for image in IMAGES
        for place, text in enumerate(captions(image))
    ],
}
GOOD = [{"image_id": image, "caption": f"a {COLORS[image - 1]} dog runs on two mats"} for image in IMAGES]
BAD = [{"image_id": image, "caption": "a cat"} for image in IMAGES]


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, content in {"references": REFERENCES, "good": GOOD, "bad": BAD, "part": GOOD[:3]}.items():
        paths[name] = str(tmp_path / f"{name}.json")
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return paths


@pytest.fixture
def score(files, capsys):
    """Runs the command on files of the fixture, by name; gives exit code, stdout (parsed, if JSON) and stderr."""

    def run(*candidates, options=(), json_=True):
        paths = [files.get(name, name) for name in candidates]
        format_ = ["--format", "json"] if json_ else []
        code = run_verb(
            "score", ["--references", files["references"], "--candidates", *paths, *options, *format_]
        )
        out, err = capsys.readouterr()
        return code, json.loads(out) if json_ and out else out, err

    return run


def test_json_of_one_file(score):
    code, plain, err = score("good")
    assert code == 0
    assert err == ""
    assert set(plain) == {"scores", "signature"}
    assert plain["scores"]["BLEU-4"] == pytest.approx(1)
    assert plain["signature"].startswith("tok:ptb-1|case:lower|punct:removed|refs:3|bp:on|n:8|")


def test_json_has_letters_of_all_scripts_as_they_are(score, files, capsys, tmp_path):
    paths = [str(tmp_path / name) for name in ("Bänke.json", "狗.json")]
    for path in paths:
        shutil.copy(files["good"], path)
    assert (
        run_verb("score", ["--references", files["references"], "--candidates", *paths, "--format", "json"])
        == 0
    )
    out = capsys.readouterr().out
    assert [entry["file"] for entry in json.loads(out)["candidates"]] == paths
    assert all(json.dumps(path, ensure_ascii=False) in out for path in paths)


def test_text_has_a_line_for_each_score(score):
    _, out, _ = score("bad", json_=False)
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert float(lines["BLEU-1"][0]) == pytest.approx(0.5 * 0.0821, abs=1e-4)  # 1 of 2 words, e^(1 − 7/2)
    assert lines["ROUGE-L"]
    assert out.splitlines()[-1].startswith("tok:ptb-1|")


def test_candidates_from_standard_input_named_by_file(score, monkeypatch):
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["image", "text"])
    writer.writerows([f"/photos/photo_{entry['image_id']}.jpg", entry["caption"]] for entry in GOOD)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.getvalue().encode())))
    code, plain, _ = score("-")
    assert code == 0
    assert plain["scores"]["BLEU-4"] == pytest.approx(1)


def test_several_files_are_compared_with_the_first(score, files):
    code, plain, _ = score("bad", "good")
    bad, good = plain["candidates"]
    assert code == 0
    assert [bad["file"], good["file"]] == [files["bad"], files["good"]]
    assert "comparison" not in bad
    assert good["comparison"]["BLEU-1"]["difference"] > 0.9
    assert good["comparison"]["BLEU-1"]["p_value"] < 0.05
    _, out, _ = score("bad", "good", json_=False)
    assert "good less bad" in out


def test_one_bad_file_does_not_take_the_others_along(score, files, tmp_path):
    code, plain, err = score(str(tmp_path / "missing.json"), "part", "good")
    assert code == 1
    assert [entry["file"] for entry in plain["candidates"]] == [files["good"]]
    assert "missing.json' does not exist" in err
    assert "part.json': 5 of the 8 images have no candidate: 4, 5, 6 and 2 more" in err
    assert "--partial" in err
    code, plain, _ = score("part", options=["--partial"])
    assert code == 0
    assert "|n:3|" in plain["signature"]
    code, plain, err = score("good", "part", options=["--partial"])
    assert "part.json covers other images than" in err
    assert not any("comparison" in entry for entry in plain["candidates"])


def test_intervals_and_conventions(score):
    options = ["--confidence", "--conventions"]
    _, plain, _ = score("bad", options=options)
    low, high = plain["intervals"]["BLEU-1"]
    assert (low, high) == pytest.approx((plain["scores"]["BLEU-1"],) * 2)  # all images score the same
    without = plain["conventions"]["without brevity penalty"]
    assert without["scores"]["BLEU-1"] == pytest.approx(0.5)
    assert "|bp:off|" in without["signature"]
    _, out, _ = score("bad", options=options, json_=False)
    assert "conventions, bad" in out
    assert "without brevity penalty" in out
    assert "[0.0410, 0.0410]" in out


def test_unavailable_scores_are_null_with_a_reason(score, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, plain, _ = score("good", options=["--metrics", "BLEU", "METEOR-1.5"])
    assert code == 0
    assert plain["scores"]["METEOR-1.5"] is None
    assert "Java" in plain["reasons"]["METEOR-1.5"]
    code, out, _ = score("good", options=["--metrics", "METEOR-1.5"], json_=False)
    assert code == 1  # without any score
    assert "not computed" in out
    assert "METEOR-1.5: Java is missing" in out


def test_options_reach_the_protocol(score):
    options = ["--tokenizer", "none", "--protocol", "beam=5", "--metrics", "BLEU"]
    _, plain, _ = score("bad", options=options)
    assert plain["signature"].startswith("tok:none-1|case:kept|punct:kept|refs:3|bp:on|n:8|beam:5|v:")
    assert plain["scores"]["BLEU-1"] == pytest.approx(
        0
    )  # "a" and "cat" are not in "A red dog runs on two mats."


def test_splits_of_the_references(tmp_path, capsys):
    (tmp_path / "r.csv").write_text("image,caption,split\n1,a dog,test\n2,a cat,train\n")
    (tmp_path / "c.csv").write_text("image,caption\n1,a dog\n")
    paths = ["--references", str(tmp_path / "r.csv"), "--candidates", str(tmp_path / "c.csv")]
    assert run_verb("score", [*paths, "--split", "test", "--format", "json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert "|split:test|" in scores["signature"]
    assert scores["reasons"]["CIDEr"].startswith("0 for any captions, because there is one image")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--candidates", "x"], "does not exist"),
        (["--candidates", "-", "-"], "standard input"),
        (["--candidates", "x", "--metrics", "FOO"], "no metric 'FOO'"),
        (["--candidates", "x", "--metrics", "METEOR"], r"no metric 'METEOR' \(did you mean METEOR-1.5\?\)"),
        (["--candidates", "x", "--protocol", "beam"], "KEY=VALUE"),
    ],
)
def test_wrong_usage_is_a_user_error(arguments, message):
    with pytest.raises(UserError, match=message):
        run_verb("score", ["--references", "/nowhere/r.json", *arguments])


def test_names_of_files_do_not_steer_the_terminal(score, files, tmp_path):
    steering = tmp_path / "a\x1b[2J\nb\u202e.json"
    steering.write_text(json.dumps(GOOD))
    code, table, err = score(str(steering), "bad", json_=False)
    assert code == 0
    assert r"a\x1b[2J\nb\u202e" in table
    assert "\x1b" not in table + err
    assert "\u202e" not in table + err
    assert score(str(steering), "bad", options=["--protocol", "x=\x1b[2J"], json_=False)[1].count("\x1b") == 0
