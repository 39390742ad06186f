"""Checkpoints, files that hold a whole captioner and run no code when they are loaded.

The layout is Lightning's, so every file written by training is a model:

    state_dict        tensors; the captioner's under "captioner."
    captioner         format (int), package version, and `Captioner.description()`: encoder, refiner and decoder
                      as class paths with arguments, vocabulary, image transform, search
    data              the section data of the training's configuration, if there was one: `caption test` needs no other
    ...               in training checkpoints, the entries with which Lightning resumes

A safetensors file holds the captioner alone: tensors without "captioner.", and in the header, as text,

    captioner         the section above, in JSON
    checksums         JSON: "captioner", and for each tensor in "tensors", the CRC-32 of its name, type, shape and bytes
    format            "pt", as other programs expect

`read` opens either kind of file, and checks its content.
"""

from caption.models.checkpoint.format import FORMAT, PREFIX, Precision, read, save, section
from caption.models.checkpoint.rebuild import architecture, load, rebuild

__all__ = [
    "FORMAT",
    "PREFIX",
    "Precision",
    "architecture",
    "load",
    "read",
    "rebuild",
    "save",
    "section",
]
