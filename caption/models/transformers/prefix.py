"""Language models that read image tokens among their own, before the words or inside a prompt.

The tokens before the words are read once. Their keys and values are the memory of the image: those of the photo's
patches, and those without a place in the photo, class tokens and the text of the prompt.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from transformers.cache_utils import DynamicCache

from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.tensor_tree import TensorTree
from caption.models.transformers.chat_templates import limited_templates
from caption.models.transformers.families import end_pieces
from caption.models.transformers.model import Attend, ImageTokens, Memory
from caption.models.transformers.transformers_model import NAME, TransformersModel, layer_memories


class Prefix(NamedTuple):
    """The tokens before the words, for B images."""

    cache: Any  # a DynamicCache, whose layers are declared with several types
    """Its keys and values in each layer."""
    patches: Tensor
    """(L,) int64, which of its tokens are patches, in the order of the views."""
    position: int
    """Position of the next piece."""
    pieces: Tensor
    """(B, P) int64, the pieces among them, those in the place of image tokens included, but the last."""


class PrefixModel(TransformersModel):
    """A language model whose layers attend to image tokens and to words at once."""

    @abstractmethod
    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        """Read the tokens before the words.

        Args:
            tokens: of B images.
            mask: see `memory`.
        """

    def position_ids(self, positions: Tensor) -> Tensor:
        """The model's argument for one piece of R captions at positions (R,)."""
        return positions[:, None]

    def memory(self, tokens: ImageTokens, mask: Tensor | None) -> Memory:
        cache, patches, position, pieces = self.prefix(tokens, mask)
        first_view = tokens.patches[0]
        layers = layer_memories(cache.layers, patches, mask, first_view.shape[1])
        no_words = tuple((layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in cache.layers)
        positions = torch.full((len(first_view),), position, device=first_view.device)
        return Memory(layers, (positions, no_words), pieces)

    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        positions, words = past
        cache: Any = DynamicCache(words)
        with self.routed(attend, words=True):
            output = self.whole(
                input_ids=pieces[:, None],
                position_ids=self.position_ids(positions),
                cache=cache,
                use_cache=True,
            )
        extended = tuple((layer.keys, layer.values) for layer in cache.layers)
        return output.logits[:, -1], (positions + 1, extended)


UNSUPPORTED = ("attn_logit_softcapping", "use_sliding_window", "sliding_window")
"""Settings of a text model that change its attention."""


class Prompt(NamedTuple):
    """The processor's output for a question about a photo."""

    pieces: Tensor
    """(P,) int64, image tokens among them."""
    patches: Tensor
    """(L,) int64, which of them are patches, in the order of the views."""
    position_ids: Tensor
    """(..., 1, P), the model's argument."""


class PromptModel(PrefixModel):
    """A language model that is asked about a photo, with image tokens inside its prompt.

    Args:
        model, processor, tokenizer: of transformers; the processor expands the image's place in a prompt, and the
            layers of the model's decoder use the attention interface.

    Raises:
        UserError: the processor or the language model is not supported; the message gives the reason.
    """

    processor_loader = "AutoProcessor"
    first_question: str = "Describe this image in one short sentence."

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        if not hasattr(processor, "image_processor"):
            raise UserError(
                f"{type(model).__name__} needs a prompt, which {type(processor).__name__} does not write: give the "
                "whole processor, as AutoProcessor of transformers reads it"
            )
        language_model = model.get_decoder()
        text = language_model.config
        settings = [name for name in UNSUPPORTED if getattr(text, name, None)]
        if settings:
            raise UserError(
                f"the text model of {type(model).__name__} changes its attention by {settings[0]}, which is not "
                "supported: use a model without it, such as the first PaliGemma"
            )
        ends = end_pieces(model) or end_pieces(model, tokenizer.eos_token_id)
        super().__init__(model, processor.image_processor, tokenizer, [0], ends)
        self.processor, self.region_size = processor, text.hidden_size
        self.prompts: dict[tuple[Grid, ...], Prompt] = {}
        self.question = self.first_question
        language_model.set_attn_implementation(NAME)
        sites = [layer.self_attn for layer in language_model.layers]
        self.set_sites(sites, [text.num_attention_heads] * len(sites))

    @property
    def question(self) -> str:
        """The question to the model about a photo; may be set."""
        return self._question

    @question.setter
    def question(self, question: str) -> None:
        self._question = question
        self.prompts.clear()
        self.start = int(self.asked(Image.new("RGB", (64, 48)))["input_ids"][0, -1])
        self.prompt = (self.start,)

    def asked(self, photo: Image.Image) -> Any:
        """The processor's output for the question about a photo."""
        if not getattr(self.processor, "chat_template", None):
            text = self.processor.image_token + self.question
            return self.processor(images=[photo], text=[text], return_tensors="pt")
        content = [{"type": "image", "image": photo}, {"type": "text", "text": self.question}]
        with limited_templates():
            return self.processor.apply_chat_template(
                [{"role": "user", "content": content}],
                add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
            )  # fmt: skip

    def blank(self, grids: tuple[Grid, ...]) -> Image.Image:
        """A photo to which the processor gives these grids; any photo, if it gives all the same."""
        return Image.new("RGB", (64, 48))

    def order(self, grids: tuple[Grid, ...]) -> Tensor:
        """(L,) int64: the model's indices of the image tokens, view by view, each in row order."""
        return torch.arange(sum(rows * cols for rows, cols in grids))

    def positions(self, inputs: Any) -> Tensor:
        """`position_ids` (..., 1, P) of the processor's output."""
        return torch.arange(inputs["input_ids"].shape[1])[None]

    def options(self, pieces: Tensor) -> dict[str, Tensor]:
        """More arguments of the model for a prompt (B, P)."""
        return {}

    def prompt_on(self, grids: tuple[Grid, ...]) -> Prompt:
        """The question about a photo on these grids.

        Raises:
            UserError: the processor makes a different number of image tokens.
        """
        if grids not in self.prompts:
            inputs = self.asked(self.blank(grids))
            pieces, order = inputs["input_ids"][0], self.order(grids)
            image = (pieces == self.processor.image_token_id).nonzero()[:, 0]
            if len(image) != len(order):
                raise UserError(
                    f"{type(self.processor).__name__} writes {len(image)} image tokens for a photo of which "
                    f"{type(self.whole).__name__} makes {len(order)}: they do not belong together; check image_seq_len "
                    "in processor_config.json"
                )
            self.check_pieces(pieces[pieces != self.processor.image_token_id].tolist())
            self.prompts[grids] = Prompt(pieces, image[order], self.positions(inputs))
        return self.prompts[grids]

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        patches = torch.cat(tokens.patches, 1)
        prompt = Prompt(*map(partial(torch.Tensor.to, device=patches.device), self.prompt_on(tokens.grids)))
        pieces = prompt.pieces.expand(len(patches), -1)
        # The image's piece may have no embedding.
        text = pieces.where(pieces != self.processor.image_token_id, self.start)
        embedded = self.whole.get_input_embeddings()(text).index_copy(1, prompt.patches, patches)
        attention_mask = None
        if mask is not None:
            attention_mask = torch.ones_like(pieces).index_copy(1, prompt.patches, mask.long())
        cache = DynamicCache()
        self.whole(
            inputs_embeds=embedded,
            attention_mask=attention_mask,
            position_ids=prompt.position_ids.expand(*prompt.position_ids.shape[:-2], len(patches), -1),
            logits_to_keep=1,
            **self.options(pieces),
            cache=cache,
            use_cache=True,
        )
        cache.crop(-1)  # the last piece of the prompt is fed to the first step
        return Prefix(cache, prompt.patches, int(prompt.position_ids.flatten()[-1]), pieces[:, :-1])
