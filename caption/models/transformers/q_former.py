"""BLIP-2 and InstructBLIP, whose language model reads a photo through the query tokens of a Q-Former."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from caption.attention.maps import hide_masked
from caption.core.errors import UserError
from caption.models.transformers.families import check_processor, end_pieces
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.prefix import Prefix, PrefixModel
from caption.models.transformers.transformers_model import NAME, routed


class Blip2(PrefixModel):
    """`Blip2ForConditionalGeneration` and `InstructBlipForConditionalGeneration`: a ViT, a Q-Former, and a language
    model such as OPT or LLaMA, which reads the query tokens, then the question.

    Maps lie on the patches of the ViT: the language model's attention to a query token is divided among the patches
    that the token has read, see `read_queries` and `PatchAttention`.
    """

    processor_loader = "AutoProcessor"
    is_probed = True

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        if not model.config.use_decoder_only_language_model:
            raise UserError(
                f"the language model of {type(model).__name__} has an encoder of its own, through which query tokens "
                "are not followed here: use weights with OPT, LLaMA or another decoder alone"
            )
        check_processor(model, processor)
        language_model = model.language_model
        ends = end_pieces(language_model) or end_pieces(model, tokenizer.eos_token_id)
        super().__init__(model, processor, tokenizer, [0], ends)
        self.question_tokenizer = getattr(processor, "qformer_tokenizer", None)
        self.question = "A short image description." if self.question_tokenizer else ""
        self.generation = language_model.generation_config  # the one that `generate` uses
        self.tower, self.region_size = model.vision_model, model.config.vision_config.hidden_size
        decoder = language_model.get_decoder()
        for part in (decoder, model.qformer):
            part.set_attn_implementation(NAME)
        sites = [layer.self_attn for layer in decoder.layers]
        self.set_sites(sites, [language_model.config.num_attention_heads] * len(sites))

    @property
    def language_model(self) -> Any:
        return self.whole.language_model

    def prompt_of(self, question: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(question)["input_ids"])

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        read = self.question_tokenizer(self.question)["input_ids"] if self.question_tokenizer else []
        queries, shares = read_queries(self.whole, tokens, mask, read)
        images, count = queries.shape[:2]
        fed = [self.whole.config.image_token_id] * count + [*self.prompt[:-1]]
        pieces = torch.tensor(fed, device=queries.device).expand(images, -1)
        words = self.language_model.get_input_embeddings()(pieces[:, count:])
        cache = DynamicCache()
        self.language_model(
            inputs_embeds=torch.cat((queries.to(words), words), 1), cache=cache, use_cache=True
        )
        places = torch.arange(count, device=queries.device)
        return Prefix(cache, places, places.new_full((1,), len(fed)), pieces, shares)


def read_queries(
    model: Any, tokens: ImageTokens, mask: Tensor | None, question: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Let the query tokens of a Q-Former read photos.

    What a token has read is a rollout (Abnar and Zuidema 2020) in which all layers that read the photo count the same:
    in each layer, half of a token stays, and half is what it attends to among tokens, with what these have read. If the
    photo counted half in each layer, too, as in their paper, the last layer would make up half of all. In random
    Q-Formers, what hiding a patch changes agrees better with this than with that, or with the mean of all layers.

    Args:
        model: with `qformer`, `query_tokens` and `language_projection`; the attention of `qformer` is `NAME`.
        tokens: of B photos, with L patches.
        mask: (B, L) bool, True for patches that may be read; None = all.
        question: the pieces that the Q-Former reads, too, in InstructBLIP.

    Returns:
        (B, Q, D) the query tokens for the language model, and (B, Q, L + 1) the shares of the patches in what each has
        read; the last one is that of class tokens and of the question.
    """
    (patches,), others = tokens.patches, tokens.class_tokens
    image = torch.cat((others, patches), 1)
    visible = None if mask is None else torch.cat((mask.new_ones(others.shape[:2]), mask), 1)
    queries = model.query_tokens.expand(len(image), -1, -1)
    asked = {"input_ids": torch.tensor([question] * len(image), device=image.device)} if question else {}
    layers = model.qformer.encoder.layer
    to_patches = {id(layer.crossattention.attention) for layer in layers if layer.has_cross_attention}
    kind = torch.promote_types(image.dtype, torch.float32)
    read = image.new_zeros(len(image), queries.shape[1] + len(question), image.shape[1], dtype=kind)

    def route(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
        nonlocal read
        is_cross = id(module) in to_patches
        scores = (query @ key.mT).to(kind)
        weights = (hide_masked(scores, visible) if is_cross else scores).softmax(-1)
        mean = weights.mean(1)
        if is_cross:
            rows = mean.shape[1]  # the question's pieces do not read the photo
            read = torch.cat((read[:, :rows] + mean / len(to_patches), read[:, rows:]), 1)
        else:
            read = (read + mean @ read) / 2
        return (weights.to(value.dtype) @ value).transpose(1, 2)

    with routed(route):
        output = model.qformer(query_embeds=queries, encoder_hidden_states=image, **asked)
    of_patches = read[:, : queries.shape[1], others.shape[1] :]
    rest = 1 - of_patches.sum(-1, keepdim=True)
    features = model.language_projection(output.last_hidden_state[:, : queries.shape[1]].to(image.dtype))
    return features, torch.cat((of_patches, rest), -1)
