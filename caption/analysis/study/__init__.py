"""All measures of models on images, as tables: `study({"mine": captioner}, Images(photos))`."""

from caption.analysis.study.run import Study, study
from caption.analysis.study.subject import Images, Subject

__all__ = ["Images", "Study", "Subject", "study"]
