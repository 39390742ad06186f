"""A study: models, measured on images, as tables.

result = study({"mine": captioner}, Images(photos))
print(result.tables["faithfulness"])
result.subjects[0].curves["removed"].plot()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caption.analysis.study.images import Images
from caption.analysis.study.kept import Kept
from caption.analysis.study.subject import Subject
from caption.analysis.study.tables import MEASURES, OF_MAPS, ON_PHOTOS, ON_SHAPES
from caption.analysis.table import AnalysisTable
from caption.captioner import Captioner
from caption.core.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Study:
    """The measurements of models as tables."""

    subjects: Sequence[Subject]
    """The models, with the measurements behind the tables."""
    tables: Mapping[str, AnalysisTable]
    """By the name of the measure, in the order of a page."""

    @property
    def title(self) -> str:
        names = [subject.name for subject in self.subjects]
        if len(names) == 1:
            return f"Where the model {names[0]} looks, and whether that explains its words"
        return f"Where {', '.join(names)} look, and whether that explains their words"

    def text(self) -> str:
        """The tables, each under its question; for a measure that was not possible, the remedy."""
        return "\n\n".join(f"{table.title}\n{table.missing or table}" for table in self.tables.values())

    def to_frame(self, measure: str) -> DataFrame:
        """One of `tables` as a pandas DataFrame; see `AnalysisTable.to_frame`.

        Raises:
            UserError: the study has no such measure, or it was not possible; pandas is not installed.
        """
        if measure not in self.tables or self.tables[measure].missing:
            reason = (
                self.tables[measure].missing
                if measure in self.tables
                else f"there are {', '.join(self.tables)}"
            )
            raise UserError(f"the study has no measure {measure!r}: {reason}")
        return self.tables[measure].to_frame()

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the models, every table, and the captions by photo."""
        captions = {
            subject.name: dict(
                zip(subject.photos, (caption.text for caption in subject.captions), strict=True)
            )
            for subject in self.subjects
        }
        tables = {name: table.to_dict() for name, table in self.tables.items()}
        return {"models": list(captions), **tables, "captions": captions}


def study(
    models: Mapping[str, Captioner],
    images: Images,
    measures: Sequence[str] | None = None,
    methods: Sequence[str] = (),
    kept: Kept | None = None,
) -> Study:
    """Measure where models look, and whether their words depend on it. A terminal shows the progress.

    Args:
        models: by name.
        images: at least two, with their annotations. Measures that need boxes or people's captions are taken on the
            images that have them.
        measures: names of `MEASURES`; None = those `ON_SHAPES` where the truth about every word is known
            (`Images.naming`), else those `ON_PHOTOS`. A measure that applies to none of the models is left out, such
            as "heads" for models with a single map.
        methods: of maps, to be weighed against each other; see `caption.analysis.maps.METHODS`. If there are any,
            `measures` None = those `OF_MAPS`.
        kept: where the results of work on maps are kept, so that it can be stopped.

    Raises:
        UserError: a model has no attention, or fewer than two of its captions have words; no photo has both boxes and
            people's captions, although some have either; there is no such measure.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    if images.boxed and not images.pointed_at:
        raise UserError("no photo has both boxes and people's captions: give those of the same photos")
    check_measures(measures or ())
    names = measures or list(OF_MAPS if methods else ON_SHAPES if images.naming else ON_PHOTOS)
    subjects = [Subject(name, captioner, images, methods, kept) for name, captioner in models.items()]
    tables = {name: MEASURES[name](subjects) for name in names}
    return Study(subjects, {name: table for name, table in tables.items() if table is not None})


def check_measures(names: Sequence[str]) -> None:
    """Raise a UserError if a name is none of `MEASURES`."""
    if unknown := [name for name in names if name not in MEASURES]:
        raise UserError(f"there is no measure {unknown[0]!r}: the measures are {', '.join(MEASURES)}")
