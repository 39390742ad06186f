"""Show, Attend and Tell on one screen (Xu et al. 2015, arXiv 1502.03044), in plain torch. Read this first.

    python -m caption.textbook             trains on Shapes in minutes, and draws the attention: textbook.png
    python -m caption.textbook --hard      continues with hard attention

Numbers in brackets are the paper's equations. The package computes the same, with parts that can be exchanged, for
several captions per image, and faster: `tests/core/test_textbook.py` compares both.

N captions, each with its image; L regions of D numbers; T steps; V words. Sizes: word vector m, LSTM n, comparison A.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from caption.core.runtime.atomic_files import replacing_own
from caption.core.runtime.outputs import FIGURES, check_outputs, output_file
from caption.data.shapes.captions import describe_scene
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.text.vocabulary import END, PAD, START, Vocabulary
from caption.visualize import save_figure

Phi = Callable[[Tensor], Tensor]


# Section 3.1.1: a CNN turns an image into L annotation vectors a, one for each cell of its last grid.
class Encoder(nn.Sequential):
    """Images with two channels of coordinates (N, 5, 64, 64) -> regions a (N, 64, D), an 8x8 grid row by row."""

    def __init__(self, D: int = 128) -> None:
        super().__init__()
        for inputs, outputs, kernel, stride in ((5, 32, 4, 2), (32, 64, 4, 2), (64, D, 4, 2), (D, D, 3, 1)):
            self.extend([nn.Conv2d(inputs, outputs, kernel, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()])

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).flatten(2).transpose(1, 2)


# Section 4: φ maps the attention α (N, L) to the weights s (N, L) of the regions in the context.
def soft(alpha: Tensor) -> Tensor:
    """Read the expectation, E[s] = α. It is differentiable (13)."""
    return alpha


def hard(alpha: Tensor) -> Tensor:
    """Read one region: s ~ Multinoulli(α), one-hot (8). It has no gradient."""
    return F.one_hot(alpha.detach().multinomial(1)[:, 0], alpha.shape[1]).to(alpha.dtype)


def half_soft(coins: Tensor, phi: Phi) -> Phi:
    """Section 4.1: captions whose coin (N, 1) is true read the expectation at all their steps, the others φ."""
    return lambda alpha: torch.where(coins, soft(alpha), phi(alpha))


# Section 3.1.2: an LSTM writes the caption. Before each word it attends to the regions.
class Decoder(nn.Module):
    def __init__(self, V: int, D: int = 128, m: int = 64, n: int = 128, A: int = 128) -> None:
        super().__init__()
        self.E = nn.Embedding(V, m)
        self.f_init_h, self.f_init_c, self.f_beta = nn.Linear(D, n), nn.Linear(D, n), nn.Linear(n, 1)
        self.U, self.W, self.v = nn.Linear(D, A), nn.Linear(n, A, bias=False), nn.Linear(A, 1, bias=False)
        self.T = nn.Linear(m + n + D, 4 * n)
        self.L_h, self.L_z, self.L_o = nn.Linear(n, m), nn.Linear(D, m, bias=False), nn.Linear(m, V)

    def start(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (N, L, D) -> h[0] and c[0] (N, n), from the mean region."""
        return self.f_init_h(a.mean(1)).tanh(), self.f_init_c(a.mean(1)).tanh()

    def attend(self, a: Tensor, h: Tensor) -> Tensor:
        """Regions and h[t-1] -> α[t] (N, L)."""
        e = self.v(torch.tanh(self.U(a) + self.W(h)[:, None]))[..., 0]  # (4)
        return e.softmax(1)  # (5)

    def step(self, a: Tensor, y: Tensor, h: Tensor, c: Tensor, phi: Phi) -> tuple[Tensor, ...]:
        """Regions, the previous word (N,) and the state -> log p(y[t]) (N, V), h[t], c[t], α[t], s[t]."""
        alpha = self.attend(a, h)
        s = phi(alpha)
        beta = self.f_beta(h).sigmoid()  # section 4.2.1: how much of the context this word uses
        z = beta * (s[:, None] @ a)[:, 0]  # (6), which is (9) or (13)
        Ey = self.E(y)
        i, f, o, g = self.T(torch.cat((Ey, h, z), 1)).chunk(4, 1)  # (1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()  # (2)
        h = o.sigmoid() * c.tanh()  # (3)
        log_p = self.L_o(Ey + self.L_h(h) + self.L_z(z)).log_softmax(1)  # (7)
        return log_p, h, c, alpha, s

    def forward(self, a: Tensor, words: Tensor, phi: Phi = soft) -> tuple[Tensor, ...]:
        """Teacher forcing: words (N, T), the first is START -> log p (N, T, V), α and s (N, T, L)."""
        (h, c), steps = self.start(a), []
        for y in words.T:
            log_p, h, c, alpha, s = self.step(a, y, h, c, phi)
            steps.append((log_p, alpha, s))
        return tuple(torch.stack(tensors, 1) for tensors in zip(*steps, strict=True))

    @torch.no_grad()
    def greedy(self, a: Tensor, longest: int = 20) -> tuple[list[int], Tensor]:
        """Regions of one image (1, L, D) -> the most probable word at every step, and α (words, L)."""
        (h, c), words, maps = self.start(a), [START], [a.new_zeros(0, a.shape[1])]
        while len(words) <= longest:
            log_p, h, c, alpha, _ = self.step(a, torch.tensor(words[-1:], device=a.device), h, c, soft)
            if (word := int(log_p.argmax())) == END:
                break
            words.append(word)
            maps.append(alpha)
        return words[1:], torch.cat(maps)


def log_likelihoods(log_p: Tensor, targets: Tensor) -> Tensor:
    """log p(y[t]) of each target (N, T); 0 where the caption has ended."""
    return log_p.gather(2, targets[..., None])[..., 0] * (targets != PAD)


# Section 4.2: soft attention is trained with the gradient of its loss.
def soft_loss(log_p: Tensor, alpha: Tensor, targets: Tensor, penalty: float = 1.0) -> Tensor:
    """L_d = -log p(y|a) + λ Σ_i (1 - Σ_t α[t,i])², the mean over the captions (14). λ is `penalty`."""
    attention = (alpha * (targets != PAD)[..., None]).sum(1)  # (N, L), the sum over the words
    return (-log_likelihoods(log_p, targets).sum(1) + penalty * (1 - attention).square().sum(1)).mean()


# Section 4.1: hard attention is trained with a gradient that is estimated from samples (REINFORCE).
def hard_loss(
    log_p: Tensor, alpha: Tensor, s: Tensor, targets: Tensor, b: float, r: float = 1.0, e: float = 0.002
) -> Tensor:
    """Its gradient is -1/N Σ [∂log p(y|s,a) + λ_r (log p(y|s,a) - b) ∂log p(s|a) + λ_e ∂H[s]], after (12).

    Steps that read the expectation, s = α, have no sample, and so no second term.
    """
    log_p_y = log_likelihoods(log_p, targets).sum(1)
    log_alpha = alpha.clamp_min(torch.finfo(alpha.dtype).tiny).log()
    sampled = (targets != PAD) & (s.amax(2) == 1)
    log_p_s = ((s * log_alpha).sum(2) * sampled).sum(1)
    entropy = (-(alpha * log_alpha).sum(2) * (targets != PAD)).sum(1)
    advantage = (log_p_y - b).detach()  # no gradient passes through the reward
    return -(log_p_y + r * advantage * log_p_s + e * entropy).mean()


# Training on Shapes: generated scenes of coloured objects.
def scenes(split: str, count: int) -> tuple[Tensor, list[list[str]]]:
    """Images (count, 5, 64, 64), whose last two channels are the coordinates of the pixel, and their captions."""
    drawn = [random_scene(0, split, number) for number in range(1, count + 1)]
    pixels = torch.from_numpy(np.stack([np.asarray(render(scene)) for scene in drawn]))  # (count, 64, 64, 3)
    line = torch.linspace(-1, 1, 64)
    coordinates = torch.stack(torch.meshgrid(line, line, indexing="ij")).expand(count, 2, 64, 64)
    images = torch.cat((pixels.permute(0, 3, 1, 2) / 127.5 - 1, coordinates), 1)
    return images, [describe_scene(scene) for scene in drawn]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m caption.textbook", description="The paper, on Shapes.")
    parser.add_argument("--hard", action="store_true", help="then train hard attention, half as many epochs")
    parser.add_argument("--scenes", type=int, default=4000, help="number of training scenes (default: 4000)")
    parser.add_argument("--epochs", type=int, default=12, help="epochs of soft attention (default: 12)")
    parser.add_argument("--out", default="textbook.png", help="output figure (default: textbook.png)")
    options = parser.parse_args(args)
    if options.scenes < 1 or options.epochs < 0:
        parser.error("--scenes must be at least 1, and --epochs at least 0")
    out = output_file(options.out, FIGURES, "--out")
    check_outputs({"--out": [out]})
    torch.manual_seed(0)
    images, captions = scenes("train", options.scenes)
    vocabulary = Vocabulary.build(chain.from_iterable(captions), min_count=1)
    encoder, decoder, baseline = Encoder(), Decoder(len(vocabulary)), 0.0
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for epoch in range(options.epochs + options.hard * (options.epochs // 2)):
        phi, nats, words = (soft if epoch < options.epochs else hard), 0.0, 0
        for batch in torch.randperm(options.scenes).split(50):
            texts = [captions[image][torch.randint(5, ())] for image in batch]  # one of the five captions
            ids = [torch.tensor(vocabulary.encode(text)) for text in texts]
            targets = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD)
            inputs = F.pad(targets, (1, -1), value=START)
            coins = torch.rand(len(batch), 1) < 0.5
            log_p, alpha, s = decoder(encoder(images[batch]), inputs, half_soft(coins, phi))
            likelihood = log_likelihoods(log_p.detach(), targets).sum()
            if phi is soft:  # without the penalty: ten words cannot cover 64 regions
                loss = soft_loss(log_p, alpha, targets, penalty=0.0)
            else:
                loss = hard_loss(log_p, alpha, s, targets, baseline)
                baseline = 0.9 * baseline + 0.1 * float(likelihood) / len(batch)  # section 4.1
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
            optimizer.step()
            nats, words = nats - float(likelihood), words + int((targets != PAD).sum())
        print(f"epoch {epoch + 1}, {phi.__name__}: {nats / words:.3f} nats a word", flush=True)
    encoder.eval()
    image, (references,) = scenes("test", 1)
    caption, maps = decoder.greedy(encoder(image))
    print("the model:", *vocabulary.decode(caption), "\na person: ", references[0])
    panels = Figure((20, 2), layout="constrained").subplots(1, max(2, len(caption)))
    for axes, word, alpha in zip(panels, caption, maps, strict=False):
        axes.imshow(image[0, :3].permute(1, 2, 0).numpy() / 2 + 0.5, extent=(0, 8, 8, 0))
        axes.imshow(alpha.view(8, 8).numpy(), extent=(0, 8, 8, 0), cmap="gray", alpha=0.5)
        axes.set(title=vocabulary[word], xticks=[], yticks=[])
    save_figure(panels[0].figure, out, opener=replacing_own)


if __name__ == "__main__":
    main()
