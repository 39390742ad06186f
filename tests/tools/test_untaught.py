"""The tool that measures words that no caption taught."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner as tiny_captioner
from torch import nn

from caption.analysis.lens import Calibration, Lens
from caption.encoders.classifier import Classifier
from caption.regions import Regions
from caption.result import Caption
from caption.text.nouns import Nouns
from tools.untaught import __main__ as tool
from tools.untaught.rows import ALL, BASELINE, NAMING, SEARCH, Places
from tools.untaught.slots import SLOTS, fill, is_plural, write_slots
from tools.untaught.things import THINGS, Naming, is_taught, named, naming, write_data

CLASSES = [
    ("Irish terrier", "terrier"),
    ("zebra", "zebra"),
    ("tennis ball", "tennis ball"),
    ("groom", "groom"),
]
TABLE: list[tuple[str, str, list[str]]] = [
    ("animal", "", []), ("dog", "animal", ["pup"]), ("terrier", "dog", []), ("zebra", "animal", []),
    ("ball", "", []), ("tennis ball", "ball", []), ("person", "", ["man"]), ("groom", "person", []),
]  # fmt: skip


def hand_lens(sharpness: float = 12.0) -> Lens:
    """Regions of six numbers, the first four of which are the classes."""
    linear = nn.Linear(6, 4)
    with torch.no_grad():
        linear.weight.copy_(sharpness * torch.eye(4, 6))
        linear.bias.zero_()
    return Lens(Classifier(linear), Nouns(CLASSES, TABLE), Calibration(1.0, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("text", "things", "taught"),
    [
        ("Two dogs play with a ball .", set(), True),
        ("A man rides his bike .", {"bicycle"}, False),
        ("A biker in a helmet .", set(), False),
        ("A man on a motorbike .", set(), True),
        ("Soccer and tennis", {"soccer", "tennis"}, False),
        ("Tennis-ball in its mouth", {"tennis"}, False),
        ("a KAYAK and a raft", {"boat"}, False),
    ],
)
def test_captions_that_name_a_thing_or_nearly_leave(text: str, things: set[str], taught: bool) -> None:
    assert named(text) == things
    assert is_taught(text) == taught


def test_f1_counts_photos() -> None:
    references = {
        "1": ["a man on a bike", "a man"], "2": ["a dog"], "3": ["a bicycle"], "4": ["bikes", "cyclists"],
    }  # fmt: skip
    captions = {"1": "a man rides a bicycle", "2": "a dog on a bike", "3": "a man", "4": "two bikes"}
    found = naming(captions, references)
    assert found["bicycle"] == Naming(right=2, said=3, there=3)
    assert found["bicycle"].f1 == pytest.approx(2 / 3)
    assert found["boat"] == Naming(0, 0, 0)
    assert found["boat"].f1 == 0
    assert set(found) == set(THINGS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "flickr8k"
    (folder / "images").mkdir(parents=True)
    texts = {
        "a": ["a pup on a couch", "two pups"], "b": ["a guitar"], "c": ["a horse", "a man"], "d": ["a sofa", "a dog"],
    }  # fmt: skip
    lines = [f"{name}.jpg#{k}\t{text}" for name, own in texts.items() for k, text in enumerate(own)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\nelsewhere.jpg#0\ta dog\n")
    for split, names in {"train": "ab", "dev": "c", "test": "d"}.items():
        photos = [f"{name}.jpg" for name in names]
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(photos))
        for photo in photos:
            (folder / "images" / photo).touch()
    return folder


def test_captions_leave_training_and_dev_and_photos_without_any(data: Path, tmp_path: Path) -> None:
    write_data(data, tmp_path / "out")
    lists = {
        split: (tmp_path / "out" / f"{split}.txt").read_text().split() for split in ("train", "val", "test")
    }
    assert lists == {"train": ["a.jpg"], "val": ["c.jpg"], "test": ["d.jpg"]}
    assert (tmp_path / "out" / "captions.txt").read_text().splitlines() == [
        "a.jpg#1\ttwo pups", "c.jpg#1\ta man", "d.jpg#0\ta sofa", "d.jpg#1\ta dog",
    ]  # fmt: skip
    places = Places(data, tmp_path / "out", tmp_path / "regions")
    assert places.taught() == {"c.jpg": ("a man",)}
    assert [photo.captions for photo in places.photos("val")] == [("a horse", "a man")]
    assert str(data / "Flickr8k.token.txt") in places.arguments(ALL, 0)[0]
    assert str(tmp_path / "out" / "captions.txt") in places.arguments(BASELINE, 0)[0]


@pytest.mark.parametrize(
    ("word", "plural"), [("dogs", True), ("dog", False), ("pups", True), ("tree", False)]
)
def test_the_number_of_a_word(word: str, plural: bool) -> None:
    assert is_plural(hand_lens(), word) == plural


class Store:
    """Terriers in the whole of photo a, and nothing in others."""

    def read_many(self, photos: list[str]) -> tuple[Regions]:
        vectors = torch.zeros(len(photos), 64, 6, dtype=torch.float16)
        for place, name in enumerate(photos):
            vectors[place, :, 0] = float(name == "a.jpg")
        return (Regions(vectors, (8, 8)),)


def test_nouns_that_the_lens_reads_become_slots(data: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text(
        "a.jpg#0\ta dog and two pups\na.jpg#1\tThe man 's dog sits\nb.jpg#0\ta dog\nc.jpg#0\tA Dog\n"
    )
    photos, out = data / "Flickr_8k.trainImages.txt", tmp_path / "slots.txt"
    store: Any = Store()
    write_slots(tiny_captioner(), hand_lens(), store, tmp_path / "captions.txt", photos, out)
    assert out.read_text().splitlines() == [
        "a.jpg#0\ta onething and two manythings",
        "a.jpg#1\tthe man 's onething sits",
        "b.jpg#0\ta dog",
        "c.jpg#0\tA Dog",
    ]
    counts = json.loads(out.with_suffix(".json").read_text())
    assert {word: n for words in counts.values() for word, n in words.items()} == {"dog": 2, "pups": 1}


def test_slots_are_filled_with_what_is_read_where_they_are_said() -> None:
    vectors = torch.zeros(1, 4, 6)
    vectors[0, range(4), range(4)] = 1.0
    weights = np.eye(4).reshape(4, 2, 2)
    words = [SLOTS[0], SLOTS[1], SLOTS[0], "sit"]
    caption = Caption(" ".join(words), words, weights, -1.0, np.zeros(4), (0, 0, 8, 8))
    regions = Regions(vectors, (2, 2))
    assert fill(hand_lens(), regions, caption, {}) == "terrier zebras tennis ball sit"
    taught = {"terrier": {"dog": 9}, "zebra": {"zebras": 1}}
    assert fill(hand_lens(), regions, caption, taught) == "terrier zebras tennis ball sit", (
        "dog is another noun"
    )
    unchanged = Caption("a dog", ["a", "dog"], weights[:2], -1.0, np.zeros(2), (0, 0, 8, 8))
    assert fill(hand_lens(), regions, unchanged, {}) == "a dog"


def scores_of(row: str, seed: int) -> dict[str, Any]:
    f1 = {BASELINE: 0.0, SEARCH: 0.4}.get(row, 0.6) + seed / 100
    things = {name: [3, 4 + seed, 5] for name in THINGS}
    of_split = {"F1": f1, "CIDEr": 0.5, "BLEU-4": 0.2, "with": 0.4, "without": 0.55, "things": things}
    return {"val": of_split, "test": of_split, "chosen": {"least": 0.5} if row in (SEARCH, NAMING) else {}}


def test_the_command_measures_what_is_missing_and_writes_the_tables(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "untaught.md"
    marks = "".join(
        f"<!-- section {name} begins -->\n<!-- section {name} ends -->\n"
        for name in ("untaught", "untaught_things")
    )
    document.write_text(f"# Words\n\n{marks}")
    done: list[tuple[str, int]] = []

    def measured(places: Places, row: str, seed: int, more: list[str]) -> dict[str, dict[str, Any]]:
        assert more == ["--trainer.accelerator", "cpu"]
        done.append((row, seed))
        return {each: scores_of(each, seed) for each in ((row, NAMING) if row == SEARCH else (row,))}

    stored: list[SimpleNamespace] = []
    monkeypatch.setattr(tool, "measured", measured)
    monkeypatch.setattr(tool, "run", lambda *arguments: stored.append(SimpleNamespace(arguments=arguments)))
    command = ["--data", str(data), "--out", str(tmp_path / "runs"), "--document", str(document)]
    more = ["--trainer.accelerator", "cpu"]
    assert tool.main([*command, "--rows", BASELINE, SEARCH, "--seeds", "0", *more]) == 0
    assert done == [(BASELINE, 0), (SEARCH, 0)]
    assert stored[0].arguments[0] == "features"
    assert tool.main([*command, "--seeds", "0", "1", *more]) == 0
    assert len(done) == len(set(done)) == 8
    text = document.read_text()
    assert "| constrained beam search, for CIDEr | 2 | 0.405 ± 0.007 |" in text
    assert "constrained beam search, for F1 0.5, 0.5." in text
    # F1 of 3 right of 4 or 5 said, 5 there: 6/9 and 6/10; 1 or 2 wrong.
    assert "| 0.63 (3.0, 1.5) |" in text
    assert "boat (5)" in text
