"""tinygrad_attn: reverse-mode automatic differentiation on numpy, and attention as its papers derive it."""

from tinygrad_attn.engine import Primitive, Tensor, explicit, fused, grad, no_grad, scope
from tinygrad_attn.ops import *  # noqa: F403
