"""The lens: the classifier of an encoder on averages that attention takes."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner as tiny_captioner
from helpers.tiny_lens import hand_lens
from torch import nn

import caption
from caption.analysis.lens import Calibration, Lens, lens_of, make_lens, read_weights
from caption.analysis.lens.calibration import Reliability, fit, read_photo
from caption.analysis.lens.file import read_lens, save_lens
from caption.captioner import Captioner
from caption.core.errors import CheckpointError, UserError
from caption.core.regions import Regions, Views
from caption.encoders import EfficientNetLite, TorchvisionEncoder
from caption.encoders.classifier import Classifier, classifier_of
from caption.encoders.efficientnet_lite import efficientnet_lite
from caption.models.checkpoint.format import read_safetensors, to_safetensors
from caption.results.caption import AttentionMaps, Caption
from caption.results.lens_reading import LensReading, Seen
from caption.text.english import plural
from caption.text.nouns import GENERAL, Nouns, imagenet_nouns

DOG, SAX = 207, 776


NOUNS = Nouns(
    [("tabby", "cat"), ("Irish terrier", "terrier"), ("sax", "saxophone"), ("cup", "cup")],
    [("animal", "", []), ("cat", "animal", ["kitten"]), ("dog", "animal", []), ("terrier", "dog", []),
     ("saxophone", "", ["sax"]), ("cup", "", [])],
)  # fmt: skip
REGIONS = Regions(torch.eye(4)[None], (2, 2))
"""Four, in each of which another class is seen."""


def lens_of_four(calibration: Calibration | None = None) -> Lens:
    """Regions of four numbers, one for each class."""
    return hand_lens(NOUNS, 8 * torch.eye(4), calibration, bias=0.1)


def caption_of(words: list[str], weights: np.ndarray, **more: object) -> Caption:
    return Caption(" ".join(words), words, weights, -1.0, np.zeros(len(words)), (0, 0, 8, 8), **more)  # type: ignore[arg-type]


def test_logits_are_those_of_the_weighted_average() -> None:
    lens = lens_of_four()
    generator = torch.Generator().manual_seed(0)
    vectors, weights = torch.rand(2, 6, 4, generator=generator), torch.rand(2, 3, 6, generator=generator)
    found = lens.classes(Regions(vectors, (2, 3)), weights.view(2, 3, 2, 3))
    context = (weights / weights.sum(-1, keepdim=True)) @ vectors
    torch.testing.assert_close(found, (8 * context + 0.1 * torch.arange(4)).softmax(-1))
    masked = REGIONS._replace(mask=torch.tensor([[True, False, False, False]]))
    assert lens.logits(masked)[0, 0].tolist() == pytest.approx([8, 0.1, 0.2, 0.3])
    for wrong, message in ((torch.ones(1, 1, 3, 3), "3x3 regions"), (-torch.ones(1, 1, 2, 2), "negative")):
        with pytest.raises(UserError, match=message):
            lens.logits(REGIONS, wrong)


def test_a_map_of_a_noun_is_the_softmax_at_each_region() -> None:
    for thing in ("dog", "Irish terrier", "terriers"):
        assert lens_of_four().map_of(REGIONS, thing)[0].argmax() == 1
    with pytest.raises(UserError, match="does not know 'zebra'"):
        lens_of_four().map_of(REGIONS, "zebra")


def test_a_chosen_region_is_what_hard_attention_reads() -> None:
    weights = np.full((1, 2, 2), 0.25)
    chosen = caption_of(["dog"], weights, maps=AttentionMaps(locations=np.array([[1, 0]])))
    assert read_weights(chosen).tolist() == [[[0, 0], [1, 0]]]
    assert read_weights(caption_of(["dog"], weights)).tolist() == weights.tolist()


def test_a_reading_names_things_by_word() -> None:
    weights = np.eye(4)[[1, 2]].reshape(2, 2, 2)
    (reading,) = lens_of_four().read((REGIONS,), [caption_of(["dog", "guitar"], weights)])
    assert [things[0].noun for things in reading.words] == ["terrier", "saxophone"]
    assert reading.classes[1][0][0] == "sax"
    assert not reading.calibrated
    assert json.loads(json.dumps(reading.to_dict()))["words"][1][0][0] == "saxophone"


def test_a_photo_shows_what_is_sure_in_a_region_by_the_calibration() -> None:
    regions = [[Seen("cat", 0.94), Seen("dog", 0.96)], [Seen("cup", 0.97), Seen("dog", 0.99)]]
    assert LensReading([], [], [], regions=regions).things == [("dog", 0.99), ("cup", 0.97)]
    assert LensReading([], [], [], regions=regions, calibrated=False).things == []


def test_a_sharp_photo_is_unlike_only_if_its_small_copy_is_too() -> None:
    """This encoder sees something else in each pixel that differs from its neighbour, as in photos with more detail."""
    near, far = torch.eye(4)[:1], torch.eye(4)[1:2]
    known = Calibration((1.0,) * 5, known=(255 * near).byte(), neighbours=1, farthest=0.5, detail=8)
    lens, model = lens_of_four(known), tiny_captioner()
    lens.captioner = model
    regions = {name: Regions(vectors[:, None], (1, 1)) for name, vectors in (("near", near), ("far", far))}
    differences = []

    def encoder(images: torch.Tensor) -> Views:
        differences.append(float(images.float().diff(dim=-1).abs().mean()))
        return (regions["far" if differences[-1] > 20 else "near"],)

    model.encoder.forward = encoder  # type: ignore[method-assign]
    sharp, coarse = (noise(size) for size in (32, 2))
    assert lens.out_of_distribution(regions["far"])
    assert not lens.out_of_distribution(regions["far"], sharp)
    assert not lens.out_of_distribution(regions["near"], coarse)
    assert len(differences) == 1, "a photo that is like them is not encoded again"
    lens.calibration = replace(known, detail=32)
    assert lens.out_of_distribution(regions["far"], sharp), "they are as sharp"
    lens.captioner = None
    assert lens.out_of_distribution(regions["far"], sharp), "there is no copy"


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)


def test_sure_of_another_thing_is_a_doubt() -> None:
    calibration = Calibration((1.0, 0.0, 0.0, 0.0, 0.0), doubtful={"dog": 0.2}, companions={"dog": ["cup"]})
    lens = lens_of_four(calibration)

    def doubts(word: str, region: int) -> list[str]:
        weights = np.eye(4)[region].reshape(1, 2, 2)
        return [str(doubt) for doubt in lens.read((REGIONS,), [caption_of([word], weights)])[0].doubts]

    assert doubts("dog", 0) == ["sees cat where the caption says dog"]
    assert doubts("dog", 1) == []  # a terrier is a dog
    assert doubts("dog", 3) == []  # dogs are seen beside cups
    assert doubts("cup", 0) == []  # of which nothing is known
    assert doubts("the", 0) == []


def probabilities_of_a_cat(calibration: Calibration, context: list[float], *entropies: float) -> list[float]:
    lens, contexts = lens_of_four(), torch.tensor([context] * len(entropies))
    found = calibration.probabilities(contexts, torch.tensor(entropies), lens.membership)
    return found[:, lens.places["cat"]].tolist()


def test_a_calibration_makes_sharp_maps_less_sure() -> None:
    """Sharp maps read nouns that nobody names, even maps those that people name."""
    lens, generator = lens_of_four(), np.random.default_rng(0)
    readings = []
    for _ in range(60):
        sharp, kind = generator.random() < 0.5, int(generator.integers(4))
        named = kind if not sharp or generator.random() < 0.3 else (kind + 1) % 4
        weights = np.eye(4)[kind].reshape(1, 2, 2) * (1 if sharp else 0.6) + (0 if sharp else 0.1)
        spoken = ["cat", "terrier", "saxophone", "cup"][named]
        readings.append(read_photo(lens, REGIONS, caption_of(["a"], weights), [f"a {spoken}"]))
    found = fit(lens, readings)
    # Sharper maps are read as single regions.
    sharp, even = probabilities_of_a_cat(found, [8.0, 0, 0, 0], 0.05, 0.9)
    assert sharp < 0.6 < even
    assert (found.photos, found.detail) == (60, 8)
    assert found.known is not None
    assert found.known.dtype == torch.uint8
    for number in (0, 3):
        with pytest.raises(UserError, match=f"{number} photos.*20"):
            fit(lens, readings[:number])


def test_maps_sharper_than_those_of_the_fit_are_read_as_single_regions() -> None:
    calibration = Calibration((-1.0, 0.0, 3.0, 0.0, 0.0), of_regions=(2.0, 0.5, -1.0), sharpest=0.4)
    x = float(torch.logit(torch.tensor([2.0, 0, 0, 0]).softmax(-1)[0]))
    sharp, even = probabilities_of_a_cat(calibration, [2.0, 0, 0, 0], 0.39, 0.41)
    assert sharp == pytest.approx(1 / (1 + np.exp(-(2 * x + 0.5 * np.log(0.25 / 0.75) - 1))), abs=1e-5)
    assert even == pytest.approx(1 / (1 + np.exp(-(-x + 3 * x * 0.41))), abs=1e-5)


def test_single_regions_are_calibrated_by_what_people_name() -> None:
    """Photos of cats and of cups all over; in three of four, people name what is there, else the other thing."""
    lens = lens_of_four()
    kinds, spoken, photos = (0, 3), ("a cat", "a cup"), []
    for number in range(80):
        kind, right = number % 2, number // 2 % 4 > 0
        regions = Regions(torch.eye(4)[kinds[kind]].repeat(1, 4, 1), (2, 2))
        caption = caption_of(["a"], np.full((1, 2, 2), 0.25))
        photos.append(read_photo(lens, regions, caption, [spoken[kind if right else 1 - kind]]))
    found = fit(lens, photos)
    assert found.sharpest == pytest.approx(1)
    alone = lens_of_four(found).regions_alone(REGIONS)
    assert [[seen.noun for seen in row] for row in alone] == [["cat", "terrier"], ["saxophone", "cup"]]
    assert alone[0][0].probability == pytest.approx(0.75, abs=0.03)
    assert alone[1][1].probability == pytest.approx(0.75, abs=0.03)


def test_reliability_against_sums_by_hand() -> None:
    found = Reliability(
        np.array([0.95, 0.95, 0.15, 0.15, 0.15]), np.array([True, False, False, False, False])
    )
    assert found.error == pytest.approx((2 * 0.45 + 3 * 0.15) / 5)
    assert found.nll == pytest.approx(-(np.log(0.95) + np.log(0.05) + 3 * np.log(0.85)) / 5)


# -- the encoders' classifiers --------


def saved_weights(state: dict[str, torch.Tensor], path) -> str:
    torch.save(state, path)
    return str(path)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory):
    """Gives a model and the encoder with its weights, by name; made once."""
    return cache(lambda kind: encoder_with_weights(kind, tmp_path_factory.mktemp(kind)))


def encoder_with_weights(kind: str, folder):
    torch.manual_seed(0)
    if kind == "efficientnet_lite0":
        model, make = efficientnet_lite(kind), partial(EfficientNetLite, kind)
    elif kind == "timm":
        timm = pytest.importorskip("timm")
        from caption.encoders import TimmEncoder

        name = "test_vit2.r160_in1k"
        model, make = timm.create_model(name), partial(TimmEncoder, name)
    else:
        from torchvision import models

        layer = {"resnet18": "layer4", "mobilenet_v3_small": "features"}[kind]
        model, make = models.get_model(kind), partial(TorchvisionEncoder, kind, layer)
    for module in model.eval().modules():
        if isinstance(
            module, nn.BatchNorm2d
        ):  # other statistics than a new model's, so that its place matters
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2)
    encoder = make(weights=saved_weights(model.state_dict(), folder / "w.pth"))
    encoder.load_pretrained()
    return model, encoder.eval()


@pytest.mark.parametrize("kind", ["efficientnet_lite0", "resnet18", "timm"])
def test_even_weights_give_the_plain_classifier(kind: str, pretrained) -> None:
    model, encoder = pretrained(kind)
    size = 160 if kind == "timm" else 96
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    lens = Lens(classifier_of(encoder, size, size))
    with torch.no_grad():
        (regions,) = encoder(images)
        expected = model(encoder.normalise(images))
    even = torch.full((2, 1, regions.vectors.shape[1]), 1 / regions.vectors.shape[1])
    torch.testing.assert_close(lens.logits(regions, even)[:, 0], expected, rtol=1e-3, atol=2e-4)
    torch.testing.assert_close(lens.logits(regions)[:, 0], expected, rtol=1e-3, atol=2e-4)


def test_classifiers_of_other_averages_and_none_are_refused(pretrained, tmp_path) -> None:
    model, encoder = pretrained("resnet18")
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("fc")}
    without = deepcopy(encoder)
    without.weights = saved_weights(state, tmp_path / "w.pth")
    with pytest.raises(UserError, match="have no classifier of resnet18"):
        classifier_of(without, 64, 64)
    _, encoder = encoder_with_weights("mobilenet_v3_small", tmp_path)  # has a hidden layer behind its average
    with pytest.raises(UserError, match="does not read the average"):
        classifier_of(encoder, 64, 64)
    with pytest.raises(UserError, match="SmallCNN"):
        make_lens(tiny_captioner())


def test_a_fine_tuned_encoder_and_another_scale_are_refused(pretrained) -> None:
    encoder = deepcopy(pretrained("efficientnet_lite0")[1])
    other = EfficientNetLite("efficientnet_lite0", weights=encoder.weights, mean=(0.485, 0.456, 0.406))
    other.load_pretrained()
    with pytest.raises(UserError, match=r"\[0.485, 0.456, 0.406\]"):
        classifier_of(other, 64, 64)
    with torch.no_grad():
        next(encoder.trunk.parameters()).mul_(1.1)
    with pytest.raises(UserError, match="was fine-tuned"):
        classifier_of(encoder, 64, 64)


# -- the installed lens --------


@pytest.fixture(scope="module")
def with_lens() -> Captioner:
    """The model for photos; tests must not change it."""
    return caption.load("photos", lens=True)


def test_the_installed_lens_reads_a_photo_and_marks_one_that_is_unlike(with_lens: Captioner) -> None:
    result = with_lens(noise(64))
    assert result.lens is not None
    assert result.lens.out_of_distribution
    assert len(result.lens.words) == len(result.words)
    assert all(0 <= p <= 1 for things in result.lens.words for _, p in things)
    assert result.to_dict()["lens"]["out_of_distribution"] is True
    assert result.with_weights(result.weights).lens is None
    assert caption.load("photos").lens is None


def test_a_lens_is_stored_and_refuses_another_encoder(with_lens: Captioner, tmp_path) -> None:
    lens, path = lens_of(with_lens), tmp_path / "copy.lens"
    assert isinstance(lens, Lens)
    save_lens(lens, with_lens, path)
    again = read_lens(path, with_lens)
    assert torch.equal(again.classifier.linear.weight, lens.classifier.linear.weight)
    assert again.calibration is not None
    assert lens.calibration is not None
    assert again.calibration.doubtful == lens.calibration.doubtful
    with pytest.raises(UserError, match="for another encoder"):
        read_lens(path, tiny_captioner())
    tuned = deepcopy(with_lens)
    with torch.no_grad():
        next(tuned.encoder.trunk.parameters()).mul_(1.1)
    with pytest.raises(UserError, match="fine-tuned"):
        read_lens(path, tuned)
    whole = path.read_bytes()
    damaged = [whole[:-7]]
    for place in (len(whole) // 2, len(whole) // 3, whole.index(b"fingerprint") + 20):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged, or not a lens"):
            read_lens(path, with_lens)


def test_a_lens_for_regions_of_another_size_is_refused(tmp_path) -> None:
    path = tmp_path / "x.lens"
    save_lens(Lens(Classifier(nn.Linear(5, 1000)), None, Calibration((1.0,) * 5)), tiny_captioner(), path)
    with pytest.raises(CheckpointError, match="regions of another size: make one"):
        read_lens(path, tiny_captioner())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fingerprint": [math.nan] * 4}, "damaged, or not a lens"),
        ({"calibration": {"of_words": ["nan"] * 5}}, "damaged, or not a lens"),
        ({"fingerprint": []}, "other weights"),
        ({"calibration": {"neighbours": -1}}, "damaged, or not a lens"),
        ({"norm_eps": 1e-5}, "damaged, or not a lens"),
    ],
    ids=str,
)
def test_a_lens_with_checksums_that_says_something_else(change: dict, said: str, tmp_path) -> None:
    """As a stranger may write one."""
    captioner, path = tiny_captioner(), tmp_path / "x.lens"
    save_lens(Lens(Classifier(nn.Linear(6, 1000)), None, Calibration((1.0,) * 5)), captioner, path)
    header, tensors = read_safetensors(path, "lens")
    read_lens(path, captioner)
    if "calibration" in change:
        change = {"calibration": header["calibration"] | change["calibration"]}
    path.write_bytes(to_safetensors({**tensors, "known": torch.ones(3, 6)}, header | change, "lens"))
    with pytest.raises(UserError, match=said):
        read_lens(path, captioner)


# -- the table of nouns --------


def test_the_table_of_nouns_is_whole() -> None:
    table = imagenet_nouns()
    assert len(table.class_names) == 1000
    assert set(table.class_nouns) <= set(table.names)
    assert set(table.names) >= GENERAL
    assert table.chain(table.class_nouns[184]) == ["terrier", "dog", "mammal", "animal"]
    assert table.class_nouns[SAX] == "saxophone"
    assert table.class_nouns[DOG] == "golden retriever"
    kept = set(table.class_nouns) | {general for noun in table.class_nouns for general in table.chain(noun)}
    assert set(table.names) == kept


def test_plurals() -> None:
    for many in ("dogs", "hot dogs", "toys"):
        assert plural(many.removesuffix("s")) == many
    irregular = {"bus": "buses", "puppy": "puppies", "knife": "knives", "sheep": "sheep", "jeans": "jeans",
                 "fireman": "firemen", "trolleybus": "trolleybuses"}  # fmt: skip
    assert {one: plural(one) for one in irregular} == irregular


def test_what_captions_name() -> None:
    nouns = imagenet_nouns()
    mentioned = nouns.mentioned_in(["Two men ride their bikes.", "A terrier with a hot dog"])
    assert {"bicycle", "person", "terrier", "dog", "hot dog"} <= mentioned
    assert not {"cat", "retriever", "motorcycle"} & mentioned
    assert nouns.mentioned_in(["a dog with a ball"]) >= {"terrier", "soccer ball"}
    assert nouns.forms["bicycle"] == [("bicycle", "bicycles"), ("bike", "bikes")]
