"""tinygrad_attn: reverse-mode automatic differentiation on numpy, and attention as its papers derive it."""

from typing import TYPE_CHECKING, Any

from tinygrad_attn import nn, optim
from tinygrad_attn.engine import Fused, Primitive, Product, Tensor, explicit, fused, grad, no_grad, scope
from tinygrad_attn.nn.query_key_value import attention
from tinygrad_attn.ops import *  # noqa: F403 - all that `ops.__all__` lists, and so named once
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
    "attention",
    "data",
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
    "train",
    "viz",
    *_operations,
]

if TYPE_CHECKING:
    from tinygrad_attn import data, train, viz
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
else:
    _LATER = {
        **dict.fromkeys(("data", "train", "viz")),
        **dict.fromkeys(("AnomalyError", "GradcheckError", "GradcheckReport", "detect_anomaly"), "check"),
        **dict.fromkeys(("gradcheck", "hvp", "jacobian", "jvp"), "check"),
    }
    """What needs more of the standard library, and not every program needs: a package, or what one has."""

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = _LATER[name]
        if home is None:
            return import_module(f"{__name__}.{name}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
