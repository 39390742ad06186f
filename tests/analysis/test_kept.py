"""Results that are kept beside an output: read again after a stop or a kill, and gone once the work is complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caption.analysis.study import kept
from caption.analysis.study.kept import Kept
from caption.core.errors import UserError


def never() -> dict[str, np.ndarray]:
    raise AssertionError("computed again")


def test_after_a_kill_what_was_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.html"
    (tmp_path / "page.partial.npz").write_bytes(b"of the user")
    monkeypatch.setattr(kept, "INTERVAL", 0.0)
    before = Kept(page)
    for number in range(3):
        before(f"work {number}", lambda number=number: {"a": np.full(2, number), "b/c": np.array(["x"])})
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "page.partial-2.npz", "page.partial-3.npz", "page.partial-4.npz", "page.partial.npz",
    ]  # fmt: skip
    with Kept(page) as after:
        arrays = after("work 2", never)
        assert arrays["a"].tolist() == [2, 2]
        assert arrays["b/c"].tolist() == ["x"]
        assert after("work 3", lambda: {"a": np.zeros(1)})["a"].tolist() == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["page.partial.npz"]
    assert (tmp_path / "page.partial.npz").read_bytes() == b"of the user"


def test_a_stop_writes_what_is_new_and_nothing_is_written_without_an_output(tmp_path: Path):
    for output in (None, tmp_path / "page.html"):
        with pytest.raises(KeyboardInterrupt), Kept(output) as before:  # noqa: PT012
            before("work", lambda: {"a": np.ones(1)})
            raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["page.partial.npz"]
    assert Kept(tmp_path / "page.html")("work", never)["a"].tolist() == [1]


def test_a_damaged_file_is_named(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt), Kept(tmp_path / "page.html") as before:  # noqa: PT012
        before("work", lambda: {"a": np.ones(1000)})
        raise KeyboardInterrupt
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(b"PK" + content[1000:])
    with pytest.raises(UserError, match=r"page\.partial\.npz cannot be read.*delete it"):
        Kept(tmp_path / "page.html")
