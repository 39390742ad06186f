"""All measures of a model on a user's photos, and what is told of them: `caption analyse --photos`."""

from caption.analysis.photos.study import PhotoSet, PhotoStudy, study_photos

__all__ = ["PhotoSet", "PhotoStudy", "study_photos"]
