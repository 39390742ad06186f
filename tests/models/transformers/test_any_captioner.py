"""The pages docs/any-captioner.md and docs/torch-model.md: a model of plain torch can be doubted, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import caption
from caption.analysis import permute
from caption.analysis.interventions import Erase, Force, intervene
from caption.analysis.pointing_game import best_map
from caption.search import BeamSearch

DOCS = Path(__file__).parents[3] / "docs"
PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def captioner() -> Any:
    torch.manual_seed(3)
    names: dict[str, Any] = {"__name__": "page"}
    exec(
        re.findall(r"```python\n(.*?)```", (DOCS / "torch-model.md").read_text("utf-8"), re.DOTALL)[0], names
    )
    captioner = names["captioner"]
    captioner.search = BeamSearch(1, max_length=3)
    with torch.no_grad():
        captioner.decoder.model.words.bias[1] = -9  # it does not stop
    return captioner


def test_a_model_of_plain_torch_is_doubted_as_any_other(captioner: Any) -> None:
    result = captioner(PHOTO, beam_size=2)
    assert result.maps["layer 0 heads"].shape == (len(result.words), 4, 4, 4)
    assert result.box == (0, 0, 60, 60)
    np.testing.assert_allclose(result.weights.sum((1, 2)), 1, atol=1e-5)
    np.testing.assert_allclose(result.sentinel_shares, 0, atol=1e-6)
    forced = intervene(captioner, PHOTO, Force((2, 1), at=0))
    assert forced.changed.weights[0, 2, 1] == pytest.approx(1)
    assert intervene(captioner, PHOTO, Erase((1, 1))).changed.weights[:, 1, 1].max() == 0
    assert len(permute(captioner, PHOTO))


@pytest.mark.nightly
def test_the_first_lines_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("transformers")
    from helpers.tiny_foreign import blip, save

    monkeypatch.chdir(tmp_path)
    PHOTO.resize((1000, 800)).save("dog.jpg")
    block = re.findall(r"```python\n(.*?)```", (DOCS / "any-captioner.md").read_text("utf-8"), re.DOTALL)[0]
    address = "transformers:Salesforce/blip-image-captioning-base"
    assert address in block
    tiny = blip()
    tiny.model.generation_config.update(max_length=5)
    exec(block.replace(address, f"transformers:{save(tiny, tmp_path / 'model')}"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("Grounding(")
    assert re.match("the same caption|they part at step", said[2])
    assert (tmp_path / "dog_maps.png").stat().st_size
    assert (tmp_path / "dog_hidden.png").stat().st_size


def test_the_map_that_points_best_is_found_among_the_heads(captioner: Any) -> None:
    result = captioner(PHOTO)
    heads = result.maps["layer 0 heads"]
    row, col = np.unravel_index(heads[0, 2].argmax(), (4, 4))
    box = (15.0 * col, 15.0 * row, 15.0 * col + 15, 15.0 * row + 15)
    best = best_map([(result, {result.words[0]: [box]})])
    index = int(best.removeprefix("layer 0 heads[").removesuffix("]"))
    np.testing.assert_allclose(
        caption.maps(captioner, PHOTO, [result], best).weights, heads[:, index], atol=1e-6
    )
