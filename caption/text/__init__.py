"""Captions as text: the tokenizer and the vocabulary."""
