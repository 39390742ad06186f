"""ONNX Runtime captions like torch, without torch; an export writes over nothing but an export."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_captioner

from caption.attention import AdditiveScore, ParallelCoAttention, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import Decoder, Gate, LSTMDecoder, TransformerDecoder
from caption.encoders import SmallCNN
from caption.errors import UserError
from caption.export import onnx_files
from caption.search import BeamSearch, Greedy, Sampling
from caption.text.vocabulary import Vocabulary

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

from caption.export.standalone import Caption, OnnxCaptioner  # noqa: E402

PHOTOS = [tiny_captioner.photo(seed=seed) for seed in range(6)]


def large(decoder: Decoder) -> Captioner:
    """A captioner with large weights, whose captions do not end at once."""
    torch.manual_seed(0)
    made = Captioner(
        SmallCNN((4, 4, 6)),
        decoder,
        Vocabulary(tiny_captioner.WORDS),
        ImageTransform(32),
        BeamSearch(3, 8, length_normalization=0.7),
    )
    with torch.no_grad():
        for name, parameter in made.decoder.named_parameters():
            parameter.mul_(1.0 if "bias" in name else 5.0)
            if name.endswith("score.word.weight"):  # which starts at 0
                parameter.normal_()
        (words,) = (each for name, each in made.decoder.named_parameters() if name.endswith("to_words.bias"))
        words[2] = -2.0
    return made.eval()


def scored(smoothing: float = 0.0, previous_word: bool = False) -> ScoredAttention:
    return ScoredAttention(AdditiveScore(8, previous_word=previous_word), Softmax(), smoothing)


MODELS = {
    "a gate, a state that grows": lambda: large(LSTMDecoder(ParallelCoAttention(6), 6, 7, gate=Gate())),
    "smoothed scores": lambda: large(LSTMDecoder(scored(smoothing=1.0), 6, 7)),
    "a query with the previous word": lambda: large(LSTMDecoder(scored(previous_word=True), 6, 7)),
    "a cache": lambda: large(TransformerDecoder(scored(), layers=1, hidden_size=8, heads=2, inner_size=8)),
}


def by_onnx(folder: Path) -> list[Caption]:
    exported = OnnxCaptioner(folder, threads=1)
    return exported.describe(np.stack([exported.pixels(photo) for photo in PHOTOS]))


@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_writes_the_same_captions(name: str, tmp_path: Path) -> None:
    captioner = MODELS[name]()
    onnx_files.write(captioner, tmp_path)
    expected = captioner.describe(PHOTOS)
    found = by_onnx(tmp_path)
    assert [each.text for each in found] == [each.text for each in expected]
    assert any(each.words for each in found)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.finished == other.finished
        assert (one.gates is None) == (other.gates is None)
        if one.gates is not None:
            np.testing.assert_allclose(one.gates, other.gates, atol=1e-5)


class Early(SmallCNN):
    """A small CNN whose grid begins half a pixel before its input."""

    def __init__(self) -> None:
        super().__init__((4, 4, 6))
        self.layers[0] = torch.nn.Conv2d(5, 4, kernel_size=3, stride=2, padding=1, bias=False)


def test_a_folder_knows_where_its_cells_look(tmp_path: Path) -> None:
    captioner = tiny_captioner.captioner(encoder=Early())
    onnx_files.write(captioner, tmp_path)
    exported = OnnxCaptioner(tmp_path, threads=1)
    for fit in ("crop", "squash", "pad"):
        captioner.transform = ImageTransform((32, 32), fit)
        exported.model["transform"] = captioner.transform.to_dict()
        for photo in (tiny_captioner.photo(80, 40), tiny_captioner.photo(40, 104)):
            caption = captioner.describe(photo)
            assert exported.seen(*photo.size) == caption.seen
            assert exported.box(*photo.size) == pytest.approx(caption.box)
            left, _, right, _ = exported.seen(*photo.size)
            assert caption.box[0] == pytest.approx(left - 0.5 / 32 * (right - left))


def test_the_command_writes_a_folder_that_captions_alone(cli, tmp_path: Path) -> None:
    from caption import checkpoint

    captioner = tiny_captioner.captioner()
    checkpoint.save(captioner, tmp_path / "model.ckpt")
    out = tmp_path / "exported"
    ran = cli("export", tmp_path / "model.ckpt", "--format", "onnx", "--out", out, "--beam-size", 2)
    assert (ran.code, ran.out) == (0, "")
    assert f"python {out / 'captioner.py'} PHOTO" in ran.err
    assert {path.name for path in out.iterdir()} == {
        "encoder.onnx",
        "step.onnx",
        "model.json",
        "captioner.py",
    }
    assert json.loads((out / "model.json").read_text())["search"]["beam_size"] == 2
    PHOTOS[0].save(tmp_path / "photo.png")
    look = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
        "print({'torch', 'caption'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, out / "captioner.py", tmp_path / "photo.png"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path,
    )
    captioner.search = BeamSearch(2, 8)
    assert done.stdout.splitlines() == [captioner.describe(PHOTOS[0]).text, "set()"]


# -- refusals --------------------------------------------------------------------------------------------------


def test_an_export_replaces_an_export_and_nothing_else(cli, tmp_path: Path) -> None:
    onnx_files.require_own_folder(tmp_path / "new")
    onnx_files.require_own_folder(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"made_by": onnx_files.MADE_BY}))
    onnx_files.require_own_folder(tmp_path)
    for contents in ('{"words": []}', "[]", "no JSON"):
        (tmp_path / "model.json").write_text(contents)
        ran = cli("export", "shapes", "--format", "onnx", "--out", tmp_path)
        assert ran.code == 2
        assert "holds files that caption export did not write: name a new folder" in ran.err
        assert (tmp_path / "model.json").read_text() == contents


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, cli, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_files, "find_spec", lambda name: None if name == "onnxscript" else True)
    ran = cli("export", "shapes", "--format", "onnx", "--out", tmp_path / "new")
    assert ran.code == 2
    assert "needs onnxscript: pip install 'show-attend-and-tell[onnx]'" in ran.err
    assert not (tmp_path / "new").exists()


def test_only_a_beam_is_exported() -> None:
    captioner = tiny_captioner.captioner(search=Greedy(9))
    greedy = {"beam_size": 1, "max_length": 9, "length_normalization": 0.0}
    assert onnx_files.search_settings(captioner) == greedy
    captioner.search = BeamSearch(4, 12, 0.5, candidates=2)
    beam = {"beam_size": 4, "max_length": 12, "length_normalization": 0.5}
    assert onnx_files.search_settings(captioner) == beam
    captioner.search = Sampling()
    with pytest.raises(UserError, match="Sampling cannot be exported: choose a beam"):
        onnx_files.search_settings(captioner)
