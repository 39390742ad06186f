"""The base class of readers, and the configuration of all of them."""

import json

import jsonargparse
import pytest

from caption.data.readers.captions import CaptionReader, Findings, Splits
from caption.errors import DataError


class Strict(CaptionReader):
    """A reader that only raises an error."""

    def read(self) -> Splits:
        raise DataError("there is a fault")


def test_a_survey_reports_a_reader_that_fails() -> None:
    with pytest.raises(DataError, match="there is a fault"):
        Strict().survey(Findings())
    assert Strict().boxes("train") is None


@pytest.mark.parametrize(
    ("reader", "arguments"),
    [
        ("Coco", {"captions": {"train": "t.json"}, "images": {"train": "images"}}),
        ("Karpathy", {"file": "dataset.json", "images": "images", "restval": False}),
        ("Flickr", {"captions": "token.txt", "splits": {"train": "t.txt"}, "images": "images"}),
        (
            "Csv",
            {
                "file": "own.csv",
                "images": "photos",
                "image_column": "file",
                "caption_column": "text",
                "split_column": "part",
                "delimiter": ";",
                "fractions": {"train": 0.9, "val": 0.1},
            },
        ),
        (
            "JsonLines",
            {
                "file": "own.jsonl",
                "images": None,
                "image_key": "file",
                "caption_key": "text",
                "split_key": "part",
                "fractions": None,
            },
        ),
    ],
)
def test_a_configuration_file_can_name_a_reader(reader: str, arguments: dict[str, object]) -> None:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--reader", type=CaptionReader)
    text = json.dumps({"reader": {"class_path": f"caption.data.readers.{reader}", "init_args": arguments}})
    config = parser.parse_string(text)  # JSON is YAML
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    assert vars(instantiate(config).reader) == arguments
