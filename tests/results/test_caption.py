"""A result holds its words, weights and box in the photo, validates them, and can be saved."""

import inspect
import json
import pickle

import numpy as np
import pytest

from caption.core.regions import WeightProperties
from caption.results.caption import AttentionMaps, Caption, map_label
from caption.visualize.figure import plot_caption
from caption.visualize.styles import OverlayStyle
from caption.visualize.tiles import TileOptions


def dog(**changes):
    fields = {
        "text": "a dog runs.",
        "words": ["a", "dog", "runs"],
        "weights": np.full((3, 2, 5), 0.1),
        "log_prob": -4.5,
        "word_log_probs": [-1.0, -2.0, -1.0],
        "box": (0, -10, 100, 60),
    }
    return Caption(**{**fields, **changes})


def test_values_are_converted_and_copied():
    weights = np.full((3, 2, 5), 0.1)
    caption = dog(weights=weights, gates=[0, 0.5, 1], maps=AttentionMaps(locations=[[0, 0], [1, 4], [0, 2]]))
    weights[:] = 7
    assert (caption.weights.dtype, caption.weights.max()) == (np.float32, np.float32(0.1))
    assert caption.gates.tolist() == [0, 0.5, 1]
    assert caption.maps.locations.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": np.zeros((2, 2, 5))}, "weights must be .* 3 words, not"),
        ({"weights": np.zeros((3, 10))}, "weights must be"),
        ({"weights": np.zeros((3, 0, 5))}, "weights must be"),
        ({"weights": np.full((3, 2, 5), np.nan)}, "finite"),
        ({"word_log_probs": [-1.0]}, "word_log_probs must hold"),
        ({"gates": [0.5, 0.5]}, "gates must hold"),
        ({"box": (0, 0, 10)}, "box must be"),
        ({"box": (10, 0, 0, 10)}, "left < right"),
        ({"box": (0, 0, float("nan"), 10)}, "left < right"),
        ({"maps": AttentionMaps(locations=[[0, 0], [1, 1]])}, "locations must hold 2 numbers"),
        ({"maps": AttentionMaps(locations=[[0, 0], [1, 1], [2, 0]])}, "must lie in the grid of 2 rows and"),
        ({"weights": np.zeros((3, 4, 2, 5))}, "weights must be"),
        ({"maps": AttentionMaps({"heads": np.zeros((2, 4, 2, 5))})}, "map 'heads' must be .* 3 words, not"),
        ({"maps": AttentionMaps({"heads": np.zeros((3, 5))})}, "map 'heads' must be"),
        ({"maps": AttentionMaps({"heads": np.full((3, 4, 2, 5), np.inf)})}, "map 'heads' must be finite"),
        ({"maps": AttentionMaps(points=[[0, 0], [1, 1]])}, "points must hold 2 numbers"),
        ({"maps": AttentionMaps(points=[[0, 0], [1, 1], [2, np.nan]])}, "points must be finite"),
    ],
)
def test_inconsistent_values_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        dog(**changes)


def test_the_dictionary_is_plain_json():
    maps = AttentionMaps({"heads": np.zeros((3, 4, 1, 2))}, locations=[[0, 0], [1, 4], [0, 2]],
                         points=[[0.5, 1], [2, 3], [4, 5]])  # fmt: skip
    other = dog(text="a cat", log_prob=-np.inf)
    caption = dog(
        gates=[0.25, 0.5, 1], maps=maps, properties=WeightProperties(signed=True), alternatives=[other]
    )
    record = json.loads(json.dumps(caption.to_dict(), allow_nan=False))
    assert record == {
        "text": "a dog runs.",
        "words": ["a", "dog", "runs"],
        "log_prob": -4.5,
        "word_log_probs": [-1.0, -2.0, -1.0],
        "gates": [0.25, 0.5, 1.0],
        "finished": True,
        "box": [0.0, -10.0, 100.0, 60.0],
        "seen": [0.0, -10.0, 100.0, 60.0],
        "grid": [2, 5],
        "locations": [[0, 0], [1, 4], [0, 2]],
        "maps": {"heads": [3, 4, 1, 2]},
        "points": [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]],
        "properties": {"sums_to_one": True, "signed": True, "sentinel": False},
        "alternatives": [other.to_dict()],
        "map_boxes": {},
        "lens": None,
        "likeliest": None,
    }
    without = record["alternatives"][0]
    assert [without[name] for name in ("log_prob", "gates", "points", "maps")] == [None, None, None, {}]


def heads(points=None, boxes=(), **changes):
    """A caption with three heads on its own grid, two channels of two scales, and one coarser level."""
    maps = {
        "heads": np.random.default_rng(0).dirichlet(np.ones(10), (3, 3)).reshape(3, 3, 2, 5),
        "channels": np.arange(3 * 4 * 6.0).reshape(3, 2, 2, 2, 3),
        "level 1": np.full((3, 1, 2), 0.25),
    }
    places = [[0, 0], [1, 4], [0, 2]]
    return dog(maps=AttentionMaps(maps, dict(boxes), places, points), **changes)


@pytest.mark.parametrize("name", ["dog.npz", "dog.attention"])
def test_saved_attention_loads_without_pickle_under_the_name_given(tmp_path, name):
    words = ["ein", "größerer", "狗"]
    plain, full = dog(words=words, gates=[0.25, 0.5, 1]), heads(points=[[1, 2], [3, 4], [5, 6]])
    for caption in (plain, full):
        caption.save_attention(tmp_path / name)
        with np.load(tmp_path / name, allow_pickle=False) as file:
            saved = dict(file)
        maps = {f"map_{name}": array for name, array in caption.maps.items()}
        assert set(saved) == {"box", "gates", "weights", "words", *maps, *(["points"] if maps else [])}
        assert saved["words"].tolist() == caption.words
        assert saved["box"].tolist() == [0, -10, 100, 60]
        for name_of_array, array in {"weights": caption.weights, **maps}.items():
            np.testing.assert_array_equal(saved[name_of_array], array)
        # NaN of a model without a gate.
        np.testing.assert_array_equal(saved["gates"], [0.25, 0.5, 1] if caption is plain else [np.nan] * 3)
    assert saved["points"].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_pickle_keeps_everything():
    caption = heads(points=[[1, 2], [3, 4], [5, 6]], properties=WeightProperties(sentinel=True))
    again = pickle.loads(pickle.dumps(caption))
    assert again.to_dict() == caption.to_dict()
    np.testing.assert_array_equal(again.maps["heads"], caption.maps["heads"])
    assert again.properties == WeightProperties(True, False, True)


def test_one_map_becomes_the_weights():
    caption = heads(alternatives=[dog()], properties=WeightProperties(sentinel=True))
    head = caption.with_map("heads", 2)
    np.testing.assert_array_equal(head.weights, caption.maps["heads"][:, 2])
    assert (head.words, head.log_prob, dict(head.maps), head.alternatives) == (caption.words, -4.5, {}, [])
    assert head.maps.locations.tolist() == caption.maps.locations.tolist()
    assert head.properties == WeightProperties(sums_to_one=True, sentinel=False)
    channel = caption.with_map("channels", (1, 0))
    np.testing.assert_array_equal(channel.weights, caption.maps["channels"][:, 1, 0])
    assert channel.maps.locations is None
    assert not channel.properties.sums_to_one
    assert caption.with_map("level 1").weights.shape == (3, 1, 2)


def test_other_weights_come_without_what_belongs_to_the_captions_own():
    points = [[1, 2], [3, 4], [5, 6]]
    caption = heads(points=points, boxes={"heads": (0, 0, 1, 1)}, alternatives=[dog()])
    other = caption.with_weights(np.full((3, 2, 5), 0.2), WeightProperties(sums_to_one=False))
    assert (other.weights == np.float32(0.2)).all()
    assert not other.properties.sums_to_one
    assert (dict(other.maps), other.maps.boxes, other.alternatives) == ({}, {}, [])
    assert other.maps.locations is other.maps.points is None
    assert (other.words, other.box) == (caption.words, caption.box)
    assert caption.with_weights(caption.weights).properties == caption.properties


def test_all_single_maps_by_their_labels():
    caption = heads()
    channels = [f"channels[{row}, {col}]" for row in range(2) for col in range(2)]
    assert list(caption.single_maps()) == ["heads[0]", "heads[1]", "heads[2]", *channels, "level 1"]
    assert list(caption.single_maps("level 1")) == ["level 1"]
    second = caption.single_maps("heads")["heads[1]"]
    np.testing.assert_array_equal(second.weights, caption.maps["heads"][:, 1])
    assert map_label("heads", (1,)) == map_label("heads", 1) == "heads[1]"
    assert dog().single_maps() == {}


@pytest.mark.parametrize(
    ("name", "index", "said"),
    [
        ("hops", 0, "no map 'hops': it has heads, channels, level 1"),
        ("heads", None, "map 'heads' has no index None: give an index below"),
        ("heads", 3, "no index 3"),
        ("heads", -1, "no index -1"),
        ("channels", 1, "no index 1: give an index below .2, 2."),
        ("level 1", 0, "no index 0: give an index None"),
    ],
)
def test_a_map_that_is_not_there_is_named(name, index, said):
    with pytest.raises(ValueError, match=said):
        heads().with_map(name, index)


def test_the_sentinel_has_the_remaining_weight():
    weights = np.zeros((3, 2, 5))
    weights[1, 0, 0], weights[2, 1] = 0.25, 0.2
    shares = dog(weights=weights, properties=(True, False, True)).sentinel_shares
    np.testing.assert_allclose(shares, [1, 0.75, 0], atol=1e-6)
    assert dog().sentinel_shares is None


def test_only_plain_weights_are_a_distribution():
    assert WeightProperties().is_distribution
    for other in ({"sums_to_one": False}, {"signed": True}, {"sentinel": True}):
        assert not WeightProperties(**other).is_distribution


def test_an_empty_caption_is_a_caption(tmp_path):
    maps = AttentionMaps(locations=[])
    empty = Caption("", [], np.zeros((0, 7, 7)), -0.1, [], (0, 0, 9, 9), gates=[], maps=maps)
    assert empty.to_dict()["locations"] == []
    empty.save_attention(tmp_path / "empty.npz")
    with np.load(tmp_path / "empty.npz", allow_pickle=False) as saved:
        assert (saved["words"].shape, saved["weights"].shape) == ((0,), (0, 7, 7))


def test_plot_has_all_options_in_its_signature():
    own = inspect.signature(Caption.plot).parameters
    drawn = inspect.signature(plot_caption).parameters
    options = {name for name, parameter in own.items() if parameter.kind is parameter.KEYWORD_ONLY}
    assert options == {*drawn, *TileOptions.__annotations__} - {"caption", "image", "options"} | {"ax"}
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values())
    assert {name: own[name].default for name in OverlayStyle._fields} == OverlayStyle()._asdict()
