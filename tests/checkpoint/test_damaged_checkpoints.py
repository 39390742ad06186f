"""Checkpoints that were damaged, or made to do harm: no other weights, no more memory than the file, one sentence."""

from __future__ import annotations

import json
import resource
import struct
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


# -- damage --------------------------------------------------------------------------------------------------


@any_file
def test_a_flipped_bit_in_any_tensor_is_noticed(path: Path, model: Captioner):
    whole = path.read_bytes()
    tensors = [tensor for tensor in model.state_dict().values() if tensor.any() and tensor.numel() > 3]
    for tensor in tensors:
        values = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        content = bytearray(whole)
        content[content.index(values)] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.load(path)


@any_file
def test_another_word_or_option_is_noticed_with_file_and_remedy(path: Path):
    whole = path.read_bytes()
    for old, new in ((b"runs", b"rums"), (b"beam_size", b"beam_sine"), (b"SmallCNN", b"SmallCNM")):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(CheckpointError, match=rf"^{path} is damaged.*get the file again"):
            checkpoint.load(path)


# -- bombs ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"widths": [15_000, 15_000, 15_000]}, r"and the model has floating \(15000, "),
        ({"widths": [1] * 19_999}, "larger than its weights"),
        ({"views": 10**9}, "whole number of 20000 or more"),
    ],
    ids=["large layers", "many layers", "a large number"],
)
def test_a_model_larger_than_its_weights_takes_no_memory(arguments: dict[str, Any], said: str, path: Path):
    large = {"class_path": "caption.encoders.SmallCNN", "init_args": arguments}
    rewrite(path, lambda contents: contents["captioner"].update(encoder=large))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(path)
    if "views" in arguments:
        with pytest.raises(CheckpointError, match=said):
            checkpoint.architecture(checkpoint.read(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000  # KB


@pytest.mark.parametrize(
    "added",
    [
        {"captioner.x": torch.zeros(1).expand(10**12)},
        {"captioner.x": torch.zeros(1).expand(10)},
        dict.fromkeys([f"captioner.{number}" for number in range(500)], torch.zeros(1000)),
    ],
    ids=["a billion elements", "a few elements", "one tensor under many names"],
)
def test_tensors_that_are_more_than_the_file_are_refused(added: dict[str, Any], path: Path):
    whole = path.read_bytes()
    for change in (
        lambda contents: contents["state_dict"].update(added),
        lambda contents: contents.update(optimizer_states=[{"state": added}]),
    ):
        path.write_bytes(whole)
        with pytest.raises(CheckpointError, match="more elements than the file"):
            checkpoint.read(rewrite(path, change))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/dev/zero"], ids=["long", "null", "device"])
def test_names_that_no_file_can_have(name: str):
    with pytest.raises(CheckpointError, match=r"is a device|no checkpoint"):
        checkpoint.load(name)


# -- evaluated and resumed --------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_fine_tuned_checkpoint_is_not_resumed_with_a_frozen_encoder(
    cli: Cli, trained: Trained, tmp_path: Path
):
    where = ("--trainer.default_root_dir", tmp_path, "--trainer.max_epochs", 3)
    frozen = ("--model.encoder_learning_rate", "null")
    ran = cli("fit", "-c", trained.config, *where, *frozen, "--ckpt_path", trained.folder / "last.ckpt")
    assert (ran.code, ran.out) == (2, "")
    assert "model.encoder_learning_rate" in ran.err


def first_group(state: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's options for the first weights."""
    return state["optimizer_states"][0]["param_groups"][0]


def moments(state: dict[str, Any]) -> dict[str, Any]:
    """Adam's state of the first weights that have one."""
    return next(iter(state["optimizer_states"][0]["state"].values()))


OPTIMIZER, TRAINING = "the optimizer's state in it", "the state of the training in it is malformed"
MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another shape": (lambda state: moments(state).update(exp_avg_sq=torch.zeros(2, 3, 5)), OPTIMIZER),
    "a rate that is text": (lambda state: first_group(state).update(lr="high"), OPTIMIZER),
    "no optimizer": (lambda state: state["optimizer_states"].clear(), OPTIMIZER),
    "a number as loop": (lambda state: state["loops"]["fit_loop"].update(epoch_progress=3), TRAINING),
    "callbacks of text": (
        lambda state: state.update(callbacks=dict.fromkeys(state["callbacks"], "x")),
        TRAINING,
    ),
    "data that is a number": (lambda state: state.update(CaptionData=3), TRAINING),
}


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.slow
def test_a_model_without_training_state_is_evaluated_and_not_resumed(
    cli: Cli, trained: Trained, tmp_path: Path
):
    options = ("-c", trained.config, "--trainer.default_root_dir", tmp_path / "run", "--ckpt_path")
    scores = cli("validate", *options, trained.folder / "best.ckpt")
    assert scores.out
    model = tmp_path / "model.safetensors"
    checkpoint.save(checkpoint.load(trained.folder / "best.ckpt"), model)
    assert cli("validate", *options, model).out == scores.out
    ran = cli("fit", *options, model)
    assert (ran.code, ran.out) == (2, "")
    assert "model.warm_start" in ran.err
