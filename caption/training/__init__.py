"""Training and evaluation: the LightningModule, its callbacks, diagnostics and the numbers of a split."""
