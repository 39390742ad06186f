"""Images and captions: readers, vocabulary, batches, precomputed features, the embedded Shapes dataset."""
