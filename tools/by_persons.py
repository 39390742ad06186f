"""Split COCO's captions by whether they name a person: `python -m tools.by_persons CAPTIONS PEOPLE THINGS`.

The photos of both files are those of CAPTIONS, in its format; see `caption.text.sense.names_person`.
"""

import json
import sys
from pathlib import Path

from caption.core.runtime.atomic_files import make_parents, replacing
from caption.text.sense import names_person
from caption.text.tokenizer import get_tokenizer


def main(captions: str, *outputs: str) -> None:
    data = json.loads(Path(captions).read_text(encoding="utf-8"))
    tokenize = get_tokenizer("ptb")
    people = {entry["image_id"] for entry in data["annotations"] if names_person(tokenize(entry["caption"]))}
    for path, with_people in zip(outputs, (True, False), strict=True):
        images = [image for image in data["images"] if (image["id"] in people) == with_people]
        kept = {image["id"] for image in images}
        annotations = [entry for entry in data["annotations"] if entry["image_id"] in kept]
        make_parents(Path(path))
        with replacing(path) as file:
            file.write(json.dumps(data | {"images": images, "annotations": annotations}).encode())
        print(f"{path}: {len(images):,} photos")


if __name__ == "__main__":
    main(*sys.argv[1:])
