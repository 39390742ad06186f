"""Files as strangers could send them: mutated images, captions, configurations, checkpoints and stores.

python -m tools.fuzz [KIND ...] [--seconds S] [--seed N] [--out DIR]
"""
