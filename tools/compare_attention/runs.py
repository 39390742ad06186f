"""One run: `caption fit` with one mechanism and one seed, `caption test`, and a measurement of deletion."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from caption import checkpoint
from caption.captioner import Captioner
from caption.data.decoding import open_image
from caption.errors import UserError
from caption.runtime.files import make_parents, replacing
from tools.compare_attention.mechanisms import REFERENCE, Mechanism
from tools.reproduce.deletion import deletion, test_photos
from tools.reproduce.runs import curve, fit, run, test, trained_seconds

Result = dict[str, Any]


class Bench:
    """Trains and measures mechanisms.

    Args:
        folder: of the runs, `NAME-SEED` each.
        more: further arguments of `caption fit` and `caption test`, the same for all runs.
        data: likewise, but these name files: a run on the same data in another place has the same settings.
        stored: whether all mechanisms read regions that are computed once, from a frozen encoder.
        published: results by mechanism and seed that stand for runs which the folder lacks.
    """

    def __init__(
        self,
        folder: Path,
        more: Sequence[str] = (),
        data: Sequence[str] = (),
        stored: bool = False,
        published: Sequence[Result] = (),
    ) -> None:
        self.folder = folder
        self.more = [*more]
        self.data = [*data]
        self.stored = stored
        self.regions: set[Path] = set()
        """The folders of stored regions that are known to be complete."""
        self.published = {(result["mechanism"], result["seed"]): result for result in published}

    def result(self, mechanism: Mechanism, seed: int) -> Result | None:
        """What was measured before; None if it was not, or with other settings of the mechanism."""
        file = self.run_folder(mechanism.name, seed) / "result.json"
        found: list[Result | None] = [json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []
        found.append(self.published.get((mechanism.name, seed)))
        digest = mechanism.digest(self.more)
        return next((result for result in found if result and result["digest"] == digest), None)

    def run_folder(self, name: str, seed: int) -> Path:
        return self.folder / f"{name}-{seed}"

    def checkpoint(self, name: str, seed: int) -> Path:
        return self.run_folder(name, seed) / "best.ckpt"

    def arguments(self, mechanism: Mechanism, seed: int) -> list[str]:
        """What `caption fit` and `caption test` get, but for the folder and the checkpoint."""
        configs = [part for path in mechanism.paths for part in ("-c", str(path))]
        start = ["--model.warm_start", str(self.checkpoint(REFERENCE, seed))] if mechanism.warm else []
        regions: Sequence[str] = mechanism.learns_encoder
        if self.stored and not regions:
            regions = ["--data.features", str(self._regions(mechanism))]
        return [*configs, *start, *regions, *self.data, *self.more, "--seed_everything", str(seed)]

    def run(self, mechanism: Mechanism, seed: int) -> Result:
        """Train, test and measure, or go on where it was stopped.

        Raises:
            UserError: the folder has a run of other settings.
            SystemExit: a command failed or was stopped.
        """
        folder, digest = self.run_folder(mechanism.name, seed), mechanism.digest(self.more)
        settings = folder / "settings"
        if settings.exists() and settings.read_text(encoding="utf-8") != digest:
            raise UserError(
                f"{folder} is a run of other settings: delete it, or name another folder with --out"
            )
        make_parents(settings)
        with replacing(settings) as file:
            file.write(digest.encode())
        if self.stored and not mechanism.learns_encoder and not (folder / "done").exists():
            self._store_regions(mechanism)
        arguments = self.arguments(mechanism, seed)
        best = fit(folder, arguments)
        tested = test(folder, folder / "test.json", [*arguments, "--verbose", "false"])
        captioner = checkpoint.load(best)
        photos = test_photos(best)
        has_attention = bool(captioner.decoder.attentions)
        epochs = len(curve(folder))
        result = {
            "mechanism": mechanism.name,
            "seed": seed,
            "digest": digest,
            "epochs": epochs,
            "warm_start": REFERENCE if mechanism.warm else None,
            "regions": regions_of(captioner, photos[0]),
            "parameters": sum(
                parameter.numel()
                for name, parameter in captioner.named_parameters()
                if not name.startswith("encoder.")
            ),
            "seconds_per_epoch": trained_seconds(folder) / epochs,
            "numbers": tested["scores"] if has_attention else without_maps(tested["scores"]),
            "signature": tested["signature"],
            "faithfulness": deletion(captioner, photos) if has_attention else None,
        }
        write_json(folder / "result.json", result)
        return result

    def _regions(self, mechanism: Mechanism) -> Path:
        return self.folder / "regions" / mechanism.regions

    def _store_regions(self, mechanism: Mechanism) -> None:
        regions = self._regions(mechanism)
        if regions not in self.regions:  # it takes seconds to find that they are all there
            configs = [part for path in mechanism.paths for part in ("--config", str(path))]
            make_parents(regions)
            run("features", *configs, "--out", str(regions), *_of_encoder([*self.data, *self.more]))
            self.regions.add(regions)


def _of_encoder(arguments: Sequence[str]) -> list[str]:
    """The options that `caption features` takes, with their values."""
    options = "|".join(("data.reader", "data.transform", "model.encoder"))
    kept, keeps = [], False
    for argument in arguments:
        if argument.startswith("-"):
            keeps = bool(re.match(rf"--({options})\b", argument))
        if keeps:
            kept.append(argument)
    return kept


def regions_of(captioner: Captioner, photo: str) -> str:
    """The sizes of the encoder's grids, for the table."""
    with torch.no_grad():
        views = captioner.encoder(captioner.transform(open_image(photo))[None])
    return " + ".join(f"{'×'.join(map(str, view.grid))}×{view.vectors.shape[2]}" for view in views)


def without_maps(scores: dict[str, float]) -> dict[str, float]:
    """The scores of a decoder without attention: its even maps are placeholders."""
    return {name: value for name, value in scores.items() if not name.startswith(("attention_", "pointing_"))}


def write_json(path: Path, content: Any) -> None:
    """Write a file whole, or not at all; lists of numbers are one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[-+.\deE,\s]+\]", lambda match: " ".join(match[0].split()), text)
    with replacing(path) as file:
        file.write(f"{text}\n".encode())
