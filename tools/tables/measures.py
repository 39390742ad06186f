"""Measures of a trained model besides `caption test`. Each function adds its numbers to a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caption.analysis.faithfulness.adversary import adversarial_maps
from caption.analysis.faithfulness.curves import ORDERS as RANKINGS
from caption.analysis.faithfulness.curves import FaithfulnessCurves, faithfulness_curves
from caption.analysis.maps import METHODS, maps
from caption.analysis.maps.attention import magnitude, without_sinks
from caption.analysis.maps.perturbation import AtRandom
from caption.analysis.maps.trial import scores_of
from caption.analysis.pointing_game import best_map, ground
from caption.analysis.replay import words_alone
from caption.analysis.roles_of_heads import region_roles, word_roles
from caption.analysis.self_attention import has_word_maps, region_maps, word_maps
from caption.analysis.self_attention.rollout import has_rollout, rollout
from caption.cli.main import main as caption
from caption.core.errors import UserError
from caption.core.runtime.trust import make
from caption.data.boxes import Boxes
from caption.data.photos import open_image
from caption.data.readers import CaptionReader
from caption.data.shapes import Shapes, dependencies
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from caption.data.splits import CaptionedImage
from caption.metrics.caption_files import match_images, read_captions
from caption.metrics.evaluation import evaluate
from caption.models import checkpoint
from caption.models.model_zoo import load
from caption.models.transformers.captioner import ForeignCaptioner
from caption.results.caption import Caption
from tools.tables.planted_sink import PlantedSink, concentrated

ERASED = 100
"""Test images whose words have their regions deleted."""
DRAWS = 3
"""Random orders for each word."""
ORDERS = {"attention": magnitude, "random": AtRandom(DRAWS)}
METEOR = "METEOR-1.5"
SCENES = 200
"""Of Shapes, of each split, for `every_map`."""
FEW = 30
"""Of these, for deletion and adversaries."""
WEIGHED, DRAWN_AGAIN = 16, 3
"""Scenes of `map_scales`, and of `map_sanity`."""
OF_HEADS = ("concentrated", "rollout")
"""Map methods that are weighed for captioners of transformers alone."""
QUICK = [name for name in METHODS if name not in ("lens", "shapley")]
"""Shapley values take 13 seconds for each word of a photo; no model here has a lens."""
NAMING = frozenset(COLOURS) | frozenset(SHAPES)
SINKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Thresholds of sinks that are tried; see `caption.analysis.maps.attention.SINK`."""
ADVERSARY = ("divergences", "distances", "permuted", "permuted_distances")
FOLDERS = {"captions": "{data}", "pointing": "{data} {photos}", "map_scales_on_photos": "{data}"}
"""The folders of the command that a measure needs."""
BOXES = [
    Path(__file__).parents[2] / "docs" / "results" / f"photo_boxes{more}.json" for more in ("", "_unseen")
]
"""Of photos of Flickr8k's dev split."""
Run = dict[str, Any]


def deletion(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """The area under each word's deletion curve, in the order of attention and at random: means by image.

    The mean difference over all words is the score `faithfulness` of the first test.
    """
    captioner, photos = checkpoint.load(best), first_photos(best)
    captions = captioner.describe(photos)
    if not captioner.decoder.attentions or not any(caption.words for caption in captions):
        return
    curves = faithfulness_curves(captioner, photos, captions, ORDERS)
    images, words = np.unique(curves.images, return_counts=True)
    areas = {name: np.bincount(curves.images, curves.area("deletion", name))[images] for name in ORDERS}
    means = {name: (sums / words).round(5).tolist() for name, sums in areas.items()}
    run["deletion"] = {"images": images.tolist(), "words": words.tolist(), **means}
    _scores(run)["faithfulness"] = _gain(curves)


def deletion_given(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """The score `faithfulness_given`: as `faithfulness`, for the words of each image's first caption by people, so that
    all models are measured on the same words."""
    captioner, images = checkpoint.load(best), first_images(best)
    if captioner.decoder.attentions:
        tokenizer = captioner.vocabulary.tokenizer
        captions = [words_alone(tokenizer(image.captions[0])) for image in images]
        curves = faithfulness_curves(captioner, [str(image.path) for image in images], captions, ORDERS)
        _scores(run)["faithfulness_given"] = _gain(curves)


def _gain(curves: FaithfulnessCurves) -> float:
    """The mean over all words of how much lower a word's probability is in the order of attention."""
    return float((curves.area("deletion", "random") - curves.area("deletion", "attention")).mean())


def _scores(run: Run) -> dict[str, Any]:
    """The scores of the first test."""
    return next(scores for test, scores in run["scores"].items() if not test.startswith("dev"))


def model(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """The sizes of the encoder's grids, and the number of all other parameters. Scores of maps without attention go."""
    captioner = checkpoint.load(best)
    photo = captioner.transform(open_image(first_photos(best)[0]))[None]
    with torch.no_grad():
        views = captioner.encoder(photo)
    run["regions"] = " + ".join(f"{'×'.join(map(str, view.grid))}×{view.vectors.shape[2]}" for view in views)
    parameters = captioner.named_parameters()
    run["parameters"] = sum(p.numel() for name, p in parameters if not name.startswith("encoder."))
    if not captioner.decoder.attentions:
        for test, scores in run["scores"].items():
            of_maps = ("attention_", "pointing_")
            run["scores"][test] = {name: scores[name] for name in scores if not name.startswith(of_maps)}


def roles(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """Self-attention of words and of regions, if the model has it: how many heads have each role, and the largest
    shares of a head."""
    captioner, photos = checkpoint.load(best), first_photos(best)
    by_kind = {}
    if has_word_maps(captioner):
        by_kind["words"] = word_roles(word_maps(captioner, photos), syntax=dependencies)
    if has_rollout(captioner):
        by_kind["regions"] = region_roles(region_maps(captioner, photos))
    for name, of in by_kind.items():
        run |= {f"{name} heads": len(of), f"{name} positional": int(of.is_positional.sum())}
        run |= {f"{name} neighbour": float(of.positional.max()), f"{name} itself": float(of.at_itself.max())}
        if name == "words":
            run["words rare"] = float(of.rare.max())
        for relation, shares in of.related.items():
            run |= {f"{relation} heads": int(of.is_syntactic[relation].sum()), relation: float(shares.max())}
            run[f"{relation} offset"] = float(of.baselines[relation])


def captions(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """METEOR 1.5, if Java is installed, and BLEU-4 without the brevity penalty, as papers before 2015 computed it."""
    if "test" not in run["scores"]:
        return
    references = read_captions(str(folders["data"] / "Flickr8k.token.txt"))
    candidates = match_images(read_captions(str(folder / "test_captions.json")), references)
    by_people = {image: references.captions[image] for image in candidates}
    plain = evaluate(candidates, by_people, metrics=["BLEU"], brevity_penalty=False)["BLEU-4"]
    scores = {
        "BLEU-4 without brevity penalty": plain,
        METEOR: evaluate(candidates, by_people, metrics=[METEOR])[METEOR],
    }
    run["scores"]["test"] |= {name: score for name, score in scores.items() if score is not None}


def pointing(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """`caption analyse` on the photos with boxes, fed with people's captions: scores of the test `photos`."""
    page, references = folder / "photos.html", folders["data"] / "Flickr8k.token.txt"
    more = ["--boxes", *BOXES, "--references", references, "--measures", "grounding", "--out", page]
    photos = ["--model", f"model={best}", "--photos", folders["photos"], *more]
    if code := caption(["analyse", *map(str, photos)]):
        sys.exit(code)
    rows = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["grounding"]["rows"]
    row = next(row for row in rows if row["maps"] == "own maps")
    names = {"own maps": "pointing accuracy", "mass": "mass in the box"}
    run["scores"]["photos"] = {name: row[head]["mean"] for name, head in names.items()}


def map_scales(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """`caption analyse --maps` on scenes of Shapes. The scales of each method are scores, as if it
    were a test; "differences" has by method and scale the difference from attention, its interval over photos, and p.
    """
    methods = _possible(best, QUICK, folders) if best.is_dir() else [*QUICK, "shapley"]
    _weigh_maps(run, folder, best, methods, ["--limit", WEIGHED], ["maps", "map differences"])


def _possible(best: Path, methods: Sequence[str], folders: Mapping[str, Path]) -> list[str]:
    """Those methods that a captioner of transformers allows: not all give the weights of every layer."""
    captioner, photos = load(f"transformers:{best}"), _scenes(folders["out"])[1]["test"][:2]
    given, possible = captioner.describe(photos), []
    for name in methods:
        with suppress(UserError):
            maps(captioner, photos, given, name)
            possible.append(name)
    return possible


def map_sanity(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """The same for the scales that draw maps many times, on fewer scenes."""
    _weigh_maps(run, folder, best, QUICK, ["--limit", DRAWN_AGAIN], ["map sanity"])


def map_scales_on_photos(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """`map_scales` on photos with boxes: those that `held_out.txt` names, in `images` beside it."""
    data = folders["data"]
    photos = [data / "images" / name for name in (data / "held_out.txt").read_text(encoding="utf-8").split()]
    more = ["--photos", *photos, "--boxes", data / "instances.json"]
    _weigh_maps(run, folder, best, QUICK, more, ["maps", "map differences"])


def _weigh_maps(
    run: Run, folder: Path, best: Path, methods: Sequence[str], more: Sequence[object], parts: Sequence[str]
) -> None:
    model = f"transformers:{best}" if best.is_dir() else str(best)
    methods = [name for name in methods if best.is_dir() or name not in OF_HEADS]
    page = folder / f"{parts[0]} of methods.html"  # not the name of the run
    what = ["--maps", *methods, "--measures", *parts, "--out", page]
    if code := caption(["analyse", "--model", f"model={model}", *map(str, [*more, *what])]):
        sys.exit(code)
    written = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    run["setting"] = written["setting"]
    for row in written[parts[0]]["rows"]:
        scores = run["scores"].setdefault(row["map"], {})
        scores |= {scale: cell["mean"] for scale, cell in row.items() if isinstance(cell, dict)}
        scores |= {cost: float(row[cost]) for cost in ("words", "ms per word", "MB") if cost in row}
    for row in written["map differences"]["rows"] if "map differences" in parts else ():
        if row["difference"]:
            of_method = run.setdefault("differences", {}).setdefault(row["map"], {})
            of_method[row["scale"]] = {**row["difference"], "p_value": float(row["p"])}


def every_map(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """Scores of captions of Shapes; and, as if they were tests, of each map of the captioner, of each order of hiding
    regions, and of the adversary.

    Maps are judged at the names of objects that the scene has. The entry "best head" names the map that points best on
    validation scenes.
    """
    captioner, scores = load(f"transformers:{best}" if best.is_dir() else str(best)), run["scores"]
    splits, photos, boxes = _scenes(folders["out"])
    captions = captioner.describe(photos["test"])
    references = {image.id: image.captions for image in splits["test"]}
    metrics = evaluate(
        {name: caption.text for name, caption in zip(references, captions, strict=True)}, references
    )
    grounding = ground(zip(captions, boxes["test"], strict=True))
    present = grounding.present
    counts = {"names": len(grounding), "present": len(present), "chance": present.chance}
    scores["captions"] = {metric: metrics[metric] for metric in ("BLEU-4", "CIDEr")} | counts
    drawn = [captioner.joined(concentrated(caption.stepwise)) for caption in captions]
    scores["concentrated"] = _pointing(drawn, boxes["test"])
    few = photos["test"][:FEW], captions[:FEW]
    orders = {**RANKINGS, "random": AtRandom(DRAWS), "concentrated": scores_of(drawn[:FEW])}
    del orders["attention"]
    curves = faithfulness_curves(captioner, *few, orders).only(NAMING)
    for order in curves.orders:
        scores.setdefault(order, {})["deletion"] = float(curves.area("deletion", order).mean())
    adversary = adversarial_maps(captioner, *few).only(NAMING)
    scores["adversary"] = {field: float(getattr(adversary, field).mean()) for field in ADVERSARY}
    if not isinstance(captioner, ForeignCaptioner):
        return
    with suppress(UserError):  # Idefics3's patches cannot be followed through its tower
        scores["rolled out"] = _pointing(rollout(captioner, photos["test"], captions), boxes["test"])
    chosen = best_map(list(zip(captioner.describe(photos["val"]), boxes["val"], strict=True)))
    for summary in ("mean", *captions[0].maps, *captions[0].single_maps()):
        drawn = maps(captioner, photos["test"], captions, summary)
        scores[summary] = _pointing(drawn, boxes["test"])
        if summary in ("mean", chosen):
            curves = faithfulness_curves(captioner, *few, {"map": scores_of(drawn[:FEW])}).only(NAMING)
            scores[summary]["deletion"] = float(curves.area("deletion", "map").mean())
    run["best head"], scores["best head"] = chosen, scores[chosen]


def planted_sinks(run: Run, best: Path, folder: Path, folders: Mapping[str, Path]) -> None:
    """As if they were tests, the summaries of the heads of a captioner of transformers; and, on validation scenes, the
    thresholds of sinks: as trained, and with a register that is planted in half of the heads of each layer, and in all.
    """
    captioner: Any = load(f"transformers:{best}")
    _, photos, boxes = _scenes(folders["out"])
    scores, decoder = run["scores"], captioner.decoder
    for case, share in {"as trained": 0.0, "half": 0.5, "all": 1.0}.items():
        decoder.layers = torch.nn.ModuleList(
            PlantedSink(range(round(share * heads))) for heads in decoder.model.heads
        )
        test, val = (list(captioner.describe(photos[split])) for split in ("test", "val"))
        summaries = {
            "default": test,
            "concentrated": [captioner.joined(concentrated(caption.stepwise)) for caption in test],
            **{
                method: list(maps(captioner, photos["test"], test, method))
                for method in ("mean", "without-sinks")
            },
        }
        of_summaries = {summary: _pointing(drawn, boxes["test"]) for summary, drawn in summaries.items()}
        for sink in SINKS:  # with two photos, the fewest, a region that all words read may be an object
            pairs = [without_sinks(captioner, [], val[n : n + 2], sink) for n in range(0, len(val), 2)]
            of_summaries[f"sink {sink:g}"] = _pointing([*chain(*pairs)], boxes["val"])
        if not share:
            orders = {summary: scores_of(drawn[:FEW]) for summary, drawn in summaries.items()}
            curves = faithfulness_curves(captioner, photos["test"][:FEW], test[:FEW], orders).only(NAMING)
            for summary in summaries:
                of_summaries[summary]["deletion"] = float(curves.area("deletion", summary).mean())
        for summary, of_case in of_summaries.items():
            scores.setdefault(summary, {}).update({f"{name}, {case}": of_case[name] for name in of_case})


def _scenes(
    out: Path,
) -> tuple[Mapping[str, list[CaptionedImage]], dict[str, list[str]], dict[str, list[Boxes]]]:
    """Scenes of Shapes: splits, and the photos and boxes of validation and test."""
    reader = Shapes(str(out / "test_scenes"), train=1, val=SCENES, test=SCENES)
    splits = reader.read()
    photos = {split: [str(image.path) for image in splits[split]] for split in ("val", "test")}
    boxes = {split: [reader.boxes(split)[image.id] for image in splits[split]] for split in photos}
    return splits, photos, boxes


def _pointing(captions: Sequence[Caption], boxes: Sequence[Boxes]) -> dict[str, float]:
    """The pointing game at the names of objects that the scene has, and the share of attention that the image gets."""
    present = ground(zip(captions, boxes, strict=True)).present
    share = np.concatenate([caption.weights.sum((1, 2)) for caption in captions]).mean()
    return {"pointing": present.accuracy, "mass": present.mass, "share": float(share)}


def first_images(best: Path) -> list[CaptionedImage]:
    """The first images of the test split that a checkpoint's data has."""
    return make(checkpoint.read(best)["data"]["reader"], CaptionReader).read()["test"][:ERASED]


def first_photos(best: Path) -> list[str]:
    return [str(image.path) for image in first_images(best)]
