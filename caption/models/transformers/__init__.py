"""Captioners of other people's code: models of transformers, and any torch model that gives a small interface.

    captioner = caption.load("transformers:Salesforce/blip-image-captioning-base")
    captioner("photo.jpg").plot()

A foreign model becomes a `Captioner` like any other, so all that describes, draws, forces, erases and doubts works:

    photo   -> ProcessorTransform        -> pixels         what the model's own image processor makes of the photo, and
                                                           the part of the photo that it covers
    pixels  -> ForeignEncoder            -> Regions        image tokens on the grid of patches. Class tokens have no
                                                           place in the photo; they travel behind the vectors
    Regions -> ForeignDecoder.project    -> ForeignMemory  keys and values of the image in each layer that reads it
    words   -> ForeignDecoder.step       -> log p, maps    one word piece; each layer's attention to the image goes
                                                           through a `PatchAttention`, where hooks replace the maps
    pieces  -> ForeignCaptioner.captions -> Caption        words joined from their pieces

`ForeignModel` (model.py) is the interface: image tokens, memory, step. `TransformersModel` (transformers_model.py) runs
models of transformers with public extension points alone: registered attention functions, module hooks and caches. A
family is a subclass that says where its parts are; families.py names them all. What a model reads beside patches, that
is class tokens, registers, the prompt and the words so far, is one share "elsewhere", as with a sentinel:
`Caption.sentinel_shares`.

Importing this package does not import transformers.
"""
