"""Metrics of one's own, beside the others: intervals, tests and the signature."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command_line import Cli, check_refused
from PIL import Image

from caption.core.errors import UserError
from caption.metrics import evaluate
from caption.metrics.significance import compare, confidence_interval

REFERENCES = {image: [f"a {word} wall"] for image, word in enumerate(("red", "blue", "green", "grey"))}
CANDIDATES = {image: f"a {word} door" for image, word in enumerate(("red", "blue", "pink", "grey"))}


def length(candidates: Sequence[str], references: Sequence[Sequence[str]], photos: Any) -> list[int]:
    return [len(text.split()) + len(group) for text, group in zip(candidates, references, strict=True)]


def test_a_function_is_scored_as_the_other_metrics_are():
    scores = evaluate(CANDIDATES, REFERENCES, metrics=["BLEU", length], protocol={"beam": 3})
    assert list(scores)[-1] == "length"
    assert scores["length"] == 4
    assert scores.score("length").per_image == dict.fromkeys(range(4), 4.0)
    assert "|beam:3|length:unversioned|v:" in scores.signature
    longer = evaluate(dict.fromkeys(range(4), "a b c d e"), REFERENCES, metrics=[length])
    test = compare(scores.score("length"), longer.score("length"))
    assert test is not None
    assert (test.difference, test.p_value) == (2, pytest.approx(1 / 1001))


class ClipScore(torch.nn.Module):
    """2.5 max(cos, 0) of a photo and a caption (Hessel et al. 2021), with random weights."""

    name, version = "CLIP-S", "0.1"

    def __init__(self) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(4)
        small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        text = {
            **small,
            "vocab_size": 260,
            "max_position_embeddings": 20,
            "eos_token_id": 1,
            "bos_token_id": 0,
        }
        vision = {**small, "image_size": 16, "patch_size": 8}
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
        self.clip = transformers.CLIPModel(config).eval()

    @torch.no_grad()
    def cosines(self, candidates: Sequence[str], photos: Sequence[Path]) -> torch.Tensor:
        ids = torch.tensor([[*(text.encode()[:18].ljust(18)), 1] for text in candidates]) + 1
        pixels = [np.asarray(Image.open(photo).resize((16, 16)), np.float32) / 255 for photo in photos]
        images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        output = self.clip(input_ids=ids, pixel_values=images)
        return (output.text_embeds * output.image_embeds).sum(-1)

    def forward(self, candidates: Any, references: Any, photos: Any) -> list[float]:
        return (2.5 * self.cosines(candidates, photos).clamp(min=0)).tolist()


@pytest.fixture
def photos(tmp_path: Path) -> dict[int, Path]:
    paths = {image: tmp_path / "photos" / f"{image}.png" for image in REFERENCES}
    (tmp_path / "photos").mkdir()
    for path, colour in zip(paths.values(), ("red", "blue", "lime", "grey"), strict=True):
        Image.new("RGB", (20, 20), colour).save(path)
    return paths


def test_a_random_clip_scores_photos_and_its_weights_are_named(photos: dict[int, Path]):
    clip = ClipScore()
    scores = evaluate(CANDIDATES, REFERENCES, metrics=[clip], photos=photos)
    cosines = clip.cosines(list(CANDIDATES.values()), list(photos.values())).numpy()
    assert (cosines > 0).any()
    assert scores["CLIP-S"] == pytest.approx(2.5 * np.maximum(cosines, 0).mean(), abs=1e-6)
    interval = confidence_interval(scores.score("CLIP-S"))
    assert interval is not None
    assert interval.low <= scores["CLIP-S"] <= interval.high
    identity = scores.signature.partition("CLIP-S:0.1-")[2].partition("|")[0]
    assert len(identity) == 12
    with torch.no_grad():
        clip.clip.logit_scale += 1
    assert identity not in evaluate(CANDIDATES, REFERENCES, metrics=[clip], photos=photos).signature


def few(candidates: Any, references: Any, photos: Any) -> list[float]:
    return [1.0]


def infinite(candidates: Any, references: Any, photos: Any) -> list[float]:
    return [float("nan")] * 4


def needs_photos(candidates: Any, references: Any, photos: Any) -> list[float]:
    return [len(photo.name) for photo in photos]


def rouge(candidates: Any, references: Any, photos: Any) -> list[float]:
    return [0.0] * 4


rouge.name = "ROUGE-L"


@pytest.mark.parametrize(
    ("metrics", "images", "message"),
    [
        ([few], range(4), "the metric few gives 1 numbers for 4 images"),
        ([infinite], range(4), "few|infinite gives a number that is not finite for 0, 1, 2 and 1 more"),
        ([needs_photos], range(3), "needs_photos has no photo of 3: add it"),
        ([needs_photos], None, "needs_photos fails with TypeError: 'NoneType'"),
        ([length, length], range(4), "two metrics length: give yours another `name`"),
        ([rouge], range(4), "two metrics ROUGE-L"),
    ],
)
def test_what_a_metric_must_not_do(metrics: Any, images: Any, message: str):
    photos = None if images is None else {image: Path(f"{image}.png") for image in images}
    with pytest.raises(UserError, match=message):
        evaluate(CANDIDATES, REFERENCES, metrics=metrics, photos=photos)


def test_the_command_takes_a_function_of_the_working_directory(
    cli: Cli, tmp_path: Path, photos: dict[int, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("my_metrics.py").write_text(
        "__version__ = '7'\n"
        "def words(candidates, references, photos):\n"
        "    return [len(text.split()) + int(photo.stem) for text, photo in zip(candidates, photos)]\n"
        "broken = 3\n"
    )
    Path("r.json").write_text(json.dumps(REFERENCES))
    Path("c.json").write_text(json.dumps(CANDIDATES))
    command = (
        "score",
        "--references",
        "r.json",
        "--candidates",
        "c.json",
        "--metrics",
        "BLEU",
        "--format",
        "json",
    )
    ran = cli(*command, "--metric", "my_metrics:words", "--photos", "photos", "--confidence")
    assert (ran.code, ran.err) == (0, "")
    result = json.loads(ran.out)
    assert result["scores"]["words"] == 4.5
    assert len(result["intervals"]["words"]) == 2
    assert "|words:7|" in result["signature"]
    check_refused(cli(*command, "--metric", "my_metrics:broken"), "is of type int, and not a function")
    check_refused(cli(*command, "--metric", "my_metrics:other"), "cannot be imported: AttributeError")
    check_refused(cli(*command, "--metric", "nowhere:other"), "cannot be imported: ModuleNotFoundError")
    check_refused(cli(*command, "--metric", "words"), "cannot be imported: write package.module:function")
    Path("photos/more").mkdir()
    photos[0].rename("photos/more/0.png")
    assert cli(*command, "--metric", "my_metrics:words", "--photos", "photos").code == 0
    Image.new("RGB", (9, 9)).save("photos/0.jpg")
    ran = cli(*command, "--metric", "my_metrics:words", "--photos", "photos")
    check_refused(ran, "are both image 0 of 'r.json': keep one")
