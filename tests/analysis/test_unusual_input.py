"""Analyses of what is rare and valid, such as ensembles and captions without words, and mistakes in arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from pycocotools.mask import encode

import caption
from caption.analysis import (
    Force,
    Mask,
    Move,
    agree,
    faithfulness_curves,
    force_everywhere,
    ground,
    interchange,
    intervene,
    permute,
)
from caption.analysis.ablation import Replaced
from caption.analysis.covered_cells import centres_inside
from caption.analysis.explorer import Explorer
from caption.analysis.study import Images, study
from caption.attention import Sparsemax
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.boxes import ObjectMask
from caption.models.ensemble import ensemble
from caption.text.vocabulary import SPECIAL_TOKENS

PHOTOS = [photo(seed=seed) for seed in range(3)]
GRADIENTS = ("gradient", "gradient-x-input", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++")


@pytest.fixture(scope="module")
def model() -> Captioner:
    return captioner()


@pytest.mark.parametrize("method", GRADIENTS)
def test_an_ensemble_of_one_has_the_gradients_of_its_member(method: str, model: Captioner):
    given = model.describe(PHOTOS[:1])
    alone, together = (caption.maps(one, PHOTOS[:1], given, method) for one in (model, ensemble([model])))
    np.testing.assert_allclose(together[0].weights, alone[0].weights, atol=1e-5)


@pytest.mark.parametrize("ablation", [None, Replaced()], ids=["removed", "replaced"])
def test_curves_of_an_ensemble(ablation: Any, model: Captioner):
    given = model.describe(PHOTOS[:1])
    alone, together, both = (
        faithfulness_curves(one, PHOTOS[:1], given, ablation=ablation)
        for one in (model, ensemble([model]), ensemble([model, captioner(alignment=Sparsemax())]))
    )
    for key, values in alone.log_probs.items():
        if key[1] != "random":
            np.testing.assert_allclose(together.log_probs[key], values, atol=1e-4)
        assert np.isfinite(both.log_probs[key]).all()


@pytest.mark.parametrize("measure", ["maps", "map differences", "map sanity", "map agreement"])
def test_a_caption_without_words_has_no_part_in_a_study_of_maps(
    measure: str, tmp_path: Path, model: Captioner, monkeypatch: pytest.MonkeyPatch
):
    paths = [str(tmp_path / f"{number}.png") for number in range(3)]
    for path, image in zip(paths, PHOTOS, strict=True):
        image.save(path)
    captions = model.describe(paths)
    silent = captioner()
    with torch.no_grad():
        silent.decoder.readout.to_words.bias[2] = 50.0
    captions[0] = silent.describe(paths[0])
    assert not captions[0].words
    monkeypatch.setattr(Captioner, "describe_each", lambda self, photos, *more, **options: iter(captions))
    table = study({"m": model}, Images(paths), [measure], ["attention", "mean", "gradient"]).tables[measure]
    assert table.missing or table.rows


def test_counts_may_be_an_iterator_for_any_batch_size_and_are_whole(model: Captioner):
    one, other = (
        faithfulness_curves(model, PHOTOS, counts=iter([1, 2]), batch_size=size) for size in (1, 32)
    )
    assert one.counts == other.counts
    with pytest.raises(TypeError):
        faithfulness_curves(model, PHOTOS, counts=[0.5])


def test_only_words_that_a_search_may_say_are_likeliest(model: Captioner):
    with torch.no_grad():
        unknowing = captioner()
        unknowing.decoder.readout.to_words.bias[: len(SPECIAL_TOKENS)] = 50.0
    words = {word for row in force_everywhere(unknowing, PHOTOS[0], at=0).words for word in row}
    assert words.isdisjoint({"<pad>", "<start>", "<unk>"})


def test_rounding_covers_no_cell():
    pixels = np.random.default_rng(1).random((427, 640)) < 0.001
    mask = ObjectMask.from_rle(encode(np.asfortranarray(pixels, dtype=np.uint8)))
    found = centres_inside(24, 24, (0, 0, 640, 427), [mask], tolerance=4.0)
    y, x = ((np.arange(24) + 0.5) * side / 24 for side in (427, 640))
    for row, col in zip(*np.nonzero(found), strict=True):
        top, bottom = (int(max(0, np.floor(y[row] + way))) for way in (-4, 4))
        left, right = (int(max(0, np.floor(x[col] + way))) for way in (-4, 4))
        assert pixels[top : bottom + 1, left : right + 1].any()


def test_agreement_prints_its_measures(model: Captioner):
    agreement = agree({"one": model, "other": captioner(alignment=Sparsemax())}, PHOTOS)["one", "other"]
    assert all(name in repr(agreement) for name in agreement.measures)


def test_one_caption_and_a_tuple_of_photos(model: Captioner):
    given = model.describe(PHOTOS[0])
    assert caption.maps(model, PHOTOS[0], given).words == given.words
    assert len(permute(model, PHOTOS[0], given, draws=1).words) == len(given.words)
    assert [one.words for one in caption.maps(model, tuple(PHOTOS))] == [
        one.words for one in model.describe(PHOTOS)
    ]


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "list of changes": (lambda m: intervene(m, PHOTOS[0], [Force((0, 0), at=0)]), UserError, "one by one"),
    "text": (lambda m: Explorer(m, PHOTOS[0]).apply("force"), UserError, "is no change"),
    "words": (lambda m: interchange(m, PHOTOS, "cat dog"), UserError, "not the text 'cat dog'"),
    "only": (lambda m: permute(m, PHOTOS, draws=1).only("cat"), UserError, "not the text 'cat'"),
    "texts": (lambda m: permute(m, PHOTOS, ["a cat"] * 3), UserError, "attend_references"),
    "draws": (lambda m: permute(m, PHOTOS, draws=0), UserError, "0 times"),
    "move": (lambda m: intervene(m, PHOTOS[0], Move(right=1.5)), ValueError, "whole rows and columns, not by 0"),
    "steps": (lambda m: intervene(m, PHOTOS[0], Mask((0, 0), at=[[0], [1, 2]])), ValueError, "step"),
    "boxes": (lambda m: ground(m.describe(PHOTOS)), UserError, "with its boxes"),
    "tolerance": (lambda m: ground([(m.describe(PHOTOS[0]), {})], tolerance=-3), ValueError, "0 or more"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str, model: Captioner):
    call, kind, said = MISTAKES[name]
    with pytest.raises(kind, match=said):
        call(model)
