"""All that draws, forces and doubts works on a foreign model; what cannot, says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
from helpers.tiny_foreign import blip, pix2struct, save, vit_gpt2

import caption
from caption.analysis import (
    adversarial_maps,
    agree,
    faithfulness_curves,
    head_roles,
    interchange,
    mean_regions,
    permute,
)
from caption.analysis.ablation import Removed, Replaced
from caption.analysis.explorer.explorer import Explorer
from caption.analysis.explorer.service import Service
from caption.analysis.faithfulness.curves import ORDERS
from caption.analysis.interventions import Erase, Mask, Move, force_everywhere, intervene
from caption.analysis.lens.file import attach_lens
from caption.analysis.posterior_attention import posterior
from caption.analysis.pruned_heads import head_pruning
from caption.analysis.reference_attention import attend_references
from caption.analysis.replay import words_alone
from caption.analysis.study import Images, study
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.features.key import feature_key
from caption.data.photo_boxes import BoxedPhoto
from caption.models import checkpoint
from caption.models.export.programs import programs
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.search import GenerateBeam
from caption.results.caption import Caption


class Material(NamedTuple):
    captioner: Captioner
    other: Captioner
    photos: list[str]
    captions: list[Caption]
    folder: Path


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("foreign")
    random = np.random.default_rng(1)
    photos = [str(folder / f"{number}.png") for number in range(2)]
    for photo in photos:
        Image.fromarray(random.integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(photo)
    captioner = caption.load(f"transformers:{save(vit_gpt2(decoder='bert'), folder / 'model')}")
    captioner.search = GenerateBeam(1, 3)
    other = from_transformers(*blip())
    other.search = GenerateBeam(1, 3)
    return Material(captioner, other, photos, captioner.describe(photos), folder)


def boxed(given: Material) -> list[BoxedPhoto]:
    """One box around the left half, of what the model names."""
    objects = [{caption.words[0]: [(0.0, 0.0, 30.0, 40.0)]} for caption in given.captions]
    return [BoxedPhoto(Path(photo), boxes, {}) for photo, boxes in zip(given.photos, objects, strict=True)]


VERBS: dict[str, Callable[[Material], Any]] = {
    "a head's figure": lambda g: g.captions[0].plot(map="layer 1 heads", index=1, words=1),
    "page with the beam": lambda g: g.captioner.describe(
        g.photos[0], beam_size=3, candidates=2, beam_tree=True
    ).to_html(),
    "move": lambda g: intervene(g.captioner, g.photos[0], Move(right=1, at=0)),
    "mask": lambda g: intervene(g.captioner, g.photos[0], Mask((0, 0, 30, 40))),
    "force everywhere": lambda g: force_everywhere(g.captioner, g.photos[0], at=0),
    "explore": lambda g: (
        Explorer(g.captioner, g.photos[0]).force((1, 2), at=0).mask((0, 0)).erase((3, 3)).undo().to_html()
    ),
    "serve": lambda g: Service({"a": g.captioner, "b": g.other}).add(Path(g.photos[0]).read_bytes(), "0.png"),
    "deletion and insertion": lambda g: faithfulness_curves(
        g.captioner, g.photos, g.captions, ORDERS, Removed()
    ),
    "deletion by replacement": lambda g: faithfulness_curves(
        g.captioner, g.photos, g.captions, ORDERS, Replaced(mean_regions(g.captioner, g.photos))
    ),
    "permutation": lambda g: permute(g.captioner, g.photos, g.captions),
    "interchange": lambda g: interchange(
        g.captioner, g.photos[0], {"red", "circle"}, [words_alone(["a", "red", "circle"])]
    ),
    "adversary": lambda g: adversarial_maps(g.captioner, g.photos[:1], g.captions[:1], steps=5, starts=1),
    "posterior": lambda g: posterior(g.captioner, g.photos, g.captions),
    "head roles": lambda g: head_roles(g.captions, "layer 0 heads").table(),
    "head pruning": lambda g: head_pruning(g.captioner, g.photos, g.captions),
    "references": lambda g: attend_references(g.captioner, g.photos, [["a red circle"], ["gi giraffes."]]),
    "agreement": lambda g: agree({"one": g.captioner, "other": g.other}, g.photos)["one", "other"],
    "analyse": lambda g: study({"foreign": g.captioner, "other": g.other}, Images(g.photos, boxed(g))),
}


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.slow if verb == "analyse" else ()) for verb in VERBS]
)
def test_a_foreign_model_can_be_doubted_as_any_other(verb: str, given: Material) -> None:
    assert VERBS[verb](given)


CANNOT: dict[str, Callable[[Material], Any]] = {
    "checkpoint": lambda g: checkpoint.save(g.captioner, g.folder / "a.safetensors"),
    "export": lambda g: programs(g.captioner),
    "features": lambda g: feature_key(g.captioner.encoder, {}),
    "objectives": lambda g: g.captioner.unroll(
        g.captioner.encode(g.photos), torch.full((2, 1, 1), 1), torch.ones(2, 1)
    ),
    "lens": lambda g: attach_lens(g.captioner, g.folder / "a.lens"),
}


@pytest.mark.parametrize("verb", CANNOT)
def test_what_a_foreign_model_cannot_is_said(verb: str, given: Material) -> None:
    with pytest.raises(UserError, match=r"other people's code|no classifier"):
        CANNOT[verb](given)


def test_words_of_references_are_joined_from_their_pieces(given: Material) -> None:
    _, second = attend_references(given.captioner, given.photos, [["a red circle"], ["gi giraffes."]])
    assert second.words == ["gi", "giraffes", "."]
    assert second.stepwise.words == ["gi", "gi", "##raf", "##fe", "##s", "."]
    assert second.text == "gi giraffes."


def test_an_erased_place_is_attended_to_by_nothing(given: Material) -> None:
    result = intervene(given.captioner, given.photos[0], Erase((1, 2)))
    for maps in result.changed.maps.values():
        assert (maps[..., 1, 2] == 0).all()
    assert (result.original.maps["layer 0 heads"][..., 1, 2] > 0).all()


def test_a_study_takes_photos_of_several_proportions(tmp_path: Path) -> None:
    """Only what counts regions, or exchanges the maps of photos, is left out."""
    model = from_transformers(*pix2struct())
    photos = [tmp_path / f"{seed}.png" for seed in range(3)]
    for seed, (path, size) in enumerate(zip(photos, [(40, 60, 3), (90, 40, 3), (40, 60, 3)], strict=True)):
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, size, np.uint8)).save(path)
    boxed = [BoxedPhoto(path, {"square": [(2, 2, 30, 30)]}, {}) for path in photos]
    references = {str(path): ["a red square"] for path in photos}
    images = Images([str(path) for path in photos], boxed, references)
    tables = study({"tiny": model}, images, ["grounding", "faithfulness", "permutation"]).tables
    maps = [row[1] for row in tables["grounding"].rows]
    assert {"own maps", "posterior maps", "another word", "middle cell"} <= set(maps)
    assert not {"another image", "mean map"} & set(maps)
    assert "no mean map" in tables["grounding"].notes[0]
    assert "several sizes in tiny: give photos of one size" in tables["faithfulness"].missing
    assert len(tables["permutation"].rows) == 4
    alike = Images([str(photos[0]), str(photos[2])])
    assert study({"tiny": model}, alike, ["faithfulness"]).tables["faithfulness"].rows


def test_maps_are_weighed_piece_by_piece(tmp_path: Path) -> None:
    """A word of several pieces has several steps; methods that draw its maps need not know."""
    model = from_transformers(*vit_gpt2(decoder="bert"))
    photos = [str(tmp_path / f"{seed}.png") for seed in range(2)]
    for seed, path in enumerate(photos):
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    captions = model.describe(photos)
    assert any(len(each.stepwise.words) > len(each.words) for each in captions)
    methods = ["attention", "rollout", "middle", "gradcam", "layer 0 heads[1]"]
    result = study({"tiny": model}, Images(photos), ["maps"], methods)
    assert [row[1] for row in result.tables["maps"].rows] == methods
    for method, drawn in result.subjects[0].drawn.items():
        lengths = [len(each.stepwise.weights) for each in drawn.captions]
        assert lengths == [len(each.stepwise.words) for each in captions], method
