"""On a GPU, every model gives the numbers that it gives on a CPU; on a fake GPU, no operation mixes devices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers import mechanisms
from helpers.command_line import QUIET, TINY, run_command
from helpers.on_devices import (
    ENCODERS,
    LENGTHS,
    MODELS,
    OBJECTIVES,
    SEARCHES,
    descend,
    encode,
    failure_of,
    fake_gpu_process,
    learn,
    needs_python_backends,
    numbers,
    pixels_for,
    refine,
    train,
    write,
)
from helpers.refiner_cases import CASES, case, views_of
from helpers.tiny_captioner import WORDS, photo
from torch import nn

from caption import objectives, search
from caption.captioner import Captioner
from caption.core.tensor_tree import leaves, map_tensors
from caption.models import checkpoint
from caption.objectives import CaptionBatch, Objective

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda")


def without_chance(model: Captioner) -> Captioner:
    """In the mode of evaluation, in which nothing is drawn, but for cuDNN, which has gradients in training alone."""
    model.eval()
    for part in model.modules():
        if isinstance(part, nn.RNNBase):
            part.train()
    return model


@needs_gpu
@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_the_same_logits_maps_and_gradients(name: str) -> None:
    model = without_chance(mechanisms.captioner(mechanisms.decoder(name)))
    on_cpu = numbers(copy.deepcopy(model), torch.device("cpu"))
    for theirs, ours in zip(on_cpu, numbers(model, GPU), strict=True):
        torch.testing.assert_close(ours, theirs)


@needs_gpu
@pytest.mark.parametrize("name", MODELS)
def test_every_model_describes_a_photo_in_the_same_words(name: str) -> None:
    model = mechanisms.captioner(mechanisms.decoder(name)).float()
    for method in (search.Greedy(6), search.BeamSearch(3, 6)):
        on_cpu = model.cpu().describe(photo(), method)
        on_gpu = model.to(GPU).describe(photo(), method)
        assert on_gpu.words == on_cpu.words
        # The convolutions of a GPU may round to TF32.
        torch.testing.assert_close(on_gpu.weights, on_cpu.weights, rtol=1e-2, atol=1e-3)


@needs_gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("masked", [False, True])
def test_every_refiner_gives_the_same_regions(name: str, masked: bool) -> None:
    refiner, views = case(name), views_of(name, masked)
    expected = leaves(refiner(views))
    found = leaves(refiner.to(GPU)(map_tensors(lambda tensor: tensor.to(GPU), views)))
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@needs_gpu
@pytest.mark.parametrize(
    "objective",
    [
        objectives.CrossEntropy([objectives.DoublyStochastic()]),
        objectives.Reinforce(objectives.LeaveOneOut(), samples=2),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_objectives_draw_on_the_gpu_and_lower_the_loss(objective: Objective) -> None:
    name = "hard" if isinstance(objective, objectives.Reinforce) else "additive"
    model = mechanisms.captioner(mechanisms.decoder(name)).to(GPU)
    words, targets = torch.randint(4, 4 + len(WORDS), (2, 2, 3, 5), device=GPU)
    captions = CaptionBatch(words, targets, torch.tensor(LENGTHS, device=GPU))
    with torch.no_grad():
        views = model.encoder(pixels_for(model).to(GPU))
    losses = descend(model, objective, views, captions, steps=20)
    assert losses[-1] < losses[0] - 0.1


@needs_gpu
def test_a_run_trains_stops_goes_on_and_describes(shapes: Path, tmp_path: Path) -> None:
    """Resumed after one of two epochs, it ends where the run without a stop does, and both processors caption alike."""
    config = tmp_path / "config.yaml"
    config.write_text(TINY.format(folder=tmp_path, shapes=shapes), encoding="utf-8")
    fit = ["fit", "-c", config, *QUIET, "--trainer.accelerator=gpu", "--trainer.deterministic=true"]
    env = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, epochs in ((whole, 2), (parts, 1), (parts, 2)):
        run = [f"--trainer.default_root_dir={folder}", f"--trainer.max_epochs={epochs}", "--ckpt_path=auto"]
        ran = run_command(*fit, *run, env=env)
        assert ran.code == 0, ran.err
    first, second = (checkpoint.read(folder / "last.ckpt")["state_dict"] for folder in (whole, parts))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name].cpu(), tensor.cpu(), rtol=0, atol=0)
    photos = sorted(shapes.rglob("*.png"))[:5]
    describe = ["describe", *photos, "--model", whole / "best.ckpt", "--device"]
    on_cpu, on_gpu = (run_command(*describe, device) for device in ("cpu", "cuda"))
    assert on_gpu.code == 0, on_gpu.err
    assert on_gpu.out == on_cpu.out
    assert on_gpu.out


# -- without a GPU -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    with fake_gpu_process() as executor:
        yield executor


@pytest.mark.nightly
@needs_python_backends
@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        *((train, (name,)) for name in MODELS),
        *((write, (name, method)) for name in ("additive", "hard", "transformer") for method in SEARCHES),
        *((learn, (name,)) for name in [*OBJECTIVES, "critic"]),
        *((refine, (name, masked)) for name in CASES for masked in (False, True)),
        *((encode, (name,)) for name in ENCODERS),
    ],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(str(part)[:20] for part in value),
)
def test_no_operation_mixes_devices(
    work: Callable[..., None], arguments: tuple[object, ...], process: ProcessPoolExecutor
) -> None:
    if arguments == ("timm",):
        pytest.importorskip("timm")
    failure = process.submit(failure_of, work, *arguments).result()
    assert not failure, failure
