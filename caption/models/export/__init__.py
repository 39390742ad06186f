"""A trained captioner as graphs that run without this package: `torch.export` programs and ONNX files."""
