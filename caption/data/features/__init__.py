"""The feature store: regions of images, computed once by `caption features` and read while training."""
