"""tinygrad_attn: reverse-mode automatic differentiation on numpy, and attention as its papers derive it."""

from tinygrad_attn import nn, optim
from tinygrad_attn.check import (
    AnomalyError,
    GradcheckError,
    GradcheckReport,
    detect_anomaly,
    gradcheck,
    hvp,
    jacobian,
    jvp,
)
from tinygrad_attn.engine import Fused, Primitive, Product, Tensor, explicit, fused, grad, no_grad, scope
from tinygrad_attn.ops import *  # noqa: F403
from tinygrad_attn.ops import __all__ as _operations
from tinygrad_attn.tokens import BOS, EOS, PAD, UNK

__version__ = "0.1.0"

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "AnomalyError",
    "Fused",
    "GradcheckError",
    "GradcheckReport",
    "Primitive",
    "Product",
    "Tensor",
    "detect_anomaly",
    "explicit",
    "fused",
    "grad",
    "gradcheck",
    "hvp",
    "jacobian",
    "jvp",
    "nn",
    "no_grad",
    "optim",
    "scope",
    *_operations,
]
