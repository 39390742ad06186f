"""On a GPU, every model gives the numbers that it gives on a CPU; on a fake GPU, no operation mixes devices."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from helpers import mechanisms
from helpers.command_line import QUIET, TINY, run_command
from helpers.configurations import CONFIGS
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS, descend
from helpers.refiner_cases import CASES, case, views_of
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from caption import objectives, search
from caption.captioner import Captioner
from caption.core.regions import Views
from caption.core.runtime.trust import make
from caption.core.tensor_tree import leaves, map_tensors
from caption.encoders import EfficientNetLite, Encoder, TimmEncoder, TorchvisionEncoder
from caption.encoders.base import view_sizes
from caption.kernels import accelerate
from caption.models import checkpoint
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
def test_every_model_has_the_same_numbers_as_a_graph(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Recorded at the first call, replayed at the second with other weights."""
    model = without_chance(mechanisms.captioner(mechanisms.decoder(name)))
    graphed = copy.deepcopy(model).to(GPU)
    accelerate(graphed, graphs=True)
    for scale in (1.0, 0.5):
        for either in (model, graphed):
            either.zero_grad()
            with torch.no_grad():
                for weight in either.parameters():
                    weight.mul_(scale)
        for theirs, ours in zip(numbers(model, torch.device("cpu")), numbers(graphed, GPU), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert not caplog.text


class Waits(nn.Module):
    """Asks the GPU for a number."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps if float(maps.detach().sum()) > 0 else 2 * maps


@needs_gpu
def test_what_waits_is_not_recorded_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model = mechanisms.captioner(mechanisms.decoder("additive")).to(GPU)
    model.decoder.attention.maps = Waits()
    accelerate(model, graphs=True)
    for _ in range(2):
        numbers(model, GPU)
        torch.rand(3, device=GPU)
    assert caplog.text.count("no CUDA graph of a decoder's unroll") == 1


@needs_gpu
def test_dropout_and_samples_of_a_graph_are_those_of_the_plain_form() -> None:
    """Two batches of one shape; so a resumed run draws the same, too."""
    found = []
    for as_graph in (False, True):
        model = (
            mechanisms.captioner(mechanisms.lstm(mechanisms.ATTENTIONS["hard"](), dropout=0.3))
            .to(GPU)
            .train()
        )
        accelerate(model, graphs=as_graph)
        with torch.no_grad():
            views = model.encoder(pixels_for(model).to(GPU))
        words = torch.full((2, 3, 8), 5, device=GPU)
        for seed in (0, 1):
            torch.manual_seed(seed)
            model.zero_grad()
            unrolled = model.unroll(views, words, torch.full((2, 3), 8))
            (unrolled.logits.square().sum() + unrolled.trace.log_prob.sum()).backward()
            found.append([unrolled.trace.location, *(weight.grad for weight in model.decoder.parameters())])
    for plain, graphed in zip(found[:2], found[2:], strict=True):
        for one, other in zip(plain, graphed, strict=True):
            torch.testing.assert_close(one, other)


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


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Within, an operation for which the host waits for the GPU raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def objective_for(model: Captioner, views: Views, captions: CaptionBatch) -> Objective:
    """One that can train the model's attention."""
    with torch.no_grad():
        samples = model.unroll(views, captions.words, captions.lengths).trace.log_prob is not None
    if samples:
        return Reinforce()
    return objectives.CrossEntropy([] if model.decoder.properties.signed else None)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_an_objective(name: str) -> None:
    """For the next test, where there is no GPU."""
    model = mechanisms.captioner(mechanisms.decoder(name)).float().train()
    with torch.no_grad():
        views = model.encoder(pixels_for(model).float())
    words = torch.randint(4, 4 + len(WORDS), (2, 3, 5))
    captions = CaptionBatch(words, words, torch.tensor(LENGTHS))
    objective_for(model, views, captions)(model, views, captions).value.backward()
    assert any(weight.grad is not None for weight in model.decoder.parameters())


@needs_gpu
@pytest.mark.parametrize("name", MODELS)
def test_the_host_waits_for_nothing_in_a_training_step(name: str) -> None:
    model = mechanisms.captioner(mechanisms.decoder(name)).float().to(GPU).train()
    accelerate(model)
    with torch.no_grad():
        views = model.encoder(pixels_for(model).float().to(GPU))
    words, targets = torch.randint(4, 4 + len(WORDS), (2, 2, 3, 5)).to(GPU)
    captions = CaptionBatch(words, targets, torch.tensor(LENGTHS))
    objective = objective_for(model, views, captions)
    objective(model, views, captions).value.backward()  # libraries wait when they are first used
    with waiting_is_an_error():
        objective(model, views, captions).value.backward()


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
@pytest.mark.parametrize("graphs", ["false", "true"])
def test_a_run_trains_stops_goes_on_and_describes(graphs: str, shapes: Path, tmp_path: Path) -> None:
    """Resumed after one of two epochs, it ends where the run without a stop does, and both processors caption alike."""
    config = tmp_path / "config.yaml"
    config.write_text(TINY.format(folder=tmp_path, shapes=shapes), encoding="utf-8")
    fit = [
        "fit",
        "-c",
        config,
        *QUIET,
        "--trainer.accelerator=gpu",
        "--trainer.deterministic=true",
        f"--model.graphs={graphs}",
    ]
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

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.waits: list[str] = []
        """Where the host read a number of the device, or waited until one was copied to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in READS and args[0].device.type == NAME:
            self.waits.append(f"{func}: {place()}")
        if func is torch.ops.aten._to_copy.default and not kwargs.get("non_blocking"):
            devices = {args[0].device.type, torch.device(kwargs.get("device") or args[0].device).type}
            if devices == {NAME, "cpu"}:
                self.waits.append(f"{func}: {place()}")
        if func is torch.ops.aten._local_scalar_dense.default and args[0].constant is None:
            return True if args[0].dtype == torch.bool else EVERY_NUMBER
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)
        return super().__torch_dispatch__(func, types, args, kwargs)

    @contextmanager
    def without_waiting(self, most: int = 0) -> Iterator[None]:
        """Within, the host waits for the device so many times at most."""
        self.waits.clear()
        yield
        assert len(self.waits) <= most, (len(self.waits), sorted(set(self.waits)))


def place() -> str:
    """The innermost line of the package that is running."""
    lines = [frame for frame in traceback.extract_stack() if "/caption/" in frame.filename]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else ""


READS = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.multinomial.default,  # checks its numbers
)


@contextmanager
def fake_gpu() -> Iterator[tuple[torch.device, Affirmative]]:
    """Within, models and tensors move to the device with `to`. Only in a process of `fake_gpu_process`."""
    with Affirmative() as mode:
        yield torch.device(NAME, 0), mode


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
    """The loss, gradients and steps of a model in training mode, in which attention samples, without waiting."""
    model = mechanisms.captioner(mechanisms.decoder(name)).train()
    with fake_gpu() as (device, mode):
        words, pixels = torch.full((2, 3, 5), 4).to(device), pixels_for(model).to(device)
        views = model.to(device).encoder(pixels)
        with mode.without_waiting():
            memory = model.project(views)
            unrolled = model.decoder(memory, words, torch.tensor(LENGTHS))
            loss = unrolled.logits.log_softmax(-1)[:, 1].sum() + unrolled.trace.weights.square().sum()
            loss.backward()
            state = model.decoder.start(memory, 3)
            for t in range(3):
                log_probs, state = model.decoder.step(state, words[:, :, t])
        found = [log_probs, *(p.grad for p in model.parameters() if p.grad is not None), *leaves(state)]
        assert all(tensor.device == device for tensor in found)


def write(name: str, method: search.Search) -> None:
    """A search for captions, in which the host reads every few steps whether it goes on, and how long they are."""
    model = mechanisms.captioner(mechanisms.decoder(name))
    with fake_gpu() as (device, mode):
        model = model.to(device)
        views = model.encoder(pixels_for(model).to(device))
        with mode.without_waiting(most=2):
            found = model.generate(views, method)
        assert all(tensor.device == device for tensor in leaves(found))


def learn(name: str) -> None:
    """The loss and the gradients of an objective in a configuration, or with a critic."""
    objective: Objective = Reinforce(Critic()) if name == "critic" else configured_objective(name)
    samples = "estimators" in name or name == "critic"
    model = mechanisms.captioner(mechanisms.decoder("hard" if samples else "additive"))
    objective.build(model.decoder.query_size, view_sizes(model.encoder), len(model.vocabulary))
    objective.prepare([[[4, 5, 2], [5, 6, 2]], [[6, 4, 2]]])
    with fake_gpu() as (device, mode):
        words, targets = torch.full((2, 2, 3, 5), 4).to(device)
        model, objective = model.to(device), objective.to(device)
        views = model.encoder(pixels_for(model).to(device))
        model.decoder.train()
        # Sampled captions are scored on the host.
        rewarded = any(isinstance(part, objectives.SelfCriticalSequence) for part in objective.modules())
        with mode.without_waiting(most=10_000 if rewarded else 0):
            loss = objective(model, views, CaptionBatch(words, targets, torch.tensor(LENGTHS)))
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
    with fake_gpu() as (device, _), mock.patch("caption.encoders.refiners.base.check_views"):
        there = map_tensors(
            lambda tensor: tensor.to(device).requires_grad_(tensor.is_floating_point()), views
        )  # not every refiner has weights
        found = leaves(refiner.to(device)(there))
        sum(tensor.sum() for tensor in found if tensor.is_floating_point()).backward()
        assert all(tensor.device == device for tensor in found)


def encode(name: str) -> None:
    """An encoder's regions and gradients."""
    encoder = ENCODERS[name]()
    with fake_gpu() as (device, _):
        views = encoder.to(device)(torch.zeros(2, 3, 64, 64, dtype=torch.uint8).to(device))
        sum(view.vectors.sum() for view in views).backward()
        assert all(tensor.device == device for tensor in leaves(views))


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
