"""`gradient_flow`: how the gradient travels from the loss to logits, c, α, e, s and h, and in which parts."""

from __future__ import annotations

from typing import Any

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import Seq2SeqOutput
from tinygrad_attn.viz.flow.flow import GradientFlow
from tinygrad_attn.viz.flow.roles import roles_of
from tinygrad_attn.viz.opened import open_named
from tinygrad_attn.viz.record import Record


def gradient_flow(
    loss: Tensor,
    output: Seq2SeqOutput | None = None,
    *,
    h: Any = None,
    s: Any = None,
    e: Any = None,
    alpha: Any = None,
    c: Any = None,
    logits: Any = None,
    example: int = 0,
) -> GradientFlow:
    """How the gradient of `loss` travels: loss → logits → (s, c) → α → e → (s, h).

    Call `loss.backward()` before.

    Args:
        loss: what `backward()` was called on.
        output: the pass of a `Seq2Seq` it was computed from. Not needed: the tensors that a model exposes are
            found by their names.
        h, s, e, alpha, c, logits: for models made by hand, the tensors of that role: one, or one for each
            step (source position, for h) in order. What is left out is found by name: "h", "s", "e", "α" (or
            "alpha"), "c", "logits", also with a number, as in "s₀".
        example: which sequence of a batch tables and figures show.

    Raises:
        TypeError: if a tensor is expected and something else comes.
        RuntimeError: if `backward()` has not been called on the loss, or parameters were written since.
        ValueError: if a tensor is not part of the computation, neither α nor e is there, or `example` is none
            of the batch.
    """
    if not isinstance(loss, Tensor):
        raise TypeError(f"gradient_flow: the loss is a {type(loss).__name__}, expected a Tensor")
    record = Record(loss)
    if not record.traced:
        why = " ".join(record.notices) or "the loss is a leaf, nothing leads to it"
        raise RuntimeError(f"gradient_flow: {why}")
    given: dict[str, Any] = {"h": h, "s": s, "e": e, "α": alpha, "c": c, "logits": logits}
    if output is not None:
        steps = output.steps
        of_output = {
            "h": output.encoding.annotations,
            "s": [output.initial.s, *(step.s for step in steps)],
            "e": [step.scores for step in steps],
            "α": [step.weights for step in steps],
            "c": [step.context for step in steps],
            "logits": output.logits,
        }
        given = {role: of_output[role] if tensors is None else tensors for role, tensors in given.items()}
    open_named(record)
    roles = roles_of(record, {role: tensors for role, tensors in given.items() if tensors is not None})
    if not roles.get("α") and not roles.get("e"):
        raise ValueError("gradient_flow: no tensor is called 'α' or 'e'; name them, or pass alpha= and e=")
    return GradientFlow(record, roles, example)
