"""Checkpoints that were damaged, or made to do harm: no other weights, no more memory than the file, one sentence."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import QUIET, Cli, Trained, check_refused
from helpers.tiny_captioner import captioner, rewrite
from safetensors.torch import save_file

from caption.core.errors import CheckpointError
from caption.core.runtime import safe_loading
from caption.core.runtime.safe_loading import check_plain
from caption.models import checkpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_flipped_bit_in_any_tensor_and_another_word_or_option_are_noticed(suffix: str, tmp_path: Path):
    model, path = captioner(), tmp_path / f"model{suffix}"
    checkpoint.save(model, path)
    whole = path.read_bytes()
    tensors = [tensor for tensor in model.state_dict().values() if tensor.any() and tensor.numel() > 3]
    values = [tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
    changes = [(value, bytes([value[0] ^ 1]) + value[1:]) for value in values]
    changes += [(b"runs", b"rums"), (b"beam_size", b"beam_sine"), (b"SmallCNN", b"SmallCNM")]
    for old, new in changes:
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(CheckpointError, match=rf"^{path} is damaged"):
            checkpoint.load(path)


# -- bombs ---------------------------------------------------------------------------------------------------------


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
    ("where", "value", "said"),
    [
        ("captioner", nested(150), "nested"),
        ("captioner", shared(60), "larger"),
        ("captioner", 2**64, "whole number"),
        ("hyper_parameters", torch.zeros(1), "Tensor"),
        ("hyper_parameters", {3: "x"}, "keys that are not text"),
        ("data", "\ud800", "not Unicode"),
        ("data", 2j, "complex"),
    ],
    ids=["nested", "shared", "digits", "tensor", "keys", "surrogate", "complex"],
)
def test_a_description_that_is_too_large_or_not_plain(
    where: str, value: Any, said: str, path: Path, monkeypatch
):
    monkeypatch.setattr(safe_loading, "ENTRIES", 10_000)  # so that it is reached soon
    rewrite(path, lambda contents: contents.setdefault(where, {}).update(objective=value))
    with pytest.raises(CheckpointError, match=said):
        checkpoint.read(path)


def test_large_vocabularies_are_plain():
    check_plain({"words": [f"word {number}" for number in range(300_000)]})


def test_a_safetensors_header_of_another_kind(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    for header, said in (
        (None, "its header has no description"),
        ({"captioner": "{}", "checksums": "{}"}, "damaged"),
        ({"captioner": "[" * 100_000, "checksums": '{"captioner": 0, "tensors": {}}'}, "damaged"),
    ):
        save_file({"a": torch.zeros(2)}, path, header)
        with pytest.raises(CheckpointError, match=said):
            checkpoint.load(path)
    deep = json.dumps({"a": nested(500)}).encode()
    path.write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"widths": [15_000, 15_000, 15_000]}, r"but the model needs floating \(15000, "),
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
    rewrite(path, lambda contents: contents.update(optimizer_states=[{"state": added}]))
    with pytest.raises(CheckpointError, match="more elements than the file"):
        checkpoint.read(path)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/dev/zero"], ids=["long", "null", "device"])
def test_names_that_no_file_can_have(name: str):
    with pytest.raises(CheckpointError, match=r"is a device|no checkpoint"):
        checkpoint.load(name)


# -- evaluated and resumed --------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_model_that_cannot_be_resumed_is_evaluated(cli: Cli, trained: Trained, tmp_path: Path):
    options = ("-c", trained.config, *QUIET, "--trainer.default_root_dir", tmp_path / "run", "--ckpt_path")
    scores = cli("validate", *options, trained.folder / "best.ckpt")
    assert scores.out
    model = tmp_path / "model.safetensors"
    checkpoint.save(checkpoint.load(trained.folder / "best.ckpt"), model)
    assert cli("validate", *options, model).out == scores.out
    check_refused(cli("fit", *options, model), "model.warm_start")
    frozen = ("--model.encoder_learning_rate", "null", "--trainer.max_epochs", 3)
    ran = cli("fit", *options, trained.folder / "last.ckpt", *frozen)
    check_refused(ran, "model.encoder_learning_rate")


def moments(state: dict[str, Any]) -> dict[str, Any]:
    """Adam's state of the first weights that have one."""
    return next(iter(state["optimizer_states"][0]["state"].values()))


OPTIMIZER, TRAINING = "the optimizer's state in it", "the state of the training in it is malformed"
MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another shape": (lambda state: moments(state).update(exp_avg_sq=torch.zeros(2, 3, 5)), OPTIMIZER),
    "no optimizer": (lambda state: state["optimizer_states"].clear(), OPTIMIZER),
    "a number as loop": (lambda state: state["loops"]["fit_loop"].update(epoch_progress=3), TRAINING),
    "data that is a number": (lambda state: state.update(CaptionData=3), TRAINING),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("change", "said"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_state_is_refused_with_a_remedy(cli: Cli, trained, tmp_path, change, said: str):
    path = rewrite(trained.folder / "last.ckpt", change, tmp_path / "last.ckpt")
    before = path.read_bytes()
    options = ("--trainer.max_epochs", 3, "--trainer.default_root_dir", tmp_path, "--ckpt_path", path)
    ran = cli("fit", "-c", trained.config, *QUIET, *options)
    check_refused(ran, f"caption: {path}: {said}", "model.warm_start")
    assert path.read_bytes() == before
