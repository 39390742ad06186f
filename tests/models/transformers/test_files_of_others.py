"""Folders of transformers from strangers: incomplete, damaged or hostile files are refused with a sentence."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
from helpers.tiny_foreign import blip, byte_level_tokenizer, save, vit_gpt2
from safetensors.torch import load_file, save_file
from test_exactness import idefics3

import caption
from caption.core.errors import UserError
from caption.models.transformers import chat_templates
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.pieces import PieceVocabulary

Change = Callable[[Path], Any]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NESTED = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {make.__name__: save(make(), tmp_path_factory.mktemp(make.__name__)) for make in (vit_gpt2, blip)}


def changed(file: str, *path: str, to: Any) -> Change:
    """Set an entry of a JSON file."""

    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        entry = content
        for name in path[:-1]:
            entry = entry[name]
        entry[path[-1]] = to
        (folder / file).write_text(json.dumps(content))

    return change


def written(file: str, text: str) -> Change:
    return lambda folder: (folder / file).write_text(text)


def reweighted(function: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Change:
    def change(folder: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(folder / WEIGHTS).items()}
        save_file(function(tensors), folder / WEIGHTS, metadata={"format": "pt"})

    return change


def without(text: str) -> Change:
    return reweighted(lambda tensors: {name: tensor for name, tensor in tensors.items() if text not in name})


def with_more(name: str) -> Change:
    return reweighted(lambda tensors: tensors | {name: torch.zeros(3)})


def cut(share: float) -> Change:
    def change(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(content[: int(share * len(content))])

    return change


def sharded(shard: Any) -> Change:
    """The weights are beside the folder, and an index names them; a shard of its own is in the folder."""

    def change(folder: Path) -> None:
        names = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).rename(folder.parent / "outside.safetensors")
        save_file({}, folder / "model-1.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, shard)}
        (folder / INDEX).write_text(json.dumps(index))

    return change


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def nan(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors["decoder.transformer.ln_f.bias"][0] = torch.nan
    return tensors


TEXT, GENERATION = "text_config", "generation_config.json"
PIECES = "its captions begin or end with"
MISUSES: dict[str, tuple[str, Change, str]] = {
    "no folder": ("vit_gpt2", shutil.rmtree, "no folder .*copy: name a folder"),
    "no tokenizer": ("vit_gpt2", without_tokenizer, "its tokenizer cannot be used"),
    "pickled": ("vit_gpt2", pickled, "no weights as safetensors.*save_pretrained"),
    "missing": ("vit_gpt2", without("crossattention"), "12 tensors of the model are missing .*would be random"),
    "renamed": ("blip", reweighted(lambda tensors: {f"a.{name}": tensors[name] for name in tensors}), "are missing"),
    "more": ("vit_gpt2", with_more("decoder.transformer.h.2.ln_1.weight"),
             r"1 tensors of its files have no place in the model \(decoder.transformer.h.2.ln_1.weight\)"),
    "not finite": ("vit_gpt2", reweighted(nan), "not finite, in decoder.transformer.ln_f.bias"),
    "truncated": ("vit_gpt2", cut(0.5), "its weights cannot be used: SafetensorError"),
    "empty": ("vit_gpt2", cut(0), "its weights cannot be used: SafetensorError"),
    **{
        f"nested {file}": ("vit_gpt2", written(file, NESTED), f"its {part} cannot be used: RecursionError")
        for file, part in (("config.json", "config.json"), (GENERATION, "weights"), ("tokenizer.json", "tokenizer"),
                           ("preprocessor_config.json", "image processor"))
    },
    "another architecture": ("vit_gpt2", changed("config.json", "architectures", to=["NobodysModel"]),
                             "NobodysModel .* not supported.*BlipForConditionalGeneration.*ForeignModel"),
    "a number as architectures": ("vit_gpt2", changed("config.json", "architectures", to=5), "config.json cannot be"),
    "an escape as architecture": ("vit_gpt2", changed("config.json", "architectures", to=["\x1b]0;a\x07"]),
                                  r"architecture \\x1b\]0;a\\x07 of"),
    "end out of range": ("vit_gpt2", changed(GENERATION, "eos_token_id", to=10**6), f"{PIECES} 1000000: check"),
    "end as text": ("vit_gpt2", changed(GENERATION, "eos_token_id", to="a"), f"{PIECES} 'a': check"),
    "end as truth": ("vit_gpt2", changed(GENERATION, "eos_token_id", to=True), f"{PIECES} True: check"),
    "end before 0": ("vit_gpt2", changed(GENERATION, "eos_token_id", to=-1), f"{PIECES} -1: check"),
    "start out of range": ("vit_gpt2", changed(GENERATION, "decoder_start_token_id", to=999), f"{PIECES} 999: check"),
    "start of BLIP": ("blip", changed("config.json", TEXT, "bos_token_id", to=999), f"{PIECES} 999: check"),
    "end of BLIP": ("blip", changed("config.json", TEXT, "sep_token_id", to=999), f"{PIECES} 999: check"),
    "patches of 0": ("vit_gpt2", changed("config.json", "encoder", "patch_size", to=0), "its weights cannot be used"),
    "list as processor": ("vit_gpt2", written("preprocessor_config.json", "[]"), "its image processor cannot be used"),
    "shards above": ("vit_gpt2", sharded("../outside.safetensors"), "'../outside.safetensors', which is not the bare"),
    "shards anywhere": ("vit_gpt2", sharded("/outside.safetensors"), "'/outside.safetensors', which is not the bare"),
    "pickled shards": ("vit_gpt2", sharded("pytorch_model.bin"), "'pytorch_model.bin', which is not the bare name"),
    "a number as shard": ("vit_gpt2", sharded(5), "names weights 5, which is not the bare name"),
    "other weights": ("vit_gpt2", changed("config.json", "transformers_weights", to="../a.safetensors"), "bare name"),
    "nested index": ("vit_gpt2", written(INDEX, NESTED), "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_files_that_cannot_be_used_are_said(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    model, change, said = MISUSES[name]
    copy = Path(shutil.copytree(folders[model], tmp_path / "copy"))
    change(copy)
    with pytest.raises(UserError, match=said):
        caption.load(f"transformers:{copy}")


HARMLESS: dict[str, Change] = {
    "no pooler": without("pooler"),
    "constants of old files": with_more("decoder.transformer.h.0.crossattention.masked_bias"),
    **{
        f"an attention of the hub, {'.'.join(path)}": changed("config.json", *path, to="nobody/kernel")
        for path in (
            ["attn_implementation"], ["_attn_implementation"], ["encoder", "_attn_implementation"],
            ["decoder", "attn_implementation"],
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_files_that_change_nothing_are_read(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders["vit_gpt2"], tmp_path / "copy"))
    HARMLESS[name](copy)
    photo = Image.new("RGB", (40, 40), "red")
    expected = caption.load(f"transformers:{folders['vit_gpt2']}")(photo)
    assert caption.load(f"transformers:{copy}")(photo).words == expected.words


def test_weights_in_memory_are_finite() -> None:
    tiny = vit_gpt2()
    with torch.no_grad():
        tiny.model.encoder.layernorm.weight[2] = torch.inf
    with pytest.raises(UserError, match=r"not finite, in encoder\.layernorm.weight"):
        from_transformers(*tiny)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b]0;b\x07", r"a\x1b]0;b\x07"), ("red \u202eb", r"red \u202eb"), ("\x01", r"\x01")],
)
def test_the_text_of_a_caption_has_no_hidden_characters(text: str, shown: str) -> None:
    tokenizer = byte_level_tokenizer()
    vocabulary = PieceVocabulary(tokenizer, len(tokenizer))
    pieces = [vocabulary.words[number + 4] for number in tokenizer(text)["input_ids"]]
    assert vocabulary.tokenizer.join(pieces) == shown


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
IN_EXPRESSION = "{{ (range(99999) | map('string') | list) }}" * 500


@pytest.mark.parametrize(
    "template", [LOOP, "{% macro a() %}" + LOOP + "{% endmacro %}{{ a() }}", IN_EXPRESSION]
)
def test_a_chat_template_that_loops_ends(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "SECONDS", 0.5)
    tiny = idefics3()
    tiny.processor.chat_template = template
    before = sys.gettrace()
    with pytest.raises(UserError, match=r"chat template of the model runs for more than 0\.5 seconds"):
        from_transformers(*tiny)
    assert sys.gettrace() is before
