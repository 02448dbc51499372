"""An example worked through: every number from the scores to the loss, and every gradient on the way back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor, grad
from tinygrad_attn.ops import cross_entropy, exp, getitem, matmul, reshape, softmax
from tinygrad_attn.worked.example import Example, ExampleError


@dataclass(frozen=True)
class Step:
    """One target position: T source words, annotations of width D, a state of width Q, V words to choose.

    A gradient is that of the loss of this step.
    """

    s: np.ndarray  # (Q,)
    e: np.ndarray  # (T,): the scores
    exp_e: np.ndarray  # (T,)
    alpha: np.ndarray  # (T,): the weights
    c: np.ndarray  # (D,): the context
    logits: np.ndarray  # (V,)
    p: np.ndarray  # (V,): softmax of the logits
    target: int  # counted from 1
    loss: float
    d_logits: np.ndarray  # (V,): ∂loss/∂logits, as all that follow
    d_c: np.ndarray  # (D,)
    d_alpha: np.ndarray  # (T,)
    d_e: np.ndarray  # (T,)
    slope_s: np.ndarray  # (T, Q): ∂e_j/∂s
    slope_h: np.ndarray  # (T, D): ∂e_j/∂h_j
    d_s: np.ndarray  # (Q,)
    d_h_value: np.ndarray  # (T, D): what reaches each annotation as a value, through c
    d_h_key: np.ndarray  # (T, D): and as a key, through the scores
    d_h: np.ndarray  # (T, D): the sum of both


@dataclass(frozen=True)
class Walk:
    """All steps, and what their losses together give."""

    example: Example
    steps: tuple[Step, ...]
    loss: float
    d_h: np.ndarray  # (T, D)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        example = self.example
        return {
            "score": example.score,
            "h": [list(row) for row in example.h],
            "weights": {name: array.tolist() for name, array in example.weights().items()},
            "steps": [
                {field.name: _plain(getattr(step, field.name)) for field in fields(step)}
                for step in self.steps
            ],
            "loss": self.loss,
            "d_h": self.d_h.tolist(),
        }


def walk(example: Example) -> Walk:
    """Compute everything about the example. Raises ExampleError if numbers grow beyond all bounds."""
    with np.errstate(all="ignore"):
        h = Tensor(np.array(example.h), requires_grad=True, name="h")
        taken = [_step(example, h, i) for i in range(len(example.s))]
        total = taken[0][1]
        for _, loss in taken[1:]:
            total = total + loss
        (d_h,) = grad(total, (h,))
    found = Walk(example, tuple(step for step, _ in taken), total.item(), d_h.data)
    if not np.isfinite(found.loss) or not all(
        np.isfinite(getattr(step, field.name)).all() for step in found.steps for field in fields(step)
    ):
        raise ExampleError("the numbers are too large to be followed, choose smaller ones")
    return found


def _step(example: Example, h: Tensor, i: int) -> tuple[Step, Tensor]:
    """The numbers of step `i` (from 0), and its loss with the graph that leads to `h`."""
    count, width = h.shape
    s = Tensor(np.array([example.s[i]]), requires_grad=True, name="s")  # (1, Q)
    # The same annotations twice, so that what reaches them by either way can be told apart.
    keys, values = reshape(h, (1, count, width)), reshape(h, (1, count, width))
    attended = example.attention()(s, keys, values)
    logits = matmul(attended.context, example.output.T)  # (1, V)
    loss = cross_entropy(logits, [example.targets[i] - 1])
    ways = (logits, attended.context, attended.weights, attended.scores, s, values, keys, h)
    d_logits, d_c, d_alpha, d_e, d_s, d_values, d_keys, d_h = (gradient.data for gradient in grad(loss, ways))
    slope_s, slope_h = [], []
    for j in range(count):
        to_s, to_keys = grad(getitem(attended.scores, (0, j)), (s, keys))
        slope_s.append(to_s.data[0])
        slope_h.append(to_keys.data[0, j])
    exponentials = exp(attended.scores.data)
    step = Step(
        s=s.data[0],
        e=attended.scores.data[0],
        exp_e=np.asarray(exponentials)[0],
        alpha=attended.weights.data[0],
        c=attended.context.data[0],
        logits=logits.data[0],
        p=np.asarray(softmax(logits.data))[0],
        target=example.targets[i],
        loss=loss.item(),
        d_logits=d_logits[0],
        d_c=d_c[0],
        d_alpha=d_alpha[0],
        d_e=d_e[0],
        slope_s=np.array(slope_s),
        slope_h=np.array(slope_h),
        d_s=d_s[0],
        d_h_value=d_values[0],
        d_h_key=d_keys[0],
        d_h=d_h,
    )
    return step, loss


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
