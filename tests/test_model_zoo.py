"""Loading of models that are installed with the package, by name."""

from pathlib import Path

import pytest

from caption.errors import UserError
from caption.model_zoo import installed_models, load


def test_the_installed_models_load_and_differ_in_their_alignment() -> None:
    assert installed_models() == ["shapes", "shapes-hard"]
    alignments = {name: type(load(name).decoder.attention.alignment).__name__ for name in installed_models()}
    assert alignments == {"shapes": "Softmax", "shapes-hard": "Multinoulli"}


def test_a_folder_of_that_name_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "circle" in load("shapes").vocabulary


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UserError, match="shapes, shapes-hard"):
        load("flickr")
