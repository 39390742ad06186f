"""The words by which captions call the objects of COCO's 80 categories.

A category is called by its name, by the synonyms below, and by the plurals of both. The table is this project's own.
It keeps to words that rarely mean something else: "glasses" are mostly worn, so they do not stand for wine glasses, and
"plant" alone mostly grows outside. Categories that are not COCO's are called by their names.
"""

from __future__ import annotations

SYNONYMS: dict[str, tuple[str, ...]] = {
    "person": (
        *(
            "man",
            "woman",
            "boy",
            "girl",
            "child",
            "kid",
            "baby",
            "toddler",
            "guy",
            "lady",
            "gentleman",
            "adult",
        ),
        *("player", "skier", "snowboarder", "surfer", "skateboarder", "skater", "rider", "cyclist", "biker"),
        *("batter", "pitcher", "catcher", "someone"),
    ),
    "bicycle": ("bike",),
    "car": ("automobile", "sedan", "taxi", "suv", "minivan"),
    "motorcycle": ("motorbike", "moped", "scooter", "motor cycle", "motor bike"),
    "airplane": ("plane", "aeroplane", "jet", "aircraft", "airliner"),
    "bus": ("double decker",),
    "train": ("locomotive",),
    "truck": ("pickup", "pick up truck"),
    "boat": ("ship", "canoe", "kayak", "sailboat", "ferry"),
    "traffic light": ("stoplight", "stop light", "street light", "traffic signal"),
    "fire hydrant": ("hydrant",),
    "bird": ("duck", "goose", "seagull", "gull", "parrot", "owl", "pigeon", "penguin", "swan", "ostrich"),
    "cat": ("kitten", "kitty"),
    "dog": ("puppy", "pup"),
    "horse": ("pony", "foal"),
    "sheep": ("lamb", "ram", "ewe"),
    "cow": ("cattle", "bull", "calf", "ox"),
    "bear": ("polar bear", "cub"),
    "backpack": ("rucksack",),
    "umbrella": ("parasol",),
    "handbag": ("purse",),
    "tie": ("necktie", "bow tie"),
    "suitcase": ("luggage",),
    "frisbee": ("disc",),
    "skis": ("ski",),
    "snowboard": (),
    "sports ball": ("ball", "baseball", "basketball", "football", "soccer ball", "tennis ball"),
    "baseball bat": ("bat",),
    "baseball glove": ("mitt", "baseball mitt", "catcher's mitt"),
    "skateboard": ("skate board",),
    "surfboard": ("surf board", "longboard"),
    "tennis racket": ("racket", "racquet", "tennis racquet"),
    "wine glass": ("wineglass",),
    "cup": ("mug",),
    "donut": ("doughnut",),
    "hot dog": ("hotdog",),
    "couch": ("sofa",),
    "potted plant": ("houseplant", "house plant"),
    "dining table": ("table", "dinner table", "kitchen table"),
    "tv": ("television", "monitor", "television set"),
    "laptop": ("laptop computer", "notebook computer"),
    "mouse": ("computer mouse",),
    "remote": ("remote control", "controller", "wii remote"),
    "cell phone": ("cellphone", "phone", "smartphone", "mobile phone"),
    "microwave": ("microwave oven",),
    "oven": ("stove",),
    "refrigerator": ("fridge",),
    "teddy bear": ("teddy", "stuffed bear", "stuffed animal"),
    "hair drier": ("hair dryer", "hairdryer", "blow dryer"),
}
"""By category, where there are any."""
PLURALS = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "knife": "knives",
    "mouse": "mice",
    "goose": "geese",
    "calf": "calves",
    "ox": "oxen",
    "gentleman": "gentlemen",
    "sheep": "sheep",
    "cattle": "cattle",
    "aircraft": "aircraft",
    "luggage": "luggage",
    "broccoli": "broccoli",
    "skis": "skis",
    "scissors": "scissors",
    "someone": "someone",
}
"""Of the last words of names, where they are irregular."""


def words_of(category: str) -> tuple[str, ...]:
    """The words for the objects of a category, in the singular and the plural."""
    name = category.lower().replace("_", " ").strip()
    singular = (name, *SYNONYMS.get(name, ()))
    return tuple(dict.fromkeys(word for one in singular for word in (one, plural(one)) if word))


def plural(name: str) -> str:
    """The plural of an English noun, or of a name whose last word is one: "wine glass", "wine glasses"."""
    before, space, last = name.rpartition(" ")
    if last in PLURALS:
        return before + space + PLURALS[last]
    if last.endswith(("s", "x", "ch", "sh")):
        return name + "es"
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return name[:-1] + "ies"
    return name + "s"
