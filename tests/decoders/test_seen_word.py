"""The decoder whose words carry what was looked at: against the paper's, its steps, and its equation."""

from __future__ import annotations

import torch
from helpers.tiny_decoder import HIDDEN, PAD, REGION_SIZE, WORDS, images, sentences
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, SeenWordDecoder, ShowAttendAndTellDecoder

LENGTHS = torch.tensor([[3, 5], [4, 1]])


def decoder(kind: type[ShowAttendAndTellDecoder] = SeenWordDecoder) -> ShowAttendAndTellDecoder:
    attention = ScoredAttention(AdditiveScore(6), Softmax())
    model = kind(attention, 5, HIDDEN, InitialState(dropout=0), Gate(), DeepOutput(dropout=0))
    model.build((REGION_SIZE,), WORDS, padding=PAD, start=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if not name.startswith(("shares", "from_seen")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.double()


def stepped(model: ShowAttendAndTellDecoder, regions: Tensor, words: Tensor) -> Tensor:
    """(B, K, T, V)."""
    memory = model.project(one_row(regions))
    state, log_probs = model.start(memory, words.shape[1]), []
    for word in words.unbind(2):
        result, state = model.step(state, word)
        log_probs.append(result)
    return torch.stack(log_probs, 2)


def test_it_starts_as_the_decoder_without_it() -> None:
    regions, words = images(2), sentences(LENGTHS)
    plain, seen = decoder(ShowAttendAndTellDecoder), decoder()
    assert torch.equal(stepped(plain, regions, words), stepped(seen, regions, words))
    missing, unknown = seen.load_state_dict(plain.state_dict(), strict=False)
    assert sorted(missing) == ["from_seen.weight", "shares.weight"]
    assert not unknown


def test_the_unroll_equals_stepping() -> None:
    regions, words, model = images(2), sentences(LENGTHS), decoder()
    torch.nn.init.normal_(model.shares.weight)
    unrolled = model(model.project(one_row(regions)), words, LENGTHS)
    real = torch.arange(words.shape[-1]) < LENGTHS[..., None]
    found = unrolled.unpack(unrolled.logits.log_softmax(-1))[real]
    torch.testing.assert_close(found.float(), stepped(model, regions, words)[real], atol=1e-5, rtol=1e-5)


def test_a_word_carries_the_average_that_was_taken_for_it() -> None:
    """The second step of a decoder with shares is that of one without, whose context has the term of the equation."""
    regions, word, following = images(1), torch.tensor([[2]]), torch.tensor([[3]])
    plain, seen = decoder(ShowAttendAndTellDecoder), decoder()
    with torch.no_grad():
        seen.shares.weight[3] = 0.7
    memory = plain.project(one_row(regions))
    _, state = plain.step(plain.start(memory), word)
    average = state.trace.weights[0] @ memory.projected[0].values[0]
    term = 0.7 * seen.from_seen(average)

    def shifted(module: object, args: object, output: Tensor) -> Tensor:
        return output

    before = plain.attention.read

    def read(*args: object) -> object:
        output = before(*args)
        gate = plain.gate(args[1].hidden)
        return output._replace(context=output.context + term / gate)

    plain.attention.read = read
    expected, _ = plain.step(state, following)
    seen_state = seen.start(seen.project(one_row(regions)))
    _, seen_state = seen.step(seen_state, word)
    found, _ = seen.step(seen_state, following)
    torch.testing.assert_close(found, expected)
    other, _ = seen.step(seen_state, torch.tensor([[4]]))
    assert not torch.allclose(other, found)


def test_what_was_seen_learns() -> None:
    model = decoder()
    unrolled = model(model.project(one_row(images(2))), sentences(LENGTHS), LENGTHS)
    unrolled.logits.square().sum().backward()
    assert model.shares.weight.grad is not None
    assert model.shares.weight.grad.abs().sum() > 0
