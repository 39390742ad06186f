"""`caption score`, from files to stdout."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from caption.cli.score import main
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


def run(*arguments, capsys):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_of_one_file(files, capsys):
    arguments = ["--references", files["references"], "--candidates", files["good"], "--format", "json"]
    code, out, err = run(*arguments, capsys=capsys)
    plain = json.loads(out)
    assert code == 0
    assert err == ""
    assert set(plain) == {"scores", "signature"}
    assert plain["scores"]["BLEU-4"] == pytest.approx(1)
    assert plain["signature"].startswith("tok:ptb-1|case:lower|punct:removed|refs:3|bp:on|n:8|")


def test_text_has_a_line_for_each_score(files, capsys):
    _, out, _ = run("--references", files["references"], "--candidates", files["bad"], capsys=capsys)
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert float(lines["BLEU-1"][0]) == pytest.approx(0.5 * 0.0821, abs=1e-4)  # 1 of 2 words, e^(1 − 7/2)
    assert lines["ROUGE-L"]
    assert out.splitlines()[-1].startswith("tok:ptb-1|")


def test_candidates_from_standard_input_named_by_file(files, capsys, monkeypatch):
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["image", "text"])
    writer.writerows([f"/photos/photo_{entry['image_id']}.jpg", entry["caption"]] for entry in GOOD)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.getvalue().encode())))
    code, out, _ = run(
        "--references", files["references"], "--candidates", "-", "--format", "json", capsys=capsys
    )
    assert code == 0
    assert json.loads(out)["scores"]["BLEU-4"] == pytest.approx(1)


def test_several_files_are_compared_with_the_first(files, capsys):
    candidates = [files["bad"], files["good"]]
    arguments = ["--references", files["references"], "--candidates", *candidates]
    code, out, _ = run(*arguments, "--format", "json", capsys=capsys)
    bad, good = json.loads(out)["candidates"]
    assert code == 0
    assert [bad["file"], good["file"]] == candidates
    assert "comparison" not in bad
    assert good["comparison"]["BLEU-1"]["difference"] > 0.9
    assert good["comparison"]["BLEU-1"]["p_value"] < 0.05
    _, out, _ = run(*arguments, capsys=capsys)
    assert "good less bad" in out


def test_one_bad_file_does_not_take_the_others_along(files, capsys, tmp_path):
    missing = str(tmp_path / "missing.json")
    arguments = ["--references", files["references"], "--candidates", missing, files["part"], files["good"]]
    code, out, err = run(*arguments, "--format", "json", capsys=capsys)
    assert code == 1
    assert [entry["file"] for entry in json.loads(out)["candidates"]] == [files["good"]]
    assert "missing.json' does not exist" in err
    assert "part.json': 5 of the 8 images have no candidate: 4, 5, 6 and 2 more" in err
    assert "--partial" in err


def test_partial_scores_the_available_captions(files, capsys):
    arguments = [
        "--references",
        files["references"],
        "--candidates",
        files["part"],
        "--partial",
        "--format",
        "json",
    ]
    code, out, _ = run(*arguments, capsys=capsys)
    assert code == 0
    assert "|n:3|" in json.loads(out)["signature"]


def test_intervals_and_conventions(files, capsys):
    arguments = [
        "--references",
        files["references"],
        "--candidates",
        files["bad"],
        "--confidence",
        "--conventions",
    ]
    _, out, _ = run(*arguments, "--format", "json", capsys=capsys)
    plain = json.loads(out)
    low, high = plain["intervals"]["BLEU-1"]
    assert low <= plain["scores"]["BLEU-1"] <= high
    without = plain["conventions"]["without brevity penalty"]
    assert without["scores"]["BLEU-1"] == pytest.approx(0.5)
    assert "|bp:off|" in without["signature"]
    _, out, _ = run(*arguments, capsys=capsys)
    assert "without brevity penalty" in out
    assert "[0.0410, 0.0410]" in out


def test_unavailable_scores_are_null_with_a_reason(files, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    arguments = [
        "--references",
        files["references"],
        "--candidates",
        files["good"],
        "--metrics",
        "BLEU",
        "METEOR-1.5",
    ]
    code, out, _ = run(*arguments, "--format", "json", capsys=capsys)
    plain = json.loads(out)
    assert code == 0
    assert plain["scores"]["METEOR-1.5"] is None
    assert "Java" in plain["reasons"]["METEOR-1.5"]
    _, out, _ = run(*arguments, capsys=capsys)
    assert "not computed" in out
    assert "METEOR-1.5: Java is missing" in out


def test_without_any_score_the_exit_code_says_so(files, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    arguments = [
        "--references",
        files["references"],
        "--candidates",
        files["good"],
        "--metrics",
        "METEOR-1.5",
    ]
    code, out, _ = run(*arguments, capsys=capsys)
    assert code == 1
    assert "METEOR-1.5: Java is missing" in out


def test_options_reach_the_protocol(files, capsys):
    arguments = ["--references", files["references"], "--candidates", files["bad"], "--format", "json"]
    options = ["--no-brevity-penalty", "--tokenizer", "none", "--protocol", "beam=5", "--metrics", "BLEU"]
    _, out, _ = run(*arguments, *options, capsys=capsys)
    plain = json.loads(out)
    assert plain["signature"].startswith("tok:none-1|case:kept|punct:kept|refs:3|bp:off|n:8|beam:5|v:")
    assert plain["scores"]["BLEU-1"] == pytest.approx(
        0
    )  # neither "a" nor "cat" is among "A red dog runs on two mats."


def test_splits_of_the_references(tmp_path, capsys):
    (tmp_path / "r.csv").write_text("image,caption,split\n1,a dog,test\n2,a cat,train\n")
    (tmp_path / "c.csv").write_text("image,caption\n1,a dog\n")
    arguments = ["--references", tmp_path / "r.csv", "--candidates", tmp_path / "c.csv", "--split", "test"]
    code, out, err = run(*arguments, "--format", "json", capsys=capsys)
    assert code == 0
    assert "|split:test|" in json.loads(out)["signature"]
    assert "CIDEr of a single image is always 0" in err


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
        main(["--references", "/nowhere/r.json", *arguments])


@pytest.mark.parametrize(
    "arguments", [[], ["--references", "r"], ["--references", "r", "--candidates", "c", "--what"]]
)
def test_argparse_leaves_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    assert capsys.readouterr().out == ""


def test_starts_without_torch():
    code = "import sys, caption.cli.score; print([name for name in ('torch', 'nltk', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
