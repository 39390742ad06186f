"""Decoders: from projected regions to words."""

from caption.decoders.base import Decoder, Trace, Unrolled
from caption.decoders.gate import Gate
from caption.decoders.initial import ConstantState, Initial, InitialState
from caption.decoders.lstm import LSTMDecoder
from caption.decoders.readout import DeepOutput, LinearOutput, Readout

__all__ = [
    "ConstantState",
    "Decoder",
    "DeepOutput",
    "Gate",
    "Initial",
    "InitialState",
    "LSTMDecoder",
    "LinearOutput",
    "Readout",
    "Trace",
    "Unrolled",
]
