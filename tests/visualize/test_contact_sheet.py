"""The contact sheet: photos, maps and captions, each on a scale of its own."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

from caption.core.regions import WeightProperties
from caption.results.lens_reading import OUT_OF_DISTRIBUTION, Doubt, LensReading, Seen
from caption.visualize import contact_sheet
from caption.visualize.contact_sheet import HEIGHT, summary_map
from caption.visualize.scale import Scale, scale_of
from caption.visualize.styles import OverlayStyle
from caption.visualize.tiles import caption_tiles

WIDE, TALL = (500, 375), (160, 240)


@pytest.fixture
def dog():
    weights = [[[0.7, 0.1, 0.2], [0, 0, 0]], [[0, 0.2, 0.2], [0.2, 0.2, 0.2]]]
    return caption_of(["$dog$", "runs"], weights, gates=[0.25, 0.75])


def test_a_sheet_shows_every_photo_its_map_and_its_caption_on_a_scale_of_its_own(dog):
    cat = caption_of(["cat"], np.full((1, 4, 4), 1 / 16), TALL)
    photos = [Image.new("RGB", WIDE), Image.new("RGB", TALL)]
    fig = contact_sheet([dog, cat], photos, columns=1, names=["a dog.jpg", "cat.jpg"])
    first, first_map, second, second_map, legend = fig.axes
    texts = [text.get_text() for text in fig.texts]
    assert texts == ["a dog.jpg   α ≤ 0.7", "$dog$ runs", "cat.jpg   α ≤ 0.062", "cat"]
    assert [len(ax.images) for ax in fig.axes[:4]] == [1, 2, 1, 2]
    assert first.get_xlim() == (0, WIDE[0])
    assert second.get_xlim() == (0, TALL[0])
    high = float(np.float32(0.7))
    assert first_map.images[1].get_clim() == (0, high)
    assert second_map.images[1].get_clim() == (0, 1 / 16)
    assert not legend.get_xticks().size  # no one number
    np.testing.assert_allclose(first_map.images[1].get_array(), [[0.7, 0.2, 0.2], [0.2, 0.2, 0.2]], rtol=1e-6)
    assert "each photo has a scale of its own" in legend.texts[0].get_text()
    one = contact_sheet([dog, cat], photos, names=["a dog.jpg", "cat.jpg"], scale=Scale(0, 0.8))
    assert {ax.images[1].get_clim() for ax in one.axes[1:4:2]} == {(0, 0.8)}
    assert "one scale for all photos" in one.axes[-1].texts[0].get_text()
    assert one.texts[0].get_text() == "a dog.jpg"
    assert summary_map(caption_of([], np.zeros((0, 2, 3)))).tolist() == [[0, 0, 0], [0, 0, 0]]
    dog.image = photos[0]
    assert len(contact_sheet([dog] * 4).axes) == 9  # over the photos that captions carry


def test_the_scale_of_the_guide_is_that_of_what_is_drawn(dog):
    guide = (Path(__file__).parents[2] / "docs" / "pictures.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"`scale=(.*caption\.weights for caption in captions.*?)`", guide)
    names = {"OverlayStyle": OverlayStyle, "scale_of": scale_of, "captions": [dog]}
    own = caption_tiles(dog, Image.new("RGB", WIDE), style="paper").scale
    assert eval(recipe, names) == own
    assert own.high < scale_of(dog.weights).high / 2  # on that of the weights, all would be dark


@pytest.mark.parametrize(
    ("number", "arguments", "said"),
    [
        (0, {}, "at least one"),
        (1, {}, "carry no photo"),
        (1, {"images": [Image.new("RGB", WIDE)], "columns": 0}, "columns"),
        (1, {"images": [Image.new("RGB", WIDE)], "names": ["a", "b"]}, "1 photos need as many names"),
    ],
)
def test_an_impossible_sheet_raises_an_error(dog, number, arguments, said):
    with pytest.raises(ValueError, match=said):
        contact_sheet([dog] * number, **arguments)


def test_signed_maps_keep_the_weight_furthest_from_zero(dog):
    dog.properties = WeightProperties(sums_to_one=False, signed=True)
    dog.weights[1, 0, 0] = -0.9
    np.testing.assert_allclose(summary_map(dog)[0, 0], -0.9)
    fig = contact_sheet([dog], [Image.new("RGB", WIDE)])
    high = float(np.float32(0.9))
    assert fig.axes[1].images[1].get_clim() == (-high, high)
    assert "orange above 0" in fig.axes[-1].texts[0].get_text()


SIZES = [(500, 375), (375, 500), (640, 480), (300, 900), (1200, 400), (500, 500), (480, 640), (500, 333)]


def sheet_of(sizes, **options):
    words = ["a", "dog", "in", "the", "snow"]
    captions = [caption_of(words, size=size) for size in sizes]
    return contact_sheet(captions, [Image.new("RGB", size, (90, 90, 90)) for size in sizes], **options)


@pytest.mark.parametrize("count", [2, 16])
def test_rows_are_packed_without_holes_and_no_text_lies_on_a_picture_or_other_text(count):
    sizes = (SIZES * 5)[:count]
    fig = sheet_of(sizes)
    fig.draw_without_rendering()
    pictures = [ax.get_window_extent() for ax in fig.axes]
    boxes = pictures[:-1]
    for box, size in zip(boxes, [size for size in sizes for _ in range(2)], strict=True):
        assert box.width / box.height == pytest.approx(size[0] / size[1], rel=0.01)
    rows: dict[int, list] = {}
    for box in boxes:
        rows.setdefault(round(box.y1), []).append(box)
    edges = [max(box.x1 for box in row) for row in rows.values()]
    if count > 2:
        assert np.ptp(edges[:-1]) < 2  # every full row ends where the others do
        assert max(edges) > 0.97 * fig.bbox.width
    for row in rows.values():
        assert np.ptp([box.height for box in row]) < 1
        gaps = np.diff(sorted(side for box in row for side in (box.x0, box.x1)))[1::2]
        assert gaps.max(initial=0) <= 0.21 * fig.dpi
    heights = [row[0].height / fig.dpi for row in rows.values()]
    assert min(heights) > 0.6
    assert max(heights) < 2.3
    texts = [text.get_window_extent() for text in fig.texts]
    for number, text in enumerate(texts):
        assert text.x1 < fig.bbox.width
        others = [*pictures, *(other for place, other in enumerate(texts) if place // 2 != number // 2)]
        assert not any(text.overlaps(other) for other in others)


@pytest.mark.parametrize("size", [(500, 500), (500, 333), (375, 500)])
def test_a_photo_alone_fills_its_sheet(size):
    fig = sheet_of([size])
    assert max(ax.get_position().x1 for ax in fig.axes[:2]) > 0.95


def test_photos_with_few_words_share_a_row():
    fig = sheet_of([(333, 500), (500, 375), (333, 500), (333, 500)], words=["dog", "snow"])
    tops = [round(ax.get_position().y1, 3) for ax in fig.axes[:-1]]
    assert tops[0] == tops[5]
    assert len(set(tops)) == 2
    assert max(ax.get_position().x1 for ax in fig.axes[:9]) > 0.95
    heights = [ax.get_position().height * fig.get_size_inches()[1] for ax in fig.axes[:-1]]
    assert min(heights) >= 0.6 * HEIGHT
    assert max(heights) <= HEIGHT + 0.01


def test_the_sheet_names_the_method_of_maps_that_are_not_the_attention():
    captions = [caption_of(["a", "dog"], size=WIDE) for _ in range(2)]
    for caption in captions:
        caption.method = "gradcam"
    for words in (None, ["dog"]):
        fig = contact_sheet(captions, [Image.new("RGB", WIDE)] * 2, words=words)
        texts = [text.get_text() for part in (fig, *fig.axes) for text in part.texts]
        assert [text for text in texts if "α" in text] == []
        assert "w: gradcam" in texts[-1]


def test_a_lens_that_contradicts_a_word_is_heard_on_the_sheet(dog):
    dog.lens = LensReading([[], []], [[], []], [], [Doubt(0, "dog", "cat", 0.9)], True)
    texts = [text.get_text() for text in contact_sheet([dog], [Image.new("RGB", WIDE)]).texts]
    assert texts[2:] == [OUT_OF_DISTRIBUTION, "the lens sees cat where the caption says dog"]


def test_a_photo_in_a_row_with_its_words_or_as_many_in_a_row_as_asked_for():
    fig = sheet_of(SIZES[:3], words=["dog", "snow"], names=["x.jpg", "y.jpg", "z.jpg"])
    rows = np.array(fig.axes[:-1]).reshape(3, 3)
    assert [[ax.get_title() for ax in row] for row in rows] == [["", "dog", "snow"]] * 3
    assert [text.get_text().split()[0] for text in fig.texts][::2] == ["x.jpg", "y.jpg", "z.jpg"]
    assert "α of a word" in fig.axes[-1].texts[0].get_text()
    tops = [row[0].get_position().y1 for row in rows]
    assert tops == sorted(tops, reverse=True)
    tops = [ax.get_position().y1 for ax in sheet_of(SIZES[:1] * 5, columns=2).axes[:-1]]
    assert len({round(top, 3) for top in tops}) == 3
    alone = sheet_of(SIZES[:2], words=["cat"], legend=False)
    assert len(alone.axes) == 2  # photos without the words


def test_the_place_that_was_chosen_for_a_word_is_marked_as_in_the_figure():
    hard = caption_of(["a", "dog"], locations=[[1, 2], [3, 4]])
    point = caption_of(["a", "dog"], points=[[100, 50], [20, 30]])
    fig = contact_sheet([hard, point], [Image.new("RGB", WIDE)] * 2, words=["dog"])
    _, framed, _, crossed, legend = fig.axes
    assert framed.patches[0].get_y() == pytest.approx(3 * WIDE[1] / 7)
    assert {tuple(np.ravel(line.get_data()).tolist()) for line in crossed.lines} == {(20, 30)}
    assert legend.texts[0].get_text().endswith("; frame: cell read; cross: point read")
    assert not contact_sheet([hard], [Image.new("RGB", WIDE)]).axes[1].patches


def reading(*nouns):
    return LensReading([[Seen(noun, p)] for noun, p in nouns], [[] for _ in nouns], [])


def test_what_a_lens_sees_stands_under_captions_and_maps(dog):
    dog.lens = reading(("cat", 0.84), ("fence", 0.3))
    cat = caption_of(["cat", "cat", "sits"], np.full((3, 4, 4), 1 / 16), TALL)
    cat.lens = reading(("ball", 0.55), ("lynx", 0.7), ("lynx", 0.94))
    photos = [Image.new("RGB", WIDE), Image.new("RGB", TALL)]
    fig = contact_sheet([dog, cat], photos, columns=1, names=["x", "y"])
    texts = [text.get_text() for text in fig.texts]
    assert texts == [
        "x   α ≤ 0.7", "$dog$ runs", "sees: cat 0.8", "y   α ≤ 0.062", "cat cat sits", "sees: lynx 0.9, ball 0.6",
    ]  # fmt: skip
    rows = contact_sheet([dog, cat], photos, words=["runs", "cat", "$dog$"], names=["x", "y"])
    assert [[text.get_text() for text in ax.texts] for ax in rows.axes[:-1]] == [
        [], ["sees: cat 0.8"], [], [], ["sees: ball 0.6"], ["sees: lynx 0.7"],
    ]  # fmt: skip
    assert "sees" not in "".join(text.get_text() for text in rows.texts)
    rows.draw_without_rendering()
    feet = [text.get_window_extent() for ax in rows.axes[:-1] for text in ax.texts]
    assert not any(foot.overlaps(text.get_window_extent()) for foot in feet for text in rows.texts)
