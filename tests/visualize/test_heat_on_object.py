"""A bright object in a photo, an encoder whose grid lies beside its input, and heat that lies on the object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny_captioner
from helpers.drawing import draw_overlay
from PIL import Image
from torch import Tensor
from torch.nn import functional

from caption.analysis.baseline_maps import centred, middle
from caption.analysis.interventions.selection import touched
from caption.analysis.pointing_game import ground
from caption.core.box import cell_centres
from caption.data.photos import ImageTransform
from caption.decoders import Trace
from caption.encoders import Encoder
from caption.results.caption import Caption
from caption.search import Hypotheses
from caption.visualize.page_data import photo_record
from caption.visualize.scale import Scale

SIZE = (128, 96)
OBJECTS = {"middle": (50, 40, 62, 50), "upper left": (20, 21, 30, 28), "lower right": (80, 54, 92, 60)}


class Brightness(Encoder):
    """The mean brightness around each cell: three layers of kernel 3, stride 2 and padding 1.

    With the kernel 1, 2, 1 no layer moves the centre of mass of what it sees, except for its grid: 3.5 of 64 pixels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.region_sizes = (1, 1)
        side = torch.tensor([0.25, 0.5, 0.25])
        self.kernel = torch.nn.Parameter(torch.outer(side, side)[None, None])

    def normalise(self, images: Tensor) -> Tensor:
        return images / 255

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = images.mean(1, keepdim=True)
        levels = [maps := functional.conv2d(maps, self.kernel, stride=2, padding=1) for _ in range(3)]
        return levels[2], levels[1]


def seen_by_the_encoder(where: tuple[int, ...], transform: ImageTransform | None = None) -> Caption:
    """A caption of one word, "cat", whose weights are what the encoder sees, and those of the finer level as a map."""
    made = tiny_captioner.captioner(transform or ImageTransform(64, "squash"))
    made.encoder = Brightness()
    made.decoder.attention.map_views = {"fine": 1}
    pixels = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    left, top, right, bottom = where
    pixels[top:bottom, left:right] = 255
    photo = Image.fromarray(pixels)
    views = made.encode([photo])
    weights, fine = (view.vectors[None, :, None, :, 0].transpose(0, 1) for view in views)
    one = torch.zeros(1, 1)
    found = Hypotheses(
        words=torch.tensor([[[made.vocabulary["cat"]]]]),
        lengths=torch.tensor([[1]]),
        log_probs=one,
        word_log_probs=one[None],
        scores=one,
        finished=one == 0,
        trace=Trace(weights / weights.sum(), {"fine": fine / fine.sum()}),
    )
    (caption,) = made.captions(found, made.grids(views), [made.transform.box(*SIZE)], [photo])
    return caption


def middle_of(box: tuple[float, ...]) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def centre_of_mass(light: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    return (light.sum(0) @ x) / light.sum(), (light.sum(1) @ y) / light.sum()


def drawn(caption: Caption, **options) -> np.ndarray:
    """The light of the only word alone, one pixel for each of the photo's."""
    weights = caption.weights[0]
    options = {"seen": caption.seen, "cmap": "gray", "opacity": 1, **options}
    return draw_overlay(caption.image, weights, caption.box, Scale(0, weights.max()), **options)[..., 0]


@pytest.mark.parametrize("where", OBJECTS.values(), ids=OBJECTS)
def test_the_weights_and_the_heat_lie_on_the_object(where: tuple[int, ...]):
    caption = seen_by_the_encoder(where)
    for view in (caption, caption.with_map("fine")):
        x, y = cell_centres(*view.weights.shape[1:], view.box)
        assert centre_of_mass(view.weights[0], x, y) == pytest.approx(middle_of(where), abs=0.2)
    x, y = np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5
    for smooth in (True, False):
        assert centre_of_mass(drawn(caption, smooth=smooth), x, y) == pytest.approx(middle_of(where), abs=1)
        beside = centre_of_mass(drawn(replace(caption, box=caption.seen), smooth=smooth), x, y)
        assert np.subtract(beside, middle_of(where)) == pytest.approx([7, 5.25], abs=1.5)  # 3.5 of 64 pixels


def test_both_boxes_are_kept_and_saved(tmp_path):
    caption = seen_by_the_encoder(OBJECTS["middle"])
    assert caption.box == (-7, -5.25, 121, 90.75)
    assert caption.maps.boxes == {"fine": (-3, -2.25, 125, 93.75)}
    record = caption.to_dict()
    assert record["box"] == [-7, -5.25, 121, 90.75]
    assert record["map_boxes"] == {"fine": [-3, -2.25, 125, 93.75]}
    assert record["seen"] == [0, 0, *SIZE]
    (first,) = photo_record(caption, "photo", SIZE, SIZE)["captions"]
    assert first["covers"]
    assert (first["box"], first["seen"]) == (record["box"], record["seen"])
    assert first["maps"][0]["box"] == record["map_boxes"]["fine"]
    caption.save_attention(tmp_path / "cat.npz")
    with np.load(tmp_path / "cat.npz", allow_pickle=False) as saved:
        boxes = [tuple(saved[name]) for name in ("box", "seen", "map_box_fine")]
    assert boxes == [caption.box, caption.seen, caption.maps.boxes["fine"]]


def test_the_grid_of_a_crop_and_of_padding_is_moved_as_well():
    crop = seen_by_the_encoder(OBJECTS["middle"], ImageTransform(64, "crop"))
    assert crop.seen == (16, 0, 112, 96)
    assert crop.box == (16 - 5.25, -5.25, 112 - 5.25, 96 - 5.25)
    pad = seen_by_the_encoder(OBJECTS["middle"], ImageTransform(64, "pad"))
    assert pad.seen == (0, -16, 128, 112)
    assert pad.box == (-7, -23, 121, 105)
    x, y = cell_centres(8, 8, crop.box)
    found = centre_of_mass(crop.weights[0], x, y)
    assert found == pytest.approx(middle_of(OBJECTS["middle"]), abs=0.2)


def test_pointing_and_selection_use_the_cells_where_they_look():
    # The cell in row 4, column 4, as drawn; by equal tiles of the photo it is beside it.
    where = (57, 40, 73, 52)
    caption = seen_by_the_encoder(where)
    assert ground([(caption, {"cat": [where]})]).accuracy == 1
    inside = touched((58, 43.5, 72, 53), caption)
    assert np.argwhere(inside).tolist() == [[4, 4]]
    assert inside.ravel()[caption.weights[0].argmax()]
    # What lies between the grid and the photo's edge is selected with the nearest cells.
    edge = touched((122, 0, 128, 96), caption)
    assert edge[:, -1].all()
    assert edge.sum() == 8
    full = seen_by_the_encoder((0, 0, *SIZE))
    grounding = ground([(full, {"cat": [(0, 0, *SIZE)]})])
    assert grounding.mass == grounding.mass_chance == pytest.approx(1)


def test_the_middle_is_that_of_the_photo():
    caption = seen_by_the_encoder(OBJECTS["middle"])
    x, y = cell_centres(8, 8, caption.box)
    (one,) = middle([caption])
    ((row, col),) = np.argwhere(one.weights[0])
    assert (x[col], y[row]) == (65, 48.75)  # 64, 48 is the middle
    (bump,) = centred([caption], sigma=0.1)
    assert centre_of_mass(bump.weights[0], x, y) == pytest.approx((64, 48), abs=0.5)
