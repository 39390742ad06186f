"""Options of a `GenerationConfig` that change the scores of the next piece, by the processors of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from caption.core.errors import UserError

# Names of `GenerationConfig` that are in none of these tables are refused, unless they are None.
SCORES: dict[str, Any] = {
    "sequence_bias": None, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None,
    "min_length": 0, "min_new_tokens": 0, "forced_bos_token_id": None, "forced_eos_token_id": None,
    "remove_invalid_values": False, "exponential_decay_length_penalty": None, "suppress_tokens": None,
    "begin_suppress_tokens": None,
}  # fmt: skip
"""Options that change scores, in the order in which transformers applies them, and their values without effect."""
SAMPLING: dict[str, Any] = {
    "temperature": 1.0, "top_h": None, "top_k": 0, "top_p": 1.0, "min_p": None, "typical_p": 1.0,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0,
}  # fmt: skip
"""Those that change scores if pieces are drawn."""
LAST: dict[str, Any] = {"renormalize_logits": False}
REFUSED: dict[str, Any] = {
    "guidance_scale": 1.0, "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "token_healing": False,
    "penalty_alpha": 0.0, "diversity_penalty": 0.0, "num_beam_groups": 1,
}  # fmt: skip
"""Values without effect of options that are refused."""
OF_THE_SEARCH = {
    "max_length", "max_new_tokens", "num_beams", "length_penalty", "early_stopping", "do_sample",
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
}  # fmt: skip
NOT_OF_PIECES = {
    "use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory", "prefill_chunk_size",
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "compile_config", "disable_compile", "continuous_batching_config",
    "_from_model_config", "transformers_version",
    # A draft, which makes `generate` faster.
    "use_mtp", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type",
}  # fmt: skip
"""Options that concern memory, speed and output, not the pieces."""


@dataclass(frozen=True, eq=False)
class GenerateOptions:
    """Options of `generate` that change the scores of the next piece.

    Args:
        values: those with an effect, by name, in the order in which they are applied.
        ends: the pieces that end a caption.
        max_length: largest number of pieces, those of the prompt included; None = any.
    """

    values: Mapping[str, Any]
    ends: tuple[int, ...]
    max_length: int | None = None

    def longest(self, prompt: int, longest: int) -> int:
        """The number of pieces after a prompt of `prompt` pieces, at most `longest`.

        Raises:
            UserError: the prompt alone is too long.
        """
        if self.max_length is None:
            return longest
        if self.max_length <= prompt:
            raise UserError(
                f"max_length of the model's generation_config is {self.max_length}, and the prompt alone has {prompt} "
                "pieces: set max_new_tokens, which does not count them"
            )
        return min(longest, self.max_length - prompt)

    def processors(self, prompt: int, longest: int, device: torch.device) -> Any:
        """The `LogitsProcessorList` for captions of at most `longest` pieces after a prompt of `prompt` pieces."""
        import transformers as t

        ends, on = list(self.ends), str(device)
        make: dict[str, Callable[[Any], Any]] = {
            "sequence_bias": t.SequenceBiasLogitsProcessor,
            "repetition_penalty": t.RepetitionPenaltyLogitsProcessor,
            "no_repeat_ngram_size": t.NoRepeatNGramLogitsProcessor,
            "bad_words_ids": lambda pieces: t.NoBadWordsLogitsProcessor(pieces, ends),
            "min_length": lambda length: t.MinLengthLogitsProcessor(length, ends, on),
            "min_new_tokens": lambda count: t.MinNewTokensLengthLogitsProcessor(prompt, count, ends, on),
            "forced_bos_token_id": t.ForcedBOSTokenLogitsProcessor,
            "forced_eos_token_id": lambda end: t.ForcedEOSTokenLogitsProcessor(prompt + longest, end, on),
            "remove_invalid_values": lambda _: t.InfNanRemoveLogitsProcessor(),
            "exponential_decay_length_penalty": lambda decay: t.ExponentialDecayLengthPenalty(
                decay, ends, prompt
            ),
            "suppress_tokens": lambda pieces: t.SuppressTokensLogitsProcessor(pieces, on),
            "begin_suppress_tokens": lambda pieces: t.SuppressTokensAtBeginLogitsProcessor(
                pieces, prompt + (prompt == 1 and "forced_bos_token_id" in self.values), on
            ),
            "temperature": t.TemperatureLogitsWarper,
            "top_h": t.TopHLogitsWarper,
            "top_k": t.TopKLogitsWarper,
            "top_p": t.TopPLogitsWarper,
            "min_p": t.MinPLogitsWarper,
            "typical_p": t.TypicalLogitsWarper,
            "epsilon_cutoff": t.EpsilonLogitsWarper,
            "eta_cutoff": lambda cutoff: t.EtaLogitsWarper(cutoff, device=on),
            "renormalize_logits": lambda _: t.LogitNormalization(),
        }
        return t.LogitsProcessorList([make[name](value) for name, value in self.values.items()])


def generate_options(generation: Any, ends: tuple[int, ...], vocabulary_size: int) -> GenerateOptions:
    """The options of a `GenerationConfig` that change scores.

    Args:
        generation: the configuration.
        ends: the pieces that end a caption.
        vocabulary_size: number of pieces.

    Raises:
        UserError: an option has a value that cannot be used, or is not supported; the message names it.
    """
    from transformers import GenerationConfig

    draws = bool(generation.do_sample)
    neutral = SCORES | (SAMPLING if draws else {}) | LAST
    values = {name: getattr(generation, name, None) for name in neutral}
    if draws and values["top_k"] is None:
        values["top_k"] = 50  # the default of transformers
    if values["min_new_tokens"]:
        values["min_length"] = 0  # as in transformers, it takes precedence
    values = {name: value for name, value in values.items() if value not in (None, neutral[name], [])}
    for name in vars(GenerationConfig()):
        known = SCORES | SAMPLING | LAST
        if name in known or name in OF_THE_SEARCH or name in NOT_OF_PIECES:
            continue
        if (value := getattr(generation, name, None)) not in (None, REFUSED.get(name)):
            raise UserError(
                f"the model's generation_config sets {name} to {value!r}, which is not supported: captions would not "
                "be those of generate; remove it from generation_config.json"
            )
    pieces, scores = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, vocabulary_size)
    for name, value in values.items():
        try:
            GenerateOptions({name: value}, ends).processors(1, 20, scores.device)(pieces, scores.clone())
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{name} of the model's generation_config is {value!r}, which transformers cannot apply: {reason}"
            ) from error
    counts_prompt = generation.max_new_tokens is None
    return GenerateOptions(values, ends, generation.max_length if counts_prompt else None)
