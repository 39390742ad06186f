"""Gradients made by hand and GPU kernels, each beside the plain form that it must equal."""
