"""A result carries its words, weights and place in the photo, checks them, and can be written down."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from caption.errors import UserError
from caption.result import Caption, OutputError


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


def test_the_sentence_is_its_string():
    assert str(dog()) == "a dog runs."
    assert repr(dog(finished=False)) == "Caption('a dog runs.', 3 words on 2x5, log p -4.50, unfinished)"


def test_values_are_converted_and_copied():
    weights = np.full((3, 2, 5), 0.1)
    caption = dog(weights=weights, gates=[0, 0.5, 1], locations=[[0, 0], [1, 4], [0, 2]])
    weights[:] = 7
    assert caption.weights.dtype == np.float32
    assert caption.weights.max() == np.float32(0.1)
    assert caption.gates.tolist() == [0, 0.5, 1]
    assert caption.locations.dtype == np.int64
    assert caption.box == (0.0, -10.0, 100.0, 60.0)


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
        ({"locations": [[0, 0], [1, 1]]}, "locations must be"),
        ({"locations": [[0, 0], [1, 1], [2, 0]]}, "locations must lie in the grid of 2 rows and 5 columns"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        dog(**changes)


def test_the_dictionary_is_plain_json():
    caption = dog(
        gates=[0.25, 0.5, 1],
        locations=[[0, 0], [1, 4], [0, 2]],
        image="dog.jpg",
        alternatives=[dog(text="a cat", log_prob=-np.inf)],
        finished=False,
    )
    record = json.loads(json.dumps(caption.to_dict(), allow_nan=False))
    assert record == {
        "text": "a dog runs.",
        "words": ["a", "dog", "runs"],
        "log_prob": -4.5,
        "word_log_probs": [-1.0, -2.0, -1.0],
        "gates": [0.25, 0.5, 1.0],
        "finished": False,
        "box": [0.0, -10.0, 100.0, 60.0],
        "grid": [2, 5],
        "locations": [[0, 0], [1, 4], [0, 2]],
        "alternatives": [dog(text="a cat", log_prob=-np.inf).to_dict()],
    }
    assert record["alternatives"][0]["log_prob"] is None
    assert record["alternatives"][0]["gates"] is None


@pytest.mark.parametrize("name", ["dog.npz", "dog.attention"])
def test_saved_attention_loads_without_pickle_under_the_name_given(tmp_path, name):
    caption = dog(words=["ein", "größerer", "狗"], gates=[0.25, 0.5, 1])
    caption.save_attention(tmp_path / name)
    with np.load(tmp_path / name, allow_pickle=False) as saved:
        assert sorted(saved) == ["box", "gates", "weights", "words"]
        assert saved["words"].tolist() == ["ein", "größerer", "狗"]
        np.testing.assert_array_equal(saved["weights"], caption.weights)
        np.testing.assert_array_equal(saved["gates"], caption.gates)
        assert saved["box"].tolist() == [0, -10, 100, 60]


def test_a_model_without_a_gate_saves_nan(tmp_path):
    dog().save_attention(tmp_path / "dog.npz")
    with np.load(tmp_path / "dog.npz", allow_pickle=False) as saved:
        assert saved["gates"].shape == (3,)
        assert np.isnan(saved["gates"]).all()


def test_an_empty_caption_is_a_caption(tmp_path):
    empty = Caption("", [], np.zeros((0, 7, 7)), -0.1, [], (0, 0, 9, 9), gates=[], locations=[])
    assert str(empty) == ""
    assert empty.to_dict()["locations"] == []
    empty.save_attention(tmp_path / "empty.npz")
    with np.load(tmp_path / "empty.npz", allow_pickle=False) as saved:
        assert saved["words"].shape == (0,)
        assert saved["weights"].shape == (0, 7, 7)


def test_where_nothing_can_be_written_the_user_is_told(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*nowhere.*No such file"):
        dog().save_attention(tmp_path / "nowhere" / "dog.npz")
    assert issubclass(OutputError, UserError)


def test_without_a_photo_there_is_nothing_to_draw_over():
    with pytest.raises(ValueError, match="no photo"):
        dog().plot()


def test_log_probabilities_stay_natural():
    caption = dog(word_log_probs=np.log([0.5, 0.25, 0.125]), log_prob=math.log(1 / 128))
    assert math.exp(caption.to_dict()["log_prob"]) == pytest.approx(1 / 128)
    np.testing.assert_allclose(np.exp(caption.word_log_probs), [0.5, 0.25, 0.125], rtol=1e-6)


def test_importing_the_result_loads_neither_torch_nor_matplotlib():
    code = "import sys, caption.result; print({'torch', 'matplotlib'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
