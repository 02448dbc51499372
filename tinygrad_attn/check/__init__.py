"""Floor 4: checks of gradients, other derivatives to compare with, and the search for the first NaN."""

from tinygrad_attn.check.anomaly import AnomalyError, detect_anomaly
from tinygrad_attn.check.derivatives import hvp, jacobian, jvp
from tinygrad_attn.check.gradcheck import gradcheck
from tinygrad_attn.check.report import GradcheckError, GradcheckReport

__all__ = [
    "AnomalyError",
    "GradcheckError",
    "GradcheckReport",
    "detect_anomaly",
    "gradcheck",
    "hvp",
    "jacobian",
    "jvp",
]
