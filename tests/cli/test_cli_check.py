"""`caption check`: arguments, configurations, exit codes, reports, stopping. The formats are in tests/data/readers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command_line import Cli, check_refused
from helpers.small_data_sets import Data, clean, write

from caption.data import check as check_images

# -- arguments -------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """A clean data set as CSV, in the working directory."""
    monkeypatch.chdir(tmp_path)
    data = clean(tmp_path)
    write(data, "CSV")
    return data


OWN = {"class_path": "caption.data.readers.Csv", "init_args": {"captions": "own.csv", "images": "images"}}


def config(reader: dict[str, Any] = OWN, **section: Any) -> str:
    Path("config.yaml").write_text(yaml.safe_dump({"data": {"reader": reader, **section}}))
    return "config.yaml"


def report_of(cli: Cli, *arguments: str) -> dict[str, Any]:
    return json.loads(cli("check", *arguments, "--format", "json").out)


def test_a_configuration_sets_reader_and_limits(own: Data, cli: Cli) -> None:
    path = config(min_count=2, vocabulary_size=4, max_words=3, tokenizer="none")
    report = report_of(cli, path)
    assert report["limits"] == {"tokenizer": "none", "min_count": 2, "vocabulary_size": 4, "max_words": 3}
    assert report["reader"]["class_path"] == "caption.data.readers.Csv"
    kinds = [finding["kind"] for finding in report["findings"]]
    assert set(kinds) == {"over-long caption", "split with many unknown words"}
    assert kinds.count("over-long caption") == 12
    report = report_of(cli, path, "--max-words", "4", "--tokenizer", "ptb", "--min-count", "13")
    assert report["limits"] == {"tokenizer": "ptb", "min_count": 13, "vocabulary_size": 4, "max_words": 4}
    assert report["findings"][0]["kind"] == "empty vocabulary"
    report = report_of(cli, config())
    assert report["limits"] == {"tokenizer": "ptb", "min_count": 5, "vocabulary_size": None, "max_words": 50}
    Path("own.csv").unlink()  # DATA exists, so this is a fault of the data and not of the usage
    ran = cli("check", path)
    assert (ran.code, "own.csv' does not exist" in ran.out, "1 fault, 0 notes" in ran.out) == (1, True, True)


def test_a_reader_that_writes_its_data_in_training(shapes: Path, tmp_path, cli: Cli, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"folder": str(shapes), "train": 40, "val": 8, "test": 8, "size": 48}
    reader = {"class_path": "caption.data.shapes.Shapes", "init_args": arguments}
    report = report_of(cli, config(reader, min_count=1))
    assert (report["images"], report["faults"]) == ({"files": 56, "examined": 56}, 0)
    arguments["folder"] = "anywhere/shapes"
    said = "'anywhere/shapes' does not hold these scenes yet: caption fit writes them"
    check_refused(cli("check", config(reader)), said)
    assert not Path("anywhere").exists()


@pytest.mark.parametrize("form", ["CSV", "JSON lines", "Karpathy", "Flickr"])
def test_data_that_names_training_images_alone(form: str, tmp_path: Path, cli: Cli) -> None:
    """It has splits, so that it is not divided, and images in none of them are left out."""
    data = clean(tmp_path)
    if form != "Flickr":
        data.entries = data.entries[:6]
    arguments = write(data, form)
    for split in ("val", "test"):
        (tmp_path / f"{split}Images.txt").unlink(missing_ok=True)
    report = report_of(cli, *arguments)
    assert {split: numbers["images"] for split, numbers in report["splits"].items()} == {"train": 6}
    assert report["faults"] == 0


WRONG = {
    "own.csv --tokenizer scissors": "scissors",
    "own.csv more": "more",
    "own.csv --splits train=0.8 val=0.3": "(train 0.8, val 0.3) must be above 0 and add up to 1",
    "config.yaml --images images": "a configuration has its own",
    "gone.yaml": "does not exist",
    "empty.yaml": "there is no data.reader",
    "class.yaml": "Nothing",
    "images/photo1000.png": "is not UTF-8 text",
}


@pytest.mark.parametrize("args", WRONG)
def test_wrong_usage(args: str, own: Data, cli: Cli) -> None:
    config()
    Path("empty.yaml").write_text("data: {}")
    Path("class.yaml").write_text("data: {reader: caption.data.readers.Nothing}")
    check_refused(cli("check", *args.split()), WRONG[args])


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ("Csv, init_args: {captions: [1]}", "captions"),
        ("Csv, init_args: {captions: x.csv, fractions: {train: x}}", "fractions"),
        ('Csv, init_args: {captions: "a\\0b.csv"}', "null character"),
        ("Csv, init_args: {captions: !!int x}", "is not YAML"),
    ],
)
def test_values_of_a_wrong_kind_in_a_configuration(tmp_path, cli: Cli, reader: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"data: {{reader: {{class_path: caption.data.readers.{reader}}}}}")
    ran = cli("check", path)
    assert ran.code != 0
    assert message in ran.out + ran.err
    assert "internal error" not in ran.err


def test_names_that_no_image_can_have_and_captions_of_absurd_length(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")  # a bad link makes no other image missing
    names = ("x" * 300, "a\0b/c.jpg", "../" * 2000, "a\nb.jpg", "loop.png", "captions.jsonl")
    lines = [{"image": name, "caption": "a dog"} for name in names]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = cli("check", tmp_path / "captions.jsonl")
    assert ran.code == 1
    assert "4 missing images" in ran.out
    assert "1 malformed entry" in ran.out  # it leads out of the folder
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg," + "<!a" * 10_000)
    ran = cli("check", tmp_path / "captions.csv")
    assert ran.code == 1
    assert "a caption of 30,000 characters" in ran.out


# -- the report ------------------------------------------------------------------------------------------------


def test_captions_in_english_and_chinese_are_a_fault(own: Data, cli: Cli) -> None:
    with open("own.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first = {row["image"]: row for row in rows}.values()
    rows += [
        row | {"caption": text} for row in first for text in ("一只棕色的狗在草地上奔跑。", "狗在草坪上。")
    ]
    with open("own.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    ran = cli("check", "own.csv")
    assert (ran.code, "'characters'" in ran.out) == (1, True), ran.out


def test_the_report_as_text_and_as_json(own: Data, cli: Cli) -> None:
    for _ in range(12):
        own.images.joinpath(own.add("train").name).unlink()
    own.add("val", ["A dog.", "a " * 60])
    own.add("test", ["A zebra."])
    write(own, "CSV")
    from_scratch = ("--base", "flickr8k_soft", "--min-count", "2")
    ran = cli("check", own.folder, *from_scratch)
    assert ran.code == 1
    lines = ran.out.splitlines()
    heads = "images captions per image words per caption longest unknown words"
    assert lines[2].split() == heads.split()
    assert lines[3].split() == ["train", "18", "36", "2", "126", "3.5", "4", "0.00", "%"]
    assert lines[5].split()[:7] == ["test", "4", "7", "1", "to", "2,", "mean"]
    assert "vocabulary: 7 words (training captions, count 2 or more, tokenizer ptb)" in ran.out
    assert "images: 14 decoded and compared" in ran.out
    fault = next(n for n, line in enumerate(lines) if line.startswith("FAULT: 12 missing images. Get"))
    assert [f"photo10{number}.png'" in lines[fault + number - 11] for number in range(12, 22)] == [True] * 10
    assert lines[fault + 11] == "  and 2 more, which --format json lists"
    note = next(n for n, line in enumerate(lines) if line.startswith("note: 1 over-long caption."))
    assert note > fault
    assert "60 words, 'a a a" in lines[note + 1]
    assert lines[-1] == "12 faults, 1 note: mend the faults before training on this data."
    report = report_of(cli, str(own.folder), *from_scratch)
    missing = [[str(own.images / f"photo10{number}.png")] for number in range(12, 24)]
    assert [finding["images"] for finding in report["findings"][:12]] == missing
    assert [finding["fault"] for finding in report["findings"]] == [True] * 12 + [False]
    assert report["splits"]["train"]["captions_per_image"] == {"fewest": 2, "mean": 2.0, "most": 2}


def test_the_page_shows_the_reader_to_copy(own: Data, cli: Cli) -> None:
    """The text under "in a configuration" reads the same data."""
    out = cli("check", own.folder, "--min-count", "2").out
    assert out.splitlines()[-1] == "0 faults, 0 notes: this data can be trained on."
    Path("shown.yaml").write_text(out.partition("in a configuration:\n")[2].partition("\n\n")[0])
    report = report_of(cli, "shown.yaml", "--min-count", "2")
    assert (report["findings"], report["splits"]["train"]["images"]) == ([], 6)
    assert "in a configuration" not in cli("check", "shown.yaml", "--min-count", "2").out


def test_ctrl_c_reports_findings_so_far(own: Data, cli: Cli, monkeypatch) -> None:
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
    ran = cli("check", own.folder, "--min-count", "2")
    assert ran.code == 130
    assert "images: 3 of 8 decoded and compared, then stopped" in ran.out
    report = report_of(cli, str(own.folder), "--min-count", "2")
    assert (report["complete"], report["images"]) == (False, {"files": 8, "examined": 3})
    kinds = [finding["kind"] for finding in report["findings"]]  # faults before notes
    assert kinds[:3] == ["missing image", "undecodable image", "missing evaluation split"]
