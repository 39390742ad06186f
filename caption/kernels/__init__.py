"""Hand-written gradients and GPU kernels, each with the plain form that it must equal."""
