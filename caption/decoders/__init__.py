"""Decoders, which turn projected regions into words."""

from caption.decoders.adaptive import AdaptiveDecoder
from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.decoders.cells import GRUCell, LSTMCell, RecurrentCell, ResetBeforeGRUCell
from caption.decoders.deep_output import DeepOutput, LinearOutput, Readout
from caption.decoders.ensemble import EnsembleDecoder
from caption.decoders.gate import Gate
from caption.decoders.initial_state import ConstantState, Initial, InitialState
from caption.decoders.show_and_tell import ShowAndTellDecoder
from caption.decoders.show_attend_and_tell import ShowAttendAndTellDecoder
from caption.decoders.top_down import TopDownDecoder
from caption.decoders.transformer import TransformerDecoder
from caption.decoders.unroll import RecurrentDecoder
from caption.decoders.word_embeddings import MetaEmbedding, WordVectors

__all__ = [
    "AdaptiveDecoder",
    "ConstantState",
    "Decoder",
    "DeepOutput",
    "EnsembleDecoder",
    "GRUCell",
    "Gate",
    "Initial",
    "InitialState",
    "LSTMCell",
    "LinearOutput",
    "Memory",
    "MetaEmbedding",
    "Readout",
    "RecurrentCell",
    "RecurrentDecoder",
    "ResetBeforeGRUCell",
    "ShowAndTellDecoder",
    "ShowAttendAndTellDecoder",
    "TopDownDecoder",
    "Trace",
    "TransformerDecoder",
    "Unrolled",
    "WordVectors",
]
