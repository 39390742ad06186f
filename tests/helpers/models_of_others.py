"""Files of small models of the two codebases whose models are imported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import yaml
from helpers import arctic_reference, sgrvinod_reference

WORDS = ["a", "dog", "runs", "away", "."]
REGION = 24
"""Numbers of a region of the encoder."""


def write_models(folder: Path) -> None:
    """Write model.npz, options.json and words.txt of the authors' code, decoder.pth and map.json of the tutorial, and
    encoder.yaml and encoder.pth, an encoder that fits both and its weights."""
    from caption.encoders import TorchvisionEncoder

    options = {
        "ctx_dim": REGION, "dim": 4, "dim_word": 3, "n_words": len(WORDS) + 2, "selector": True, "prev2out": True,
        "ctx2out": True, "n_layers_att": 2, "n_layers_init": 2, "use_dropout": True, "attn_type": "stochastic",
        "temperature": 1.0, "lstm_encoder": False,
    }  # fmt: skip
    np.savez(folder / "model.npz", **arctic_reference.parameters(options))
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "words.txt").write_text("\n".join(WORDS))
    word_map = {word: number for number, word in enumerate(["<pad>", *WORDS, "<unk>", "<start>", "<end>"])}
    sizes = {"region": REGION, "hidden": 4, "attention": 5, "embedding": 3, "vocabulary": len(word_map)}
    arrays = sgrvinod_reference.parameters(**sizes)
    torch.save({name: torch.tensor(array).float() for name, array in arrays.items()}, folder / "decoder.pth")
    (folder / "map.json").write_text(json.dumps(word_map))
    arguments = {"name": "shufflenet_v2_x0_5", "layer": "maxpool", "grid": [3, 4]}
    encoder = {"class_path": "caption.encoders.TorchvisionEncoder", "init_args": arguments}
    transform = {"size": 32, "fit": "squash"}
    (folder / "encoder.yaml").write_text(yaml.safe_dump({"encoder": encoder, "transform": transform}))
    torch.save(dict(TorchvisionEncoder(**arguments).trunk.state_dict()), folder / "encoder.pth")
