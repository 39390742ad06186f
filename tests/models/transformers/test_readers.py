"""Models whose language model reads no patches, but what another part has read of them: they are loaded, probed, and
refused where their maps cannot be placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
import transformers
from helpers.tiny_foreign import save
from helpers.tiny_readers import QUERIES, blip2, florence2

import caption
from caption.cli.main import main
from caption.core.errors import UserError
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.probe import SIZES, probe

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))


@pytest.mark.parametrize("family", QUERIES)
def test_a_folder_is_loaded_with_a_question_in_half_precision(
    family: str, tmp_path: Path, capsys: Any
) -> None:
    folder = save(QUERIES[family](), tmp_path)
    question = "a red circle"
    captioner = caption.load(f"transformers:{folder}", question=question, dtype="float16")
    assert captioner(PHOTO).weights.shape[1:] == (4, 4)
    asked = captioner.decoder.model.asked(PHOTO)  # type: ignore[operator]
    asked["pixel_values"] = asked["pixel_values"].half()
    auto = transformers.AutoModelForImageTextToText
    theirs = auto.from_pretrained(folder, dtype="float16").generate(**asked)
    ours = [captioner.vocabulary[word] - 4 for word in captioner(PHOTO).stepwise.words]
    assert ours == theirs[0, asked["input_ids"].shape[1] :].tolist()
    assert main(["probe", f"transformers:{folder}"]) == 0
    assert "16 of 16 answer to their own cell" in capsys.readouterr().out


@pytest.mark.parametrize("family", QUERIES)
def test_patches_answer_to_their_own_cells_and_permuted_ones_are_refused(
    family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for size in SIZES:
        (view,) = probe(from_transformers(*QUERIES[family]()), size)
        assert not view.wrong
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    tiny = QUERIES[family]()
    tower = tiny.model.vision_model.embeddings
    tower.register_forward_hook(
        lambda module, args, output: torch.cat((output[:, :1], output[:, 1:].flip(1)), 1)
    )
    with pytest.raises(
        UserError, match=r"16 of 16 answer to other parts.*row 0, column 0 to row 3, column 3"
    ):
        from_transformers(*tiny)


def test_a_language_model_with_an_encoder_behind_query_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="has an encoder of its own, through which query tokens"):
        from_transformers(*blip2(model_type="t5", d_model=16, d_ff=32, d_kv=8, num_heads=2, num_layers=1))


def test_an_encoder_reads_a_task_whose_words_have_no_maps(tmp_path: Path, capsys: Any) -> None:
    folder, photo = save(florence2(), tmp_path / "model"), tmp_path / "a.png"
    PHOTO.save(photo)
    asked = ["--question", "<DETAILED_CAPTION>", "--html", str(tmp_path / "a.html")]
    assert main(["describe", "--model", f"transformers:{folder}", *asked, str(photo)]) == 0
    captioner = caption.load(f"transformers:{folder}", question="<DETAILED_CAPTION>")
    assert capsys.readouterr().out.strip() == captioner(PHOTO).text
    assert captioner(PHOTO).log_prob != caption.load(f"transformers:{folder}")(PHOTO).log_prob
    with pytest.raises(UserError, match="Florence2 reads the words of a question all at once"):
        captioner.question(PHOTO)


def test_convolutions_read_before_the_photo_and_other_orders_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captioner = from_transformers(*florence2())
    # Two convolutions, 7 wide with stride 4 and 3 wide with stride 2: the first output is that of pixels -3.5 to 4.5.
    assert captioner(PHOTO).box == pytest.approx(
        (-3.5 / 32 * 60, -3.5 / 32 * 40, 28.5 / 32 * 60, 28.5 / 32 * 40)
    )
    for size in SIZES:
        (view,) = probe(captioner, size)
        assert not view.wrong
        assert view.margin > 2
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    tiny = florence2()
    tiny.model.model.multi_modal_projector.register_forward_hook(
        lambda module, args, output: output.flip(1).roll(1, 1)
    )
    with pytest.raises(
        UserError, match=r"16 of 16 answer to other parts.*row 0, column 0 to row 3, column 3"
    ):
        from_transformers(*tiny)
