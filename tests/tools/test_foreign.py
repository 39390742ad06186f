"""tools.foreign: tiny captioners of transformers, trained on Shapes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("transformers")
pytest.importorskip("accelerate")


@pytest.mark.nightly
def test_the_smallest_learns_and_its_folder_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from caption.models.model_zoo import load
    from tools.foreign import train

    out = tmp_path / "model"
    counts = {"train": 100, "val": 5, "test": 1}
    result = train("vit_gpt2", out, tmp_path / "scenes", counts, pretraining=5, steps=30, rate=2e-3, seed=0)

    assert result["loss"][-1] < result["loss"][0] - 1
    caption = load(f"transformers:{out}")(tmp_path / "scenes" / "images" / "test_000001.png")
    assert caption.words
    assert (caption.weights.shape[1:], caption.box) == ((8, 8), (0, 0, 64, 64))

    from tools import foreign_table

    monkeypatch.setattr(foreign_table, "SCENES", 4)
    monkeypatch.setattr(foreign_table, "ERASED", 2)
    monkeypatch.setattr(foreign_table, "NAMING", {"a"})
    run = foreign_table.measure(f"transformers:{out}", tmp_path / "others")
    assert {"BLEU-4", "best head: deletion", "layer 1 heads: mass", "adversary: divergences"} <= run.keys()
    assert re.fullmatch(r"layer [01] heads\[[0-3]\]", str(run["best head"]))


def test_the_tables_of_the_page_are_those_of_the_published_numbers() -> None:
    from tools.documents import read_sections
    from tools.foreign_table import RESULTS, sections

    runs = json.loads((RESULTS / "foreign.json").read_text(encoding="utf-8"))
    assert read_sections(RESULTS / "foreign.md") == sections(runs)


def test_idefics3_is_asked_with_the_prompt_that_it_was_trained_on(tmp_path: Path) -> None:
    from caption.data.shapes import Shapes
    from caption.models.transformers.loading import from_transformers
    from tools.foreign import Scenes, idefics3, word_tokenizer

    scenes = Shapes(str(tmp_path), train=1, val=1, test=1).read()["val"]
    tokenizer = word_tokenizer(scenes[0].captions)
    model, processor = idefics3(tokenizer)
    asked = from_transformers(model, processor, tokenizer).decoder.model.asked  # type: ignore[operator]
    prompt = Scenes(scenes, tokenizer, processor).prompt
    assert asked(Image.open(scenes[0].path))["input_ids"][0].tolist() == prompt
