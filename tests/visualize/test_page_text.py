"""The HTML of the interactive page: complete, small, escaped, without private data, and with exact weights."""

import base64
import hashlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

import caption.visualize
from caption.analysis.explorer.requests import check
from caption.core.regions import WeightProperties
from caption.core.runtime.atomic_files import OutputError
from caption.results.beam_tree import BeamNode, BeamTree
from caption.results.caption import AttentionMaps
from caption.visualize import page_data, save_html, to_html
from caption.visualize.page_data import photo_record


def noise(size):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8))


@pytest.fixture
def dog():
    return caption_of(["a", "dog"], image=noise((500, 375)))


def data_of(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def photos_in(page):
    return [
        Image.open(io.BytesIO(base64.b64decode(photo)))
        for photo in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    ]


def crowded(**fields):
    """The page of a caption of twenty words with large maps, and its record."""
    size = (640, 640)
    page = caption_of(["word"] * 20, grid=(14, 14), size=size, image=noise(size), **fields).to_html()
    return page, data_of(page)["photos"][0]


def test_maps_and_captions_beyond_the_room_are_left_out_and_counted():
    others = [caption_of(["word"] * 20, grid=(14, 14)) for _ in range(30)]
    page, record = crowded(alternatives=others)
    assert len(page.encode()) < 400_000
    assert len(record["captions"]) + record["left_out"] == 31
    assert len(record["captions"]) > 10
    # Nothing comes after what did not fit, however small it is.
    small = caption_of(["word"] * 20)
    page, record = crowded(alternatives=[small], maps={"heads": np.full((20, 40, 14, 14), 1 / 196)})
    assert len(page.encode()) < 400_000
    assert 5 < len(record["captions"][0]["maps"]) < 40
    assert len(record["captions"][0]["maps"]) + record["maps_left_out"] == 40
    assert record["left_out"] == 1


def test_photos_are_shrunk_never_enlarged_and_the_box_stays_in_original_pixels():
    for size, shown in [((4000, 3000), (640, 480)), ((300, 1200), (160, 640)), ((96, 80), (96, 80))]:
        page = to_html([caption_of(["dog"], size=size)], images=[Image.new("RGB", size)])
        record = data_of(page)["photos"][0]
        assert photos_in(page)[0].size == tuple(record["shown"]) == shown
        assert record["size"] == list(size)
        assert record["captions"][0]["box"] == [0, 0, *size]


def levels_of(record):
    """The bytes of a map."""
    return np.frombuffer(base64.b64decode(record["weights"]), np.uint8).reshape(2, *record["grid"]) / 1.0


def test_maps_are_exact_to_one_level_each_with_its_own_grid_and_scale():
    rng = np.random.default_rng(0)
    heads = rng.dirichlet(np.ones(49), (2, 3)).reshape(2, 3, 7, 7)
    maps = AttentionMaps({"heads": heads, "level 1": np.full((2, 2, 4), 0.5)})
    made = caption_of(["a", "dog"], grid=(5, 9), image=noise((90, 50)), maps=maps)
    made.weights[0, 0, 0] = -0.3
    record = data_of(made.to_html())["photos"][0]["captions"][0]
    named = record["maps"]
    assert [one["name"] for one in named] == ["heads[0]", "heads[1]", "heads[2]", "level 1"]
    assert [one["even"] for one in named] == [pytest.approx(1 / 49)] * 3 + [None]
    assert (record["low"], record["high"]) == (made.weights.min(), made.weights.max())
    drawn = [made.weights, *np.moveaxis(heads, 1, 0), maps["level 1"]]
    for one, weights in zip([record, *named], drawn, strict=True):
        low, span = one["low"], one["high"] - one["low"]
        assert one["grid"] == list(weights.shape[1:])
        np.testing.assert_allclose(low + (levels_of(one) / 255) ** 2 * span, weights, atol=span / 255)


def test_signed_maps_are_restored_and_zero_is_exact():
    signed = WeightProperties(signed=True)
    made = caption_of(["a", "dog"], grid=(5, 9), image=noise((90, 50)), properties=signed)
    made.weights[0, 0, :2] = [-1.5, 0]
    record = data_of(made.to_html())["photos"][0]["captions"][0]
    root = (levels_of(record) - 128) / 127
    assert (record["low"], record["high"], record["signed"], record["even"]) == (-1.5, 1.5, True, None)
    np.testing.assert_allclose(1.5 * root * np.abs(root), made.weights, atol=1.5 / 127)
    assert root[0, 0, 1] == 0


@pytest.mark.parametrize(("orientation", "shown"), [(1, (60, 40)), (6, (40, 60))])
def test_the_page_has_no_exif_data(orientation, shown):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)  # latitude
    buffer = io.BytesIO()
    noise((60, 40)).save(buffer, "JPEG", exif=exif, comment=b"at home")
    photo = photos_in(to_html([caption_of(["dog"])], images=[Image.open(buffer)]))[0]
    assert photo.size == shown
    assert not photo.getexif()
    assert "comment" not in photo.info


@pytest.mark.parametrize(
    ("colours", "length", "kept"), [(b"RGB ", 500, True), (b"RGB ", 100_000, False), (b"GRAY", 500, False)]
)
def test_colours_keep_their_profile_where_it_is_theirs_and_small(colours, length, kept):
    photo = noise((60, 40))
    photo.info |= {"icc_profile": bytes(16) + colours + bytes(length), "note": "mine"}
    before = dict(photo.info)
    shown = photos_in(to_html([caption_of(["dog"])], images=[photo]))[0]
    assert ("icc_profile" in shown.info) == kept
    assert photo.info == before  # the user's picture stays as it is


def test_the_page_allows_nothing_but_its_own_script_and_style(dog):
    page = dog.to_html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://|@import|\son\w+=|\beval\b", page)


def test_a_notebook_gets_a_fragment_without_names_that_could_be_used_twice(dog):
    dog.alternatives = [caption_of(["cat"])]
    fragment = dog._repr_html_()
    assert fragment.startswith("<style>")
    assert not re.search(r"\s(id|name)=", fragment)


def test_photos_are_those_of_the_captions_or_given_one_for_each_caption_of_every_model(dog):
    with pytest.raises(ValueError, match="1 captions need as many photos, not 2"):
        to_html({"soft": [dog, dog], "hard": [dog]})
    with pytest.raises(ValueError, match="at least one"):
        to_html({})
    dog.image = None
    assert dog._repr_html_() is None
    with pytest.raises(ValueError, match="no photo"):
        dog.to_html()
    assert "a dog" in dog.to_html(noise((50, 50)))


def test_pages_are_written_as_utf8_or_an_error_is_raised(dog, tmp_path):
    save_html(to_html([dog], "größer \udcff"), tmp_path / "page.html")
    assert "größer".encode() in (tmp_path / "page.html").read_bytes()
    with pytest.raises(OutputError, match="No such file"):
        save_html("", tmp_path / "no" / "page.html")


WEB = Path(caption.visualize.__file__).parent / "web"
MODULES = {path.name: path.read_text(encoding="utf-8") for path in WEB.glob("*.js")}


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_of_the_script_imports_is_exported_where_it_says(name):
    for names, home in re.findall(r'^import \{ ([^}]*) \} from "\./([\w.]+)";$', MODULES[name], re.MULTILINE):
        exported = r"^export (?:async )?(?:function|class|const) (\w+)"
        assert {*names.split(", ")} <= {*re.findall(exported, MODULES[home], re.MULTILINE)}
        body = MODULES[name].replace(f"import {{ {names} }}", "")
        assert all(re.search(rf"\b{each}\b", body) for each in names.split(", "))


def test_no_two_modules_of_the_script_declare_the_same_name():
    """Joined into one script, all declarations share one scope."""
    names = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"
    declared = [name for text in MODULES.values() for name in re.findall(names, text, re.MULTILINE)]
    assert sorted(declared) == sorted(set(declared))


# -- the tree of the search ----------------------------------------------------------------------------------------


def searched():
    """A beam of two steps, in which the last hypothesis is dropped."""
    steps = [
        [BeamNode("a", None, -1.0, -1.0, False, 0), BeamNode("the", None, -2.0, -2.0, False, 0)],
        [BeamNode("(end)", 0, -1.0, -2.0, True, 1), BeamNode("cat", 1, -2.30259, -4.0, False, 2)],
    ]
    weights = np.zeros((3, 4, 6), np.float32)
    weights[[0, 1, 2], [0, 2, 3], [0, 3, 5]] = 1
    made = caption_of(["a"], grid=(4, 6), size=(300, 200), image=noise((300, 200)))
    made.beam_tree = BeamTree(steps, weights, [[0, 0]], 2)
    return made


def test_hypotheses_are_in_the_record_and_what_finds_no_room_is_counted(monkeypatch):
    def beam():
        record = json.loads(json.dumps(photo_record(searched(), "dog.png", (300, 200), (300, 200))))
        check(record, "Photo")
        return record["beam"]

    found = beam()
    assert found["steps"][1][1] == {
        "word": "cat", "parent": 1, "log_prob": -2.3026, "total": -4.0, "ended": False, "map_index": 2,
        "moved_share": 1.0,
    }  # fmt: skip
    assert found["maps"]["grid"] == [4, 6]
    monkeypatch.setattr(page_data, "MAP_BYTES", 50)
    found = beam()
    assert (found["maps"], len(found["steps"])) == (None, 2)
    monkeypatch.setattr(page_data, "MOST_NODES", 3)
    assert (beam()["count"], beam()["steps"]) == (4, [])
