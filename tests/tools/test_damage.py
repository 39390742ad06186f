"""tools/damage.py counts what loading notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiny_captioner import captioner

from caption import checkpoint
from tools import damage

SMALL = ("--bits", "6", "--blocks", "3")


def test_every_kind_of_file_and_damage_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    assert damage.main([str(tmp_path / "model.ckpt"), *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split() for line in lines] == [
        [suffix, str(count), *what.split()]
        for suffix in (".ckpt", ".safetensors")
        for count, what in ((6, "flipped bits"), (3, "zeroed blocks"))
    ]
    assert all("refused" in line for line in lines)


def test_another_model_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    other = captioner()
    other.decoder.readout.to_words.bias.data += 1
    monkeypatch.setattr(checkpoint, "load", lambda path: other)
    monkeypatch.setattr(damage, "load", lambda model: captioner())
    assert damage.main([str(tmp_path / "model.ckpt"), *SMALL]) == 1
    assert "another model" in capsys.readouterr().out
