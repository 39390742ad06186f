"""Bias, variance and cost of every estimator for hard attention, against the exact gradient; and the gain of samples.

    python -m tools.estimators                 # a quarter of an hour on one core; writes docs/results/hard-attention.md
    python -m tools.estimators --draws 200     # a quick look
    python -m tools.estimators --out -         # only print

On a toy (two images of 4 regions with two captions each, of one to three words, so up to 64 paths) the gradients of the
bound L_s and of log p(y|a) are known exactly (caption/objectives/exact.py). Each estimator draws its gradient many
times through the decoder and objective that training uses. Cost is that of a training step at Flickr8k's size; the
steps of all estimators take turns.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.attention import AdditiveScore, Alignment, GumbelSoftmax, Multinoulli, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder
from caption.objectives import (
    CaptionBatch,
    Critic,
    CrossEntropy,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Objective,
    Reinforce,
    SelfCritical,
)
from caption.objectives.exact import every_path
from tools import make_parser
from tools.benchmark.core import build, project
from tools.benchmark.harness import Setting, say, take_turns
from tools.documents import table, write_sections

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "results" / "hard-attention.md"
REGIONS, REGION_SIZE, WORDS = 4, 6, 12
LENGTHS = ((3, 2), (3, 1))
"""Words of the captions of each image; they differ, as real captions do."""
SAMPLES = (1, 2, 4, 8)
WARM_UP = 500
"""Draws in which baselines learn. They are fixed while the gradient is measured."""


@dataclass(frozen=True)
class Estimator:
    """An alignment and an objective that together estimate the gradient."""

    name: str
    unbiased: bool
    make: Callable[[int], tuple[Alignment, Objective]]
    """From the number of samples."""
    samples: range = range(1, SAMPLES[-1] + 1)
    """Those that it can take."""


def score_function(baseline: Callable[[], Any], credit: Any) -> Callable[[int], tuple[Alignment, Objective]]:
    options: dict[str, Any] = {"reward_weight": 1.0, "reward": "sum", "credit": credit, "terms": []}
    return lambda samples: (Multinoulli(expectation=0.0), Reinforce(baseline(), samples, **options))


class Repeated(CrossEntropy):
    """Cross-entropy of several samples of each caption."""

    def __init__(self, samples: int) -> None:
        super().__init__(terms=[])
        self.samples = samples

    def forward(self, decoder: Any, memory: Any, captions: CaptionBatch) -> Any:
        return super().forward(decoder, memory, captions.repeated(self.samples))


def authors(samples: int) -> tuple[Alignment, Objective]:
    return Multinoulli(expectation=0.5), Reinforce(MovingAverage(), samples, terms=[])


ESTIMATORS = (
    Estimator("no baseline, whole caption", True, score_function(NoBaseline, "caption")),
    Estimator("no baseline, words to come", True, score_function(NoBaseline, "future")),
    Estimator("moving average, whole caption (paper)", True, score_function(MovingAverage, "caption")),
    Estimator("moving average, words to come", True, score_function(MovingAverage, "future")),
    Estimator("critic, words to come", True, score_function(lambda: Critic(16), "future")),
    Estimator("self-critical, words to come", True, score_function(SelfCritical, "future")),
    Estimator("leave-one-out, whole caption", True, score_function(LeaveOneOut, "caption"), range(2, 9)),
    Estimator("leave-one-out, words to come", True, score_function(LeaveOneOut, "future"), range(2, 9)),
    Estimator("straight-through Gumbel, temperature 1", False, lambda s: (GumbelSoftmax(1.0), Repeated(s))),
    Estimator("straight-through Gumbel, temperature 0.3", False, lambda s: (GumbelSoftmax(0.3), Repeated(s))),
    Estimator("authors' code: λ_r 0.1, mean reward, half expected", False, authors),
    Estimator(
        "words only (λ_r 0)",
        False,
        lambda s: (Multinoulli(0.0), Reinforce(NoBaseline(), s, reward_weight=0.0, terms=[])),
    ),
    Estimator("soft attention, nothing sampled", False, lambda s: (Softmax(), Repeated(1)), range(1, 2)),
)


class Bias(NamedTuple):
    """‖E ĝ − g‖ / ‖g‖, without the part that chance alone would give, and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Measured(NamedTuple):
    """An estimator with a number of samples, against the exact gradient g of L_s."""

    all: Bias
    """Of all weights."""
    own: Bias
    """Of the attention's own weights."""
    variance: float
    """tr Cov ĝ / ‖g‖², of the attention's own weights."""
    to_marginal: Bias
    """Of all weights, against the gradient of log p(y|a)."""


def main(args: list[str] | None = None) -> int:
    parser = make_parser("estimators", __doc__)
    parser.add_argument(
        "--draws", type=int, default=1000, help="gradients per estimator and number of samples"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each estimator; 0 = no timing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=str(DOCUMENT), help="document to write the table to, or - for none")
    options = parser.parse_args(args)
    if options.draws < 20:
        parser.error(f"--draws {options.draws} is too few for a confidence interval: take 20 or more")
    truth = exact(*toy(options.seed))
    measured: dict[Estimator, dict[int, Measured]] = {}
    for estimator in ESTIMATORS:
        measured[estimator] = {}
        for samples in (s for s in SAMPLES if s in estimator.samples):
            found = measure(draw(estimator, samples, options.draws, options.seed), truth)
            measured[estimator][samples] = found
            say(f"{estimator.name:52} S={samples:<3} bias {found.all}, of the attention {found.own}")
    costs = cost(options.repeats) if options.repeats else {}
    text = report(measured, costs, truth, options)
    print(text)
    if options.out != "-":
        write_sections(Path(options.out), {"estimators": text})
    return 0


def toy(
    seed: int, alignment: Alignment | None = None
) -> tuple[ShowAttendAndTellDecoder, Tensor, CaptionBatch]:
    """A decoder in double precision without dropout, images and captions; the same for all estimators."""
    decoder = ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(8), alignment or Multinoulli(expectation=0.0)),
        embedding_size=6,
        hidden_size=8,
        initial=InitialState(dropout=0),
        gate=Gate(),
        readout=DeepOutput(dropout=0),
    )
    build(decoder, REGION_SIZE, WORDS)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # large, so that paths differ in probability and in their words
        for parameter in decoder.parameters():
            parameter.copy_(0.8 * torch.randn(parameter.shape, generator=generator))
    lengths = torch.tensor(LENGTHS)
    regions = torch.randn(len(LENGTHS), REGIONS, REGION_SIZE, generator=generator, dtype=torch.float64)
    words, targets = torch.randint(2, WORDS, (2, *lengths.shape, int(lengths.max())), generator=generator)
    return decoder.double().train(), regions, CaptionBatch(words, targets, lengths)


class Truth(NamedTuple):
    """The exact values, from all paths, as means over the captions."""

    bound: float
    marginal: float
    of_bound: np.ndarray
    """The gradient of −L_s."""
    of_marginal: np.ndarray
    """The gradient of −log p(y|a)."""
    own: np.ndarray
    """Which of the parameters are the attention's own (bool)."""


def exact(decoder: ShowAttendAndTellDecoder, regions: Tensor, captions: CaptionBatch) -> Truth:
    """The truth of the toy, from all paths of each caption."""
    paths = []
    for image, place in itertools.product(range(len(LENGTHS)), range(len(LENGTHS[0]))):
        one = CaptionBatch(*(part[image : image + 1, place : place + 1] for part in captions))
        paths.append(every_path(decoder, project(decoder, regions[image : image + 1]), one))
    bound = torch.stack([path.bound for path in paths]).mean()
    marginal = torch.stack([path.marginal for path in paths]).mean()
    of_bound, of_marginal = (gradient(-value, decoder).numpy() for value in (bound, marginal))
    named = decoder.named_parameters()
    own = np.concatenate([np.full(p.numel(), name.startswith("attention.")) for name, p in named])
    return Truth(bound.item(), marginal.item(), of_bound, of_marginal, own)


def gradient(value: Tensor, decoder: ShowAttendAndTellDecoder) -> Tensor:
    """Of all the decoder's parameters, as one vector."""
    parts = torch.autograd.grad(value, list(decoder.parameters()), retain_graph=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def draw(estimator: Estimator, samples: int, draws: int, seed: int) -> np.ndarray:
    """(draws, parameters) gradients. The estimator's baseline has learnt before and is fixed."""
    alignment, objective = estimator.make(samples)
    decoder, regions, captions = toy(seed, alignment)
    objective.build(decoder.query_size, (REGION_SIZE,), WORDS)
    objective.double().train()
    torch.manual_seed(seed + 1)
    learning = list(objective.parameters())
    optimizer = torch.optim.Adam(learning, 1e-2) if learning else None
    for _ in range(WARM_UP if any(True for _ in objective.state_dict()) else 0):
        loss = objective(decoder, project(decoder, regions), captions)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.value.backward()
            optimizer.step()
    objective.eval()
    losses = (objective(decoder, project(decoder, regions), captions).value for _ in range(draws))
    return torch.stack([gradient(loss, decoder) for loss in losses]).numpy()


def measure(draws: np.ndarray, truth: Truth) -> Measured:
    """Bias and variance from draws of the gradient."""
    counts = np.random.default_rng(0).multinomial(len(draws), np.full(len(draws), 1 / len(draws)), size=400)
    own, of_own = draws[:, truth.own], truth.of_bound[truth.own]
    return Measured(
        bias(draws, truth.of_bound, counts),
        bias(own, of_own, counts),
        float(own.var(0, ddof=1).sum() / np.square(of_own).sum()),
        bias(draws, truth.of_marginal, counts),
    )


def bias(draws: np.ndarray, exact: np.ndarray, counts: np.ndarray) -> Bias:
    """The bias of draws (N, parameters). `counts` (resamplings, N) says how often each resampling takes each draw."""
    length = np.linalg.norm(exact)
    scaled, truth = draws / length, exact / length
    chance = scaled.var(0, ddof=1).sum() / len(scaled)
    squared = np.square(scaled.mean(0) - truth).sum() - chance
    # A resampled mean is off by chance twice: once as the mean is, once by resampling.
    resampled = np.square(counts @ scaled / len(scaled) - truth).sum(1) - 2 * chance
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Bias(*(float(max(0.0, value)) ** 0.5 for value in (squared, low, high)))


def cost(repeats: int) -> dict[tuple[str, int], float]:
    """Seconds of a training step relative to soft attention's, with 1 and with 4 samples where possible."""
    say("cost of a training step")
    steps = {
        (estimator.name, samples): training_step(*estimator.make(samples))
        for estimator, samples in itertools.product(ESTIMATORS, (1, 4))
        if samples in estimator.samples
    }
    times = take_turns(steps, Setting(torch.device("cpu"), quick=False, rounds=repeats))
    soft = times.median((ESTIMATORS[-1].name, 1))
    return {key: times.median(key) / soft for key in steps}


def training_step(alignment: Alignment, objective: Objective) -> Callable[[], None]:
    """16 images with a caption of about 12 words each, 49 regions of 512 numbers, LSTM 512, 3,000 words."""
    torch.manual_seed(0)
    attention = ScoredAttention(AdditiveScore(256), alignment)
    decoder = build(
        ShowAttendAndTellDecoder(attention, embedding_size=256, hidden_size=512, gate=Gate()), 512, 3000
    )
    objective.build(decoder.query_size, (512,), 3000)
    regions = torch.randn(16, 49, 512)
    words, targets = torch.randint(4, 3000, (2, 16, 1, 16))
    captions = CaptionBatch(words, targets, torch.randint(8, 17, (16, 1)))

    def step() -> None:
        decoder.zero_grad()
        objective.zero_grad()
        objective(decoder, project(decoder, regions), captions).value.backward()

    return step


def tidy(variance: float) -> str:
    return "0" if variance < 1e-12 else f"{variance:.3g}"  # what rounding leaves of nothing


def report(
    measured: dict[Estimator, dict[int, Measured]],
    costs: dict[tuple[str, int], float],
    truth: Truth,
    options: argparse.Namespace,
) -> str:
    """The tables, as Markdown."""
    threads = f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
    apart = np.linalg.norm(truth.of_marginal - truth.of_bound) / np.linalg.norm(truth.of_bound)
    own = np.linalg.norm(truth.of_bound[truth.own]) / np.linalg.norm(truth.of_bound)
    rows, by_samples = [], []
    for estimator, of_it in measured.items():
        samples = min(max(4, min(of_it)), max(of_it))
        found = of_it[samples]
        prices = [costs.get((estimator.name, s)) for s in (1, 4)]
        price = " / ".join("–" if price is None else f"{price:.2f}" for price in prices)
        row = [estimator.name, "yes" if estimator.unbiased else "no", str(samples), str(found.all)]
        rows.append([*row, str(found.own), tidy(found.variance), f"{found.to_marginal.value:.2f}", price])
        variances = [tidy(of_it[s].variance) if s in of_it else "–" for s in SAMPLES]
        by_samples.append([estimator.name, *variances])
    head = "estimator, called unbiased, samples, bias [95 %], bias in the attention's weights [95 %], their variance"
    columns = [*head.split(", "), "away from ∂log p(y\\|a)", "cost, 1 / 4 samples"]
    return (
        f"Written by `python -m tools.estimators --draws {options.draws} --seed {options.seed}` (torch "
        f"{torch.__version__.partition('+')[0]}, {platform.machine()}, {threads}).\n\n"
        f"L_s = {truth.bound:.3f} and log p(y|a) = {truth.marginal:.3f} nats, means over the captions. Their exact "
        f"gradients differ by {apart:.2f} of the length of the former. The attention's own weights have {own:.2f}.\n\n"
        f"{table(columns, rows)}\n\nVariance of the gradient of the attention's own weights by number of samples:\n\n"
        f"{table(['estimator', *map(str, SAMPLES)], by_samples)}"
    )


if __name__ == "__main__":
    sys.exit(main())
