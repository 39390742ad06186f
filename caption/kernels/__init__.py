"""Faster forms of the model's parts, each equal to the plain one, and the call that exchanges them."""

from caption.kernels.acceleration import accelerate, decelerate, plain

__all__ = ["accelerate", "decelerate", "plain"]
