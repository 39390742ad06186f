"""Checkpoints that were damaged, or made to do harm: no other weights, no more memory than the file, one sentence."""

from __future__ import annotations

import json
import random
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import Ran, Trained
from helpers.tiny_captioner import captioner, rewrite

from caption import checkpoint
from caption.captioner import Captioner
from caption.errors import CheckpointError
from caption.runtime import safe_loading
from caption.runtime.safe_loading import check_plain

Cli = Callable[..., Ran]
KINDS = (".ckpt", ".safetensors")


@pytest.fixture(scope="module")
def model() -> Captioner:
    return captioner()


@pytest.fixture
def path(request: pytest.FixtureRequest, model: Captioner, tmp_path: Path) -> Path:
    path = tmp_path / f"model{getattr(request, 'param', '.ckpt')}"
    checkpoint.save(model, path)
    return path


any_file = pytest.mark.parametrize("path", KINDS, indirect=True)


def same(path: Path, model: Captioner) -> bool:
    """Whether a file is refused (False), or gives the same captioner (True); anything else fails."""
    try:
        again = checkpoint.load(path)
    except CheckpointError:
        return False
    assert again.description() == model.description()
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0, equal_nan=True)
    return True


# -- damage --------------------------------------------------------------------------------------------------


@any_file
def test_a_flipped_bit_is_noticed_or_does_not_matter(path: Path, model: Captioner):
    chance, whole = random.Random(0), path.read_bytes()
    for _ in range(40):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        same(path, model)


@any_file
def test_a_flipped_bit_in_any_tensor_is_noticed(path: Path, model: Captioner):
    whole = path.read_bytes()
    tensors = [tensor for tensor in model.state_dict().values() if tensor.any() and tensor.numel() > 3]
    for tensor in tensors:
        values = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        content = bytearray(whole)
        content[content.index(values)] ^= 1
        path.write_bytes(content)
        assert not same(path, model)


@any_file
def test_another_word_or_option_is_noticed_with_file_and_remedy(path: Path):
    whole = path.read_bytes()
    for old, new in ((b"runs", b"rums"), (b"beam_size", b"beam_sine"), (b"SmallCNN", b"SmallCNM")):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(CheckpointError, match=rf"^{path} is damaged.*get the file again"):
            checkpoint.load(path)


@pytest.mark.nightly
def test_damage_in_the_training_state_is_noticed_before_it_is_resumed(
    cli: Cli, trained: Trained, tmp_path: Path
):
    whole = (trained.folder / "last.ckpt").read_bytes()
    state = torch.load(trained.folder / "last.ckpt", weights_only=True)["optimizer_states"][0]["state"]
    values = state[0]["exp_avg"].numpy().tobytes()
    content = bytearray(whole)
    content[content.index(values) + 5] ^= 8
    (tmp_path / "last.ckpt").write_bytes(content)
    ran = cli("fit", "-c", trained.config, "--ckpt_path", tmp_path / "last.ckpt")
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path / 'last.ckpt'} is damaged" in ran.err


# -- bombs ---------------------------------------------------------------------------------------------------------


def test_compressed_records_are_refused_before_they_are_unpacked(path: Path, monkeypatch: pytest.MonkeyPatch):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", bytes(10**6))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a record was unpacked"))
    monkeypatch.setattr(torch, "load", lambda *_: pytest.fail("torch read it"))
    with pytest.raises(CheckpointError, match=r"compressed record .* could unpack to any size"):
        checkpoint.load(path)


def test_archives_of_other_programs_are_read(path: Path, model: Captioner):
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    assert torch.equal(checkpoint.load(path).state_dict()["decoder.embed.weight"], model.decoder.embed.weight)


@pytest.mark.parametrize("prefix", [b"", b"PK prefix"])
def test_a_directory_that_two_programs_could_read_differently_is_refused(prefix: bytes, path: Path):
    # The locator of the directory's end, which torch follows and Python's zipfile does not. zipfile allows a prefix,
    # and then corrects the directory's start.
    content = bytearray(prefix + path.read_bytes())
    struct.pack_into("<Q", content, len(content) - 34, len(content) - 98 if prefix else 0)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="its directory is not at its end"):
        checkpoint.load(path)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def shared(levels: int) -> list[Any]:
    """Lists that hold each other: 2 ** levels entries in a few bytes."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (nested(150), "nested"),
        (shared(60), "larger"),
        (2**64, "whole number"),
        (torch.zeros(1), "Tensor"),
        ({3: "x"}, "keys that are not text"),
        ("\ud800", "not Unicode"),
        (2j, "complex"),
    ],
    ids=["nested", "shared", "digits", "tensor", "keys", "surrogate", "complex"],
)
@pytest.mark.parametrize("where", ["captioner", "hyper_parameters", "data"])
def test_a_description_that_is_too_large_or_not_plain_is_refused(
    value: Any, said: str, where: str, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(safe_loading, "ENTRIES", 10_000)  # so that it is reached soon
    rewrite(path, lambda contents: contents.setdefault(where, {}).update(objective=value))
    with pytest.raises(CheckpointError, match=said):
        checkpoint.read(path)


def test_large_vocabularies_are_plain():
    check_plain({"words": [f"word {number}" for number in range(300_000)]})


def test_a_safetensors_header_of_another_kind(tmp_path: Path, model: Captioner):
    from safetensors.torch import save_file

    for header, said in (
        (None, "its header has no description"),
        ({"captioner": "{}", "checksums": "{}"}, "damaged"),
        ({"captioner": "[" * 100_000, "checksums": '{"captioner": 0, "tensors": {}}'}, "damaged"),
    ):
        save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors", header)
        with pytest.raises(CheckpointError, match=said):
            checkpoint.load(tmp_path / "model.safetensors")
    deep = json.dumps({"a": nested(500)}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(tmp_path / "model.safetensors")


def test_a_model_larger_than_its_weights_takes_no_memory(path: Path):
    large = {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [15_000, 15_000, 15_000]}}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"and the model has floating \(15000, "):
        checkpoint.load(rewrite(path, lambda contents: contents["captioner"].update(encoder=large)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000  # KB


def test_a_number_from_which_a_list_is_made_is_bounded(path: Path):
    many = {"class_path": "caption.encoders.SmallCNN", "init_args": {"views": 10**9}}
    rewrite(path, lambda contents: contents["captioner"].update(encoder=many))
    for attempt in (lambda: checkpoint.load(path), lambda: checkpoint.architecture(checkpoint.read(path))):
        with pytest.raises(CheckpointError, match="whole number of 20000 or more"):
            attempt()


@pytest.mark.parametrize("kind", ["a billion elements", "a few elements", "one tensor under many names"])
def test_tensors_that_are_more_than_the_file_are_refused(kind: str, path: Path):
    def change(contents: dict[str, Any]) -> None:
        state = contents["state_dict"]
        if kind == "one tensor under many names":
            state |= dict.fromkeys([f"captioner.{number}" for number in range(500)], torch.zeros(1000))
        else:
            state["captioner.x"] = torch.zeros(1).expand(10**12 if kind == "a billion elements" else 10)

    with pytest.raises(CheckpointError, match="more elements than the file"):
        checkpoint.read(rewrite(path, change))


def test_state_of_the_training_is_no_larger_than_the_file(path: Path):
    state = [{"state": {0: {"exp_avg": torch.zeros(1).expand(10**9)}}}]
    with pytest.raises(CheckpointError, match="more elements than the file"):
        checkpoint.read(rewrite(path, lambda contents: contents.update(optimizer_states=state)))


def test_many_layers_are_refused(path: Path):
    many = {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [1] * 19_999}}
    with pytest.raises(CheckpointError, match="larger than its weights"):
        checkpoint.load(rewrite(path, lambda contents: contents["captioner"].update(encoder=many)))


@pytest.mark.parametrize("changes", [{"version": [1], "format": "2"}, {"format": [2]}], ids=str)
def test_formats_that_are_not_numbers_are_refused(changes: dict[str, Any], path: Path):
    with pytest.raises(CheckpointError, match="has checkpoint format"):
        checkpoint.load(rewrite(path, lambda contents: contents["captioner"].update(changes)))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/dev/zero"], ids=["long", "null", "device"])
def test_names_that_no_file_can_have(name: str):
    with pytest.raises(CheckpointError, match=r"is a device|no checkpoint"):
        checkpoint.load(name)


# -- evaluated and resumed --------------------------------------------------------------------------


def test_a_fine_tuned_checkpoint_is_not_resumed_with_a_frozen_encoder(
    cli: Cli, trained: Trained, tmp_path: Path
):
    where = ("--trainer.default_root_dir", tmp_path, "--trainer.max_epochs", 3)
    frozen = ("--model.encoder_learning_rate", "null")
    ran = cli("fit", "-c", trained.config, *where, *frozen, "--ckpt_path", trained.folder / "last.ckpt")
    assert (ran.code, ran.out) == (2, "")
    assert "model.encoder_learning_rate" in ran.err


def moments(state: dict[str, Any]) -> dict[str, Any]:
    """Adam's state of the first weights that have one."""
    return next(iter(state["optimizer_states"][0]["state"].values()))


def first_group(state: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's options for the first weights."""
    return state["optimizer_states"][0]["param_groups"][0]


OPTIMIZER, TRAINING = "the optimizer's state in it", "the state of the training in it is malformed"
MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another shape": (lambda state: moments(state).update(exp_avg_sq=torch.zeros(2, 3, 5)), OPTIMIZER),
    "a rate that is text": (lambda state: first_group(state).update(lr="high"), OPTIMIZER),
    "fewer weights": (lambda state: first_group(state)["params"].pop(), OPTIMIZER),
    "no optimizer": (lambda state: state["optimizer_states"].clear(), OPTIMIZER),
    "schedulers that are a number": (lambda state: state.update(lr_schedulers=3), TRAINING),
    "a number as loop": (lambda state: state["loops"]["fit_loop"].update(epoch_progress=3), TRAINING),
    "callbacks of text": (
        lambda state: state.update(callbacks=dict.fromkeys(state["callbacks"], "x")),
        TRAINING,
    ),
    "data that is a number": (lambda state: state.update(CaptionData=3), TRAINING),
}


@pytest.mark.parametrize(("change", "said"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_state_is_refused_with_the_file_and_a_remedy(
    cli: Cli, trained: Trained, tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
):
    path = rewrite(trained.folder / "last.ckpt", change, tmp_path / "last.ckpt")
    before = path.read_bytes()
    options = ("--trainer.max_epochs", 3, "--trainer.default_root_dir", tmp_path)
    ran = cli("fit", "-c", trained.config, *options, "--ckpt_path", path)
    assert (ran.code, ran.out) == (2, "")
    assert f"caption: {path}: {said}" in ran.err.splitlines()[-1]
    assert "model.warm_start" in ran.err.splitlines()[-1]
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_model_without_training_state_is_evaluated_and_not_resumed(
    cli: Cli, trained: Trained, tmp_path: Path
):
    options = ("-c", trained.config, "--trainer.default_root_dir", tmp_path / "run", "--ckpt_path")
    scores = cli("validate", *options, trained.folder / "best.ckpt")
    assert scores.out
    for suffix in KINDS:
        model = tmp_path / f"model{suffix}"
        checkpoint.save(checkpoint.load(trained.folder / "best.ckpt"), model)
        assert cli("validate", *options, model).out == scores.out
        ran = cli("fit", *options, model)
        assert (ran.code, ran.out) == (2, "")
        assert "model.warm_start" in ran.err
