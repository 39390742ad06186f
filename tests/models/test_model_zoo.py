"""Loading of models that are installed with the package, by name."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import caption
from caption.core.errors import UserError
from caption.models.model_zoo import PHOTO_MODEL, check_device, installed_models, load

PHOTOGRAPHER = Path(__file__).resolve().parents[2] / "docs" / "photographer.png"


def test_the_installed_models_differ_in_their_alignment(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    alignments = {name: type(load(name).decoder.attention.alignment).__name__ for name in installed_models()}
    assert alignments == {"photos": "Softmax", "shapes": "Softmax", "shapes-hard": "Multinoulli"}
    with pytest.raises(UserError, match="photos, shapes, shapes-hard"):
        load("flickr")


def test_the_model_for_photos_is_small_and_looks_at_the_man_and_at_the_tripod() -> None:
    file = Path(caption.__file__).parent / "models" / "photos.safetensors"
    assert file.stat().st_size < 25e6
    result = load(PHOTO_MODEL).describe(str(PHOTOGRAPHER))
    assert result.words[:2] == ["a", "man"]
    assert result.weights.shape == (len(result.words), 13, 13)
    # The photographer fills the left half, from a third of the height down; his tripod is right of the middle.
    for word, columns in (("man", range(5)), ("tripod", range(6, 10))):
        row, col = divmod(int(result.weights[result.words.index(word)].argmax()), 13)
        assert 2 < row < 11
        assert col in columns


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda size, device: SimpleNamespace(device=device))
    for has_gpu, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert check_device("auto") == device
        assert check_device("cuda:1") == "cuda:1"
