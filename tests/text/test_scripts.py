"""Languages without spaces between words: refused by word tokenizers, read by character."""

from __future__ import annotations

from collections import Counter

import pytest

from caption.core.errors import DataError, UserError
from caption.metrics.evaluation import evaluate
from caption.text.scripts import unspaced
from caption.text.tokenizer import get_tokenizer
from caption.text.vocabulary import Vocabulary

CHARACTERS = get_tokenizer("characters")
CHINESE = ["一只棕色的狗在草地上奔跑。", "两个孩子在海滩上踢足球。"]
JAPANESE = ["茶色い犬が草原を走っている。", "二人の子供が浜辺でサッカーをしている。"]
THAI = ["สุนัขสีน้ำตาลวิ่งบนสนามหญ้า", "เด็กสองคนเล่นฟุตบอลบนชายหาด"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("一只dog在跑。", ["一", "只", "dog", "在", "跑"]),
        ("穿T-Shirt的人，2个！", ["穿", "t-shirt", "的", "人", "2", "个"]),
        ("サッカーをする", ["サ", "ッ", "カ", "ー", "を", "す", "る"]),
        ("か\u3099あ\u3099き", ["が", "あ\u3099", "き"]),
        ("𠮷野家・本店", ["𠮷", "野", "家", "本", "店"]),
        ("A man's dog.", ["a", "man", "'s", "dog"]),
        ("「」", []),
    ],
)
def test_characters_are_words_and_other_scripts_keep_theirs(text: str, words: list[str]):
    assert CHARACTERS(text) == words
    assert CHARACTERS(CHARACTERS.join(words)) == words


def test_words_are_joined_as_the_languages_are_written():
    assert CHARACTERS.join(["一", "只", "big", "dog", "か\u3099", "き"]) == "一只 big dog か\u3099き"
    assert get_tokenizer("ptb").join(["a", "dog"]) == "a dog"


def test_clauses_in_place_of_words_are_refused_with_the_remedy():
    for captions, remedy in (
        (CHINESE, "Chinese or Japanese, without spaces.*'characters'"),
        (JAPANESE, "Chinese or Japanese, without spaces.*'characters'"),
        (THAI, "Thai, without spaces.*PyThaiNLP"),
        (
            [f"T{text}" for text in CHINESE],
            "Chinese or Japanese, without spaces.*'characters'",
        ),  # T恤, a T-shirt
        ([f"2{text}" for text in CHINESE], "Chinese or Japanese, without spaces.*'characters'"),
    ):
        with pytest.raises(DataError, match=f"give no words: they are {remedy}"):
            Vocabulary.build(captions, min_count=1)
        with pytest.raises(UserError, match=f"references give no words: they are {remedy}"):
            evaluate({"1": captions[0]}, {"1": captions})


def test_a_second_language_without_spaces_is_refused():
    english = ["A brown dog runs over the grass.", "The dog is on a wide lawn.", "A dog is running."]
    with pytest.raises(
        DataError, match=r"some of them are Chinese or Japanese, without spaces.*'characters'"
    ):
        Vocabulary.build(CHINESE + english * 2, min_count=1)
    assert len(Vocabulary.build(english * 20 + CHINESE, min_count=1)) > 12


def test_words_with_spaces_between_them_are_words():
    for text in ("一只 棕色 的 狗 在 草地 上 奔跑", "สุนัข สี น้ำตาล วิ่ง บน สนามหญ้า", "a dog in the 中国 room"):
        assert unspaced(Counter(text.split())) is None
    assert len(Vocabulary.build(["เด็ก สอง คน เล่น"], 1, "none")) == 8


@pytest.mark.parametrize(
    "text",
    [
        "ಕಂದು ಬಣ್ಣದ ನಾಯಿ ಹುಲ್ಲಿನ ಮೇಲೆ ಓಡುತ್ತಿದೆ",
        "දුඹුරු බල්ලෙක් තණකොළ මත දුවයි",
        "ଗୋଟିଏ ବାଦାମୀ କୁକୁର ଘାସ ଉପରେ ଦୌଡୁଛି",
        "ཁྱི་ ཞིག་ རྒྱུག་ བཞིན་ འདུག",
        "ഒരു തവിട്ടുനിറമുള്ള നായ പുല്ലിൽ ഓടുന്നു",
        "ਇੱਕ ਭੂਰਾ ਕੁੱਤਾ ਘਾਹ ਉੱਤੇ ਦੌੜਦਾ ਹੈ",
        "ခွေး တစ်ကောင် ပြေး နေ သည်",
        "ឆ្កែ ពណ៌ត្នោត កំពុង រត់",
    ],
)
def test_scripts_whose_signs_ptb_drops_are_refused_there_and_scored_by_none(text: str):
    with pytest.raises(DataError, match="drops vowel signs of their script: take 'none'"):
        Vocabulary.build([text], min_count=1)
    with pytest.raises(UserError, match="references give no words: the tokenizer drops vowel signs"):
        evaluate({"1": text}, {"1": [text]})
    vocabulary = Vocabulary.build([text], 1, "none")
    assert vocabulary.scored_by == "none"
    assert evaluate({"1": text}, {"1": [text]}, vocabulary.scored_by)["BLEU-1"] == pytest.approx(1)


def test_other_languages_are_scored_as_before():
    for text in (
        "एक भूरा कुत्ता घास पर दौड़ता है",
        "ஒரு பழுப்பு நாய் புல்லில் ஓடுகிறது",
        "a dog runs by a sign that says ខ្មែរ",
    ):
        assert Vocabulary.build([text], min_count=1).scored_by == "ptb"
        assert Vocabulary.build([text], 1, "none").scored_by == "ptb"
    assert Vocabulary.build(CHINESE, 1, "characters").scored_by == "characters"


def test_perfect_captions_have_perfect_scores_by_character():
    references = {str(number): [text, text] for number, text in enumerate(CHINESE + JAPANESE)}
    scores = evaluate({image: texts[0] for image, texts in references.items()}, references, "characters")
    assert [scores[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx([1.0] * 4)
    assert scores.signature.startswith("tok:characters-1|case:lower|punct:removed")
