"""What models and their parts do on a device, which is a GPU or a fake of one: a GPU that computes nothing, and finds
tensors of two devices in one operation. It needs no hardware, and no build of torch for it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from helpers import mechanisms
from helpers.configurations import CONFIGS
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS
from helpers.refiner_cases import case, views_of
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from caption import search
from caption.captioner import Captioner
from caption.core.regions import Views
from caption.core.runtime.trust import make
from caption.core.tensor_tree import leaves, map_tensors
from caption.encoders import EfficientNetLite, Encoder, TimmEncoder, TorchvisionEncoder
from caption.encoders.base import view_sizes
from caption.objectives import CaptionBatch, Critic, Objective, Reinforce
from tools.tables.table import laid_over

MODELS = [*ATTENTIONS, *OWN, *DECODERS, *OWN_DECODERS]
LENGTHS = [[2, 5, 3], [4, 1, 0]]
ENCODERS: dict[str, Callable[[], Encoder]] = {
    "torchvision": lambda: TorchvisionEncoder("mobilenet_v2", ["features.13", "features"]),
    "efficientnet_lite": lambda: EfficientNetLite("efficientnet_lite0"),
    "timm": lambda: TimmEncoder("tf_efficientnet_lite0"),
}
"""Those that no model of `MODELS` has."""
SEARCHES = [
    search.Greedy(4),
    search.BeamSearch(3, 4),
    search.Sampling(top_p=0.9, samples=2, max_length=4),
]
OBJECTIVES = sorted(
    f"{path.parent.name}/{path.stem}"
    for folder in ("training", "estimators")
    for path in (CONFIGS / folder).glob("*.yaml")
    if "objective" in yaml.safe_load(path.read_text(encoding="utf-8")).get("model", {})
)
"""Configurations that change the objective."""


def pixels_for(model: Captioner) -> Tensor:
    """Two photos, in double precision."""
    return torch.stack([model.transform(photo(seed=seed)) for seed in (1, 2)]).double()


def numbers(model: Captioner, device: torch.device) -> list[Tensor]:
    """Loss, gradients, logits, maps and steps of a model in double precision, and its states."""
    pixels = pixels_for(model)
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(4, 4 + len(WORDS), (2, 3, 5), generator=generator).to(device)
    lengths = torch.tensor(LENGTHS).to(device)
    model = model.to(device)
    memory = model.project(model.encoder(pixels.to(device)))
    unrolled = model.decoder(memory, words, lengths)
    loss = unrolled.logits.log_softmax(-1)[:, 1].sum() + unrolled.trace.weights.square().sum()
    loss.backward()
    found = [loss, *(p.grad for p in model.parameters() if p.grad is not None)]
    found += [unrolled.logits, unrolled.trace.weights, *unrolled.trace.maps.values()]
    with torch.no_grad():
        state = model.decoder.start(memory, 3)
        for t in range(3):
            log_probs, state = model.decoder.step(state, words[:, :, t])
            found.append(log_probs)
        found += leaves(state.carried)
    assert all(tensor.device.type == device.type for tensor in found)
    return [tensor.detach().cpu() for tensor in found]


def descend(
    model: Captioner, objective: Objective, views: Views, captions: CaptionBatch, steps: int
) -> list[float]:
    """The NLL before each step of Adam in training mode, in which the same is drawn at every step."""
    optimizer = torch.optim.Adam(model.decoder.parameters(), 0.03)
    model.decoder.train()
    losses = []
    for _ in range(steps):
        torch.manual_seed(0)
        optimizer.zero_grad()
        loss = objective(model, views, captions)
        loss.value.backward()
        optimizer.step()
        losses.append(float(loss.logged["NLL"]))
    return losses


# -- the fake GPU ---------------------------------------------------------------------------------------------------

NAME = "gpu"
EVERY_NUMBER = 2
SETUP = "_setup_privateuseone_for_python_backend"
needs_python_backends = pytest.mark.skipif(
    not hasattr(backend_registration, SETUP), reason="this torch has no devices written in Python"
)


class Device:
    """What torch asks of the module `torch.gpu`."""

    is_initialized = is_available = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


class Affirmative(FakeTensorMode):
    """Tensors have a shape and a device, and no numbers. Code that asks for a number is told `EVERY_NUMBER`, or True.

    So all captions have two words, and no search ends before its largest number of steps.
    """

    avoid_device_init = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].constant is None:
            return True if args[0].dtype == torch.bool else EVERY_NUMBER
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)
        return super().__torch_dispatch__(func, types, args, kwargs or {})


@contextmanager
def fake_gpu() -> Iterator[torch.device]:
    """Within, models and tensors move to the device with `to`. Only in a process of `fake_gpu_process`."""
    with Affirmative(allow_non_fake_inputs=True):
        yield torch.device(NAME, 0)


def fake_gpu_process() -> ProcessPoolExecutor:
    """A process with the device, which cannot be removed again."""
    return ProcessPoolExecutor(1, get_context("spawn"), _register)


def failure_of(work: Callable[..., None], *arguments: object) -> str:
    """The traceback of a call, "" if it succeeds. Errors of fake tensors hold what no process can send."""
    try:
        work(*arguments)
    except Exception:
        return traceback.format_exc()
    return ""


def _register() -> None:
    torch.set_num_threads(1)
    setup: Callable[..., None] = getattr(backend_registration, SETUP)
    setup(NAME, Device())


# -- on the fake GPU, in a process of `fake_gpu_process` ---------------------------------------------------------------


def train(name: str) -> None:
    """The numbers of a model in training mode, in which attention samples."""
    model = mechanisms.captioner(mechanisms.decoder(name))
    with fake_gpu() as device:
        numbers(model.train(), device)


def write(name: str, method: search.Search) -> None:
    """A search for captions."""
    model = mechanisms.captioner(mechanisms.decoder(name))
    with fake_gpu() as device:
        model = model.to(device)
        found = model.generate(model.encoder(pixels_for(model).to(device)), method)
        assert all(tensor.device == device for tensor in leaves(found))


def learn(name: str) -> None:
    """The loss and the gradients of an objective in a configuration, or with a critic."""
    objective: Objective = Reinforce(Critic()) if name == "critic" else configured_objective(name)
    samples = "estimators" in name or name == "critic"
    model = mechanisms.captioner(mechanisms.decoder("hard" if samples else "additive"))
    objective.build(model.decoder.query_size, view_sizes(model.encoder), len(model.vocabulary))
    objective.prepare([[[4, 5, 2], [5, 6, 2]], [[6, 4, 2]]])
    with fake_gpu() as device:
        words, targets, lengths = torch.full((3, 2, 3, 5), 4).to(device)
        model, objective = model.to(device), objective.to(device)
        views = model.encoder(pixels_for(model).to(device))
        model.decoder.train()
        loss = objective(model, views, CaptionBatch(words, targets, lengths[..., 0]))
        loss.value.backward()
        assert all(tensor.device == device for tensor in (loss.value, *loss.logged.values()))


def configured_objective(name: str) -> Objective:
    """The objective of a configuration, over that of shapes_soft."""
    files = [(CONFIGS / f"{file}.yaml").read_text(encoding="utf-8") for file in ("shapes_soft", name)]
    base, changed = (yaml.safe_load(text)["model"]["objective"] for text in files)
    return make(laid_over(base, changed), Objective)


def refine(name: str, masked: bool) -> None:
    """A refiner's regions and gradients."""
    refiner, views = case(name), views_of(name, masked)
    # It looks for images without regions, and would be told that there are some.
    with fake_gpu() as device, mock.patch("caption.encoders.refiners.base.check_views"):
        there = map_tensors(
            lambda tensor: tensor.to(device).requires_grad_(tensor.is_floating_point()), views
        )  # not every refiner has weights
        found = leaves(refiner.to(device)(there))
        sum(tensor.sum() for tensor in found if tensor.is_floating_point()).backward()
        assert all(tensor.device == device for tensor in found)


def encode(name: str) -> None:
    """An encoder's regions and gradients."""
    encoder = ENCODERS[name]()
    with fake_gpu() as device:
        views = encoder.to(device)(torch.zeros(2, 3, 64, 64, dtype=torch.uint8).to(device))
        sum(view.vectors.sum() for view in views).backward()
        assert all(tensor.device == device for tensor in leaves(views))
