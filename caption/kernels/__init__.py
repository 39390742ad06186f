"""Faster forms of the model's parts, each equal to the plain form, and the function that exchanges them."""

from caption.kernels.acceleration import accelerate, decelerate, plain

__all__ = ["accelerate", "decelerate", "plain"]
