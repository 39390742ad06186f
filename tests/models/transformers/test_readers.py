"""Models whose language model reads no patches, but what another part has read of them: they are loaded, probed, and
refused where their maps cannot be placed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("transformers")
import transformers
from helpers.tiny_foreign import Tiny, blip, pix2struct, save, swin_gpt2, vit_gpt2
from helpers.tiny_image_text import llava_next
from helpers.tiny_readers import QUERIES, blip2, florence2, kosmos2

import caption
from caption.analysis.maps import maps
from caption.analysis.pruned_heads import head_pruning
from caption.analysis.replay import Replay, sentences
from caption.cli.main import main
from caption.core.errors import UserError
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.probe import SIZES, probe
from caption.models.transformers.q_former import read_queries
from caption.models.transformers.transformers_model import NAME

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))


@pytest.mark.parametrize("family", QUERIES)
def test_a_folder_is_loaded_with_a_question_in_half_precision(
    family: str, tmp_path: Path, capsys: Any
) -> None:
    folder = save(QUERIES[family](), tmp_path)
    question = "a red circle"
    captioner: Any = caption.load(f"transformers:{folder}", question=question, dtype="float16")
    assert captioner(PHOTO).weights.shape[1:] == (4, 4)
    asked = captioner.decoder.model.asked(PHOTO)
    asked["pixel_values"] = asked["pixel_values"].half()
    auto = transformers.AutoModelForImageTextToText
    theirs = auto.from_pretrained(folder, dtype="float16").generate(**asked)
    ours = [captioner.vocabulary[word] - 4 for word in captioner(PHOTO).stepwise.words]
    assert ours == theirs[0, asked["input_ids"].shape[1] :].tolist()
    assert main(["probe", f"transformers:{folder}"]) == 0
    assert "16 of 16 answer to their own cell" in capsys.readouterr().out


@pytest.mark.parametrize("family", QUERIES)
def test_patches_answer_to_their_own_cells_and_permuted_ones_are_refused(
    family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for size in SIZES:
        (view,) = probe(from_transformers(*QUERIES[family]()), size)
        assert not view.wrong
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    tiny = QUERIES[family]()
    tower = tiny.model.vision_model
    getattr(tower, "model", tower).embeddings.register_forward_hook(
        lambda module, args, output: torch.cat((output[:, :1], output[:, 1:].flip(1)), 1)
    )
    with pytest.raises(
        UserError, match=r"16 of 16 answer to other parts.*row 0, column 0 to row 3, column 3"
    ):
        from_transformers(*tiny)


@pytest.mark.parametrize("build", [florence2, pix2struct, llava_next, swin_gpt2])
def test_towers_that_mix_channels_or_take_patches_tiles_or_windows_are_not_rolled_out(
    build: Callable[[], Tiny],
) -> None:
    with pytest.raises(UserError, match="no vision tower with a token for each patch"):
        maps(from_transformers(*build()), PHOTO, method="rollout")


def test_a_head_is_removed_from_tiles_and_thumbnail_together() -> None:
    captioner: Any = from_transformers(*llava_next())
    captions = captioner.describe([PHOTO])
    pruning = head_pruning(captioner, PHOTO, captions)
    assert sorted(pruning.order) == [0, 1, 2, 3]  # two of each layer
    (batch,), replay = sentences(captioner, PHOTO, captions), Replay(captioner.decoder)
    for step, log_probs in zip(replay.steps(batch), pruning.log_probs, strict=True):
        without = replay.rerun(step, replay.over_grids(lambda map_, grid: map_ * 0, step))
        assert log_probs[-1] == pytest.approx(float(step.of_word(without)), abs=1e-5)


@pytest.mark.parametrize("build", [pix2struct, swin_gpt2])
def test_relevance_is_not_carried_through_towers_of_patches_or_windows(build: Callable[[], Tiny]) -> None:
    with pytest.raises(UserError, match="does not give: take attention-x-gradient"):
        maps(from_transformers(*build()), PHOTO, method="relevance")


@pytest.mark.parametrize("build", [vit_gpt2, blip, blip2, QUERIES["instructblip"], florence2, kosmos2])
def test_a_question_of_more_pieces_than_the_model_has_positions_for_is_refused(
    build: Callable[[], Tiny],
) -> None:
    captioner: Any = from_transformers(*build())
    with pytest.raises(
        UserError, match=r"the model reads at most \d+ pieces of text, and the question has more"
    ):
        captioner.decoder.model.question = " ".join(["a red circle"] * 700)


def test_the_encoder_of_florence2_reads_the_photo_too() -> None:
    captioner: Any = from_transformers(*florence2())
    captioner.decoder.model.question = "a" * 120
    with pytest.raises(UserError, match=r"photo and question are \d+ pieces, and the encoder reads 128"):
        captioner(PHOTO)


@pytest.mark.parametrize("size", [36, 40])
def test_a_tower_that_pads_its_patches_to_merge_them_is_refused(size: int) -> None:
    with pytest.raises(UserError, match=rf"{size}x{size} pixels, which fill no grid of its patches of 4x4"):
        from_transformers(*swin_gpt2(size))


def test_a_language_model_with_an_encoder_behind_query_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="has an encoder of its own, through which query tokens"):
        from_transformers(*blip2(model_type="t5", d_model=16, d_ff=32, d_kv=8, num_heads=2, num_layers=1))


def test_a_piece_of_padding_in_a_caption_of_kosmos2_has_no_position() -> None:
    tiny = kosmos2()
    given = tiny.processor(images=PHOTO, text="An image of", return_tensors="pt")
    fed, padding = given["input_ids"].shape[1], tiny.model.config.text_config.pad_token_id
    first = int(tiny.model.generate(**given, max_new_tokens=1)[0, fed])
    generation = tiny.model.text_model.generation_config
    generation.update(sequence_bias=[[[first, padding], 100.0]], max_new_tokens=6, num_beams=3)
    theirs = tiny.model.generate(**given, return_dict_in_generate=True, output_scores=True)
    captioner = from_transformers(*tiny)
    caption = captioner(PHOTO)
    ours = [captioner.vocabulary[word] - 4 for word in caption.stepwise.words]
    assert padding in ours[:-1]
    assert ours == theirs.sequences[0, fed:].tolist()
    biased = (caption.log_prob + 100) / 6
    assert biased == pytest.approx(float(theirs.sequences_scores[0]), abs=1e-4)


@pytest.mark.parametrize("build", [*QUERIES.values(), florence2])
def test_an_image_processor_alone_writes_no_prompt(build: Callable[[], Tiny]) -> None:
    model, processor, tokenizer = build()
    with pytest.raises(UserError, match="give the whole processor"):
        from_transformers(model, processor.image_processor, tokenizer)


def test_an_encoder_reads_a_task_whose_words_have_no_maps(tmp_path: Path, capsys: Any) -> None:
    folder, photo = save(florence2(), tmp_path / "model"), tmp_path / "a.png"
    PHOTO.save(photo)
    asked = ["--question", "<DETAILED_CAPTION>", "--html", str(tmp_path / "a.html")]
    assert main(["describe", "--model", f"transformers:{folder}", *asked, str(photo)]) == 0
    captioner: Any = caption.load(f"transformers:{folder}", question="<DETAILED_CAPTION>")
    assert capsys.readouterr().out.strip() == captioner(PHOTO).text
    assert captioner(PHOTO).log_prob != caption.load(f"transformers:{folder}")(PHOTO).log_prob
    with pytest.raises(UserError, match="Florence2 reads the words of a question all at once"):
        captioner.question(PHOTO)


def test_convolutions_read_before_the_photo_and_other_orders_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captioner = from_transformers(*florence2())
    # Two convolutions, 7 wide with stride 4 and 3 wide with stride 2: the first output is that of pixels -3.5 to 4.5.
    assert captioner(PHOTO).box == pytest.approx(
        (-3.5 / 32 * 60, -3.5 / 32 * 40, 28.5 / 32 * 60, 28.5 / 32 * 40)
    )
    for size in SIZES:
        (view,) = probe(captioner, size)
        assert not view.wrong
        assert view.margin > 2
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    tiny = florence2()
    tiny.model.model.multi_modal_projector.register_forward_hook(
        lambda module, args, output: output.flip(1).roll(1, 1)
    )
    with pytest.raises(
        UserError, match=r"16 of 16 answer to other parts.*row 0, column 0 to row 3, column 3"
    ):
        from_transformers(*tiny)


@torch.no_grad()
def test_what_query_tokens_have_read_agrees_with_what_hiding_a_patch_changes() -> None:
    """Better than the mean of the layers that read the photo, and than a rollout in which each of them counts half."""

    def ranks(numbers: Tensor) -> Tensor:
        centred = numbers.argsort(-1).argsort(-1).double()
        centred -= centred.mean(-1, keepdim=True)
        return centred / centred.norm(dim=-1, keepdim=True)

    agreement: dict[str, float] = defaultdict(float)
    for seed in range(4):
        torch.manual_seed(seed)
        sizes = {
            "hidden_size": 64,
            "num_attention_heads": 4,
            "intermediate_size": 256,
            "encoder_hidden_size": 64,
        }
        qformer = transformers.Blip2QFormerModel(
            transformers.Blip2QFormerConfig(**sizes, num_hidden_layers=12, initializer_range=0.15)
        ).eval()
        qformer.set_attn_implementation("eager")
        layers: list[Tensor] = []
        hooks = [
            module.register_forward_hook(
                lambda module, args, output, layers=layers: layers.append(output[1][0].mean(0))
            )
            for name, module in qformer.named_modules()
            if name.endswith("attention.attention")
        ]
        patches, queries = torch.randn(1, 64, 64), torch.randn(1, 16, 64)
        qformer(query_embeds=queries, encoder_hidden_states=patches)
        for hook in hooks:
            hook.remove()
        crossing = [weights for weights in layers if weights.shape[1] == 64]
        halves = torch.zeros(16, 64)
        for weights in layers:
            halves = (halves + (weights if weights.shape[1] == 64 else weights @ halves)) / 2

        qformer.set_attn_implementation(NAME)
        model = SimpleNamespace(
            qformer=qformer, query_tokens=queries, language_projection=torch.nn.Identity()
        )
        no_class = torch.zeros(1, 0, 64)
        seen, shares = read_queries(model, ImageTokens((patches,), ((8, 8),), no_class), None, [])
        every = ImageTokens((patches.expand(64, -1, -1),), ((8, 8),), no_class.expand(64, -1, -1))
        hidden, _ = read_queries(model, every, ~torch.eye(64, dtype=torch.bool), [])
        effect = ranks((hidden - seen).norm(dim=-1).T)
        read = {"ours": shares[0, :, :-1], "mean": torch.stack(crossing).mean(0), "halves": halves}
        for name, weights in read.items():
            agreement[name] += float((ranks(weights) * effect).sum(-1).mean()) / 4
    assert agreement["ours"] > 0.65
    assert agreement["ours"] > max(agreement["mean"], agreement["halves"]) + 0.03, agreement
