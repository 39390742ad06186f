"""Parts record their arguments and are rebuilt from a spec; a spec cannot construct other classes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from caption.attention import AdditiveScore, Attention, Multinoulli, ScoredAttention, Softmax
from caption.core.errors import CheckpointError, UserError
from caption.core.parts import Part, public_path
from caption.core.runtime.trust import make
from caption.decoders import (
    ConstantState,
    Decoder,
    DeepOutput,
    Gate,
    InitialState,
    LinearOutput,
    ShowAttendAndTellDecoder,
)
from caption.encoders import LinearRefiner, SmallCNN, TorchvisionEncoder
from caption.objectives import CrossEntropy, DoublyStochastic, Entropy, Reinforce


class Knob(Part, nn.Module):
    """A part with every kind of argument."""

    def __init__(
        self,
        number: float = 1.0,
        parts: Sequence[Part] = (),
        table: dict[str, Any] | None = None,
        path: Any = None,
    ) -> None:
        super().__init__()
        self.number, self.parts, self.table, self.path = number, list(parts), table, path


class LoudKnob(Knob):
    """Adds an argument and passes the others on as **kwargs."""

    def __init__(self, loudness: int, **others: Any) -> None:
        super().__init__(**others)
        self.loudness = loudness


class PlainKnob(Knob):
    """Does not define `__init__`."""


PARTS = [
    AdditiveScore(7),
    Softmax(),
    Multinoulli(expectation=0.25, share="caption", at_test="argmax"),
    ScoredAttention(AdditiveScore(3), Multinoulli()),
    ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(3), Softmax()),
        embedding_size=5,
        hidden_size=6,
        initial=InitialState(layers=2, activation="linear"),
        gate=Gate("vector"),
        readout=LinearOutput(dropout=0.1),
        forget_bias=1.0,
    ),
    ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(), Softmax()), readout=DeepOutput(activation="tanh")
    ),
    SmallCNN(widths=(4, 8)),
    TorchvisionEncoder("squeezenet1_1", "features.3", std=(0.25, 0.5, 1.0), finetune_from="features.3"),
    LinearRefiner(size=9),
    ConstantState(),
    CrossEntropy([DoublyStochastic(0.5), Entropy(0.1, after=3)], per=["word"]),
    Reinforce(credit="future"),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_part_is_made_again_from_its_description(part: Part):
    described = json.loads(json.dumps(part.spec))  # plain types only
    again = make(described, type(part))
    assert type(again) is type(copy.deepcopy(part)) is type(part)
    assert copy.deepcopy(part).spec == part.spec
    assert again.spec == part.spec == described


def test_defaults_are_recorded_with_the_arguments():
    # Otherwise a model would change when a later release changes a default.
    assert Multinoulli(0.25).spec == {
        "class_path": "caption.attention.Multinoulli",
        "init_args": {"expectation": 0.25, "share": "caption", "at_test": "expectation"},
    }
    assert CrossEntropy().spec["init_args"].keys() >= {"terms", "label_smoothing"}


def test_lists_and_tables_of_parts_are_rebuilt():
    knob = Knob(parts=[Softmax(), AdditiveScore(3)], table={"loud": LoudKnob(3), "depth": 2})
    again = make(json.loads(json.dumps(knob.spec)), Knob)
    assert [type(part) for part in again.parts] == [Softmax, AdditiveScore]
    assert (again.parts[1].size, again.table["loud"].loudness, again.table["depth"]) == (3, 3, 2)


def test_subclasses_record_their_own_arguments_and_values_become_plain():
    loud = LoudKnob(11, number=2.5)
    assert loud.spec["init_args"] == {"loudness": 11, "number": 2.5}
    again = make(loud.spec, Knob)
    assert (again.loudness, again.number) == (11, 2.5)
    plain = PlainKnob(np.float32(0.5), (), {"sizes": (1, np.int64(2)), "on": np.bool_(True)}, Path("a/b"))
    table = {"sizes": [1, 2], "on": True}
    assert plain.spec["init_args"] == {"number": 0.5, "parts": [], "table": table, "path": "a/b"}
    json.dumps(plain.spec)
    assert type(make(plain.spec, Knob)) is PlainKnob


def test_the_public_path_is_where_users_import_from():
    assert public_path(Attention) == "caption.attention.Attention"
    assert public_path(Softmax) == "caption.attention.Softmax"  # defined two packages deeper
    assert public_path(Part) == "caption.core.parts.Part"


# -- forbidden classes -------------------------------------------------------------------------------------


HOSTILE = [
    {"class_path": "os.system", "init_args": {"command": "touch canary"}},
    {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "canary"]}},
    {"class_path": "builtins.open", "init_args": {"file": "canary", "mode": "w"}},
    {"class_path": "caption.core.runtime.trust.make", "init_args": {}},
    {"class_path": "torch.nn.Linear", "init_args": {"in_features": 1, "out_features": 1}},
]


@pytest.mark.parametrize("spec", HOSTILE, ids=lambda spec: spec["class_path"])
def test_only_parts_are_called(spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="is not a subclass of Decoder"):
        make(spec, Decoder)
    for nested in ({"score": spec, "alignment": None}, {"score": None, "alignment": [spec]}):
        with pytest.raises(CheckpointError, match="is not a subclass of Part"):
            make({"class_path": "caption.attention.ScoredAttention", "init_args": nested}, Attention)
    with pytest.raises(CheckpointError, match="is not a subclass of Part"):
        make({"class_path": public_path(Knob), "init_args": {"table": {"deep": [{"er": spec}]}}}, Knob)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "path",
    ["caption.attention.Nonesuch", "caption.nonesuch.Attention", "caption.attention.Attention.build.x"],
)
def test_an_unknown_class_is_named(path: str):
    with pytest.raises(CheckpointError, match=f"there is no class {path}"):
        make({"class_path": path}, Attention)


@pytest.mark.parametrize(
    "spec",
    [
        *({}, {"class_path": 3}, "caption.attention.Softmax()", None, ["caption.attention.Softmax"]),
        *(
            {"class_path": path}
            for path in ("Softmax", ".Softmax", "caption..Softmax", "caption/core/parts.Softmax")
        ),
    ],
)
def test_an_invalid_spec_is_refused(spec: Any):
    with pytest.raises(CheckpointError, match="class path"):
        make(spec, Part)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"width": 3}, "width"), ({"size": 3, 4: 5}, "AdditiveScore"), ([3], "arguments"), (None, "arguments")],
)
def test_arguments_that_do_not_fit_are_refused(arguments: Any, said: str):
    with pytest.raises(CheckpointError, match=said) as caught:
        make({"class_path": "caption.attention.AdditiveScore", "init_args": arguments}, Part)
    assert "caption.attention.AdditiveScore" in str(caught.value)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        *(
            (Multinoulli, {"at_test": "greedy"}),
            (Multinoulli, {"expectation": 1.5}),
            (Gate, {"size": "matrix"}),
        ),
        *((InitialState, {"activation": "Tanh"}), (DeepOutput, {"activation": "none"})),
        (Reinforce, {"credit": "word"}),
    ],
)
def test_an_unknown_choice_is_not_taken_for_another(part: Any, wrong: dict[str, Any]):
    with pytest.raises(UserError, match="not"):
        part(**wrong)


def test_a_spec_has_nothing_that_is_not_looked_at():
    spec = {"class_path": "caption.attention.Softmax", "dict_kwargs": {"x": 1}}
    with pytest.raises(CheckpointError, match="dict_kwargs"):
        make(spec, Part)
