"""Searches for captions: greedy, beam search, sampling. They use only a step function of the model."""

from caption.search.base import Hypotheses, Step
from caption.search.beam import BeamSearch, adjusted
from caption.search.greedy import Greedy
from caption.search.loop import Search, search_spec
from caption.search.sampling import Sampling

__all__ = [
    "BeamSearch",
    "Greedy",
    "Hypotheses",
    "Sampling",
    "Search",
    "Step",
    "adjusted",
    "search_spec",
]
