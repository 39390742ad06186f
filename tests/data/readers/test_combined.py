"""Several data sets as one."""

from pathlib import Path

import pytest

from caption.data.findings import Findings, Kind
from caption.data.readers import CaptionReader, Combined, Csv
from caption.errors import DataError
from caption.parts import make


def table(folder: Path, rows: str) -> Csv:
    """A reader of images that exist, and are in one folder each."""
    (folder / "images").mkdir(parents=True)
    for row in rows.split():
        (folder / "images" / row.split(",")[0]).touch()
    (folder / "captions.csv").write_text("image,caption,split\n" + rows, encoding="utf-8")
    return Csv(str(folder / "captions.csv"), str(folder / "images"))


@pytest.fixture
def readers(tmp_path: Path) -> list[Csv]:
    return [
        table(tmp_path / "one", "a.jpg,dog,train\nb.jpg,cat,val\n"),
        table(tmp_path / "two", "c.jpg,tram,train\nd.jpg,bus,train\ne.jpg,car,test\n"),
    ]


def test_each_split_has_the_images_of_all_and_an_epoch_some_of_them_more_often(readers: list[Csv]) -> None:
    found = Combined(readers, repeats=[1, 2]).read()
    assert {split: [image.id for image in images] for split, images in found.items()} == {
        "train": ["a.jpg", "c.jpg", "d.jpg", "c.jpg", "d.jpg"],
        "val": ["b.jpg"],
        "test": ["e.jpg"],
    }
    findings = Findings()
    counted = Combined(readers, repeats=[1, 2]).survey(findings)
    assert len(counted["train"]) == 3  # `caption check` must not take the repetition for a fault
    assert not findings


def test_images_of_one_id_are_refused(tmp_path: Path) -> None:
    readers = [table(tmp_path / name, "a.jpg,dog,train\n") for name in ("one", "two")]
    with pytest.raises(DataError, match=r"id of two images.*one.*two.*its own id"):
        Combined(readers).read()


def test_an_image_in_the_training_of_one_and_the_test_of_another_is_found(readers: list[Csv]) -> None:
    other = Path(readers[0].captions).with_name("other.csv")
    other.write_text("image,caption,split\na.jpg,dog,test\n", encoding="utf-8")
    findings = Findings()
    Combined([*readers, Csv(str(other), readers[0].images)]).survey(findings)
    assert [finding.kind for finding in findings] == [Kind.OVERLAP]


def test_faults_of_one_data_set_are_named_once(readers: list[Csv]) -> None:
    (Path(readers[1].images) / "c.jpg").unlink()
    with pytest.raises(DataError, match=r"1 missing image.*c\.jpg"):
        Combined(readers).read()


def test_it_is_made_of_what_a_configuration_says(readers: list[Csv]) -> None:
    parts = [
        {
            "class_path": "caption.data.readers.Csv",
            "init_args": {"captions": each.captions, "images": each.images},
        }
        for each in readers
    ]
    spec = {"class_path": "caption.data.readers.Combined", "init_args": {"readers": parts}}
    reader = make(spec, CaptionReader)  # type: ignore[type-abstract]
    assert len(reader.read()["train"]) == 3


@pytest.mark.parametrize("repeats", [[1], [1, 0], [1, 2, 3]])
def test_repeats_that_do_not_fit_are_refused(readers: list[Csv], repeats: list[int]) -> None:
    with pytest.raises(DataError, match="do not fit 2 readers"):
        Combined(readers, repeats)
    with pytest.raises(DataError, match="needs the readers"):
        Combined([])
