"""Stop signals: what is done is kept, and each has its exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import SIGNALS, Ran, finish, start_command
from helpers.tiny_captioner import photo

from caption.cli.describe.printer import Printer
from caption.core.errors import STOPS, Stopped
from caption.core.runtime.signals import stopping_at_once, uninterrupted

Cli = Callable[..., Ran]
NAMES = ["a.png", "b.png", "c.png"]


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_raises_and_the_handlers_come_back(number: int):
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with pytest.raises(STOPS) as caught, stopping_at_once():
        send(number)
    if isinstance(caught.value, Stopped):
        assert caught.value.number == number
    else:
        assert number == signal.SIGINT
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_repeated_signals_do_not_disturb_what_the_first_began_and_the_second_ctrl_c_stops_a_step():
    done = []

    def step(*numbers: int) -> None:
        for number in numbers:
            send(number)
            done.append(number)

    def stopped() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            step(signal.SIGHUP, signal.SIGTERM)

    with pytest.raises(Stopped) as caught, stopping_at_once():
        stopped()
    assert (caught.value.number, len(done)) == (signal.SIGTERM, 2)
    with pytest.raises(Stopped), stopping_at_once(), uninterrupted():
        step(signal.SIGTERM, signal.SIGHUP, signal.SIGTERM)
    assert len(done) == 5
    with pytest.raises(KeyboardInterrupt), stopping_at_once(), uninterrupted():
        step(signal.SIGINT, signal.SIGINT)
    assert len(done) == 6


def read(form: str, text: str) -> list[str]:
    """The photos of an output, which must be whole."""
    if form == "csv":
        return [Path(row["image"]).name for row in csv.DictReader(io.StringIO(text))]
    entries = [json.loads(line) for line in text.splitlines()] if form == "jsonl" else json.loads(text)
    return [f"{e['image_id']}.png" if form == "coco" else Path(e["image"]).name for e in entries]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "form"),
    [
        *((signal.SIGTERM, form) for form in ("jsonl", "csv", "coco")),
        (signal.SIGINT, "json"),
        (signal.SIGHUP, "json"),
    ],
)
def test_output_of_a_stopped_describe_is_whole(
    number: int, form: str, cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The signal comes in the middle of the second entry, and again while the end is written."""
    add, finish = Printer.add, Printer.finish

    def added(self: Any, name: str, *of_photo: Any) -> None:
        if name.endswith("b.png"):
            send(number)
        add(self, name, *of_photo)

    def finished(self: Any) -> None:
        if number != signal.SIGINT:
            send(number)
        finish(self)

    monkeypatch.setattr(Printer, "add", added)
    monkeypatch.setattr(Printer, "finish", finished)
    photos, page, arrays, heatmaps = (
        tmp_path / name for name in ("photos", "page.html", "arrays", "heatmaps")
    )
    photos.mkdir()
    for seed, name in enumerate(NAMES):
        photo(seed=seed).save(photos / name)
    outputs = ("--html", page, "--attention", arrays, "--heatmap", heatmaps)
    ran = cli("describe", photos, "--model", model, "--format", form, *outputs)
    assert ran.code == 128 + number
    assert read(form, ran.out) == NAMES[:2]
    assert "captioning: stopped after 2 of 3 photos" in ran.err
    text = page.read_text(encoding="utf-8")
    assert text.rstrip().endswith("</html>")
    assert [name for name in NAMES if name in text] == NAMES[:2]
    assert sorted(path.name for path in arrays.iterdir()) == ["a.npz", "b.npz"]
    assert all(len(np.load(path)["weights"]) for path in arrays.iterdir())
    assert sorted(path.name for path in heatmaps.iterdir()) == NAMES[:2]


@pytest.mark.nightly
def test_a_process_that_is_told_to_stop_writes_its_page(model: Path, tmp_path: Path):
    folder, page = tmp_path / "photos", tmp_path / "page.html"
    folder.mkdir()
    photo().save(folder / "0000.png")
    for index in range(1, 3000):
        os.link(folder / "0000.png", folder / f"{index:04}.png")
    reading, writing = os.pipe()
    options = ("--format", "json", "--html", page)
    process = start_command("describe", folder, "--model", model, *options, stdout=writing)
    os.close(writing)
    with open(reading) as printed:
        out = printed.read(1)
        for _ in range(2):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        out += printed.read()
    code, _, err = finish(process, timeout=60)
    entries = json.loads(out)
    assert code == 128 + signal.SIGTERM
    assert 0 < len(entries) < 3000
    assert f"captioning: stopped after {len(entries):,} of 3,000 photos" in err
    assert "Traceback" not in err
    assert f"{len(entries) - 1:04}.png" in page.read_text(encoding="utf-8")
