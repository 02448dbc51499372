"""`gradient_flow`: how the gradient travels from the loss to h and s, as numbers, text, figures, graphs."""

from tinygrad_attn.viz.flow.flow import GradientFlow, Path
from tinygrad_attn.viz.flow.of_loss import gradient_flow

__all__ = ["GradientFlow", "Path", "gradient_flow"]
