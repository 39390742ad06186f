"""The facts about a data set, and the contents of a download."""

from __future__ import annotations

import pytest

from caption.data.prepare.datasets import Faults
from caption.errors import DataError


@pytest.mark.parametrize("found", [9, 11])
def test_fewer_and_more_than_are_known_are_faults(found: int) -> None:
    faults = Faults()
    faults.count("photos", found, 10)
    with pytest.raises(DataError, match=f"{found} photos instead of 10"):
        faults.check()


def test_all_faults_are_reported_at_once() -> None:
    faults = Faults()
    faults.count("photos", 10, 10)
    faults.count("captions", 49, 50)
    faults.absent({"b.jpg", "a.jpg"}, "photos", "there")
    with pytest.raises(
        DataError, match=r"(?s)49 captions instead of 50.*2 photos not there: a.jpg.*b.jpg"
    ) as raised:
        faults.check()
    assert "10 photos" not in str(raised.value)


def test_nothing_wrong_raises_nothing() -> None:
    faults = Faults()
    faults.count("photos", 10, 10)
    faults.absent([], "photos", "there")
    faults.check()
