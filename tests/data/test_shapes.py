"""The embedded dataset: its captions are true, its boxes tight, its files reproducible."""

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from caption.core.errors import DataError, UserError
from caption.data.findings import Findings
from caption.data.shapes import Shapes
from caption.data.shapes import dataset as shapes
from caption.data.shapes.captions import dependencies, describe_scene
from caption.data.shapes.dataset import write_shapes
from caption.data.shapes.render import render
from caption.data.shapes.scene import Scene, random_scene, scene_split

Boxes = dict[str, tuple[float, float, float, float]]

SMALL = {"train": 9, "val": 4, "test": 4}

# Written independently of the grammar: the meaning of a caption for an English reader.
RELATED = re.compile(
    r"(?:there is |an image of |we see |look at )?a (\w+ \w+) (above|below|to the left of|to the right of) a (\w+ \w+)"
)
LISTED = re.compile(r"an image of a (\w+ \w+) with a (\w+ \w+) and a (\w+ \w+)")


def is_true(caption: str, boxes: Boxes) -> bool:
    """Whether the boxes support all claims of the caption."""
    if listed := LISTED.fullmatch(caption):
        return set(listed.groups()) == set(boxes)
    related = RELATED.fullmatch(caption)
    assert related, f"not understood: {caption!r}"
    one, where, other = related.groups()
    if one not in boxes or other not in boxes:
        return False
    (left, top, right, bottom), (left2, top2, right2, bottom2) = boxes[one], boxes[other]
    wholly = {
        "above": bottom <= top2,
        "below": top >= bottom2,
        "to the left of": right <= left2,
        "to the right of": left >= right2,
    }[where]
    across = abs(left + right - left2 - right2)
    along = abs(top + bottom - top2 - bottom2)
    return wholly and (along > across if where in ("above", "below") else across > along)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set that no test changes."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, **SMALL)
    return folder


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Three training scenes, and one each of the others, to change."""
    assert write_shapes(tmp_path / "new", 3, 1, 1)
    return tmp_path / "new"


def file_bytes(folder: Path) -> dict[str, bytes]:
    """The files of the data set, without the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".caption")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# -- scenes and captions ---------------------------------------------------------------------------------------


def test_five_different_captions_are_true_and_boxes_tight_around_the_drawn_pixels():
    scenes = [random_scene(3, "train", number) for number in range(200)]
    for scene in scenes:
        captions = describe_scene(scene)
        assert len(set(captions)) == 5
        boxes = {thing.name: thing.box for thing in scene.objects}
        assert all(is_true(caption, boxes) for caption in captions), (scene, captions)
    for scene in scenes[:20]:
        empty = np.asarray(render(Scene((), scene.size, scene.seed))).astype(int)
        for thing in scene.objects:
            drawn = np.asarray(render(Scene((thing,), scene.size, scene.seed))).astype(int)
            rows, columns = np.nonzero(abs(drawn - empty).max(axis=2) > 2)
            assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == thing.box


def test_no_arrangement_is_in_two_splits_for_any_seed():
    for seed in (0, 1):
        for split in ("train", "val", "test"):
            assert {scene_split(random_scene(seed, split, k)) for k in range(40)} == {split}


@pytest.mark.parametrize(
    ("caption", "subject", "related"),
    [
        ("a red circle above a blue star", ["above circle"], ["star above"]),
        ("there is a red circle to the left of a blue star", ["left circle"], ["circle is", "star left"]),
        ("we see a red star below a blue star", ["below star"], ["star see", "star below"]),
        ("look at a red cross to the right of a blue star", ["right cross"], ["cross look", "star right"]),
        ("an image of a red circle with a blue star and a red cross", [], []),
    ],
)
def test_the_grammar_relates_words(caption: str, subject: list[str], related: list[str]):
    words = caption.split()
    pairs = dependencies(words)
    assert all(later > earlier for found in pairs.values() for later, earlier in found)
    named = {
        name: [f"{words[later]} {words[earlier]}" for later, earlier in found]
        for name, found in pairs.items()
    }
    assert named == {"subject": subject, "object": related}


# -- files -----------------------------------------------------------------------------------------------------


def test_captions_and_boxes_load_with_pycocotools(folder: Path):
    for split, count in SMALL.items():
        captions, objects = (COCO(str(folder / f"{split}{name}.json")) for name in ("", "_objects"))
        assert captions.getImgIds() == objects.getImgIds()
        assert len(captions.getImgIds()) == count
        for image in captions.loadImgs(captions.getImgIds()):
            with Image.open(folder / "images" / image["file_name"]) as picture:
                assert picture.size == (image["width"], image["height"]) == (64, 64)
                assert picture.mode == "RGB"
            boxes = {}
            for thing in objects.loadAnns(objects.getAnnIds(imgIds=image["id"])):
                (category,) = objects.loadCats(thing["category_id"])
                assert category["name"].split()[-1] == category["supercategory"]
                left, top, width, height = thing["bbox"]
                assert 0 < thing["area"] <= width * height
                boxes[category["name"]] = (left, top, left + width, top + height)
            texts = [entry["caption"] for entry in captions.loadAnns(captions.getAnnIds(image["id"]))]
            assert len(texts) == 5
            assert all(is_true(text, boxes) for text in texts)


def test_the_data_is_that_of_this_version(folder: Path):
    """If this fails because of an intended change, raise `VERSION` with the digests."""
    text = hashlib.sha256()
    for split in SMALL:
        for name in (f"{split}.json", f"{split}_objects.json"):
            text.update((folder / name).read_bytes())
    pixels = hashlib.sha256()  # of pixels instead of files, because compressors differ
    for path in sorted((folder / "images").iterdir()):
        with Image.open(path) as picture:
            pixels.update(picture.tobytes())
    assert shapes.VERSION == 2
    assert text.hexdigest() == "154aab74c3f3b0e2bdbe6c5d7b7191b1cd29c0fd7efa417be053fe317cd8d857"
    assert pixels.hexdigest() == "9abcbf230779a8da2b39f474723d434cd33886c90601ec840da2a5adbd6695af"


def test_impossible_requests_are_refused(tmp_path: Path):
    for wrong, message in (
        ({"train": -1}, "-1 scenes"),
        ({"val": 1_000_000}, "val split"),
        ({"size": 32}, "32 x 32"),
        ({"seed": -5}, "-5"),
    ):
        with pytest.raises(DataError, match=message):
            write_shapes(tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


def test_it_is_written_once_and_missing_files_are_noticed(few: Path):
    times = {path: path.stat().st_mtime_ns for path in few.rglob("*")}
    assert not write_shapes(few, 3, 1, 1)
    assert {path: path.stat().st_mtime_ns for path in few.rglob("*")} == times
    before = file_bytes(few)
    for name in ("train.json", "test_objects.json", "images/train_000002.png"):
        (few / name).unlink()
        assert write_shapes(few, 3, 1, 1), name
        assert file_bytes(few) == before


@pytest.mark.parametrize("change", [{"train": 2}, {"train": 4}, {"test": 0}])
def test_other_counts_replace_everything_but_further_scenes_and_files_of_others(
    few: Path, change: dict[str, int], tmp_path: Path
):
    wanted = {"train": 3, "val": 1, "test": 1, **change}
    theirs = few / "images" / "test_009999.png"  # as of a larger data set, which was never written here
    theirs.write_bytes(b"mine")
    before = file_bytes(few)
    assert write_shapes(few, **wanted)
    assert not write_shapes(few, **wanted)
    write_shapes(tmp_path / "fresh", **wanted)
    pictures = {name: content for name, content in before.items() if name.startswith("images")}
    assert file_bytes(few) == pictures | file_bytes(tmp_path / "fresh")


@pytest.mark.parametrize("change", [{"size": 80}, {"seed": 7}])
def test_scenes_of_another_size_or_seed_are_refused(few: Path, change: dict[str, int]):
    before = file_bytes(few)
    message = r"new' has scenes of 64 pixels and seed 0, .* name another folder with --data\.reader\.init_args\.folder"
    for reader in (Shapes(str(few), 3, 1, 1, **change), Shapes(str(few), 30, 9, 9, **change)):
        with pytest.raises(UserError, match=message):
            reader.read()
        with pytest.raises(UserError, match=message):
            reader.survey(Findings())
    assert file_bytes(few) == before


def test_a_training_keeps_its_scenes_and_boxes_when_another_command_wants_fewer(few: Path):
    reader = Shapes(str(few), 3, 2, 1)
    images, boxes = reader.read()["val"], reader.boxes("val")
    Shapes(str(few), 1, 1, 1).read()
    assert reader.boxes("val") == boxes
    assert [*boxes] == [image.id for image in images]
    assert all(image.path.exists() for image in images)


def test_a_split_of_no_scenes_is_left_out(tmp_path: Path):
    no_test = Shapes(str(tmp_path / "no_test"), 3, 1, 0)
    assert [*no_test.read()] == [*no_test.survey(Findings())] == ["train", "val"]
    assert no_test.boxes("test") == {}
    assert [*Shapes(str(tmp_path / "test"), 0, 0, 1).read()] == ["test"]
    with pytest.raises(DataError, match="no split to read"):
        Shapes(str(tmp_path / "none"), 0, 0, 0).read()


def test_of_two_that_start_together_one_writes(tmp_path: Path):
    """As the processes of one training do."""
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: write_shapes(tmp_path / "both", 20, 1, 1), range(2)))
    assert sorted(made) == [False, True]


@pytest.mark.parametrize(
    ("name", "wanted", "kind"),
    [
        ("val_objects.json", {"train": 2}, "link"),  # would be deleted, then replaced
        ("images/train_000004.png", {"train": 4}, "file"),  # has never been there
        ("images/train_000004.png", {"train": 4}, "link"),
    ],
)
def test_files_of_others_are_named_and_stay(
    few: Path, tmp_path: Path, name: str, wanted: dict[str, int], kind: str
):
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"mine")
    (few / name).unlink(missing_ok=True)
    if kind == "link":
        (few / name).symlink_to(theirs)
    else:
        (few / name).write_bytes(b"mine")
    before = file_bytes(few)
    with pytest.raises(UserError, match=name):
        write_shapes(few, **{"train": 3, "val": 1, "test": 1, **wanted})
    assert file_bytes(few) == before
    assert theirs.read_bytes() == b"mine"


@pytest.mark.parametrize("survived", [0, 4])
def test_a_killed_run_is_not_taken_for_complete(few: Path, survived: int, monkeypatch: pytest.MonkeyPatch):
    """It counts as complete neither for its own count nor for that of the earlier run."""
    drawn = 0

    def killed(scene: Scene) -> Image.Image:
        nonlocal drawn
        drawn += 1
        if drawn > survived:
            raise KeyboardInterrupt
        return render(scene)

    with monkeypatch.context() as patch:
        patch.setattr(shapes, "render", killed)
        with pytest.raises(KeyboardInterrupt):
            write_shapes(few, 4, 1, 1)
    assert not list(few.glob("*.tmp"))
    for train in (3, 4):
        assert write_shapes(few, train, 1, 1)
