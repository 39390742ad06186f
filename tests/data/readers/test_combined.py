"""Several data sets as one."""

from pathlib import Path

import pytest

from caption.core.errors import DataError, UserError
from caption.data.check import Limits, check_data
from caption.data.findings import Findings, Kind
from caption.data.module import CaptionData
from caption.data.readers import Combined, Csv
from caption.data.shapes import Shapes


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


def test_each_split_has_the_images_of_all_and_an_epoch_some_of_them_more_often(readers: list[Csv]):
    found = Combined(readers, repeats=[1, 2]).read()
    assert {split: [image.id for image in images] for split, images in found.items()} == {
        "train": ["a.jpg", "c.jpg", "d.jpg", "c.jpg", "d.jpg"],
        "val": ["b.jpg"],
        "test": ["e.jpg"],
    }
    findings = Findings()
    assert Combined(readers, repeats=[1, 2]).survey(findings) == found
    assert not findings  # `caption check` must not take the repetition for a fault


def test_check_counts_the_words_of_training_and_names_each_caption_once(readers: list[Csv]):
    combined = Combined(readers, repeats=[1, 2])
    check = check_data(combined, Limits(min_count=2, max_words=0))
    assert check.vocabulary is not None
    assert len(check.vocabulary) == len(CaptionData(combined, min_count=2).vocabulary)
    assert {"tram", "bus"} <= {*check.vocabulary.words}
    assert check.splits["train"].to_dict()["words"] == 5
    assert len(check.findings.of_kind(Kind.LONG)) == 5  # of 3 training images, one of val, one of test
    assert len(check.findings.of_kind(Kind.UNDECODABLE)) == 5


def test_faults_of_one_data_set_and_between_two_are_named(readers: list[Csv]):
    folder = Path(readers[0].captions).parent
    (folder / "other.csv").write_text("image,caption,split\na.jpg,dog,test\n", encoding="utf-8")
    findings = Findings()
    Combined([*readers, Csv(str(folder / "other.csv"), readers[0].images)]).survey(findings)
    assert [finding.kind for finding in findings] == [Kind.OVERLAP]
    with pytest.raises(DataError, match=r"id of two images.*one.*more.*its own id"):
        Combined([readers[0], table(folder / "more", "a.jpg,dog,train\n")]).read()
    (Path(readers[1].images) / "c.jpg").unlink()
    with pytest.raises(DataError, match=r"1 missing image.*c\.jpg"):  # once
        Combined(readers).read()


def test_scenes_of_shapes_are_drawn_if_they_are_not_there(tmp_path: Path, readers: list[Csv]):
    combined = Combined([readers[0], Shapes(str(tmp_path / "shapes"), train=3, val=2, test=1)])
    with pytest.raises(UserError, match="does not hold these scenes yet: caption fit writes them"):
        combined.survey(Findings())  # `caption check` writes nothing
    assert {split: len(images) for split, images in combined.read().items()} == {
        "train": 4,
        "val": 3,
        "test": 1,
    }


def test_repeats_that_do_not_fit_are_refused(readers: list[Csv]):
    for repeats in ([1], [1, 0], [1, 2, 3]):
        with pytest.raises(DataError, match="do not fit 2 readers"):
            Combined(readers, repeats)
    with pytest.raises(DataError, match="needs the readers"):
        Combined([])
