"""`caption check`: arguments, configurations, exit codes, reports, stopping. The formats are in tests/data/readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.planted_faults import Data, clean, write

from caption.cli.main import main as caption_main
from caption.cli.main import run_verb
from caption.data import check as check_images

# -- arguments -------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Data:
    """A clean data set as CSV."""
    data = clean(tmp_path)
    write(data, "CSV")
    return data


def config(folder: Path, **section: Any) -> str:
    reader = {
        "class_path": "caption.data.readers.Csv",
        "init_args": {"captions": str(folder / "own.csv"), "images": str(folder / "images")},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"data": {"reader": reader, **section}}))
    return str(path)


def report_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    run_verb("check", [*arguments, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_a_configuration_sets_reader_and_limits(own: Data, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(own.folder, min_count=2, vocabulary_size=4, max_words=3, tokenizer="none")
    report = report_of(capsys, path)
    assert report["limits"] == {"tokenizer": "none", "min_count": 2, "vocabulary_size": 4, "max_words": 3}
    assert report["reader"]["class_path"] == "caption.data.readers.Csv"
    kinds = [finding["kind"] for finding in report["findings"]]
    assert set(kinds) == {"over-long caption", "split with many unknown words"}
    assert kinds.count("over-long caption") == 12
    report = report_of(capsys, path, "--max-words", "4", "--tokenizer", "ptb", "--min-count", "13")
    assert report["limits"] == {"tokenizer": "ptb", "min_count": 13, "vocabulary_size": 4, "max_words": 4}
    assert report["findings"][0]["kind"] == "empty vocabulary"
    report = report_of(capsys, config(own.folder))
    assert report["limits"] == {"tokenizer": "ptb", "min_count": 5, "vocabulary_size": None, "max_words": 50}


def test_a_reader_of_another_kind(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader without files that only raises an error."""
    arguments = {"folder": str(shapes), "train": 40, "val": 8, "test": 8, "size": 48}
    reader = {"class_path": "caption.data.shapes.Shapes", "init_args": arguments}
    (tmp_path / "shapes.yaml").write_text(yaml.safe_dump({"data": {"reader": reader, "min_count": 1}}))
    report = report_of(capsys, str(tmp_path / "shapes.yaml"))
    assert report["images"] == {"files": 56, "examined": 56}
    assert report["faults"] == 0


def test_nothing_is_written_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "anywhere" / "shapes"
    reader = {"class_path": "caption.data.shapes.Shapes", "init_args": {"folder": str(folder), "train": 3}}
    assert caption_main(["check", config(tmp_path, reader=reader)]) == 2
    assert f"'{folder}' does not hold these scenes yet: caption fit writes them" in capsys.readouterr().err
    assert not folder.parent.exists()


def test_a_file_of_a_configuration_may_be_missing(own: Data, capsys: pytest.CaptureFixture[str]) -> None:
    """DATA exists, so this is a fault of the data and not of the usage."""
    path = config(own.folder)
    (own.folder / "own.csv").unlink()
    assert caption_main(["check", path]) == 1
    out = capsys.readouterr().out
    assert "own.csv' does not exist" in out
    assert "1 fault, 0 notes" in out


WRONG = [
    (["--splits", "train"], "expected SPLIT=FILE or SPLIT=FRACTION"),
    (["--splits", "trin=0.7"], "no split is called 'trin' (did you mean train?)"),
    (["--splits", "train=0.5", "train=0.5"], "one too many"),
    (["--images", "a", "b"], "one too many"),
    (["--splits", "train=x"], "takes fractions"),
    (["--images", "train=."], "takes one folder"),
    (["--images", "nowhere"], "--images nowhere: there is no such folder"),
    (["--max-words", "0"], "0 is not a whole number from 1 up"),
    (["--min-count", "few"], "few is not a whole number from 1 up"),
    (["--tokenizer", "scissors"], "scissors"),
    (["--format", "xml"], "--format"),
    (["more"], "more"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_usage(wrong: list[str], message: str, own: Data, capsys: pytest.CaptureFixture[str]) -> None:
    assert caption_main(["check", str(own.folder / "own.csv"), *wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_data_that_cannot_be_checked(own: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").write_text("data: {}")
    (tmp_path / "class.yaml").write_text("data: {reader: caption.data.readers.Nothing}")
    for wrong, message in {
        "gone.csv": "does not exist",
        "gone.yaml": "does not exist",
        "empty.yaml": "there is no data.reader",
        "class.yaml": "Nothing",
        "images/photo1000.png": "is not UTF-8 text",
        "images": "has no caption file",
    }.items():
        assert caption_main(["check", str(tmp_path / wrong)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
    assert caption_main(["check", config(own.folder), "--images", str(own.images)]) == 2
    assert "a configuration has its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ("{class_path: caption.data.readers.Csv, init_args: {captions: [1]}}", "captions"),
        (
            "{class_path: caption.data.readers.Csv, init_args: {captions: x.csv, fractions: {train: x}}}",
            "fractions",
        ),
        ("{class_path: caption.data.readers.Coco, init_args: {captions: 5, images: 6}}", "captions"),
        ('{class_path: caption.data.readers.Csv, init_args: {captions: "a\\0b.csv"}}', "null character"),
        ("{class_path: caption.data.readers.Csv, init_args: {captions: !!int x}}", "is not YAML"),
    ],
)
def test_values_of_a_wrong_kind_in_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reader: str, message: str
) -> None:
    (tmp_path / "wrong.yaml").write_text(f"data: {{reader: {reader}}}")
    code = caption_main(["check", str(tmp_path / "wrong.yaml")])
    out, err = capsys.readouterr()
    assert code != 0
    assert message in out + err
    assert "internal error" not in err


def test_names_that_no_image_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")  # a bad link makes no other image missing
    names = ("x" * 300, "a\0b/c.jpg", "../" * 2000, "a\nb.jpg", "loop.png", "captions.jsonl")
    lines = [{"image": name, "caption": "a dog"} for name in names]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert caption_main(["check", str(tmp_path / "captions.jsonl")]) == 1
    out, err = capsys.readouterr()
    assert "4 missing images" in out
    assert "1 malformed entry" in out  # it leads out of the folder
    assert "internal error" not in err


def test_captions_of_absurd_length_are_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg," + "<!a" * 10_000)
    assert caption_main(["check", str(tmp_path / "captions.csv")]) == 1
    assert "a caption of 30,000 characters" in capsys.readouterr().out


# -- the report ------------------------------------------------------------------------------------------------


def test_the_report_as_text_and_as_json(own: Data, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(12):
        own.images.joinpath(own.add("train").name).unlink()
    own.add("val", ["A dog.", "a " * 60])
    own.add("test", ["A zebra."])
    write(own, "CSV")
    assert run_verb("check", [str(own.folder), "--min-count", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [
        *("images", "captions", "per", "image", "words", "per", "caption", "longest", "unknown", "words")
    ]
    assert lines[3].split() == ["train", "18", "36", "2", "126", "3.5", "4", "0.00", "%"]
    assert lines[5].split()[:7] == ["test", "4", "7", "1", "to", "2,", "mean"]
    assert "vocabulary: 7 words (training captions, count 2 or more, tokenizer ptb)" in "\n".join(lines)
    assert "images: 14 decoded and compared" in "\n".join(lines)
    fault = next(
        place for place, line in enumerate(lines) if line.startswith("FAULT: 12 missing images. Get")
    )
    assert [f"photo10{number}.png'" in lines[fault + number - 11] for number in range(12, 22)] == [True] * 10
    assert lines[fault + 11] == "  and 2 more, which --format json names"
    note = next(place for place, line in enumerate(lines) if line.startswith("note: 1 over-long caption."))
    assert note > fault
    assert "60 words, 'a a a" in lines[note + 1]
    assert lines[-1] == "12 faults, 1 note: training on this data would be wrong."
    report = report_of(capsys, str(own.folder), "--min-count", "2")
    assert (report["faults"], report["notes"]) == (12, 1)
    missing = [str(own.images / f"photo10{number}.png") for number in range(12, 24)]
    assert [finding["images"] for finding in report["findings"][:12]] == [[path] for path in missing]
    assert [finding["fault"] for finding in report["findings"]] == [True] * 12 + [False]
    assert report["splits"]["train"]["captions_per_image"] == {"fewest": 2, "mean": 2.0, "most": 2}
    assert report["splits"]["train"]["words_per_caption"] == {"mean": 3.5, "most": 4}


def test_json_has_letters_of_all_scripts_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\n狗.png,Ein Hündchen.\n", encoding="utf-8")
    assert run_verb("check", [str(tmp_path), "--format", "json"]) == 1
    assert json.dumps(str(tmp_path / "狗.png"), ensure_ascii=False) in capsys.readouterr().out


def test_the_page_shows_the_reader_to_copy(own: Data, capsys: pytest.CaptureFixture[str]) -> None:
    """The text under "in a configuration" reads the same data."""
    run_verb("check", [str(own.folder), "--min-count", "2"])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "0 faults, 0 notes: this data can be trained on."
    shown = yaml.safe_load(out.partition("in a configuration:\n")[2].partition("\n\n")[0])
    (own.folder / "shown.yaml").write_text(yaml.safe_dump(shown))
    report = report_of(capsys, str(own.folder / "shown.yaml"), "--min-count", "2")
    assert report["findings"] == []
    assert report["splits"]["train"]["images"] == 6
    run_verb("check", [str(own.folder / "shown.yaml"), "--min-count", "2"])
    assert "in a configuration" not in capsys.readouterr().out


@pytest.mark.parametrize("format", ["text", "json"])
def test_ctrl_c_reports_findings_so_far(
    format: str, own: Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own.images.joinpath(own.entries[0].name).write_bytes(b"no image")
    own.images.joinpath(own.entries[11].name).unlink()
    own.entries = [entry for entry in own.entries if entry.split != "val"]
    write(own, "CSV")
    real = check_images.prefetch

    def pressed(*arguments: Any) -> Any:
        for number, outcome in enumerate(real(*arguments)):
            if number == 3:
                raise KeyboardInterrupt
            yield outcome

    monkeypatch.setattr(check_images, "prefetch", pressed)
    assert caption_main(["check", str(own.folder), "--min-count", "2", "--format", format]) == 130
    out = capsys.readouterr().out
    if format == "json":
        report = json.loads(out)
        assert (report["complete"], report["images"]) == (False, {"files": 8, "examined": 3})
        kinds = [finding["kind"] for finding in report["findings"]]
        # faults before notes
        assert kinds[:3] == ["missing image", "undecodable image", "missing evaluation split"]
        assert report["vocabulary"] == 7
    else:
        assert "images: 3 of 8 decoded and compared, then stopped" in out
        assert "undecodable image" in out
