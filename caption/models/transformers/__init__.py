"""Captioners of other people's code: models of transformers, and any torch model that implements a small interface.

    captioner = caption.load("transformers:Salesforce/blip-image-captioning-base")
    captioner("photo.jpg").plot()

A foreign model becomes a `Captioner` like any other, so captions, figures, interventions and analyses all work:

    photo   -> ProcessorTransform        -> pixels         the output of the model's own image processor, and the part
                                                           of the photo that it covers
    pixels  -> ForeignEncoder            -> Regions        image tokens on the grid of patches. Class tokens have no
                                                           place in the photo; they are appended to the vectors
    Regions -> ForeignDecoder.project    -> ForeignMemory  keys and values of the image in each layer that reads it
    words   -> ForeignDecoder.step       -> log p, maps    one word piece; each layer's attention to the image goes
                                                           through a `PatchAttention`, where hooks replace the maps
    pieces  -> ForeignCaptioner.captions -> Caption        words joined from their pieces

`ForeignModel` (model.py) is the interface: image tokens, memory, step. `TransformersModel` (transformers_model.py) runs
models of transformers with public extension points only: registered attention functions, module hooks and caches. A
family is a subclass that finds the parts of its models; families.py lists them all. The attention to everything but
patches (class tokens, registers, the prompt and the words so far) is one share, "elsewhere", as with a sentinel:
`Caption.sentinel_shares`.

Importing this package does not import transformers.
"""
