"""The options of the authors' code that decide what a model computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from caption.data.readers.captions import located, read_text
from caption.errors import DataError

# What our decoder has no place for: option -> the values that leave it out, and what it would mean.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "lstm_encoder": ((False, 0), "an LSTM over the regions"),
    "n_layers_lstm": ((1,), "several LSTM layers"),
    "n_layers_out": ((1,), "further layers before the words"),
    "use_dropout_lstm": ((False, 0), "dropout on the gates of the LSTM"),
}
TYPES: dict[str, type] = {"int": int, "bool": bool, "str": str, "float": float}
ATTENTION = ("deterministic", "stochastic")


@dataclass(frozen=True)
class Options:
    """By the names of the authors' `train()`."""

    ctx_dim: int
    """D; the width of the attention, too."""
    dim: int
    """H."""
    dim_word: int
    """E."""
    n_words: int
    """V, with the end (0) and the unknown word (1)."""
    selector: bool
    """The gate β."""
    prev2out: bool
    """E y[t-1] in the read-out."""
    ctx2out: bool
    """L_z z[t] in the read-out."""
    n_layers_att: int
    """Affine layers on the regions before they meet h[t-1]; all but the first end in tanh."""
    n_layers_init: int
    """Affine layers from the mean region to h[0] and c[0], which share all but the last."""
    use_dropout: bool
    """At test, too, it matters: their dropout halves there."""
    attn_type: str
    """"deterministic" (soft) or "stochastic" (hard)."""
    temperature: float = 1.0
    """α = softmax(temperature · e); read for stochastic attention only."""
    semi_sampling_p: float = 0.5
    """Probability of a sample instead of the expectation, in training."""

    @property
    def inverse_temperature(self) -> float:
        """What multiplies the scores: for deterministic attention, the authors' code does not read the option."""
        return self.temperature if self.attn_type == "stochastic" else 1.0

    @property
    def kept(self) -> float:
        """What their dropout multiplies by at test; trained weights behind it reckon with units so much weaker."""
        return 0.5 if self.use_dropout else 1.0


def read_options(file: str) -> Options:
    """Options from JSON (a file whose name ends so) or YAML. Those that training alone needs are passed over.

    Raises:
        DataError: the file cannot be read, an option is missing or no possible value, or asks for what this package's
            decoder cannot represent. The message names it.
    """
    text = read_text(located(file))
    try:
        given = json.loads(text) if file.endswith(".json") else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise DataError(
            f"'{file}' can be read neither as JSON nor YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(given, dict):
        raise DataError(
            f"'{file}' holds no options, but a {type(given).__name__}: give an object of names and values"
        )
    for name, (without, meaning) in REFUSED.items():
        if given.get(name, without[0]) not in without:
            raise DataError(
                f"option {name} in '{file}' is {given[name]!r}: {meaning} cannot be represented by this package's "
                "decoder, so the model cannot be imported"
            )
    return Options(
        **{
            field.name: _value(given, field.name, str(field.type), field.default, file)
            for field in fields(Options)
        }
    )


def _value(given: Mapping[str, Any], name: str, kind: str, default: Any, file: str) -> Any:
    if name not in given:
        if default is MISSING:
            raise DataError(
                f"'{file}' lacks the option {name}: give all options that the model was trained with"
            )
        return default
    value = given[name]
    if kind == "bool" and value in (0, 1):
        return bool(value)
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "str" and value in ATTENTION:
        return value
    wanted = {
        "bool": "true or false",
        "int": "a whole number from 1 up",
        "float": "a number",
        "str": " or ".join(ATTENTION),
    }
    raise DataError(f"option {name} in '{file}' is {value!r}: it should be {wanted[kind]}")
