"""Checkpoints: captioners are restored, and other files are refused."""

from __future__ import annotations

import errno
import os
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from torch import nn

import caption
from caption import checkpoint
from caption.attention import Multinoulli
from caption.captioner import Captioner
from caption.checkpoint import FORMAT
from caption.data.resize import ImageTransform
from caption.encoders import LinearRefiner, TorchvisionEncoder
from caption.errors import CheckpointError, UserError
from caption.search import BeamSearch, Sampling
from caption.version import package_version


@pytest.fixture(scope="module")
def made() -> Captioner:
    return captioner()


@pytest.fixture
def path(made: Captioner, tmp_path: Path) -> Path:
    checkpoint.save(made, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


def changed(path: Path, **changes: Any) -> Path:
    """The checkpoint with other entries in its `captioner` section."""
    contents = torch.load(path, weights_only=True)
    contents["captioner"] |= changes
    torch.save(contents, path)
    return path


# -- saving and loading ------------------------------------------------------------------------------------


VARIANTS: dict[str, dict[str, Any]] = {
    "soft": {},
    "hard": {"alignment": Multinoulli(at_test="argmax")},
    "refined": {"refiner": LinearRefiner(size=5)},
    "wide": {"transform": ImageTransform((16, 32), "pad"), "search": BeamSearch(2, 5, 0.7)},
    "torchvision": {"encoder": TorchvisionEncoder("squeezenet1_1", "features.3", mean=(0.5, 0.5, 0.5))},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_captioner_comes_back(variant: str, tmp_path: Path):
    made = captioner(**VARIANTS[variant])
    checkpoint.save(made, tmp_path / "model.ckpt")
    again = checkpoint.load(tmp_path / "model.ckpt")
    assert not again.training
    assert again.description() == made.description()
    assert again.vocabulary == made.vocabulary
    assert again.transform == made.transform
    assert again.search == made.search
    assert again.state_dict().keys() == made.state_dict().keys()
    for name, tensor in made.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
    expected, found = made.describe(photo()), again.describe(photo())
    assert found.words == expected.words
    assert found.log_prob == expected.log_prob
    np.testing.assert_array_equal(found.weights, expected.weights)


def test_the_search_comes_back_with_all_its_options(tmp_path: Path):
    search = Sampling(max_length=6, seed=3)
    checkpoint.save(captioner(search=search), tmp_path / "model.ckpt")
    assert checkpoint.load(tmp_path / "model.ckpt").search == search


def test_it_holds_tensors_and_plain_values_alone(path: Path):
    contents = torch.load(path, weights_only=True)

    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        if isinstance(value, list):
            return all(map(plain, value))
        return value is None or isinstance(value, (str, int, float, bool))

    assert plain(contents["captioner"])
    assert all(name.startswith("captioner.") for name in contents["state_dict"])
    assert contents["captioner"]["format"] == FORMAT
    assert contents["captioner"]["version"] == package_version()


def test_the_public_name_loads_it(path: Path):
    assert isinstance(caption.load(path), caption.Captioner)
    assert isinstance(caption.load(str(path)), Captioner)


def test_encoder_weights_come_from_the_checkpoint_and_not_from_their_file(tmp_path: Path):
    encoder = TorchvisionEncoder("squeezenet1_1", "features.3", weights=str(tmp_path / "gone.pth"))
    checkpoint.save(captioner(encoder=encoder), tmp_path / "model.ckpt")
    again = checkpoint.load(tmp_path / "model.ckpt")
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(again.encoder.state_dict()[name], tensor)


def test_the_entries_of_training_do_not_matter(path: Path, made: Captioner):
    contents = torch.load(path, weights_only=True)
    contents["state_dict"]["objective.baseline.value"] = torch.zeros(())
    contents |= {"optimizer_states": [{"lr": 0.1}], "epoch": 3, "pytorch-lightning_version": "2.6.6"}
    torch.save(contents, path)
    assert checkpoint.load(path).description() == made.description()


def test_saving_over_a_checkpoint_leaves_no_partial_file(path: Path):
    checkpoint.save(captioner(search=BeamSearch(2)), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert checkpoint.load(path).search == BeamSearch(2)


def test_a_save_that_fails_leaves_the_old_checkpoint(
    path: Path, made: Captioner, monkeypatch: pytest.MonkeyPatch
):
    before = path.read_bytes()

    def save(contents: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(UserError, match=r"could not be written: No space left"):
        checkpoint.save(made, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# -- refused files -----------------------------------------------------------------------------------------


class Trap:
    """Unpickling this object writes the canary file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def write(kind: str, path: Path, canary: Path) -> None:
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("a: checkpoint\n")
    elif kind == "half":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "nearly whole":
        path.write_bytes(whole[:-30])
    elif kind == "without a beginning":
        path.write_bytes(whole[100:])
    elif kind == "bare pickle":
        path.write_bytes(pickle.dumps(Trap(canary)))
    elif kind == "pickled object":
        torch.save({"state_dict": {}, "captioner": Trap(canary)}, path)
    elif kind == "old format of torch":
        torch.save({"captioner": Trap(canary)}, path, _use_new_zipfile_serialization=False)
    elif kind == "module":
        torch.save(captioner(), path)
    elif kind == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
    elif kind == "state dict":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    elif kind == "tensor":
        torch.save(torch.zeros(3), path)
    elif kind == "checkpoint of others":
        torch.save({"state_dict": {}, "epoch": 3, "pytorch-lightning_version": "2.6.6"}, path)
    else:
        raise AssertionError(kind)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "there is no checkpoint"),
        ("folder", "is a folder: name the checkpoint file in it"),
        ("empty", "not a checkpoint of this package"),
        ("text", "not a checkpoint of this package"),
        ("half", "damaged"),
        ("nearly whole", "damaged"),
        ("without a beginning", "damaged|refused"),
        ("bare pickle", "a bare pickle"),
        ("pickled object", "pickled objects, which could run any code"),
        ("old format of torch", "a bare pickle"),
        ("module", "pickled objects, which could run any code"),
        ("other zip", "damaged or not a checkpoint"),
        ("state dict", "a PyTorch file, but not a checkpoint of this package"),
        ("tensor", "a PyTorch file, but not a checkpoint of this package"),
        ("checkpoint of others", "a PyTorch file, but not a checkpoint of this package"),
    ],
)
def test_other_files_are_refused_with_the_reason(kind: str, said: str, path: Path, canary: Path):
    write(kind, path, canary)
    with pytest.raises(CheckpointError, match=said) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)
    assert not canary.exists()


def test_the_trap_would_have_worked(path: Path, canary: Path):
    write("pickled object", path, canary)
    torch.load(path, weights_only=False)
    assert canary.exists()


def damage(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    start = content.find(b"data.pkl") if seed % 2 else 0  # every other time in the pickle itself
    for _ in range(chance.choice((1, 4, 40))):
        content[chance.randrange(start, min(start + 4000, len(content)))] = chance.randrange(256)
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(30))
def test_damage_anywhere_ends_in_a_checkpoint_error_or_in_a_captioner(seed: int, path: Path):
    damage(path, seed)
    with suppress(CheckpointError):
        assert isinstance(checkpoint.load(path), Captioner)


@pytest.mark.parametrize("raised", [AttributeError, IndexError, TypeError])
def test_any_torch_error_means_damage(raised: type[Exception], path: Path, monkeypatch: pytest.MonkeyPatch):
    # torch.load raises all three for single changed bytes in the pickle.
    def load(*arguments: Any, **options: Any) -> None:
        raise raised("list index out of range")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize("other", [1, 99])
def test_another_format_names_the_version_that_reads_it(other: int, path: Path):
    with pytest.raises(CheckpointError, match=rf"format {other}, .*version 7\.1 of this package"):
        checkpoint.load(changed(path, format=other, version="7.1"))


def test_another_version_of_the_tokenizer_is_refused(path: Path, made: Captioner):
    with pytest.raises(CheckpointError, match="version old of the tokenizer 'ptb'"):
        checkpoint.load(changed(path, vocabulary={**made.vocabulary.to_dict(), "tokenizer_version": "old"}))


def test_an_unknown_tokenizer_is_refused(path: Path, made: Captioner):
    with pytest.raises(CheckpointError, match="nonesuch"):
        checkpoint.load(changed(path, vocabulary={**made.vocabulary.to_dict(), "tokenizer": "nonesuch"}))


def hostile(canary: Path) -> dict[str, Any]:
    return {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(canary)]}}


@pytest.mark.parametrize("entry", ["encoder", "decoder", "refiner", "search"])
def test_classes_that_are_not_parts_are_refused(entry: str, path: Path, canary: Path):
    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of"):
        checkpoint.load(changed(path, **{entry: hostile(canary)}))
    assert not canary.exists()


def test_classes_that_are_not_parts_are_refused_as_arguments(path: Path, canary: Path, made: Captioner):
    decoder = made.decoder.spec
    decoder["init_args"]["attention"]["init_args"]["score"] = hostile(canary)
    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of Part"):
        checkpoint.load(changed(path, decoder=decoder))
    assert not canary.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": {"class_path": "caption.encoders.Nonesuch", "init_args": {}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"depth": 3}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": []}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [4, 4, 7]}}},
        {"encoder": {"class_path": "caption.encoders.Encoder", "init_args": {}}},
        {"encoder": None},
        {"decoder": "caption.decoders.LSTMDecoder"},
        {"decoder": {"class_path": "caption.decoders.LSTMDecoder", "init_args": {"attention": None}}},
        {"vocabulary": {"words": ["a", "a"], "tokenizer": "ptb", "tokenizer_version": "1"}},
        {"vocabulary": {"words": ["a", "b"]}},
        {"vocabulary": None},
        {"transform": {"size": 0, "fit": "crop"}},
        {"transform": {"size": 8, "fit": "stretch"}},
        {"search": {"class_path": "caption.search.BeamSearch", "init_args": {"beam_size": 0}}},
    ],
    ids=str,
)
def test_parts_that_cannot_be_made_are_refused(changes: dict[str, Any], path: Path):
    with pytest.raises(CheckpointError, match="cannot be rebuilt"):
        checkpoint.load(changed(path, **changes))


@pytest.mark.parametrize("entry", ["encoder", "decoder", "vocabulary", "transform", "search"])
def test_a_missing_entry_is_named(entry: str, path: Path):
    contents = torch.load(path, weights_only=True)
    del contents["captioner"][entry]
    torch.save(contents, path)
    with pytest.raises(CheckpointError, match=entry):
        checkpoint.load(path)


@pytest.mark.parametrize("how", ["lacking", "too many", "other shape", "no tensors", "not a dict"])
def test_weights_that_do_not_fit_are_refused(how: str, path: Path):
    contents = torch.load(path, weights_only=True)
    state = contents["state_dict"]
    name = next(iter(state))
    if how == "lacking":
        del state[name]
    elif how == "too many":
        state["captioner.surplus"] = torch.zeros(1)
    elif how == "other shape":
        state[name] = state[name][:1]
    elif how == "no tensors":
        state[name] = "weights"
    else:
        contents["state_dict"] = [1, 2]
    torch.save(contents, path)
    with pytest.raises(CheckpointError, match=r"cannot be rebuilt|was refused"):
        checkpoint.load(path)
