"""The library of attention mechanisms: one idea per file, with its equation.

Most mechanisms combine a score (`scores/`) with an alignment (`alignments/`) in `ScoredAttention`. The other files hold
mechanisms that do not fit this scheme.
"""

from caption.attention.alignments import (
    Entmax15,
    FollowingWindow,
    GumbelSoftmax,
    Multinoulli,
    PredictedWindow,
    Softmax,
    Sparsemax,
)
from caption.attention.base import Attention, AttentionOutput, Query, QuerySizes, Reading, Weighed
from caption.attention.co_attention import (
    AlternatingCoAttention,
    InteractiveCoAttention,
    MaxCoAttention,
    ParallelCoAttention,
)
from caption.attention.compositional import CompositionalDeAttention
from caption.attention.edited import edited
from caption.attention.feature_wise import FeatureWiseAttention
from caption.attention.glimpse import GlimpseAttention, WindowAttention
from caption.attention.hierarchical import AttentionViaAttention, HierarchicalAttention
from caption.attention.map_entropy import entropy
from caption.attention.multi_head import HeadGates, MultiHeadAttention
from caption.attention.multi_hop import MultiHopAttention
from caption.attention.pooling import (
    ChunkMaxPooling,
    DeepSets,
    KMaxPooling,
    MaxPooling,
    MeanPooling,
    StochasticPooling,
    SumPooling,
)
from caption.attention.rotatory import RotatoryAttention
from caption.attention.scored import Aligned, Alignment, Choice, Score, ScoredAttention, ScoredMemory
from caption.attention.scores import (
    ActivatedGeneralScore,
    AdditiveScore,
    CosineScore,
    DotScore,
    FeedForwardScore,
    GeneralScore,
    LocationSensitiveScore,
    MLPScore,
    ScaledDotScore,
)
from caption.attention.sentinel import SentinelAttention
from caption.attention.stochastic import Stochastic, at_test
from caption.attention.structured import StructuredAttention

__all__ = [
    "ActivatedGeneralScore",
    "AdditiveScore",
    "Aligned",
    "Alignment",
    "AlternatingCoAttention",
    "Attention",
    "AttentionOutput",
    "AttentionViaAttention",
    "Choice",
    "ChunkMaxPooling",
    "CompositionalDeAttention",
    "CosineScore",
    "DeepSets",
    "DotScore",
    "Entmax15",
    "FeatureWiseAttention",
    "FeedForwardScore",
    "FollowingWindow",
    "GeneralScore",
    "GlimpseAttention",
    "GumbelSoftmax",
    "HeadGates",
    "HierarchicalAttention",
    "InteractiveCoAttention",
    "KMaxPooling",
    "LocationSensitiveScore",
    "MLPScore",
    "MaxCoAttention",
    "MaxPooling",
    "MeanPooling",
    "MultiHeadAttention",
    "MultiHopAttention",
    "Multinoulli",
    "ParallelCoAttention",
    "PredictedWindow",
    "Query",
    "QuerySizes",
    "Reading",
    "RotatoryAttention",
    "ScaledDotScore",
    "Score",
    "ScoredAttention",
    "ScoredMemory",
    "SentinelAttention",
    "Softmax",
    "Sparsemax",
    "Stochastic",
    "StochasticPooling",
    "StructuredAttention",
    "SumPooling",
    "Weighed",
    "WindowAttention",
    "at_test",
    "edited",
    "entropy",
]
