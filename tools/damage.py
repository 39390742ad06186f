"""Damage a model's file, and count what loading notices: flipped bits and blocks of zeros, at random places.

    python -m tools.damage [MODEL] [--bits 230] [--blocks 169] [--seed 0]

MODEL is a checkpoint or the name of an installed model. It is written as a checkpoint and as a safetensors file, and
each of these is damaged in one place at a time. A damaged file must be refused, or give the same description and the
same weights, as it does when the place holds nothing that is read. Exit code 1: a file gave another model.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from caption import checkpoint, load
from caption.captioner import Captioner
from caption.errors import CheckpointError

BLOCK = 4096


def flipped(whole: bytes, count: int, seed: int) -> Iterator[bytes]:
    """The file with one bit flipped, `count` times, each at another random place."""
    for place in random.Random(seed).sample(range(8 * len(whole)), count):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        yield bytes(content)


def zeroed(whole: bytes, count: int, seed: int) -> Iterator[bytes]:
    """The file with an aligned block of zeros, at up to `count` places, each another block that was not zero."""
    blocks = [start for start in range(0, len(whole), BLOCK) if any(whole[start : start + BLOCK])]
    for start in random.Random(seed).sample(blocks, min(count, len(blocks))):
        end = min(start + BLOCK, len(whole))
        yield whole[:start] + bytes(end - start) + whole[end:]


def outcome(path: Path, expected: Captioner) -> str:
    """What loading a file gives: "refused", "the same model", "another model", or the name of an exception."""
    try:
        found = checkpoint.load(path)
    except CheckpointError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    state = found.state_dict()
    same = all(torch.equal(tensor, state[name]) for name, tensor in expected.state_dict().items())
    return "the same model" if same and found.description() == expected.description() else "another model"


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser("tools.damage", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="shapes", help="default shapes")
    parser.add_argument("--bits", type=int, default=230, help="flipped bits; default 230")
    parser.add_argument("--blocks", type=int, default=169, help="zeroed blocks of 4 KB; default 169")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(args)
    expected = load(options.model)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".ckpt", ".safetensors"):
            path = Path(folder) / f"model{suffix}"
            checkpoint.save(expected, path)
            whole = path.read_bytes()
            for what, damaged in (
                ("flipped bits", flipped(whole, options.bits, options.seed)),
                ("zeroed blocks", zeroed(whole, options.blocks, options.seed)),
            ):
                found: Counter[str] = Counter()
                for content in damaged:
                    path.write_bytes(content)
                    found[outcome(path, expected)] += 1
                print(
                    f"{suffix:13}{found.total():4} {what}: {', '.join(f'{n} {each}' for each, n in found.items())}"
                )
                good &= set(found) <= {"refused", "the same model"}
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
