"""Training and evaluation: the LightningModule, its callbacks, diagnostics and the evaluation of a split."""
