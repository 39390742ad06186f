"""The library of attention mechanisms: one idea per file, with its equation.

    base            the interface: weigh the regions, then read them; map_hooks: edits of the maps in between
    scored          a score joined to an alignment: the paper's soft and hard attention
    scores/         the similarity of a query and a region: additive (the paper's), dot, cosine, ...
    alignments/     how scores become weights: soft (the paper's softmax), hard (a region is sampled), sparsemax, ...
    co_attention/   two inputs: the regions and the words so far attend to each other
    rotatory        three inputs: a target, and the regions left and right of it
    other files     mechanisms that are more than a score and an alignment: several heads, hops, grids, glimpses, ...

Soft attention of Xu et al. 2015 is `ScoredAttention(AdditiveScore(), Softmax())`; hard attention is
`ScoredAttention(AdditiveScore(), Multinoulli())`.
"""

from caption.attention.alignments.entmax import Entmax15
from caption.attention.alignments.gumbel import GumbelSoftmax
from caption.attention.alignments.hard import Multinoulli
from caption.attention.alignments.local import FollowingWindow, PredictedWindow
from caption.attention.alignments.sigmoid import Sigmoid
from caption.attention.alignments.soft import Softmax
from caption.attention.alignments.sparsemax import Sparsemax
from caption.attention.base import (
    Attention,
    AttentionOutput,
    GridMemory,
    Query,
    QuerySizes,
    ReadOutput,
    WeighOutput,
)
from caption.attention.bin_pooling import ChunkMaxPooling, SpatialPyramidPooling
from caption.attention.channel_wise import ChannelSpatialAttention, SpatialChannelAttention
from caption.attention.co_attention.alternating import AlternatingCoAttention
from caption.attention.co_attention.interactive import InteractiveCoAttention
from caption.attention.co_attention.mutual import MutualCrossAttention
from caption.attention.co_attention.parallel import MaxCoAttention, ParallelCoAttention
from caption.attention.co_attention.symmetric import SymmetricCoAttention
from caption.attention.co_attention.words import PhraseConvolutions, WordFeatures, WordLSTM, WordProjection
from caption.attention.compositional import CompositionalDeAttention
from caption.attention.feature_wise import FeatureWiseAttention
from caption.attention.glimpse import GlimpseAttention, WindowAttention
from caption.attention.hierarchical import HierarchicalAttention
from caption.attention.levels import (
    AttentionViaAttention,
    ParentWeightedAttention,
    PooledPyramidAttention,
    PyramidAttention,
)
from caption.attention.local_global import LocalGlobalAttention
from caption.attention.map_entropy import entropy
from caption.attention.map_hooks import edit_maps
from caption.attention.memory_network import MemoryNetworkAttention
from caption.attention.multi_head import HeadGates, MultiHeadAttention, remove_closed_heads
from caption.attention.multi_hop import MultiHopAttention
from caption.attention.pooling import (
    DeepSets,
    FixedMap,
    KMaxPooling,
    MaxPooling,
    MeanPooling,
    NoContext,
    StochasticPooling,
    SumPooling,
    TopKMeanPooling,
)
from caption.attention.rotatory import RotatoryAttention
from caption.attention.scored import Alignment, Score, ScoredAttention
from caption.attention.scores.additive import AdditiveScore
from caption.attention.scores.concatenation import ConcatenationScore
from caption.attention.scores.cosine import CosineScore
from caption.attention.scores.dot import DotScore, ScaledDotScore
from caption.attention.scores.general import ActivatedGeneralScore, GeneralScore
from caption.attention.scores.learned_query import (
    BoundedLearnedQueryScore,
    FeedForwardScore,
    LearnedQueryScore,
    NeighbourhoodScore,
    WholeGridScore,
)
from caption.attention.scores.location_sensitive import LocationSensitiveScore
from caption.attention.scores.mlp import MLPScore
from caption.attention.scores.symmetric import SymmetricScore
from caption.attention.scores.trilinear import TrilinearScore
from caption.attention.sentinel import SentinelAttention
from caption.attention.stochastic import Stochastic, override_at_test
from caption.attention.structured import StructuredAttention

__all__ = [
    "ActivatedGeneralScore",
    "AdditiveScore",
    "Alignment",
    "AlternatingCoAttention",
    "Attention",
    "AttentionOutput",
    "AttentionViaAttention",
    "BoundedLearnedQueryScore",
    "ChannelSpatialAttention",
    "ChunkMaxPooling",
    "CompositionalDeAttention",
    "ConcatenationScore",
    "CosineScore",
    "DeepSets",
    "DotScore",
    "Entmax15",
    "FeatureWiseAttention",
    "FeedForwardScore",
    "FixedMap",
    "FollowingWindow",
    "GeneralScore",
    "GlimpseAttention",
    "GridMemory",
    "GumbelSoftmax",
    "HeadGates",
    "HierarchicalAttention",
    "InteractiveCoAttention",
    "KMaxPooling",
    "LearnedQueryScore",
    "LocalGlobalAttention",
    "LocationSensitiveScore",
    "MLPScore",
    "MaxCoAttention",
    "MaxPooling",
    "MeanPooling",
    "MemoryNetworkAttention",
    "MultiHeadAttention",
    "MultiHopAttention",
    "Multinoulli",
    "MutualCrossAttention",
    "NeighbourhoodScore",
    "NoContext",
    "ParallelCoAttention",
    "ParentWeightedAttention",
    "PhraseConvolutions",
    "PooledPyramidAttention",
    "PredictedWindow",
    "PyramidAttention",
    "Query",
    "QuerySizes",
    "ReadOutput",
    "RotatoryAttention",
    "ScaledDotScore",
    "Score",
    "ScoredAttention",
    "SentinelAttention",
    "Sigmoid",
    "Softmax",
    "Sparsemax",
    "SpatialChannelAttention",
    "SpatialPyramidPooling",
    "Stochastic",
    "StochasticPooling",
    "StructuredAttention",
    "SumPooling",
    "SymmetricCoAttention",
    "SymmetricScore",
    "TopKMeanPooling",
    "TrilinearScore",
    "WeighOutput",
    "WholeGridScore",
    "WindowAttention",
    "WordFeatures",
    "WordLSTM",
    "WordProjection",
    "edit_maps",
    "entropy",
    "override_at_test",
    "remove_closed_heads",
]
