"""Does a sentinel know when to look: which words read it instead of the image, and which words need what they read?

It is meant for words that the sentence so far decides (Lu et al. 2017, section 2.3). On Shapes these are all but
colours, shapes and the word that decides the relation. It is trained with and without dropout, and with an encoder that
learns with it or is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.analysis.replay import Replay, Step
from caption.analysis.scene_study import KINDS as NAMING
from caption.attention.maps import named_maps, with_maps
from caption.captioner import Captioner
from caption.metrics.significance import estimate
from caption.visualize.figure_file import NotebookFigure
from tools.documents import table
from tools.questions.bench import BASE, SHORT, Answer, Bench, Sentence, covered, interval, replayed
from tools.reproduce.runs import CONFIGS

MECHANISM = "sentinel"
LEARNS, FROZEN = "learns with it", "frozen"
DROPOUTS = (0.0, 0.5)
KINDS = (*NAMING, "relation", "others")
"""Of words: colours, shapes, the word that decides the relation, and those that the sentence so far decides."""


class Model(NamedTuple):
    """What was trained."""

    encoder: str
    dropout: float
    seed: int


class Words(NamedTuple):
    """N words of given captions."""

    images: np.ndarray
    """(N,) the scene."""
    words: np.ndarray
    """(N,) str."""
    kinds: np.ndarray
    """(N,) str, of `KINDS`."""
    shares: np.ndarray
    """(N,) the sentinel's weight."""
    nll: np.ndarray
    """(N,) −log p of the word, in nats."""
    falls: np.ndarray
    """(N, 2) how much log p of the word falls without the sentinel, and with the sentinel alone."""
    hits: np.ndarray
    """(N,) whether the most attended cell lies in the object's box, by its larger part; NaN for words but shapes."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """Shares and falls by kind of word."""
    test = bench.sentences("test")
    models = [
        Model(encoder, dropout, seed)
        for encoder in (LEARNS, FROZEN)
        for dropout in DROPOUTS
        for seed in seeds
    ]
    measured = {model: measure(train(bench, model), test) for model in models}
    return Answer(report(measured), draw(measured))


def train(bench: Bench, model: Model) -> Captioner:
    """Eight epochs with all captions if the encoder learns, as in configs/shapes_soft.yaml; a short training if not."""
    dropout = f"--model.decoder.init_args.attention.init_args.dropout={model.dropout}"
    name = f"{MECHANISM}_{model.encoder.split()[0]}_{model.dropout}"
    if model.encoder == FROZEN:
        return bench.trained(MECHANISM, model.seed, (*SHORT, dropout), name=name)
    configs = ["-c", str(BASE), "-c", str(CONFIGS / "attention" / f"{MECHANISM}.yaml")]
    return bench.fitted(f"{name}-{model.seed}", [*configs, dropout], model.seed)


@torch.no_grad()
def measure(captioner: Captioner, given: Sequence[Sentence]) -> Words:
    """The words of the given sentences."""
    rows: list[tuple[object, ...]] = []
    for replay, batch in replayed(captioner, given):
        for step in replay.steps(batch):
            sentences = [given[batch.first + row] for row in step.rows.tolist()]
            log_p = step.of_word(step.log_probs[:, None])
            rows += zip(
                [each.image for each in sentences],
                [each.words[step.number] for each in sentences],
                [kind_of(each, step.number) for each in sentences],
                maps_of(step)["sentinel"][:, 0, 0].tolist(),
                (-log_p[:, 0]).tolist(),
                (log_p - step.of_word(forced(replay, step))).double().numpy(),
                [
                    _hit(captioner, step, number, each)
                    if step.number in (each.subject, each.object)
                    else np.nan
                    for number, each in enumerate(sentences)
                ],
                strict=True,
            )
    return Words(*(np.array(column) for column in zip(*rows, strict=True)))


def kind_of(sentence: Sentence, step: int) -> str:
    """The kind of the word at a step."""
    word = sentence.words[step]
    if step == sentence.relation:
        return "relation"
    return next((kind for kind, words in NAMING.items() if word in words), "others")


def forced(replay: Replay, step: Step) -> Tensor:
    """(B, 2, V) log p without the sentinel, whose weight goes to the regions in proportion, and with it alone."""
    ((name, maps),) = step.maps.items()
    regions = maps_of(step)["regions"]
    alone = regions / regions.sum(-1, keepdim=True)
    changed = {
        "regions": torch.cat((alone, torch.zeros_like(alone)), 1),
        "sentinel": torch.tensor([0.0, 1.0]).view(1, 2, 1).expand(len(regions), 2, 1),
    }
    return replay.rerun(step, {name: with_maps(maps, changed)})


def maps_of(step: Step) -> Mapping[str, Tensor]:
    """The weights of the regions and of the sentinel."""
    (maps,) = step.maps.values()
    return named_maps(maps)


def _hit(captioner: Captioner, step: Step, number: int, sentence: Sentence) -> float:
    cells = covered(captioner, step.views[0].grid, [sentence.box(step.number)])
    return float(cells[int(step.weights[number].argmax())] > 0.5)


def report(measured: Mapping[Model, Words]) -> str:
    """A row for each model: shares of the sentinel, then falls."""
    shares, falls = [], []
    for model, of in measured.items():
        row = [model.encoder, f"{model.dropout:g}", str(model.seed)]
        chosen = [of.kinds == kind for kind in KINDS]
        shares.append(
            [
                *row,
                f"{of.nll.mean():.2f}",
                f"{np.nanmean(of.hits):.2f}",
                *(interval(estimate(of.shares[words], of.images[words])) for words in chosen),
            ]
        )
        falls.append(
            [*row, *(" / ".join(f"{fall:.2f}" for fall in of.falls[words].mean(0)) for words in chosen)]
        )
    head = ["encoder", "dropout", "seed"]
    return "\n\n".join(
        [
            "The sentinel's weight, by kind of word; NLL per word of the given captions, and pointing at shapes:",
            table([*head, "NLL", "pointing", *KINDS], shares),
            "The fall of log p of the word, in nats, without the sentinel / with the sentinel alone:",
            table([*head, *KINDS], [[cell.replace("-", "−") for cell in row] for row in falls]),
        ]
    )


def draw(measured: Mapping[Model, Words]) -> NotebookFigure:
    """The sentinel's weight at each word, a panel for each encoder and a dot for each model."""
    encoders = list(dict.fromkeys(model.encoder for model in measured))
    figure = NotebookFigure(figsize=(10.4, 0.6 + 2.3 * len(encoders)), layout="constrained")
    first = next(iter(measured.values()))
    order = [
        (kind, word) for kind in KINDS for word in dict.fromkeys(sorted(first.words[first.kinds == kind]))
    ]
    for ax, encoder in zip(figure.subplots(len(encoders), 1, squeeze=False)[:, 0], encoders, strict=True):
        for model, of in measured.items():
            if model.encoder != encoder:
                continue
            number = DROPOUTS.index(model.dropout)
            means = [of.shares[(of.kinds == kind) & (of.words == word)].mean() for kind, word in order]
            places = np.arange(len(order)) + 0.3 * number - 0.15
            label = f"dropout {model.dropout:g}" if model.seed == next(iter(measured)).seed else None
            ax.plot(places, means, "o", color=f"C{number}", alpha=0.6, markersize=5, label=label)
        for edge in np.cumsum([sum(kind == of_kind for of_kind, _ in order) for kind in KINDS])[:-1]:
            ax.axvline(edge - 0.5, color="0.8", linewidth=1)
        ax.set_xticks(range(len(order)), labels=[word for _, word in order], rotation=35, ha="right")
        ax.set(ylim=(-0.04, 1.04), ylabel="weight of the sentinel", title=f"encoder: {encoder}")
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure
