"""`caption export` to one file; the ONNX files have tests of their own in tests/export."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner, photo

import caption
from caption.attention import HeadGates, MultiHeadAttention
from caption.decoders import ShowAttendAndTellDecoder
from caption.models import checkpoint


def check_same_captions(cli: Cli, folder: Path, *models: Path) -> None:
    photo().save(folder / "photo.png")
    said = [cli("describe", folder / "photo.png", "--model", file).out for file in models]
    assert said[0] == said[1] != ""


def test_a_checkpoint_as_a_safetensors_file_and_back(cli: Cli, model: Path, tmp_path: Path):
    half, back = tmp_path / "half.safetensors", tmp_path / "back.ckpt"
    ran = cli("export", model, "--format", "safetensors", "--precision", "float16", "--out", half)
    assert (ran.code, ran.out) == (0, "")
    assert f"try caption describe PHOTO --model {half}" in ran.err
    assert half.stat().st_size < model.stat().st_size
    assert cli("export", half, "--format", "ckpt", "--out", back, "--beam-size", 2).code == 0
    assert caption.load(back).search.beam_size == 2
    check_same_captions(cli, tmp_path, model, half)


def test_what_the_files_lack_is_said(cli: Cli, tmp_path: Path):
    pytest.importorskip("onnxscript")
    heads = captioner(decoder=ShowAttendAndTellDecoder(MultiHeadAttention(4, 8), 6, 7))
    model, lens, out, folder = (tmp_path / name for name in ("heads.ckpt", "heads.lens", "out.ckpt", "onnx"))
    checkpoint.save(heads, model)
    assert "not in" not in cli("export", model, "--format", "ckpt", "--out", tmp_path / "none.ckpt").err
    lens.write_bytes(b"a lens")
    ran = cli("export", model, "--format", "ckpt", "--out", out)
    copy = f"copy {lens} to {out.with_suffix('.lens')}"
    assert f"not in {out}: the lens, which is a file of its own; {copy}\n" in ran.err
    ran = cli("export", model, "--format", "onnx", "--out", folder)
    assert f"not in {folder}: the lens {lens}; single maps (heads), only their summary is\n" in ran.err


def test_closed_heads_are_left_out(cli: Cli, model: Path, tmp_path: Path):
    attention = MultiHeadAttention(4, 8, HeadGates())
    gated = captioner(decoder=ShowAttendAndTellDecoder(attention, 6, 7))
    with torch.no_grad():
        attention.gates.weight.copy_(torch.tensor([-1.0, 1.0, -1.0, 0.1]))
    checkpoint.save(gated, tmp_path / "gated.ckpt")
    out = tmp_path / "out.ckpt"
    ran = cli("export", tmp_path / "gated.ckpt", "--format", "ckpt", "--out", out, "--remove-closed-heads")
    assert (ran.code, ran.out) == (0, "")
    assert "decoder.attention: 2 of 4 heads are open" in ran.err
    assert caption.load(out).decoder.attention.heads == 2
    check_same_captions(cli, tmp_path, tmp_path / "gated.ckpt", out)
    ran = cli("export", model, "--format", "ckpt", "--out", tmp_path / "none.ckpt", "--remove-closed-heads")
    check_refused(ran, "no attention of this model has gates on its heads")
