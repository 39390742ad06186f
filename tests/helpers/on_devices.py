"""What models and their parts do on a device, which is a GPU or a fake of one."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import torch
import yaml
from helpers import mechanisms
from helpers.configurations import CONFIGS
from helpers.fake_gpu import fake_gpu
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS
from helpers.refiner_cases import case, views_of
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor

from caption import search
from caption.captioner import Captioner
from caption.encoders import EfficientNetLite, Encoder, TimmEncoder, TorchvisionEncoder
from caption.encoders.base import view_sizes
from caption.objectives import CaptionBatch, Critic, Objective, Reinforce
from caption.parts import make
from caption.regions import Views
from caption.search.constrained import mentioning
from caption.tensor_tree import leaves, map_tensors
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
    search.ConstrainedBeamSearch(search.BeamSearch(2, 4), mentioning([[[4]], [[5, 6]]], 4 + len(WORDS))),
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
        loss = objective(model.decoder, model.project(views), captions)
        loss.value.backward()
        optimizer.step()
        losses.append(float(loss.logged["NLL"]))
    return losses


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
    model = mechanisms.captioner(
        mechanisms.decoder("hard" if "estimators" in name or name == "critic" else "additive")
    )
    objective.build(model.decoder.query_size, view_sizes(model.encoder), len(model.vocabulary))
    objective.prepare([[[4, 5, 2], [5, 6, 2]], [[6, 4, 2]]])
    with fake_gpu() as device:
        words, targets, lengths = torch.full((3, 2, 3, 5), 4).to(device)
        model, objective = model.to(device), objective.to(device)
        views = model.encoder(pixels_for(model).to(device))
        loss = objective(
            model.decoder.train(), model.project(views), CaptionBatch(words, targets, lengths[..., 0])
        )
        loss.value.backward()
        assert all(tensor.device == device for tensor in (loss.value, *loss.logged.values()))


def configured_objective(name: str) -> Objective:
    """The objective of a configuration, over that of shapes_soft."""
    base, changed = (
        yaml.safe_load((CONFIGS / f"{file}.yaml").read_text(encoding="utf-8"))["model"]["objective"]
        for file in ("shapes_soft", name)
    )
    objective: Objective = make(laid_over(base, changed), Objective)
    return objective


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
