"""Questions about attention that Shapes can answer: see `tools.questions.__main__`."""
