"""Published scores, and pycocoevalcap's on made-up captions."""

from __future__ import annotations

import pytest
from helpers.shared_data import GOLDENS, golden, needs_goldens, needs_pycocoevalcap
from hypothesis import given, settings
from hypothesis import strategies as st

from caption.metrics import References, evaluate
from caption.text.tokenizer import get_tokenizer

NAMES = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"]


@pytest.fixture(scope="module")
def fake_captions():
    candidates = golden("coco_fakecap/candidates_tokenized.json")
    return {image: texts[0] for image, texts in candidates.items()}


@pytest.fixture(scope="module")
def references():
    return golden("coco_fakecap/references_tokenized.json")


def nlg_eval():
    files = [GOLDENS / "nlg_eval" / f"{name}.txt" for name in ("hyp", "ref1", "ref2")]
    candidates, *pairs = (file.read_text().splitlines() for file in files)
    return dict(enumerate(candidates)), dict(enumerate(map(list, zip(*pairs, strict=True))))


def assert_published(scores, folder):
    expected = golden(f"{folder}/expected.json")["scores"]
    assert [scores[name] for name in NAMES] == pytest.approx([expected[name] for name in NAMES], abs=1e-6)


@needs_goldens
class TestPublished:
    def test_fake_captions_tokenized(self, fake_captions, references):
        scores = evaluate(fake_captions, references, "none")
        assert_published(scores, "coco_fakecap")
        counts = golden("coco_fakecap/expected.json")["counts"]
        summed = scores.score("BLEU-4").statistics.sum(axis=0)
        assert summed[:6].tolist() == [counts["test_len"], counts["ref_len"], *counts["correct"]]

    def test_fake_captions_raw(self, references):
        raw = golden("coco_fakecap/candidates_raw_coco_results.json")
        candidates = {str(entry["image_id"]): entry["caption"] for entry in raw}
        scores = evaluate(candidates, References(references, get_tokenizer("none")), "ptb")
        assert_published(scores, "coco_fakecap")
        assert scores.signature.startswith("tok:ptb-1|reftok:none-1|")

    @pytest.mark.parametrize("tokenizer", ["none", "ptb"])
    def test_nlg_eval(self, tokenizer):
        assert_published(evaluate(*nlg_eval(), tokenizer), "nlg_eval")


words = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), min_size=1, max_size=9).map(" ".join)
images = st.lists(
    st.tuples(words | st.just(""), st.lists(words, min_size=1, max_size=4)), min_size=2, max_size=6
)


@needs_pycocoevalcap
@settings(deadline=None)
@given(images)
def test_made_up_captions_score_as_in_pycocoevalcap(corpus):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    candidates = {place: candidate for place, (candidate, _) in enumerate(corpus)}
    references = {place: texts for place, (_, texts) in enumerate(corpus)}
    lists = {place: [candidate] for place, candidate in candidates.items()}
    scores = evaluate(candidates, references, "none")

    bleu, bleu_images = Bleu(4).compute_score(references, lists, verbose=0)
    rouge, rouge_images = Rouge().compute_score(references, lists)
    cider, cider_images = Cider().compute_score(references, lists)
    theirs = [*bleu, rouge, cider]
    assert [scores[name] for name in NAMES] == pytest.approx(theirs, abs=1e-9)
    for name, per_image in zip(NAMES, [*bleu_images, rouge_images, cider_images], strict=True):
        assert list(scores.score(name).per_image.values()) == pytest.approx(list(per_image), abs=1e-9)
