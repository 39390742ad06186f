"""The split of an image by a hash of its name."""

import pytest

from caption.data.readers.tables import check_fractions, hashed_split
from caption.errors import DataError

FRACTIONS = {"train": 0.8, "val": 0.1, "test": 0.1}
NAMES = [f"photo{number}.jpg" for number in range(4000)]


def test_these_images_have_always_been_in_these_splits() -> None:
    """Computed independently of the code: sha256sum's first 16 digits over 16**16. A change would move users'
    images."""
    places = {"a.jpg": 0.31487, "b.jpg": 0.47683, "c.jpg": 0.57305, "Füße.jpg": 0.69809}
    for name, place in places.items():
        assert hashed_split(name, {"train": place - 1e-4, "val": 2e-4, "test": 0.9999 - place}) == "val"
        assert hashed_split(name, {"train": place + 1e-4, "test": 0.9999 - place}) == "train"
        assert hashed_split(name, {"train": place - 1e-4, "test": 1.0001 - place}) == "test"


def test_sizes_are_close_to_the_fractions() -> None:
    found = [hashed_split(name, FRACTIONS) for name in NAMES]
    assert found.count("train") == pytest.approx(3200, abs=80)  # three standard deviations
    assert found.count("val") == pytest.approx(400, abs=60)
    assert found.count("train") + found.count("val") + found.count("test") == len(NAMES)


def test_a_larger_training_fraction_only_moves_images_into_training() -> None:
    smaller = {name for name in NAMES if hashed_split(name, {"train": 0.7, "test": 0.3}) == "train"}
    larger = {name for name in NAMES if hashed_split(name, {"train": 0.8, "test": 0.2}) == "train"}
    assert smaller < larger


def test_the_order_in_which_fractions_are_written_does_not_matter() -> None:
    turned = dict(reversed(FRACTIONS.items()))
    assert [hashed_split(name, turned) for name in NAMES] == [hashed_split(name, FRACTIONS) for name in NAMES]


def test_one_split_has_all() -> None:
    assert {hashed_split(name, {"test": 1.0}) for name in NAMES[:50]} == {"test"}


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ({"train": 0.8, "val": 0.1}, "add up to 1"),
        ({"train": 1.2, "val": -0.2}, "above 0"),
        ({"train": 1.0, "val": 0.0}, "above 0"),
        ({}, "add up to 1"),
        ({"train": 0.5, "dev": 0.5}, "'dev' is not a split"),
    ],
)
def test_fractions_that_are_none(fractions: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_fractions(fractions)


def test_thirds_are_fractions() -> None:
    check_fractions({"train": 0.3333333, "val": 0.3333333, "test": 0.3333334})
    check_fractions({"train": 0.7, "val": 0.2, "test": 0.1})
