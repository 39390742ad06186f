"""Tiny captioners of transformers as rows of a table: trained on Shapes, loaded, and measured map by map."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("transformers")


@pytest.mark.nightly
@pytest.mark.parametrize(("table", "row"), [("foreign", "blip"), ("foreign_sinks", "vit_gpt2")])
def test_a_row_is_trained_loaded_and_measured(
    table: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from caption.models.model_zoo import load
    from tools.tables import measures, tiny_captioners
    from tools.tables.__main__ import main
    from tools.tables.table import RESULTS

    losses: list[float] = []
    train = partial(tiny_captioners.train, count=100, pretraining=5, steps=30)
    monkeypatch.setattr(tiny_captioners, "train", lambda *arguments: losses.extend(train(*arguments)))
    for name, value in {"SCENES": 4, "FEW": 2, "NAMING": {"a"}}.items():
        monkeypatch.setattr(measures, name, value)
    # After so few steps no caption names an object, so no map points best.
    monkeypatch.setattr(measures, "best_map", lambda captions: "layer 1 heads[2]")
    assert main([table, "--rows", row, "--seeds", "0", "--anew", "--out", str(tmp_path)]) == 0
    assert losses[-1] < losses[0] - 1

    (folder,) = tmp_path.glob(f"{row}-0-*")
    caption = load(f"transformers:{folder / 'model'}")(tmp_path / "scenes" / "images" / "test_000001.png")
    assert caption.words
    assert (caption.weights.shape[1:], caption.box) == ((8, 8), (0, 0, 64, 64))
    run = json.loads((folder / f"{table}.json").read_text(encoding="utf-8"))
    assert table != "foreign" or run["best head"] == "layer 1 heads[2]"
    published = json.loads((RESULTS / f"{table}.json").read_text(encoding="utf-8"))[row]["0"]
    assert {name: scores.keys() for name, scores in run["scores"].items() if "[" not in name} == {
        name: scores.keys() for name, scores in published["scores"].items() if "[" not in name
    }


def test_idefics3_is_asked_with_the_prompt_that_it_was_trained_on(tmp_path: Path) -> None:
    from caption.data.shapes import Shapes
    from caption.models.transformers.loading import from_transformers
    from tools.tables.tiny_captioners import idefics3, inputs_of, word_tokenizer

    scene = Image.open(Shapes(str(tmp_path), train=1, val=1, test=1).read()["val"][0].path)
    tokenizer = word_tokenizer({"a", "circle"})
    model, _, processor = idefics3(tokenizer)
    asked = from_transformers(model, processor, tokenizer).decoder.model.asked  # type: ignore[operator]
    assert asked(scene)["input_ids"][0].tolist() == inputs_of([scene], processor, tokenizer)[1]
