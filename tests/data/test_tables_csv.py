"""Own data as CSV."""

from pathlib import Path

import pytest

from caption.data.readers.captions import Findings, Splits
from caption.data.readers.tables import Csv, columns_of
from caption.errors import DataError

TABLE = """\
image,caption,split
a.jpg,"A dog, running.",train
a.jpg,"He said ""sit"" and
it sat.",train
b.jpg, A cat. ,val
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg", "photos/d.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def reader(folder: Path, text: str | bytes, **options: object) -> Csv:
    (folder / "own.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return Csv(str(folder / "own.csv"), **options)  # type: ignore[arg-type]


def refused(folder: Path, text: str, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        reader(folder, text, **options).read()
    return str(caught.value)


def captions(splits: Splits) -> dict[str, dict[int | str, tuple[str, ...]]]:
    return {split: {image.id: image.captions for image in images} for split, images in splits.items()}


READ = {
    "train": {"a.jpg": ("A dog, running.", 'He said "sit" and\nit sat.')},
    "val": {"b.jpg": ("A cat.",)},
}


def test_rows_become_images(folder: Path) -> None:
    splits = reader(folder, TABLE).read()
    assert captions(splits) == READ
    assert splits["train"][0].path == folder / "a.jpg"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n").replace("and\r\n", "and\n"),
        lambda text: "\n\n" + text.replace("b.jpg", "\n,,\nb.jpg") + " , ,\n",
        lambda text: text.replace("image,caption,split", " Image , CAPTION,Split"),
    ],
    ids=["byte order mark", "Windows", "blank rows", "spelling of the header"],
)
def test_spreadsheet_variants_of_csv_are_read(folder: Path, change) -> None:
    assert captions(reader(folder, change(TABLE)).read()) == READ


def test_cells_are_as_written(folder: Path) -> None:
    """Quotes may contain line ends, and a quote after a space still quotes."""
    text = 'image,caption\r\na.jpg, "A dog,\r\nrunning."\r\n'
    assert captions(reader(folder, text).read()) == {"train": {"a.jpg": ("A dog,\r\nrunning.",)}}


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_shows_in_the_header(folder: Path, delimiter: str) -> None:
    text = f"image{delimiter}caption\na.jpg{delimiter}A dog, running, far.\n"
    assert captions(reader(folder, text).read()) == {"train": {"a.jpg": ("A dog, running, far.",)}}


def test_a_delimiter_and_columns_may_be_named(folder: Path) -> None:
    text = "no:Photo:caption:The text:part\n1:a.jpg:x:A dog:test\n"
    options = {
        "image_column": "photo",
        "caption_column": "the text",
        "split_column": "Part",
        "delimiter": ":",
    }
    assert captions(reader(folder, text, **options).read()) == {"test": {"a.jpg": ("A dog",)}}


def test_images_start_from_a_folder_or_from_the_file_itself(folder: Path) -> None:
    text = "image,caption\nd.jpg,A dog\n"
    assert reader(folder, text, images=str(folder / "photos")).read()["train"][0].path.exists()
    text = f"image,caption\nphotos/d.jpg,A dog\n{folder / 'a.jpg'},A cat\n"
    assert [image.path for image in reader(folder, text).read()["train"]] == [
        folder / "photos" / "d.jpg",
        folder / "a.jpg",
    ]


def test_one_image_under_two_spellings_of_its_path(folder: Path) -> None:
    text = "image,caption\na.jpg,A dog\n./a.jpg,A cat\n"
    assert captions(reader(folder, text).read()) == {"train": {"a.jpg": ("A dog", "A cat")}}


def test_without_splits_all_is_training_or_divided_by_fractions(folder: Path) -> None:
    text = "image,caption\na.jpg,A\nb.jpg,B\nc.jpg,C\na.jpg,AA\n"
    assert captions(reader(folder, text).read()) == {
        "train": {"a.jpg": ("A", "AA"), "b.jpg": ("B",), "c.jpg": ("C",)}
    }
    divided = reader(folder, text, fractions={"test": 0.5, "train": 0.4, "val": 0.1}).read()
    assert captions(divided) == {  # see test_tables_splits
        "train": {"a.jpg": ("A", "AA")},
        "val": {"b.jpg": ("B",)},
        "test": {"c.jpg": ("C",)},
    }
    assert list(divided) == ["train", "val", "test"]


def test_a_fraction_that_no_image_falls_into(folder: Path) -> None:
    text = "image,caption\na.jpg,A dog\n"
    message = refused(folder, text, fractions={"train": 0.5, "val": 0.5})
    assert "1 empty split" in message
    assert "'val'" in message


def test_fractions_and_splits_exclude_each_other(folder: Path) -> None:
    assert "already has splits" in refused(folder, TABLE, fractions={"train": 1.0})
    assert "add up to 1" in refused(folder, "image,caption\na.jpg,A\n", fractions={"train": 0.5})


FAULTS = [
    ("c.jpg,A cat,sat,val", "line 7 of {file} has 4 cells, but the header 3"),
    ("c.jpg,A cat", "line 7 of {file} has 2 cells"),
    (",A cat,val", "line 7 of {file} names no image"),
    ('c.jpg,"A" cat,val', "line 7 of {file} is not a row of CSV"),
    ("c.jpg,A cat,dev", "line 7 of {file} has the split 'dev', which is none of train, val, test"),
    ("c.jpg,A cat,", "line 7 of {file} has no split"),
    ("c.jpg, ,val", "line 7 of {file} (c.jpg)"),
    ("b.jpg,A cat,train", "line 7 of {file} (b.jpg) is in 'train', but in 'val' on line 5"),
]


@pytest.mark.parametrize(("row", "message"), FAULTS)
def test_a_fault_is_named_by_file_and_line(folder: Path, row: str, message: str) -> None:
    """The line number in the file counts blank lines and those within quotes."""
    text = f"{TABLE}\n{row}\na.jpg,A bird.,train\n"
    expected = message.format(file=f"'{folder / 'own.csv'}'")
    assert expected in refused(folder, text)
    findings = Findings()
    splits = reader(folder, text).survey(findings)
    assert splits["train"][0].captions[-1] == "A bird."  # entries after the fault are read
    assert any(finding.text.startswith(expected) for finding in findings.found)


def test_a_quote_that_is_never_closed(folder: Path) -> None:
    text = 'image,caption\na.jpg,A dog\nb.jpg,"A cat\nc.jpg,A bird\n'
    message = refused(folder, text)
    assert "line 3 of" in message
    assert "not a row of CSV" in message


def test_unknown_splits_are_reported_once_each(folder: Path) -> None:
    text = "image,caption,split\na.jpg,A,train\na.jpg,B,val\na.jpg,C,val\na.jpg,D,test\na.jpg,E,train\n"
    findings = Findings()
    assert captions(reader(folder, text).survey(findings)) == {"train": {"a.jpg": ("A", "E")}}
    assert [finding.kind.label for finding in findings.found] == ["image in two splits"] * 2
    assert all(finding.images == (str(folder / "a.jpg"),) for finding in findings.found)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a.jpg,A dog\n", {}, "begins with 'a.jpg,A dog', but its header must have the columns 'image'"),
        ("", {}, "its header must have"),
        (TABLE, {"caption_column": "text"}, "the columns 'image' and 'text'"),
        (TABLE, {"delimiter": ";"}, "its header must have"),
        (TABLE, {"delimiter": "::"}, "the delimiter '::' is not a single character"),
        ("image,caption,caption\na.jpg,A,B\n", {}, "has two columns 'caption'"),
        ("image,caption\n", {}, "there is no split to read in '"),
    ],
)
def test_files_and_options_that_do_not_fit(folder: Path, text: str, options: dict, message: str) -> None:
    assert message in refused(folder, text, **options)


def test_missing_images_and_files(folder: Path) -> None:
    assert f"1 missing image in '{folder / 'own.csv'}': '{folder / 'z.jpg'}'" in refused(
        folder, "image,caption\nz.jpg,A dog\n"
    )
    with pytest.raises(DataError, match=r"none\.csv' does not exist"):
        Csv(str(folder / "none.csv")).read()


def test_the_columns_of_a_header() -> None:
    assert columns_of("\n A ;b;\nc;d", ";") == ["a", "b", ""]
    assert columns_of("", ",") == []
    assert columns_of('"a', ",") == []
