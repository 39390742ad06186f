"""Results: one caption with its maps, several captions, and how they are made from the hypotheses of a search."""
