"""The LSTM decoder with attention (Xu et al. 2015, section 3.1.2): eqs. 1 to 7, one word at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import itemgetter
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import Attention, Memory
from caption.decoders.base import Decoder, Trace, Unrolled
from caption.decoders.gate import Gate
from caption.decoders.initial import Initial, InitialState
from caption.decoders.readout import DeepOutput, Readout
from caption.kernels.deferred_linear import LateLinear
from caption.kernels.shared_memory import Shrinking
from caption.parts import check_choice
from caption.tensor_tree import Record, State, map_record, select_images


class Carried(NamedTuple):
    """What goes from word to word, one entry per hypothesis."""

    hidden: Tensor
    """(B, K, H) h."""
    cell: Tensor
    """(B, K, H) c."""
    attention: Record
    """What the attention mechanism carries."""


class LSTMDecoder(Decoder):
    """Attends with h[t-1], then updates the LSTM with the word and the context, then reads out with h[t].

    Args:
        attention: the mechanism that chooses where to look.
        embedding_size: length of the word vectors Ey.
        hidden_size: length of h and c.
        initial: how the first state comes from the image; None = the paper's `InitialState()`.
        gate: the gate β on the context; None = no gate.
        readout: from state to words; None = the paper's `DeepOutput()`.
        dropout: on the word vectors entering the LSTM.
        forget_bias: what is added to the forget gate's bias at initialisation.
        first_input: Ey[0]; "start", the learned vector of the start token, or "zero", a vector of zeros that never
            learns, as in the authors' code.

    Raises:
        ValueError: another first input.
    """

    def __init__(
        self,
        attention: Attention,
        embedding_size: int = 512,
        hidden_size: int = 512,
        initial: Initial | None = None,
        gate: Gate | None = None,
        readout: Readout | None = None,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
        first_input: Literal["start", "zero"] = "start",
    ) -> None:
        super().__init__()
        check_choice("first_input", first_input, ("start", "zero"))
        self.attention = attention
        self.embedding_size = embedding_size
        self.hidden_size = self.query_size = hidden_size
        self.initial = initial or InitialState()
        self.gate = gate
        self.readout = readout or DeepOutput()
        self.dropout = nn.Dropout(dropout)
        self.forget_bias = forget_bias
        self.first_input = first_input
        self.compiled = False

    def build(self, region_size: int, vocabulary_size: int, padding: int, start: int) -> None:
        hidden_size = self.hidden_size
        self.attention.build(region_size, hidden_size)
        context_size = self.attention.context_size
        if self.gate is not None:
            self.gate.build(hidden_size, context_size)
        self.initial.build(region_size, hidden_size)
        self.readout.build(self.embedding_size, hidden_size, context_size, vocabulary_size)
        self.start_id = start
        self.embed = nn.Embedding(vocabulary_size, self.embedding_size, padding_idx=padding)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        # T of eq. 1 in two parts: the word's, which training computes for all steps at once, and the rest.
        self.gates_from_word = nn.Linear(self.embedding_size, 4 * hidden_size)
        self.gates_from_state = nn.Linear(hidden_size + context_size, 4 * hidden_size, bias=False)
        for rows in self.gates_from_state.weight.data[:, :hidden_size].chunk(4):
            nn.init.orthogonal_(rows)
        nn.init.zeros_(self.gates_from_word.bias)
        self.gates_from_word.bias.data[hidden_size : 2 * hidden_size] += self.forget_bias

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        # Stored regions are in half precision. Under autocast a GPU reads them at every step in the lower precision; a
        # CPU, which is slow at all but large matrix products in it, in single precision.
        device, dtype = regions.device.type, self.embed.weight.dtype
        if device != "cpu" and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        return self.attention.project(regions.to(dtype), mask)

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        hidden, cell = self.initial(memory.values, memory.mask)
        shape = (len(memory.values), hypotheses, self.hidden_size)
        attending = self.attention.start(memory, hypotheses)
        cell = cell.to(self.embed.weight.dtype)  # c adds up over all steps: not in autocast's lower precision
        return State(memory, Carried(hidden.expand(shape), cell.expand(shape), attending), trace=None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        embedded = self._embedded(words)
        word_gates = self.gates_from_word(self.dropout(embedded))
        state, context, _ = self._stepper()(self, state, word_gates, self.gates_from_state.weight)
        logits = self.readout(embedded, state.carried.hidden, context)
        return logits.float().log_softmax(-1), state

    def _embedded(self, words: Tensor) -> Tensor:
        """(B, K, ...) words fed in -> their vectors Ey (B, K, ..., E)."""
        embedded = self.embed(words)
        if self.first_input == "zero":  # the start token is never fed again
            embedded = embedded.masked_fill((words == self.start_id)[..., None], 0.0)
        return embedded

    def compile_step(self) -> None:
        self.compiled = True

    def _stepper(self) -> Callable[..., tuple[State, Tensor, Tensor]]:
        return compiled_advance() if self.compiled else LSTMDecoder._advance

    def _advance(self, state: State, word_gates: Tensor, weight: Tensor) -> tuple[State, Tensor, Tensor]:
        """Attend and update the LSTM: eqs. 1 to 6.

        Args:
            state: after t-1.
            word_gates: (B, K, 4H), the previous word's share of the gates' pre-activations.
            weight: (4H, H + D), which makes the rest of them.

        Returns:
            the state after t; the gated context z[t] (B, K, D); and what the weight was multiplied with, h[t-1] and
            z[t], (B, K, H + D).
        """
        hidden, cell, attending = state.carried
        look = self.attention(hidden, state.shared, attending)
        context, gate = look.context, None
        if self.gate is not None:
            beta = self.gate(hidden)
            context = beta * context
            gate = beta.mean(-1)
        joined = torch.cat((hidden, context), -1)
        gates = word_gates + functional.linear(joined, weight)
        i, f, o, g = gates.chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        trace = Trace(look.weights, gate, look.location, look.log_prob)
        return State(state.shared, Carried(hidden, cell, look.state), trace), context, joined

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        images, hypotheses, longest = words.shape
        # Sorted so that the captions still running at step t fill a rectangle in the corner, which shrinks: the
        # longest captions of each image in the first columns, the images with the longest caption in front.
        ranks = lengths.argsort(1, descending=True)
        order = lengths.amax(1).argsort(descending=True, stable=True)
        ranks = ranks[order]
        words = words[order].gather(1, ranks[..., None].expand_as(words))
        steps = torch.arange(longest, device=words.device)
        running = lengths[order].gather(1, ranks)[..., None] > steps  # (B, K, T)
        rows = running.any(1).sum(0).tolist()
        columns = running.any(0).sum(0).tolist()
        longest = max(1, sum(b > 0 for b in rows))  # an empty step gives the shapes where no caption is there
        origins = ((order[:, None] * hypotheses + ranks) * words.shape[-1])[..., None] + steps

        corners = [(slice(rows[t]), slice(columns[t]), t) for t in range(longest)]
        sizes = [rows[t] * columns[t] for t in range(longest)]

        # The words' share, of all steps at once, one step after another.
        embedded = self._embedded(torch.cat([words[corner].flatten() for corner in corners]))
        from_state = LateLinear(self.gates_from_state.weight)
        word_gates = from_state.join(self.gates_from_word(self.dropout(embedded))).split(sizes)
        if order.tolist() == list(range(images)):  # batches of equal length spare the copy
            memory = map_record(Tensor.contiguous, memory)
        else:
            memory = select_images(memory, order)
        state = self.start(memory, hypotheses)
        shrinking, advance = Shrinking(memory), self._stepper()
        taken = []
        for t in range(longest):
            b, k = rows[t], columns[t]
            carried = map_record(itemgetter((slice(b), slice(k))), state.carried)
            query = carried.hidden.detach()
            before = State(shrinking.first(b), carried, None)
            state, context, joined = advance(
                self, before, word_gates[t].unflatten(0, (b, k)), from_state.weight
            )
            from_state.saw(joined)
            taken.append((query, state.carried.hidden, context, state.trace))
        there = torch.cat([running[corner].flatten() for corner in corners])
        real = None if there.all() else there.nonzero().squeeze(-1)  # of one caption per image, all are

        def keep(packed: Tensor) -> Tensor:
            return packed if real is None else packed[real]

        def pack(*of_steps: Tensor) -> Tensor:
            return keep(torch.cat([tensor.flatten(0, 1) for tensor in of_steps]))

        queries, hiddens, contexts, traces = zip(*taken, strict=True)
        logits = self.readout(keep(embedded), pack(*hiddens), pack(*contexts))
        positions = keep(torch.cat([origins[corner].flatten() for corner in corners]))
        fields = [None if field[0] is None else pack(*field) for field in zip(*traces, strict=True)]
        trace = Trace(*fields)  # type: ignore[arg-type]  # the weights are never None
        return Unrolled(logits, trace, pack(*queries), positions, (images, hypotheses, words.shape[-1]))


@cache
def compiled_advance() -> Callable[..., tuple[State, Tensor, Tensor]]:
    """`LSTMDecoder._advance`, compiled for any number of images and captions.

    For all decoders: one that a decoder kept would work with that one's weights in its copies, too.
    """
    compiled = torch.compile(LSTMDecoder._advance, dynamic=True)
    fresh = partial(torch.clone, memory_format=torch.contiguous_format)

    def advance(
        decoder: LSTMDecoder, state: State, word_gates: Tensor, weight: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        # A part of a larger tensor would be compiled anew for every shape of the whole.
        state = state._replace(carried=map_record(fresh, state.carried))
        return compiled(decoder, state, fresh(word_gates), weight)

    return advance
