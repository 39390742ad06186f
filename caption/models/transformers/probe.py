"""Whether image tokens lie where the layout of a model says: parts of a photo are lit, and tokens that answer are seen.

The columns of the grid are lit whose number has a certain bit, and then those that lack it; likewise the rows. Of each
pair a token answers more to the one that lights its own cell, so few photos tell every token's place. The layers of the
vision tower are left out, so that tokens do not answer for each other; with them, the larger answer counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from caption.core.box import cell_edges
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.runtime.atomic_files import make_parents, replacing
from caption.data.photos import ImageTransform
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.cross_attention import PatchesTransform
from caption.text.vocabulary import SPECIAL_TOKENS, START

SIZES = ((640, 480), (360, 480))
"""(width, height) of the photos."""
LARGE = 1000
"""Margins above it are not told apart."""
STEPS = 2
"""Number of pieces whose probabilities are compared."""
PROBABILITY = 0.02
"""Maximal difference of a probability, which half precision keeps."""
QUANTISED = 0.1
"""The same with quantised weights: in 8 bits, a product depends on the pieces that are computed together."""


class ViewProbe(NamedTuple):
    """The answers of the tokens of a view."""

    grid: Grid
    """(rows, cols) that the layout says."""
    seen: Tensor
    """(L, 2) int64 row and column to which each token answers; -1 = to nothing."""
    own: Tensor
    """(L, 2) int64 row and column of its cell; -1 = the cell shows padding beside the photo, and is not tried."""
    margin: float
    """The least ratio of the larger answer of a pair to the other one."""

    @property
    def tried(self) -> int:
        """The number of tokens whose cells show the photo."""
        return int((self.own >= 0).all(1).sum())

    @property
    def wrong(self) -> list[int]:
        """The tokens that answer to another cell."""
        return [int(token) for token in (self.seen != self.own).any(1).nonzero()[:, 0]]


@torch.no_grad()
def probe(captioner: ForeignCaptioner, size: tuple[int, int], all_layers: bool = False) -> list[ViewProbe]:
    """The answers of each view's tokens to lit parts of a photo.

    Args:
        captioner: of a model of transformers.
        size: (width, height) of the photo.
        all_layers: whether the vision tower's layers run.
    """
    width, height = size
    model: Any = captioner.decoder.model
    size_of_token, edge = model.region_size, (1 - model.lit) / 2  # class tokens may follow
    boxes = captioner.boxes(captioner.transform.box(width, height))

    def tokens(lit: np.ndarray) -> tuple[Tensor, ...]:
        photo = Image.fromarray(lit.astype(np.uint8) * 255).convert("RGB")
        return tuple(view.vectors[0, :, :size_of_token].float() for view in captioner.encode([photo]))

    with _without_layers(captioner, all_layers), _even_light(captioner.transform):
        dark = tokens(np.zeros((height, width), bool))
        grids = captioner.grids(captioner.encode([Image.new("RGB", size)]))
        found = []
        for number, (rows, cols) in enumerate(grids):
            edges = cell_edges(rows, cols, boxes[number])
            bits: list[Tensor] = []
            margins = [torch.inf]
            answered = torch.ones(rows * cols, dtype=torch.bool)
            inside = _middles(edges[1], height)[:, None] & _middles(edges[0], width)
            for lines, ends, is_row in ((rows, edges[1], True), (cols, edges[0], False)):
                place = torch.zeros(rows * cols, dtype=torch.long)
                for bit in range((lines - 1).bit_length()):
                    pair = []
                    for wanted in (1, 0):
                        lit = np.zeros((height, width), bool)
                        for line in range(lines):
                            side = ends[line + 1] - ends[line]
                            begin = max(0, round(ends[line] + edge * side))
                            cut = slice(begin, max(begin + 1, round(ends[line + 1] - edge * side)))
                            if (line >> bit & 1) == wanted:
                                lit[(cut,) if is_row else (slice(None), cut)] = True
                        pair.append((tokens(lit)[number] - dark[number]).norm(dim=-1).cpu())
                    least, largest = torch.stack(pair).aminmax(dim=0)
                    answered &= largest > 0
                    margins.append(float((largest / least.clamp_min(1e-9))[inside.flatten()].min()))
                    place += (pair[0] > pair[1]).long() << bit
                bits.append(place.where(answered, -1))
            own = torch.cartesian_prod(torch.arange(rows), torch.arange(cols))
            seen, own = (places.where(inside.view(-1, 1), -1) for places in (torch.stack(bits, 1), own))
            found.append(ViewProbe((rows, cols), seen, own, min(margins)))
    return found


def _middles(edges: np.ndarray, side: int) -> Tensor:
    """Whether the middles of cells with these edges lie in a photo with a side of so many pixels."""
    middles = (edges[1:] + edges[:-1]) / 2
    return torch.from_numpy((middles > 0) & (middles < side))


@contextmanager
def _without_layers(captioner: ForeignCaptioner, all_layers: bool) -> Iterator[None]:
    """A context in which the vision tower's layers return their inputs."""
    model: Any = captioner.decoder.model
    tower, mixing = getattr(model, "tower", None), (GradientCheckpointingLayer, *model.mixing)
    of_tower = set(tower.modules()) if tower else set()
    of_text = set(model.whole.get_decoder().modules()) - of_tower  # GIT's decoder holds its tower
    layers: list[Any] = [
        module
        for module in model.whole.modules()
        if isinstance(module, mixing) and module not in of_text and not all_layers
    ]
    for layer in layers:
        layer.forward = _identity(layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _identity(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's `forward` that returns its input, in the form of its output, which the first call tells."""
    is_tuple: bool | None = None

    def unchanged(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_tuple
        if is_tuple is None:
            is_tuple = isinstance(forward(hidden_states, *args, **kwargs), tuple)
        return (hidden_states, None) if is_tuple else hidden_states

    return unchanged


@contextmanager
def _even_light(transform: ImageTransform) -> Iterator[None]:
    """A context in which Pix2Struct does not divide a photo's light by that of the whole photo."""
    processor: Any = transform.processor if isinstance(transform, PatchesTransform) else object
    before = getattr(processor, "do_normalize", False)
    if before:
        processor.do_normalize = False
    try:
        yield
    finally:
        if before:
            processor.do_normalize = True


def check(captioner: ForeignCaptioner) -> None:
    """Probe a model, unless one with the same configuration, processor and versions has been.

    Raises:
        UserError: image tokens answer to other parts of the photo than the layout says; or the probabilities of the
            first pieces are not those in `generate`.
    """
    import transformers
    from huggingface_hub.constants import HF_HOME

    model: Any = captioner.decoder.model
    parts = (transformers.__version__, model.whole.config.to_json_string(), repr(model.processor))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    file = Path(HF_HOME) / "caption_probes" / f"{digest}.json"
    if file.exists():
        return
    try:
        views = [view for size in SIZES for view in probe(captioner, size)]
    except (TypeError, AttributeError, ValueError, IndexError, RuntimeError):  # a tower that needs its layers
        views = [view for size in SIZES for view in probe(captioner, size, all_layers=True)]
    for view in views:
        if wrong := view.wrong:
            (row, col), (seen_row, seen_col) = view.own[wrong[0]].tolist(), view.seen[wrong[0]].tolist()
            seen = "to nothing" if min(seen_row, seen_col) < 0 else f"to row {seen_row}, column {seen_col}"
            raise UserError(
                f"the image tokens of {type(model.whole).__name__} do not lie where its processor and its order say: "
                f"{len(wrong)} of {view.tried} answer to other parts of a photo, such as row {row}, column {col} "
                f"{seen}; its maps would be wrong, so it is not loaded"
            )
    _check_probabilities(captioner)
    with suppress(OSError, UserError):  # a folder that cannot be written: the next time, it is probed again
        make_parents(file)
        with replacing(file) as stream:
            stream.write(json.dumps([described(view) for view in views]).encode())


@torch.no_grad()
def _check_probabilities(captioner: ForeignCaptioner) -> None:
    """Compare the probabilities of the first two pieces with those in `generate`."""
    model: Any = captioner.decoder.model
    gradient = Image.linear_gradient("L")
    photo = Image.merge("RGB", (gradient, gradient.rotate(90), gradient)).resize((64, 48))
    given = {name: value for name, value in model.asked(photo).items() if name != "labels"}
    given["pixel_values"] = given["pixel_values"].to(next(captioner.parameters()).dtype)
    given = {name: value.to(captioner.device) for name, value in given.items()}
    options = {
        "do_sample": False,
        "num_beams": 1,
        "num_return_sequences": 1,
        "min_new_tokens": STEPS,
        "max_new_tokens": STEPS,
    }
    theirs = model.whole.generate(**given, **options, output_logits=True, return_dict_in_generate=True)
    name, word = type(model.whole).__name__, START
    most = QUANTISED if getattr(model.whole.config, "quantization_config", None) else PROBABILITY
    ours: list[Tensor] = []
    try:
        state = captioner.decoder.start(captioner.project(captioner.encode([photo])))
        for piece in theirs.sequences[0, -len(theirs.logits) :].tolist():
            log_probs, state = captioner.decoder.step(state, torch.tensor([[word]], device=captioner.device))
            word = piece + len(SPECIAL_TOKENS)
            ours.append(log_probs[0, 0, len(SPECIAL_TOKENS) :])
    except (KeyError, AttributeError, TypeError, IndexError) as error:
        raise UserError(
            f"a layer of the language model of {name} does not use the attention interface of transformers, or keeps "
            "no keys and values in its cache: its maps cannot be seen"
        ) from error
    for log_probs, logits in zip(ours, theirs.logits, strict=True):
        own = logits[0].float().softmax(-1)
        difference = float((log_probs.exp() - own).abs().where(log_probs.isfinite(), 0).max())
        if not difference <= most:
            raise UserError(
                f"{name} computes its attention in a way that is not followed here: the probability of a piece differs "
                f"by {difference:.2g} from that in generate; its maps would be wrong, so it is not loaded"
            )


def described(view: ViewProbe) -> str:
    """A line about a view: its grid and what was seen."""
    rows, cols = view.grid
    right = view.tried - len(view.wrong)
    margin = f"{view.margin:.1f}" if view.margin < LARGE else f"more than {LARGE}"
    return f"{rows}x{cols} image tokens: {right} of {view.tried} answer to their own cell, margin {margin}"
