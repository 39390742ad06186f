"""From word scores to captions: greedy, beam search, sampling. They know nothing of the model but a step."""

from caption.search.base import Hypotheses, Search, Step
from caption.search.beam import BeamSearch
from caption.search.greedy import Greedy
from caption.search.sampling import Sampling

__all__ = ["BeamSearch", "Greedy", "Hypotheses", "Sampling", "Search", "Step"]
