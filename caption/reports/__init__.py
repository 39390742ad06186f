"""Measurements of whole models, written as documents."""
