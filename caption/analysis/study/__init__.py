"""All measures of models on images, as tables: `study({"mine": captioner}, Images(photos))`."""

from caption.analysis.study.images import Images
from caption.analysis.study.run import Study, study
from caption.analysis.study.subject import Subject

__all__ = ["Images", "Study", "Subject", "study"]
