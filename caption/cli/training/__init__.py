"""`caption fit`, `validate`, `test` and `predict`: Lightning's verbs, and what Lightning says on the way."""
