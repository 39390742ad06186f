"""The figure of a caption: its panels, its one scale, its file, its fonts."""

import io
import warnings
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from helpers.captions import caption_of
from helpers.fonts import installed_font
from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image

from caption.core.regions import WeightProperties
from caption.core.runtime.atomic_files import OutputError
from caption.results.lens_reading import OUT_OF_DISTRIBUTION, Doubt, LensReading, Seen
from caption.visualize import compare_captions, plot_caption, plot_maps, save_figure
from caption.visualize.figure_file import DPI, dpi_of, pixels, render
from caption.visualize.words import spans_of

WORDS = ["a", "brown", "dog", "runs", "across", "the", "grass", "with", "its", "tongue", "hanging", "out"]


def photo_of(size=(500, 375)):
    return Image.effect_noise(size, 60).convert("RGB")


def panels_of(fig):
    """Axes of the photo and of the words, without the legend's."""
    return fig.axes[:-1]


def pixels_of_file(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def legend_of(fig):
    return texts_of(fig)[-1].replace("\n", " ")


def texts_of(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts]


@pytest.fixture(scope="module")
def dog():
    """A caption of twelve words with gates, and its figure."""
    caption = caption_of(
        WORDS, gates=np.full(len(WORDS), 0.5), locations=[[step % 7, 0] for step in range(12)]
    )
    settings, backend = dict(mpl.rcParams), mpl.get_backend()
    fig = plot_caption(caption, photo_of())
    assert dict(mpl.rcParams) == settings
    assert mpl.get_backend() == backend
    return caption, fig


@pytest.fixture(scope="module")
def one_word():
    """The figure of one word."""
    return plot_caption(caption_of(["dog"]), photo_of())


def test_the_photo_comes_first_then_a_panel_per_word_and_all_words_share_a_scale_that_is_stated(dog):
    caption, fig = dog
    photo, *words = panels_of(fig)
    assert [ax.get_title() for ax in panels_of(fig)] == ["", *WORDS]
    assert len(photo.images) == 1
    for step, ax in enumerate(words):
        assert len(ax.images) == 2
        np.testing.assert_array_equal(ax.images[1].get_array(), caption.weights[step])
        assert ax.patches[0].get_y() == pytest.approx(step % 7 * 375 / 7)
        assert ax.images[1].get_clim() == (0.0, float(caption.weights.max()))
    ticks = [label.get_text() for label in fig.axes[-1].get_xticklabels()]
    assert ticks == ["0", f"{caption.weights.max():.2g}"]
    assert legend_of(fig).startswith("colour: above even attention (1/49)")


@pytest.mark.parametrize("size", [(257, 500), (2000, 150)])
def test_panels_have_the_photos_aspect_ratio_and_fill_a_page_without_overlap(size):
    caption = caption_of(WORDS, size=size, gates=np.full(len(WORDS), 0.5))
    fig = plot_caption(caption, Image.new("RGB", size))
    fig.draw_without_rendering()
    assert fig.get_size_inches()[0] <= 10.01
    boxes = [ax.get_window_extent() for ax in fig.axes]
    for box in boxes[:-1]:
        assert box.width / box.height == pytest.approx(size[0] / size[1], rel=0.02)
    share = sum(box.width * box.height for box in boxes[:-1]) / (fig.bbox.width * fig.bbox.height)
    assert share > 0.4
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_a_picture_is_as_wide_as_it_is_asked_to_be(one_word, tmp_path):
    for name, asked, width in [("dog.png", {"width": 200}, 200), ("dog.webp", {}, 150 * 5)]:
        save_figure(one_word, tmp_path / name, **asked)
        with Image.open(tmp_path / name) as picture:
            assert picture.width == width


@pytest.mark.parametrize(
    ("name", "start"),
    [("dog.pdf", b"%PDF"), ("dog.svg", b"<?xml"), ("dog.jpg", b"\xff\xd8"), ("dog.PNG", b"\x89PNG")],
)
def test_figures_are_written_in_the_format_of_their_name(one_word, tmp_path, name, start):
    save_figure(one_word, tmp_path / name)
    written = (tmp_path / name).read_bytes()
    assert written.startswith(start)
    assert len(written) < 1_500_000
    if name == "dog.svg":  # text is kept as text
        assert written.count(b"<text") + written.count(b"<use") > 30


@pytest.mark.nightly
def test_the_sentence_is_the_title_and_no_formula():
    words = ["a", "$\\frac$", "<unk>", *["and", "another"] * 12]
    fig = plot_caption(caption_of(words), Image.new("RGB", (500, 375)))
    assert " ".join(text.get_text() for text in fig.texts) == " ".join(words)
    assert [ax.get_title() for ax in panels_of(fig)[1:4]] == words[:3]
    fig.draw_without_rendering()
    first = fig.axes[0].get_window_extent()
    for box in (text.get_window_extent() for text in fig.texts):
        assert box.x1 <= fig.bbox.width
        assert box.y0 >= first.y1


def test_the_peak_of_a_word_is_under_it_in_multiples_of_even_attention():
    weights = np.full((2, 2, 5), 0.1)
    weights[1] = 0.05
    weights[1, 0, 0] = 0.55
    fig = plot_caption(caption_of(["a", "dog"], weights), photo_of())
    assert texts_of(fig)[:-1] == ["1.0× even", "5.5× even"]


def test_the_legend_is_one_line_of_the_notes_for_which_there_is_room():
    plain = legend_of(plot_caption(caption_of(["dog"]), photo_of(), style="cells"))
    assert plain == "light: α; line: even attention (1/49)"
    cropped = caption_of(["dog"], locations=[[1, 2]])
    cropped.box = (62.5, 0, 437.5, 375)
    gated = caption_of(WORDS, locations=[[1, 2]] * 12, gates=[0.5] * 12)
    pointed = caption_of(["dog"], locations=[[1, 2]], gates=[0.5], points=[[5, 5]])
    for caption, noted in [
        (cropped, "hatched: unseen"),
        (gated, "frame: cell read; β: use of the image"),
        (pointed, "frame: cell read"),
    ]:
        fig = plot_caption(caption, photo_of())
        assert legend_of(fig) == f"colour: above even attention (1/49); {noted}"
        fig.draw_without_rendering()
        text = fig.axes[-1].texts[0].get_window_extent()
        assert text.x1 < fig.bbox.width
        assert text.height < 0.2 * fig.dpi


def test_words_alone_are_drawn_on_the_scale_of_all_and_underlined_in_the_sentence(dog):
    caption, whole = dog
    fig = plot_caption(caption, photo_of(), words=["Tongue", 2])
    photo, third, tongue = panels_of(fig)
    assert [ax.get_title() for ax in (photo, third, tongue)] == ["", "dog", "tongue"]
    np.testing.assert_array_equal(tongue.images[1].get_array(), caption.weights[9])
    assert tongue.images[1].get_clim() == (0, float(caption.weights.max()))
    assert caption.weights[[2, 9]].max() < caption.weights.max()
    assert [text.get_text() for text in whole.texts] == [" ".join(WORDS)]
    # A text that is written otherwise than its words keeps the words that it has.
    assert spans_of(["ab", "c", "b"], "Abb, c", [0, 1]) == [(5, 6)]


@pytest.mark.parametrize("columns", [1, 3])
def test_a_line_under_a_word_goes_from_its_first_letter_to_its_last(columns):
    words = ["a", "man", "in", "a", "big", "black", "jumper", "plays", "a", "guitar"]
    fig = plot_caption(caption_of(words), photo_of(), words=["man", "guitar"], columns=columns)
    lines = " ".join(text.get_text() for text in fig.texts)
    assert lines == " ".join(words)
    fig.set_dpi(DPI)
    fig.draw_without_rendering()
    first, last = fig.artists
    for line, text, word in ((first, fig.texts[0], "man"), (last, fig.texts[-1], "guitar")):
        place, box = line.get_window_extent(), text.get_window_extent()
        before = text.get_text().partition(word)[0]
        letter = box.width / len(text.get_text())
        assert place.x0 == pytest.approx(box.x0 + len(before) * letter, abs=1.5 * letter)
        assert place.width == pytest.approx(len(word) * letter, abs=1.5 * letter)
        assert box.y0 - 0.1 * fig.dpi < place.y0 < box.y0 + box.height / 3
    assert last.get_window_extent().x1 == pytest.approx(fig.texts[-1].get_window_extent().x1, abs=2)


def test_a_line_under_a_word_of_hebrew_is_where_the_word_is():
    fig = plot_caption(
        caption_of(["כלב", "בפארקים"]), photo_of(), words=[1]
    )  # matplotlib's own font has them
    fig.set_dpi(DPI)
    fig.draw_without_rendering()
    (line,), (sentence,) = fig.artists, fig.texts
    place, letters = line.get_window_extent(), sentence.get_window_extent()
    assert place.x0 == pytest.approx(letters.x0, abs=2)  # the second word is on the left
    assert place.x1 < letters.x1 - 0.2 * letters.width


def test_a_word_is_underlined_once_in_a_sentence_that_repeats_itself():
    fig = plot_caption(caption_of(["dog"] * 30), photo_of(), words=[0], columns=1)
    assert fig.texts[0].get_text() == fig.texts[1].get_text()
    assert len(fig.artists) == 1


@pytest.mark.parametrize("width", [320, 480, 640, 1500])
def test_a_line_under_a_word_is_as_long_as_its_letters_in_a_narrow_picture_too(width):
    words = ["a", "man", "in", "a", "big", "black", "jumper", "plays", "a", "guitar"]
    fig = plot_caption(caption_of(words), photo_of(), words=["man", "guitar"])
    pixels(fig, dpi_of(fig, width))
    sentence, word = fig.texts[0], fig.text(0, 0, "guitar", fontsize=fig.texts[0].get_fontsize())
    line, letters = fig.artists[-1].get_window_extent(), sentence.get_window_extent()
    assert line.x1 == pytest.approx(letters.x1, abs=1)
    assert line.width == pytest.approx(word.get_window_extent().width, abs=1)


@pytest.mark.parametrize("size", [(166, 500), (100, 500), (333, 500), (500, 375)])
def test_what_is_under_a_panel_is_no_wider_than_it_and_can_be_read(size):
    caption = caption_of(["man", "plays", "saxophone"], size=size, gates=[0.5, 0.6, 0.7])
    caption.lens = LensReading([[Seen("golden retriever", 0.9)]] * 3, [[]] * 3, [])
    fig = plot_caption(caption, Image.new("RGB", size))
    fig.draw_without_rendering()
    for ax in panels_of(fig)[1:]:
        panel, texts = ax.get_window_extent(), [text.get_window_extent() for text in ax.texts]
        assert "retriever" in "".join(text.get_text() for text in ax.texts)
        assert all(panel.x0 - 2 < text.x0 and text.x1 < panel.x1 + 2 for text in texts)
        assert all(text.get_fontsize() > 5 for text in ax.texts)
        assert not any(upper.overlaps(lower) for upper, lower in pairwise([panel, *texts]))


def test_a_lens_that_contradicts_a_word_is_heard_in_the_figure():
    caption = caption_of(["a", "guitar"])
    doubt = Doubt(1, "guitar", "saxophone", 0.9)
    caption.lens = LensReading([[], []], [[], []], [], [doubt], True)
    texts = [text.get_text() for text in plot_caption(caption, photo_of()).texts]
    assert texts == ["a guitar", OUT_OF_DISTRIBUTION, "the lens sees saxophone where the caption says guitar"]
    assert not plot_caption(caption, photo_of(), title=False).texts


@pytest.mark.parametrize("dpi", [100, 150])
@pytest.mark.parametrize("size", [(512, 512), (500, 375), (333, 500)])
def test_a_map_covers_the_photo_to_its_last_row(size, dpi):
    caption = caption_of(["dog"] * 4, size=size)
    caption.weights[:] = 0
    caption.weights[0, 3, 3] = 1
    caption.seen, margin = caption.box, 20.6
    caption.box = (-margin, -margin, size[0] + margin, size[1] + margin)
    fig = plot_caption(caption, Image.new("RGB", size, (255, 0, 0)), style="cells", legend=False, title=False)
    drawn = pixels(fig, dpi).astype(int)
    for ax in fig.axes[2:]:
        box = ax.get_window_extent()
        across = slice(int(box.x0) - 2, int(box.x1) + 3)
        down = slice(len(drawn) - int(box.y1) - 3, len(drawn) - int(box.y0) + 3)
        assert not (drawn[down, across] == (255, 0, 0)).all(-1).any()


def test_each_word_can_have_a_scale_of_its_own(dog):
    caption, _ = dog
    fig = plot_caption(caption, photo_of(), words=[2, 9], own_scale=True)
    limits = [ax.images[1].get_clim() for ax in panels_of(fig)[1:]]
    assert limits == [(0, pytest.approx(caption.weights[step].max())) for step in (2, 9)]
    assert "each map from its own lowest α to its own highest" in legend_of(fig)
    assert not any(label.get_text() for label in fig.axes[-1].get_xticklabels())  # no one number
    paper = plot_caption(caption, photo_of(), words=[9], own_scale=True, style="paper")
    drawn = panels_of(paper)[1].images[1]
    values = drawn.get_array()
    assert drawn.get_clim() == pytest.approx((values.min(), values.max()))


def test_rows_title_legend_and_the_figure_that_is_drawn_on_can_be_chosen():
    given = Figure(figsize=(5, 3))
    for options, columns in (({"rows": 2}, 7), ({"fig": given, "columns": 5}, 5)):
        fig = plot_caption(caption_of(WORDS), photo_of(), **options)
        assert len({round(ax.get_position().x0, 3) for ax in panels_of(fig)}) == columns
    assert fig is given
    bare = plot_caption(caption_of([]), photo_of(), title=False, legend=False)
    assert len(bare.axes) == 1
    assert [*bare.texts, *texts_of(bare)] == []
    assert bare.get_size_inches()[0] < 3


def test_the_picture_of_a_word_has_a_row_at_least(tmp_path):
    caption, photo = caption_of(["a", "cat"], size=(2000, 1)), Image.new("RGB", (2000, 1))
    save_figure(caption.plot_word("cat", photo), tmp_path / "cat.png")
    assert pixels_of_file(tmp_path / "cat.png").shape[:2] == (1, 1920)


@pytest.mark.parametrize(("size", "wide"), [((500, 375), 640), ((2400, 100), 1920)])
def test_a_word_alone_fills_its_picture(tmp_path, size, wide):
    caption = caption_of(["a", "dog", "a"], np.full((3, 2, 2), 0.25), size)
    caption.weights[1, 0, 0] = 0.9
    photo = Image.new("RGB", size, (90, 90, 90))
    fig = caption.plot_word("DOG", photo, style="cells")
    save_figure(fig, tmp_path / "dog.png")
    drawn = pixels_of_file(tmp_path / "dog.png").astype(int)
    assert drawn.shape[1] == wide
    assert drawn.shape[0] == pytest.approx(wide * size[1] / size[0], abs=1)
    height = drawn.shape[0]
    light, dark = drawn[: height // 2 - 3, : wide // 2 - 3], drawn[height // 2 + 3 :, wide // 2 + 3 :]
    assert np.ptp(light) == np.ptp(dark) == 0  # to the very edges
    assert light[0, 0, 0] > dark[0, 0, 0]
    (by_place,) = caption.plot_word(1, photo).axes
    np.testing.assert_array_equal(by_place.images[1].get_array(), caption.weights[1])
    assert caption.plot_word("a", photo).axes[0].images[1].get_clim() == (0, float(np.float32(0.9)))


def test_a_long_word_stays_over_its_panel():
    fig = plot_caption(caption_of(["a" * 60, "dog"]), photo_of())
    fig.draw_without_rendering()
    panel = fig.axes[1]
    assert panel.title.get_window_extent().width <= 1.1 * panel.get_window_extent().width


def test_an_unwritable_figure_raises_an_error(one_word, tmp_path):
    for fig, name, options, said in [
        (one_word, "dog", {}, "ends in one of .*png"),
        (one_word, "no/where/dog.png", {}, "No such file"),
        (one_word, "dog.png", {"width": 50_000}, "million pixels, more than 300"),
        (Figure(figsize=(2, 200)), "dog.webp", {}, "could not be drawn"),
    ]:
        with pytest.raises(OutputError, match=said):
            save_figure(fig, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_caption_draws_itself_over_its_own_photo_or_another(tmp_path):
    photo_of().save(tmp_path / "dog.png")
    caption = caption_of(["dog"], image=tmp_path / "dog.png")
    picture, shown = caption.plot()._repr_png_()
    assert picture.startswith(b"\x89PNG")
    # Letters of 8 points have their size on a screen, however wide the cell.
    assert shown["width"] == round(96 * caption.plot().get_size_inches()[0])
    with Image.open(io.BytesIO(picture)) as image:
        assert image.mode == "RGBA"
        assert image.width == round(150 * caption.plot().get_size_inches()[0])
    elsewhere = caption.plot(photo_of((100, 80)), smooth=True)
    assert elsewhere.axes[0].get_xlim() == (0, 100)


def many_headed(**fields):
    rng = np.random.default_rng(1)
    maps = {
        "heads": rng.dirichlet(np.full(49, 0.2), (3, 4)).reshape(-1, 4, 7, 7),
        "level 1": rng.uniform(0, 0.3, (3, 2, 3)),
    }
    return caption_of(["a", "dog", "runs"], maps=maps, **fields)


def test_one_map_is_drawn_in_place_of_the_summary():
    caption = many_headed(locations=[[0, 0], [1, 1], [2, 2]])
    photo, *words = panels_of(caption.plot(photo_of(), map="heads", index=2))
    assert photo.get_title() == "heads[2]"
    drawn = [ax.images[1].get_array() for ax in words]
    np.testing.assert_array_equal(drawn, caption.maps["heads"][:, 2])
    level = caption.plot(photo_of(), map="level 1")
    assert panels_of(level)[1].images[1].get_array().shape == (2, 3)
    assert "frame" not in texts_of(level)[-1]


def test_an_index_without_a_map_is_refused():
    with pytest.raises(ValueError, match="index is that of a map: give map="):
        many_headed().plot(photo_of(), index=2)


def test_every_head_has_a_row_on_one_scale_and_of_one_word_all_maps_are_panels():
    caption = many_headed()
    fig = plot_maps(caption, photo_of(), "heads")
    rows = np.array(panels_of(fig)).reshape(4, 4)
    assert [ax.get_title() for ax in rows[:, 0]] == ["heads[0]", "heads[1]", "heads[2]", "heads[3]"]
    assert [ax.get_title() for ax in rows[0, 1:]] == ["a", "dog", "runs"]
    assert len({round(ax.get_position().y0, 3) for ax in rows.ravel()}) == 4
    drawn = [[ax.images[1].get_array() for ax in row[1:]] for row in rows]
    np.testing.assert_array_equal(drawn, caption.maps["heads"].swapaxes(0, 1))
    limits = {ax.images[1].get_clim() for ax in rows[:, 1:].ravel()}
    assert limits == {(0.0, float(caption.maps["heads"].max()))}
    assert "1/49" in texts_of(fig)[-1]
    fig = plot_maps(caption, photo_of(), word=1)
    titles = [ax.get_title() for ax in panels_of(fig)]
    assert titles == ["dog", "heads[0]", "heads[1]", "heads[2]", "heads[3]", "level 1"]
    np.testing.assert_array_equal(panels_of(fig)[-1].images[1].get_array(), caption.maps["level 1"][1])
    assert "line" not in legend_of(fig)  # the grids differ


@pytest.mark.parametrize(
    ("draw", "drawn", "options", "said"),
    [
        (plot_maps, many_headed(), {"map": "hops"}, "no map 'hops'"),
        (plot_maps, many_headed(), {"word": 3}, "word 3 is not among the 3"),
        (plot_maps, caption_of(["dog"]), {}, "no maps beside its weights"),
        (plot_caption, caption_of(["dog"]), {"rows": 2, "columns": 2}, "give one"),
        (plot_caption, caption_of(["dog"]), {"rows": 0}, "rows must be at least 1"),
        (plot_caption, caption_of(["dog"]), {"words": "cat"}, "no word 'cat' in the caption 'dog'"),
        (compare_captions, {}, {}, "nothing to compare"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, drawn, options, said):
    with pytest.raises(ValueError, match=said):
        draw(drawn, photo_of(), **options)


def test_signed_weights_have_a_scale_around_zero_and_two_colours():
    caption = caption_of(["dog"], size=(300, 100), grid=(1, 3), properties=WeightProperties(signed=True))
    caption.weights[:] = [-0.5, 0, 0.25]
    fig = plot_caption(caption, Image.new("RGB", (300, 100), (128, 128, 128)), style="cells")
    assert texts_of(fig)[0] == "α −0.5"
    assert panels_of(fig)[1].images[1].get_clim() == (-0.5, 0.5)
    assert [label.get_text() for label in fig.axes[-1].get_xticklabels()] == ["−0.5", "0", "0.5"]
    assert legend_of(fig) == "orange: α above 0, blue: below"
    assert "even" not in texts_of(fig)[-1]


def test_the_sentinels_share_is_under_each_word():
    caption = caption_of(["a", "dog"], gates=[0.25, 1], properties=WeightProperties(sentinel=True))
    caption.weights[1] *= 0.6
    first, second, legend = texts_of(plot_caption(caption, photo_of()))
    assert "mean" in first
    assert first.endswith("β 0.25   sentinel 0.00")
    assert second.endswith("β 1.00   sentinel 0.40")
    assert "sentinel: share of no region" in legend
    assert "even" not in legend
    free = plot_caption(caption_of(["dog"], properties=WeightProperties(sums_to_one=False)), photo_of())
    assert legend_of(free) == "colour: above the mean weight; Σα need not be 1"
    assert not free.axes[-1].lines  # which would be at even attention


def test_a_chosen_point_is_crossed(one_word):
    assert one_word.axes[-1].lines
    fig = plot_caption(caption_of(["dog"], points=[[100, 50]]), photo_of())
    panel = panels_of(fig)[1]
    assert {tuple(np.ravel(line.get_data()).tolist()) for line in panel.lines} == {(100, 50)}
    assert panel.get_xlim() == (0, 500)
    assert "cross" in texts_of(fig)[-1]


@pytest.mark.parametrize("columns", [None, 2])
def test_soft_is_above_hard_in_equal_panels(columns):
    dog = caption_of(["$dog$", "runs"], gates=[0.25, 0.75])
    hard = caption_of(["a", "dog", "runs"], locations=[[0, 1], [1, 2], [0, 0]])
    fig = compare_captions({"soft": dog, "hard": hard}, photo_of(), columns=columns)
    upper, lower = fig.subfigs
    assert [ax.get_title() for ax in upper.axes[:-1]] == ["soft", "$dog$", "runs"]
    assert [ax.get_title() for ax in lower.axes[:-1]] == ["hard", "a", "dog", "runs"]
    fig.draw_without_rendering()
    boxes = [[ax.get_window_extent() for ax in part.axes[:3]] for part in (upper, lower)]
    for above, below in zip(*boxes, strict=True):
        assert above.y0 > below.y1
        np.testing.assert_allclose([above.x0, above.width], [below.x0, below.width], atol=1)


def test_browsers_read_a_figure_with_any_text(tmp_path: Path):
    fig = Figure()
    fig.text(0.1, 0.5, "a\x1b[31m\x00\ud800\uffff cat\non two lines", parse_math=False)
    save_figure(fig, tmp_path / "figure.svg")
    ElementTree.parse(tmp_path / "figure.svg")


RARE = "\U00030000\U00030001\U00030002\U00030003"  # Chinese characters that few fonts have


def ink(text: str) -> int:
    """Dark pixels of a figure with this text."""
    fig = Figure((2, 1))
    fig.text(0.2, 0.4, text, fontsize=20)
    return int((np.asarray(Image.open(io.BytesIO(render(fig, "png", 100))).convert("L")) < 128).sum())


def test_a_font_that_has_the_characters_is_found_and_characters_without_one_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("caption.visualize.fonts._reported", [])
    with installed_font(tmp_path / "squares.ttf", RARE[:2]), warnings.catch_warnings():
        warnings.simplefilter("error")
        of_letters, of_all = ink("a"), ink(f"a {RARE[:2]}")
        caption = caption_of([RARE[0]], image=photo_of())
        for fig in (caption.plot(), caption.plot(fig=pyplot.figure())):
            fig.savefig(tmp_path / "figure.png")  # of Matplotlib, as a notebook's own printer draws it
            assert "Squares" in fig.axes[1].title.get_fontfamily()
        pyplot.close("all")
    square = (20 / 72 * 100 * 0.9) ** 2
    assert of_all - of_letters == pytest.approx(2 * square, rel=0.1)
    with pytest.warns(UserWarning, match=RARE[2]):
        ink(RARE[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ink(RARE[3])


def test_the_legend_names_the_method_of_a_map_that_is_not_the_attention():
    signed = WeightProperties(sums_to_one=False, signed=True)
    caption = caption_of(["a", "dog"], np.linspace(-1, 1, 98).reshape(2, 7, 7), properties=signed)
    assert "orange: α above 0, blue: below" in legend_of(plot_caption(caption, photo_of()))
    caption.method = "shapley"
    fig = plot_caption(caption, photo_of())
    assert "orange: w above 0, blue: below; w: shapley" in legend_of(fig)
    assert [text for text in texts_of(fig) if "α" in text] == []
    assert caption.with_weights(caption.weights).method == ""


def test_one_word_is_drawn_on_a_panel_of_another_figure():
    caption, fig = caption_of(["a", "dog"], image=photo_of()), Figure()
    left, right = fig.subplots(1, 2)
    assert caption.plot(words="dog", ax=right) is fig
    assert right.get_title() == "dog"
    assert right.images
    assert not left.images
    for words in (None, ["a", "dog"]):
        with pytest.raises(ValueError, match="ax is one panel, and there are 2 words to draw"):
            caption.plot(words=words, ax=left)
