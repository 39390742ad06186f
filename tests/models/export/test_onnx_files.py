"""ONNX Runtime captions like torch, without torch; an export writes over nothing but an export."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import tiny_captioner, tiny_torchvision  # noqa: F401  (registers tiny_cnn)

from caption.attention import (
    AdditiveScore,
    MutualCrossAttention,
    ParallelCoAttention,
    ScoredAttention,
    Softmax,
    TrilinearScore,
    WordLSTM,
)
from caption.captioner import Captioner
from caption.cli.main import main
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import MANIFEST
from caption.data.photos import ImageTransform
from caption.decoders import Decoder, Gate, GRUCell, ShowAttendAndTellDecoder, TransformerDecoder
from caption.encoders import Encoder, SmallCNN, TorchvisionEncoder
from caption.models import checkpoint
from caption.models.ensemble import ensemble
from caption.models.export import onnx_files
from caption.search import BeamSearch, Greedy, Sampling

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

from caption.models.export.standalone import OnnxCaptioner  # noqa: E402

PHOTOS = [tiny_captioner.photo(seed=seed) for seed in range(5)] + [tiny_captioner.photo(40, 104)]


class Early(SmallCNN):
    """A small CNN whose grid begins half a pixel before its input."""

    def __init__(self) -> None:
        super().__init__((4, 4, 6))
        self.layers[0] = torch.nn.Conv2d(5, 4, kernel_size=3, stride=2, padding=1, bias=False)


def large(decoder: Decoder, encoder: Encoder | None = None) -> Captioner:
    """A captioner with large weights, whose captions do not end at once."""
    search = BeamSearch(3, 8, length_normalization=0.7)
    captioner = tiny_captioner.captioner(search=search, decoder=decoder, encoder=encoder)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("score.word.weight"):  # which starts at 0
                parameter.normal_()
    return captioner


def scored(smoothing: float = 0.0, previous_word: bool = False) -> ScoredAttention:
    return ScoredAttention(AdditiveScore(8, previous_word=previous_word), Softmax(), smoothing)


MODELS = {
    "a gate": lambda: tiny_captioner.captioner(search=BeamSearch(3, 8, 0.7, repeat_penalty=2.0)),
    "a gate, a state that grows": lambda: large(
        ShowAttendAndTellDecoder(ParallelCoAttention(WordLSTM(6), TrilinearScore()), 6, 7, gate=Gate())
    ),
    "a tensor whose size is that of the photos": lambda: large(
        ShowAttendAndTellDecoder(MutualCrossAttention(WordLSTM(6)), 6, 7)
    ),
    "smoothed scores, a query with the previous word, a GRU": lambda: large(
        ShowAttendAndTellDecoder(scored(smoothing=1.0, previous_word=True), 6, 7, cell=GRUCell()), Early()
    ),
    "a cache": lambda: large(TransformerDecoder(scored(), layers=1, hidden_size=8, heads=2, inner_size=8)),
    "an encoder whose map is averaged to an uneven grid": lambda: large(
        ShowAttendAndTellDecoder(scored(), 6, 7),
        TorchvisionEncoder("tiny_cnn", "features.11", weights=None, grid=[14, 14]),
    ),
    "an ensemble": lambda: ensemble(
        [large(ShowAttendAndTellDecoder(scored(), 6, 7)), large(ShowAttendAndTellDecoder(scored(), 6, 7))]
    ),
}


class Exported(NamedTuple):
    captioner: Captioner
    folder: Path


FIRST = next(iter(MODELS))


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A captioner, and the folder that `caption export` writes of it."""
    captioner, folder = MODELS[request.param](), tmp_path_factory.mktemp("exported")
    checkpoint.save(captioner, folder / "model.ckpt")
    out = folder / "new"
    options = ["--format", "onnx", "--out", str(out), "--beam-size", "2"]
    with redirect_stderr(StringIO()) as stderr:
        assert main(["export", str(folder / "model.ckpt"), *options]) == 0
    assert f"python {out / 'captioner.py'} PHOTO" in stderr.getvalue()
    captioner.search = dataclasses.replace(captioner.search, beam_size=2)  # type: ignore[type-var]
    return Exported(captioner, out)


@pytest.mark.nightly
def test_onnx_runtime_writes_the_same_captions(exported: Exported) -> None:
    captioner, folder = exported
    files = {"encoder.onnx", "step.onnx", "model.json", "captioner.py", MANIFEST}
    assert {path.name for path in folder.iterdir()} == files
    by_torch = captioner.describe(PHOTOS)
    model = OnnxCaptioner(folder, threads=1)
    by_onnx = model.describe(np.stack([model.pixels(photo) for photo in PHOTOS]))
    assert [caption.text for caption in by_onnx] == [caption.text for caption in by_torch]
    assert any(caption.words for caption in by_onnx)
    for one, other, photo in zip(by_onnx, by_torch, PHOTOS, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.finished == other.finished
        assert (one.gates is None) == (other.gates is None)
        if one.gates is not None:
            np.testing.assert_allclose(one.gates, other.gates, atol=1e-5)
        assert model.seen(*photo.size) == other.seen
        assert model.box(*photo.size) == pytest.approx(other.box)
    if isinstance(captioner.encoder, Early):
        for fit in ("crop", "squash", "pad"):
            captioner.transform = ImageTransform((32, 32), fit)
            model.model["transform"] = captioner.transform.to_dict()
            for photo in PHOTOS[-2:]:
                caption = captioner.describe(photo)
                left, _, right, _ = caption.seen
                assert model.seen(*photo.size) == caption.seen
                assert model.box(*photo.size) == pytest.approx(caption.box)
                assert caption.box[0] == pytest.approx(left - 0.5 / 32 * (right - left))


@pytest.mark.nightly
@pytest.mark.parametrize("exported", [FIRST], indirect=True)
def test_the_folder_captions_alone(exported: Exported, tmp_path: Path) -> None:
    PHOTOS[0].save(tmp_path / "photo.png")
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
        "print({'torch', 'caption'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, exported.folder / "captioner.py", tmp_path / "photo.png"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == [exported.captioner.describe(PHOTOS[0]).text, "set()"]


def test_files_of_others_stay_and_missing_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, cli, tmp_path: Path
) -> None:
    (tmp_path / "step.onnx.data").write_text("mine")
    ran = cli("export", "shapes", "--format", "onnx", "--out", tmp_path)
    assert ran.code == 2
    assert "holds step.onnx.data, which this package did not write there" in ran.err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    ran = cli("export", "shapes", "--format", "onnx", "--out", tmp_path / "new")
    assert ran.code == 2
    assert "needs the package onnxscript, which is missing: run pip install 'show-attend" in ran.err
    assert not (tmp_path / "new").exists()


def test_only_a_beam_is_exported() -> None:
    captioner = tiny_captioner.captioner(search=Greedy(9, repeat_penalty=2.0))
    greedy = {"beam_size": 1, "max_length": 9, "length_normalization": 0.0, "repeat_penalty": 2.0}
    assert onnx_files.search_settings(captioner) == greedy
    captioner.search = BeamSearch(4, 12, 0.5, candidates=2)
    beam = {"beam_size": 4, "max_length": 12, "length_normalization": 0.5, "repeat_penalty": 0.0}
    assert onnx_files.search_settings(captioner) == beam
    captioner.search = Sampling()
    with pytest.raises(UserError, match="Sampling"):
        onnx_files.search_settings(captioner)
