"""Latency from a click to the new sentence, in a real Chromium, with the server in a process of its own."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.browser import DRIVER, Browser
from tools.benchmark.harness import ROOT, Setting, say, seconds, spread
from tools.documents import table

MODELS = {"shapes": None, "photos": ROOT / "docs" / "photographer.png"}
"""Installed models, each with its photo; None = a scene of the server."""
GOALS = {"shapes": 0.150, "photos": 0.500}
"""Seconds."""
CLICKS = 4
"""Clicks of each round."""
WATCH = Path(__file__).with_suffix(".js")


def explore(setting: Setting) -> str:
    """Click-to-sentence latencies of each model."""
    if DRIVER is None:
        return "No Chromium with its driver is installed: the section explore needs them."
    rows = []
    for model, photo in MODELS.items():
        say(model)
        clicks = _clicks(model, photo, setting)
        total = [(click["painted"] - click["started"]) / 1e3 for click in clicks]
        server = [(click["answered"] - click["asked"]) / 1e3 for click in clicks]
        page = [of_click - of_server for of_click, of_server in zip(total, server, strict=True)]
        columns = [spread(values, seconds, bold=values is total) for values in (total, server, page)]
        rows.append([model, *columns, seconds(GOALS[model])])
    count = CLICKS * setting.rounds
    heads = ["model", "click to sentence", "server", "page", "goal"]
    return f"{count} clicks for each model.\n\n{table(heads, rows)}"


def _clicks(model: str, photo: Path | None, setting: Setting) -> list[dict[str, float]]:
    """The times of every click, in milliseconds, after one to warm up."""
    command = [sys.executable, "-m", "caption", "serve", "--model", model, "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        browser = Browser()
        try:
            page = browser.open(server.stdout.readline().strip(), 1400, 900)
            page.run(WATCH.read_text(encoding="utf-8"))
            if photo is None:
                page.click(".satt-example")
            else:
                page.run(f"drop('{base64.b64encode(photo.read_bytes()).decode()}')")
            page.wait_for("!!document.querySelector('.satt-said')")
            page.run("watchSentences()")
            count = CLICKS * setting.rounds
            for number in range(count + 1):
                _click(page, number)
            clicks: list[dict[str, float]] = page.run("clicks")
        finally:
            browser.close()
            server.send_signal(signal.SIGTERM)
    return clicks[1:]


def _click(page: Any, number: int) -> None:
    """Choose a word, make it look at a cell, wait for the sentence, and take that back."""
    words = page.run("document.querySelectorAll('.satt-word').length") - 1
    page.click(".satt-word", 1 + number % words)
    place = ((number * 3 + 0.5) % 7 / 7, (number * 2 + 0.5) % 5 / 5)
    page.drag(".satt-photo", place)
    page.wait_for(f"clicks.length === {number + 1}")
    page.click(".satt-reset")
    page.wait_for("!document.querySelector('.satt-sentence') && !document.querySelector('[aria-busy]')")
