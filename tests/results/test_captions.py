"""Several captions: a list, a gallery in a notebook, a table."""

import sys

import numpy as np
import pytest
from helpers.tiny_captioner import captioner, photo
from PIL import Image

from caption.core.errors import UserError
from caption.results.caption import Caption
from caption.results.captions import SHOWN, Captions


def caption_of(words, name=None, **fields):
    weights = np.full((len(words), 2, 2), 0.2)
    for step in range(len(words)):
        weights[step, 1, 0] = 0.4 + step / 100
    image = Image.new("RGB", (20, 20)) if name is None else name
    log_probs = -np.arange(1.0, len(words) + 1)
    return Caption(" ".join(words), words, weights, -5.0, log_probs, (0, 0, 20, 20), image=image, **fields)


def test_describing_a_list_gives_a_list_that_is_a_gallery_of_the_first_photos():
    found = captioner().describe([photo(), photo(40, 80, 1)])
    assert isinstance(found, list)
    assert isinstance(found[:1], Captions)
    shown = found._repr_html_()
    assert shown.count("<figure>") == 2
    assert str(found[0]) in shown
    assert found.to_html("My photos", style="paper").count("<figure>") == 2
    shown = Captions([caption_of(["dog"])] * (SHOWN + 2))._repr_html_()
    assert shown.count("<figure>") == SHOWN
    assert "2 more photos" in shown
    bare = caption_of(["dog"])
    bare.image = None
    assert Captions([bare])._repr_html_() is Captions()._repr_html_() is None


def test_captions_are_one_line_and_draw_themselves():
    captions = Captions([caption_of(["a", "dog"], photo()), caption_of(["cat"])])
    assert repr(captions) == "Captions(2 photos: 'a dog', 'cat')"
    assert "\n" not in repr(Captions(captions * 50))
    assert len(captions.plot().axes) == 5
    titles = [ax.get_title() for ax in captions.plot(words=1).axes[:-1]]
    assert titles == ["", "dog", "", "cat"]


def test_a_table_has_a_row_for_each_photo_or_word(monkeypatch):
    pytest.importorskip("pandas")
    first = caption_of(["a", "dog"], "x/dog.jpg", gates=[0.1, 0.9])
    captions = Captions([first, caption_of(["cat"]), caption_of([])])
    photos = captions.to_frame()
    assert photos["image"][0] == "x/dog.jpg"
    assert photos["image"].isna().tolist() == [False, True, True]
    assert photos["text"].tolist() == ["a dog", "cat", ""]
    assert photos["length"].tolist() == [2, 1, 0]
    assert photos["sharpest"].tolist()[:2] == ["dog", "cat"]
    assert photos["peak"].tolist()[:2] == pytest.approx([0.41, 0.4])
    words = captions.to_frame(by="word")
    assert words["word"].tolist() == ["a", "dog", "cat"]
    assert words["photo"].tolist() == [0, 0, 1]
    assert words["log_prob"].tolist() == [-1, -2, -1]
    np.testing.assert_allclose(words["gate"], [0.1, 0.9, np.nan], rtol=1e-6)
    assert words[["row", "column"]].to_numpy().tolist() == [[1, 0]] * 3
    assert list(Captions().to_frame(by="word").columns) == list(words.columns)
    cells = captions.to_frame("cells")
    assert len(cells) == sum(caption.weights.size for caption in captions)
    for place, caption in enumerate(captions[:2]):
        of_photo = cells[cells["photo"] == place]
        assert of_photo["weight"].to_numpy() == pytest.approx(caption.weights.ravel())
        assert list(of_photo["word"].unique()) == list(dict.fromkeys(caption.words))
        table = of_photo[of_photo["step"] == 0].pivot(index="row", columns="column", values="weight")
        assert table.to_numpy() == pytest.approx(caption.weights[0])
        assert caption.to_frame("cells")["weight"].to_numpy() == pytest.approx(caption.weights.ravel())
    with pytest.raises(ValueError, match='"photo", "word" or "cells"'):
        captions.to_frame(by="letter")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        captions.to_frame()
