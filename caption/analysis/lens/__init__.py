"""The lens: what the encoder sees where the decoder looks."""

from caption.analysis.lens.lens import Calibration, Lens, lens_of, make_lens, read_weights

__all__ = ["Calibration", "Lens", "lens_of", "make_lens", "read_weights"]
