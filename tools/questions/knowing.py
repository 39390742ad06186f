"""Does a model know when it names what is not there, if its encoder was trained to classify shapes?

As on photos, the encoder was trained for another task than captions: to name the single thing of a picture, by a linear
layer on the mean of its regions. It is frozen, and models with different attention are trained on it. The layer then
reads each word's context, as a lens (`caption.analysis.lens`). A noun is a pair of colour and shape; that nobody names
one means here that it is not in the scene, since the captions of a scene name all of its things. What tells such nouns
is measured as `tools.unnamed_nouns` does on photos.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.analysis.lens import Lens
from caption.analysis.lens.unnamed_nouns import NounUses, noun_uses
from caption.captioner import Captioner
from caption.data.readers.captions import CaptionedImage
from caption.data.shapes.render import render
from caption.data.shapes.scene import COLOURS, JITTER, NAMES, Object, Scene
from caption.encoders import SmallCNN
from caption.encoders.classifier import Classifier
from caption.regions import mean_region
from caption.runtime.files import replacing_own
from caption.runtime.progress import progress_bar
from caption.text.nouns import Nouns
from tools.questions.bench import SHORT, SIDE, Answer, Bench
from tools.unnamed_nouns import draw, report, tell

MECHANISMS = {"additive": "soft", "multi_head": "four heads", "hard": "hard"}
"""Of configs/attention, and what the columns are called. The first is the start of hard attention."""
PICTURES, EPOCHS, BATCH, RATE = 6000, 8, 50, 2e-3
"""Of the classifier's training."""
HELD_OUT = 1000
"""Pictures on which the classifier is tested."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """How well the lens and the model tell things that are not in the scene."""
    network = _trained_network(bench.folder / "classifier.ckpt")
    pictures, labels = single_things(HELD_OUT, 1)
    with torch.no_grad():
        right = (network(pictures).argmax(-1) == labels).double().mean()
    lens = Lens(network.classifier, things())
    splits = bench.reader.read()
    told = {}
    for mechanism, name in MECHANISMS.items():
        models = [trained(bench, mechanism, seed, network.encoder) for seed in seeds]
        told[name] = tell(*(measure(models, lens, splits[split]) for split in ("val", "test")))
    scenes = [lens.nouns.named(image.captions) for image in splits["test"]]
    joined = ", ".join(f"{joining(of.uses, scenes):.0%} ({name})" for name, of in told.items())
    setting = (
        f"Seeds {', '.join(map(str, seeds))} together, on one frozen encoder whose classifier names the thing in "
        f"{right:.1%} of {HELD_OUT:,} new pictures of one thing, of {len(NAMES)} pairs of colour and shape. Brackets "
        "are 95 % bootstrap intervals over test scenes; what is chosen or fitted is chosen on validation scenes. Of "
        f"the nouns that are not in the scene, {joined} join the colour of one of its things to the shape of another."
    )
    return Answer(f"{setting}\n\n{report(told)}", draw(told))


def things() -> Nouns:
    """The pairs of colour and shape, each a class and a noun of two words."""
    return Nouns([(name, name) for name in NAMES], [(name, "", ()) for name in NAMES])


def trained(bench: Bench, mechanism: str, seed: int, encoder: SmallCNN) -> Captioner:
    """A model on the frozen encoder; hard attention goes on from soft attention, as its configuration says."""
    folder = f"{mechanism}-classifier"
    soft = bench.folder / f"{next(iter(MECHANISMS))}-classifier-{seed}" / "best.ckpt"
    start = soft if mechanism == "hard" else None
    return bench.trained(mechanism, seed, SHORT, encoder, folder, start)


def measure(models: Sequence[Captioner], lens: Lens, images: Sequence[CaptionedImage]) -> NounUses:
    """What the lens sees behind the words of several models for the same scenes, together."""
    photos, references = [str(image.path) for image in images], [image.captions for image in images]
    parts = [noun_uses(model, lens, photos, references) for model in models]
    return NounUses(
        tuple(word for part in parts for word in part.words),
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.unnamed for part in parts]),
        {name: np.concatenate([part.of_model[name] for part in parts]) for name in parts[0].of_model},
        {name: np.concatenate([part.surprise[name] for part in parts]) for name in parts[0].surprise},
    )


def joining(uses: NounUses, scenes: Sequence[Collection[str]]) -> float:
    """Of the nouns that are not in their scene, the share whose colour and shape both are."""
    pairs = [
        (*word.split(), scenes[image])
        for word, image, wrong in zip(uses.words, uses.images.tolist(), uses.unnamed, strict=True)
        if wrong
    ]
    return float(np.mean([{colour, shape} <= set(" ".join(scene).split()) for colour, shape, scene in pairs]))


def single_things(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures (N, 3, SIDE, SIDE) uint8 of one thing at any place, and the numbers (N,) of their names in NAMES."""
    generator = np.random.default_rng([seed, len(NAMES)])
    pictures, labels = [], generator.integers(len(NAMES), size=count)
    for label in labels:
        colour, shape = NAMES[label].split()
        size = int(generator.integers(14, 23))
        left, top = (int(place) for place in generator.integers(1, SIDE - size, size=2))
        rgb = np.clip(np.array(COLOURS[colour]) + generator.integers(-JITTER, JITTER + 1, size=3), 0, 255)
        thing = Object(colour, shape, left, top, size, (int(rgb[0]), int(rgb[1]), int(rgb[2])))
        pictures.append(np.asarray(render(Scene((thing,), SIDE, int(generator.integers(2**31))))))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), torch.from_numpy(labels)


class ClassifyingNetwork(nn.Module):
    """An encoder, and a linear layer on the mean of its regions: images (B, 3, H, W) uint8 -> logits (B, NAMES)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = SmallCNN()
        self.classifier = Classifier(nn.Linear(self.encoder.region_sizes[0], len(NAMES)))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(mean_region(self.encoder(images)[0])[:, 0])
        return logits


def train_classifier(pictures: Tensor, labels: Tensor, epochs: int = EPOCHS) -> ClassifyingNetwork:
    """A network that has learned to name single things."""
    torch.manual_seed(0)
    network = ClassifyingNetwork()
    steps = epochs * -(-len(labels) // BATCH)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with progress_bar("training the classifier", steps, unit="batches") as advance:
        for _ in range(epochs):
            for batch in torch.randperm(len(labels)).split(BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(network(pictures[batch]), labels[batch]).backward()
                optimizer.step()
                falling.step()
                advance(1)
    return network.eval()


def _trained_network(path: Path) -> ClassifyingNetwork:
    """The network of a file, which is trained first if it is not there."""
    if not path.exists():
        trained_now = train_classifier(*single_things(PICTURES, 0))
        with replacing_own(path) as file:
            torch.save(trained_now.state_dict(), file)
    network = ClassifyingNetwork()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()
