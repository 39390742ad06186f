"""Models of transformers by their folders: geometry of their processors, and a sentence for what cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
import transformers
from helpers.captions import caption_of
from helpers.tiny_foreign import TOWER, blip, save, vit_gpt2, vit_processor
from torch import Tensor

import caption
from caption.cli.main import main
from caption.core.box import cell_box
from caption.core.errors import UserError
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.pieces import PieceVocabulary, joined, split, word_lengths
from caption.models.transformers.preprocessing import ProcessorTransform

CELLS = 8
"""Patches of a side of the input; each must show one field of the board."""


SIDE = {"height": 64, "width": 64}
PROCESSORS: dict[str, tuple[type, dict[str, Any], tuple[int, int]]] = {
    "squashed": (transformers.ViTImageProcessor, {"size": SIDE}, (160, 96)),
    **{
        name: (transformers.CLIPImageProcessor, options, size)
        for name, options, size in (
            ("cropped", {"size": {"shortest_edge": 64}, "crop_size": SIDE}, (173, 101)),
            ("cropped from more", {"size": {"shortest_edge": 80}, "crop_size": SIDE}, (101, 173)),
            ("cropped beyond the photo", {"do_resize": False, "crop_size": SIDE}, (48, 71)),
            ("padded", {"size": {"shortest_edge": 40, "longest_edge": 64}, "do_center_crop": False, "do_pad": True,
                        "pad_size": SIDE}, (160, 96)),
        )
    },
}  # fmt: skip


def checkerboard(width: int, height: int, transform: ProcessorTransform) -> Image.Image:
    """White where the fields lie whose row and column in the input's grid are both odd or both even."""
    board = np.zeros((height, width, 3), np.uint8)
    y, x = np.mgrid[:height, :width] + 0.5
    left, top, right, bottom = transform.box(width, height)
    column = np.floor((x - left) / (right - left) * CELLS)
    row = np.floor((y - top) / (bottom - top) * CELLS)
    board[(column + row) % 2 == 0] = 255
    return Image.fromarray(board)


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_box_is_where_the_processor_looks(name: str) -> None:
    processor, options, (width, height) = PROCESSORS[name]
    transform = ProcessorTransform(processor(**options))
    read = transform.read(checkerboard(width, height, transform))
    assert read.size == (width, height)
    side = 64 // CELLS
    fields = read.pixels.mean(0).unflatten(0, (CELLS, side)).unflatten(2, (CELLS, side))
    middles = fields[:, side // 2 - 1 : side // 2 + 1, :, side // 2 - 1 : side // 2 + 1].mean((1, 3))
    expected = torch.arange(CELLS)[:, None] + torch.arange(CELLS)
    shown = _shown(transform, width, height)
    bright = middles[(expected % 2 == 0) & shown]
    dark = middles[(expected % 2 == 1) & shown]
    assert shown.sum() >= CELLS * CELLS // 3
    assert bright.min() > dark.max() + 0.5 * (bright.mean() - dark.mean())


def _shown(transform: ProcessorTransform, width: int, height: int) -> Tensor:
    """(CELLS, CELLS) bool: the fields that lie in the photo."""
    shown = torch.zeros(CELLS, CELLS, dtype=torch.bool)
    for row, col in np.ndindex(CELLS, CELLS):
        left, top, right, bottom = cell_box((CELLS, CELLS), transform.box(width, height), (row, col))
        shown[row, col] = left >= -1e-6 and top >= -1e-6 and right <= width + 1e-6 and bottom <= height + 1e-6
    return shown


SMALL = {"height": 32, "width": 32}
MOVED: dict[str, tuple[type, dict[str, Any]]] = {
    "padded at all sides": (transformers.DonutImageProcessor, {"size": SMALL}),
    "turned": (transformers.DonutImageProcessor, {"size": SMALL | {"width": 48}, "do_align_long_axis": True}),
    "cut and padded": (transformers.NougatImageProcessor, {"size": SMALL}),
    "padded to a square first": (
        transformers.LlavaImageProcessor, {"size": {"shortest_edge": 32}, "crop_size": 32, "do_pad": True}
    ),
    "resized by steps": (
        transformers.YolosImageProcessor, {"size": {"shortest_edge": 20, "longest_edge": 32}, "pad_size": SMALL}
    ),
    "resized to more": (transformers.LevitImageProcessor, {"size": {"shortest_edge": 32}, "crop_size": SMALL}),
    "cropped by a share": (
        transformers.PoolFormerImageProcessor, {"size": {"shortest_edge": 32}, "crop_size": SMALL}
    ),
    "cropped first": (transformers.PerceiverImageProcessor, {"size": SMALL, "crop_size": SMALL}),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_a_processor_that_moves_photos_in_another_way_is_said(name: str) -> None:
    processor, options = MOVED[name]
    with pytest.raises(UserError, match=f"{processor.__name__} moves, turns or cuts photos"):
        ProcessorTransform(processor(**options))


def test_a_tower_that_masks_patches_at_random_is_said() -> None:
    tiny = vit_gpt2()
    tiny.model.encoder = transformers.ViTMAEModel(transformers.ViTMAEConfig(**TOWER)).eval()
    tiny.model.config.encoder = tiny.model.encoder.config
    with pytest.raises(
        UserError, match=r"differ between two passes of one photo.*switch off its random masking"
    ):
        from_transformers(*tiny)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(vit_gpt2(), tmp_path_factory.mktemp("vit"))


def test_a_folder_is_described_by_the_command(folder: Path, tmp_path: Path, capfd: Any) -> None:
    photo, page, address = tmp_path / "a.png", tmp_path / "a.html", f"transformers:{folder}"
    Image.new("RGB", (50, 40), "red").save(photo)
    assert main(["describe", "--model", address, "--html", str(page), str(photo)]) == 0
    assert capfd.readouterr().out.strip() == caption.load(address)(photo).text
    assert page.exists()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_however_attention_was_compiled_its_maps_are_seen(implementation: str) -> None:
    tiny = vit_gpt2()
    tiny.model.set_attn_implementation(implementation)
    caption_ = from_transformers(*tiny)(Image.new("RGB", (40, 40)))
    shares = caption_.weights.sum((1, 2)) + caption_.sentinel_shares
    np.testing.assert_allclose(shares, 1, atol=1e-5)


def test_a_processor_without_a_size_and_attention_that_cannot_be_seen_are_said() -> None:
    tiny = vit_gpt2()
    processor = vit_processor()
    processor.do_resize = False
    with pytest.raises(UserError, match=r"ViTImageProcessor.*preprocessor_config"):
        from_transformers(tiny.model, processor, tiny.tokenizer)
    with pytest.raises(UserError, match=r"VisionEncoderDecoderModel.*cannot be seen.* such as GPT-2, BERT"):
        from_transformers(*vit_gpt2(decoder="trocr"))


@pytest.mark.parametrize("make", [vit_gpt2, blip])
def test_a_processor_of_another_size_is_refused(make: Any) -> None:
    tiny = make()
    tiny.processor.size = {"height": 64, "width": 64}
    with pytest.raises(
        UserError, match=r"cannot read the pixels of its \w+Processor.*preprocessor_config.json"
    ):
        from_transformers(*tiny)


def test_a_map_is_a_layer_a_head_or_a_mean() -> None:
    captioner = from_transformers(*blip())
    photo = Image.fromarray(np.random.default_rng(2).integers(0, 255, (40, 40, 3), dtype=np.uint8))
    result = captioner(photo)
    maps = result.stepwise.maps
    layers = [maps["layer 0 heads"], maps["layer 1 heads"]]
    heads = np.concatenate(layers, 1)  # (T, M, rows, cols)
    rest = np.sort(heads.reshape(*heads.shape[:2], -1))[..., :-1]
    nats = (rest * np.log(rest / rest.mean(-1, keepdims=True))).sum(-1)[..., None, None]
    concentrated = (heads * nats**2).sum(1) / (nats**2).sum(1)
    np.testing.assert_allclose(result.stepwise.weights, concentrated, atol=1e-6)
    for method, expected in {
        "layer 1 heads[0]": layers[1][:, 0],
        "layer 0 heads": layers[0].mean(1),
        "mean": np.mean(layers, axis=(0, 2)),
        "concentrated": concentrated,
    }.items():
        drawn = caption.maps(captioner, photo, [result], method)
        np.testing.assert_allclose(drawn.stepwise.weights, expected, atol=1e-6)
        assert drawn.words == result.words
    even = torch.full((1, 1, 2, 4), 0.2)
    assert torch.allclose(captioner.decoder._summarised([even, even]), even[:, :, 0])
    with pytest.raises(UserError, match="'layer 2 heads'"):
        caption.maps(captioner, photo, [result], "layer 2 heads")


def test_pieces_are_shown_alike_whatever_marks_them() -> None:
    gpt2, bert = vit_gpt2().tokenizer, blip().tokenizer
    for tokenizer in (gpt2, bert):
        vocabulary = PieceVocabulary(tokenizer, len(tokenizer) + 3)
        assert len(vocabulary) == len(tokenizer) + 3 + 4
        assert "giraffe" not in vocabulary
        assert {"red", "##fe", "gi"} <= set(vocabulary.words)
        assert all(vocabulary[vocabulary[number]] == number for number in range(4, len(vocabulary)))
        assert vocabulary.tokenizer.join(vocabulary.tokenizer(" red circle")) == "red circle"
    assert word_lengths(["##a", "red", "gi", "##raf", "##fe", "##.", "##a", "##s"]) == [1, 1, 3, 1, 2]
    # Without spaces between words, each piece is one; "�[9]" is a part of a character.
    assert word_lengths(["##一只", "##猫", "##�[9]", "##，", "##坐", "##AI", "##s", "แมว", "##นั่ง"]) == [
        1,
        2,
        1,
        1,
        2,
        1,
        1,
    ]


def test_words_of_pieces_are_read_and_the_likeliest_pieces_show_them() -> None:
    vocabulary = PieceVocabulary(vit_gpt2().tokenizer, 300)
    pieces = vocabulary.tokenizer("two small gié猫")
    likeliest = [[(piece, -0.1), ("##s", -3.0)] for piece in pieces]
    whole = joined(caption_of(pieces, likeliest=likeliest), vocabulary.tokenizer)
    assert whole.words == ["two", "small", "gié猫"]
    assert whole.likeliest == [[(word, -0.1), ("##s", -3.0)] for word in whole.words]
    assert whole.by_piece.words == pieces
    of_another = split(caption_of(["red", "猫", "猫", "red"]), vocabulary).words
    assert of_another == vocabulary.tokenizer("red猫猫red")
