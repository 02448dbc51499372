"""Floor 2: tensors, operations, and the walk that takes gradients."""

from tinygrad_attn.engine.backward import grad
from tinygrad_attn.engine.modes import explicit, no_grad, scope
from tinygrad_attn.engine.primitive import Fused, Primitive, fused
from tinygrad_attn.engine.product import Product, matrix_product
from tinygrad_attn.engine.tensor import Tensor

__all__ = [
    "Fused",
    "Primitive",
    "Product",
    "Tensor",
    "explicit",
    "fused",
    "grad",
    "matrix_product",
    "no_grad",
    "scope",
]
