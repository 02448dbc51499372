"""Floor 4: optimisers, and clipping by the global norm."""

from tinygrad_attn.optim.gradients import NonFiniteError, clip_grad_norm
from tinygrad_attn.optim.rules import SGD, Adadelta, Adam, AdamW, Optimizer

__all__ = ["SGD", "Adadelta", "Adam", "AdamW", "NonFiniteError", "Optimizer", "clip_grad_norm"]
