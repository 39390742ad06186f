"""The module that is copied beside the ONNX files: its search, its image transform, its imports."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_captioner
from helpers.search_models import END, START, HashModel, captions
from PIL import Image

from caption.core.tensor_tree import State
from caption.data.photos import ImageTransform, open_image
from caption.search import BeamSearch
from caption.text.tokenizer import get_tokenizer

pytest.importorskip("onnxruntime")

from caption.models.export import standalone
from caption.models.export.standalone import OnnxCaptioner

WORDS = 9
FORBIDDEN = [0, 4]
CONTENT = [2, 3, 7]


def session(inputs: list[str], outputs: list[str], function: Any) -> SimpleNamespace:
    """A graph of onnxruntime whose nodes are a Python function of its inputs."""

    def run(names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert names == outputs
        return function(**feeds)

    return SimpleNamespace(
        get_inputs=lambda: [SimpleNamespace(name=name) for name in inputs],
        get_outputs=lambda: [SimpleNamespace(name=name) for name in outputs],
        run=run,
    )


def bare(**model: Any) -> OnnxCaptioner:
    """A captioner with this content of model.json, and without files."""
    captioner = OnnxCaptioner.__new__(OnnxCaptioner)
    captioner.model = model
    return captioner


def over(
    model: HashModel, search: BeamSearch, words: Sequence[str] = "012345678", tokenizer: str = "ptb"
) -> OnnxCaptioner:
    """A captioner whose images are numbers, and whose step is that of the toy model."""

    def encode(images: np.ndarray) -> list[np.ndarray]:
        state = model.start(images.tolist())
        return [state.shared[0].numpy(), state.carried[0].numpy()]

    def step(words: np.ndarray, shared_0: np.ndarray, carried_0: np.ndarray) -> list[np.ndarray]:
        state = State([torch.from_numpy(shared_0)], (torch.from_numpy(carried_0),), None)
        log_probs, after = model.step(state, torch.from_numpy(words))
        return [log_probs.numpy(), after.trace.weights[0].numpy(), after.carried[0].numpy()]

    captioner = bare(
        words=list(words),
        brackets=get_tokenizer(tokenizer).brackets,
        unwritten=get_tokenizer(tokenizer).unwritten,
        start=START,
        end=END,
        forbidden=FORBIDDEN,
        search=vars(search),
        content=CONTENT,
        grid=[1, 3],
    )
    captioner.carried = ["carried_0"]
    captioner.encoder = session(["images"], ["shared_0", "carried_0"], encode)
    inputs, outputs = ["words", "shared_0", "carried_0"], ["log_probs", "weights", "next_carried_0"]
    captioner.step = session(inputs, outputs, step)
    return captioner


@pytest.mark.parametrize(
    "search",
    [
        BeamSearch(1, 12),
        BeamSearch(3, 12, 0.7),
        BeamSearch(20, 6, 1.0),
        BeamSearch(3, 2),
        BeamSearch(3, 12, 0.7, repeat_penalty=1.5),
        BeamSearch(4, 12, repeat_penalty=1000.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("holes", [0.0, 0.7, 0.95])
def test_its_beam_search_is_that_of_the_package(search: BeamSearch, holes: float) -> None:
    images = list(range(12))
    model = HashModel(WORDS, seed=3, holes=holes, dtype=torch.float32)
    expected = search(model.step, model.start(images), len(images), START, END, FORBIDDEN, CONTENT)
    result = over(model, search).describe(np.array(images))
    words = [list(map(str, captions(expected, image)[0])) for image in images]
    assert [caption.words for caption in result] == words
    assert [caption.finished for caption in result] == expected.finished[:, 0].tolist()
    for image, caption in enumerate(result):
        assert caption.log_prob == pytest.approx(float(expected.log_probs[image, 0]), rel=1e-6)
        weights = expected.trace.weights[0][image, 0, : len(caption.words)]
        np.testing.assert_array_equal(caption.weights[:, 0], weights.float().numpy())
        assert caption.gates is None
    if holes == 0.95:
        assert any(not caption.words or not caption.finished for caption in result)


def test_the_beam_may_be_chosen_and_nan_is_no_word() -> None:
    model = HashModel(WORDS, seed=5, dtype=torch.float32)
    wide, greedy = (
        over(model, BeamSearch(4, 12)).describe(np.arange(8), beam_size=size) for size in (None, 1)
    )
    of_one = over(model, BeamSearch(1, 12)).describe(np.arange(8))
    assert [caption.words for caption in greedy] == [caption.words for caption in of_one]
    assert [caption.words for caption in wide] != [caption.words for caption in greedy]
    model.table[:, 5] = math.nan
    result = over(model, BeamSearch(3, 8)).describe(np.arange(8))
    assert all("5" not in caption.words for caption in result)
    assert any(caption.words for caption in result)


def test_a_caption_without_words_has_gates_if_the_model_has_one() -> None:
    captioner = over(HashModel(WORDS, seed=3, dtype=torch.float32), BeamSearch(1, 4))

    def ending(words: np.ndarray, shared_0: np.ndarray, carried_0: np.ndarray) -> list[np.ndarray]:
        log_probs = np.where(np.arange(WORDS) == END, 0.0, -50.0)[None, None].repeat(len(words), 0)
        return [log_probs, np.full((len(words), 1, 3), 1 / 3), np.ones((len(words), 1)), carried_0]

    inputs = ["words", "shared_0", "carried_0"]
    captioner.step = session(inputs, ["log_probs", "weights", "gate", "next_carried_0"], ending)
    (caption,) = captioner.describe(np.arange(1))
    assert caption.words == []
    assert caption.weights.shape == (0, 1, 3)
    assert caption.gates is not None
    assert caption.gates.shape == (0,)


@pytest.mark.parametrize(("fit", "resize"), [("squash", None), ("crop", None), ("crop", 48), ("pad", None)])
@pytest.mark.parametrize("size", [32, (20, 44)])
@pytest.mark.parametrize("photo", [(80, 40), (40, 88), (50, 31)])
def test_its_image_transform_is_that_of_the_package(
    fit: str, resize: int | None, size: int | tuple[int, int], photo: tuple[int, int], tmp_path: Path
) -> None:
    transform = ImageTransform(size, fit, resize)
    captioner = bare(transform=transform.to_dict())
    image = tiny_captioner.photo(*photo)
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    for source in (image, tmp_path / "turned.png"):
        np.testing.assert_array_equal(captioner.pixels(source), transform(open_image(source)).numpy())


def test_rounding_does_not_extend_the_photo() -> None:
    transform, image = ImageTransform(224, "crop", 224), tiny_captioner.photo(499, 640)
    captioner = bare(transform=transform.to_dict())
    assert captioner.seen(*image.size) == transform.box(*image.size)
    np.testing.assert_array_equal(captioner.pixels(image), transform(image).numpy())


def test_it_reads_deep_and_transparent_photos_as_the_package_does(tmp_path: Path) -> None:
    transform = ImageTransform(8, "squash")
    captioner = bare(transform=transform.to_dict())
    deep = np.random.default_rng(0).integers(0, 65536, (8, 8), dtype=np.uint16)
    transparent = (deep[..., None] >> np.array([8, 7, 6, 5])).astype(np.uint8)
    path = tmp_path / "photo.tif"
    for pixels in (deep, transparent):
        Image.fromarray(pixels).save(path)
        np.testing.assert_array_equal(captioner.pixels(path), transform(open_image(path)).numpy())
    Image.fromarray(deep.astype(np.float32)).save(path)
    with pytest.raises(ValueError, match="save it with 8 or 16"):
        captioner.pixels(path)
    small, large = Image.new("RGB", (8, 8)), Image.new("RGB", (64, 64))
    small.save(tmp_path / "pages.tif", save_all=True, append_images=[large])
    with pytest.raises(ValueError, match="one of several images"):
        captioner.pixels(tmp_path / "pages.tif")


@pytest.mark.parametrize("name", ["characters", "ptb"])
def test_it_joins_words_as_the_tokenizer_does(name: str) -> None:
    model = HashModel(WORDS, seed=5, dtype=torch.float32)
    written = ["一", "隻", "狗", "が", "-LRB-", "ゴ", ":-rrb-", "a", "馬"]
    results = over(model, BeamSearch(3, 8), written, name).describe(np.arange(8))
    assert [each.text for each in results] == [get_tokenizer(name).join(each.words) for each in results]
    assert any("(" in each.text or ")" in each.text for each in results)
    assert (name == "characters") == any("一隻" in each.text or "狗が" in each.text for each in results)


def test_it_imports_nothing_but_numpy_onnxruntime_and_pillow() -> None:
    source = Path(standalone.__file__).read_text(encoding="utf-8")
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported - sys.stdlib_module_names == {"numpy", "onnxruntime", "PIL"}
