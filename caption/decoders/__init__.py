"""Decoders: from projected regions to words."""

from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.decoders.gate import Gate
from caption.decoders.initial import ConstantState, Initial, InitialState
from caption.decoders.lstm import LSTMDecoder
from caption.decoders.readout import DeepOutput, LinearOutput, Readout
from caption.decoders.unroll import Advanced, RecurrentDecoder

__all__ = [
    "Advanced",
    "ConstantState",
    "Decoder",
    "DeepOutput",
    "Gate",
    "Initial",
    "InitialState",
    "LSTMDecoder",
    "LinearOutput",
    "Memory",
    "Readout",
    "RecurrentDecoder",
    "Trace",
    "Unrolled",
]
