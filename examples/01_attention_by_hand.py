"""Attention with three words and one number for each, small enough to follow with a pencil.

The annotations are h = (0.2, 0.9, 0.1) and the decoder's state is s = 0.5. With all weights one, the score is
e_j = tanh(s + h_j); softmax turns scores into weights α, and the context is c = Σ α_j h_j.
"""

import tinygrad_attn as ta

h = ta.Tensor([0.2, 0.9, 0.1], requires_grad=True, name="h")
s = ta.Tensor(0.5, requires_grad=True, name="s")

e = ta.tanh(s + h)
alpha = ta.softmax(e)
c = (alpha * h).sum()

print("scores   e =", e.data.round(4))
print("weights  α =", alpha.data.round(4))
print("context  c =", c.data.round(4))

# What would nudging each number do to the context? The same walk back that training uses.
for tensor in (alpha, e):
    tensor.retain_grad()
c.backward()
print("∂c/∂α =", alpha.grad.round(4), " (that is h)")
print("∂c/∂e =", e.grad.round(4), " (zero in sum: softmax does not change when all scores do)")
print("∂c/∂h =", h.grad.round(4), " (as a value, α, and as a key, through the scores)")
print("∂c/∂s =", s.grad.round(4))

# The two ways into h apart: hold the keys fixed, or the values.
(as_value,) = ta.grad((ta.softmax(ta.tanh(s + h.detach())) * h).sum(), h)
(as_key,) = ta.grad((ta.softmax(ta.tanh(s + h)) * h.detach()).sum(), h)
print("as a value:", as_value.data.round(4))
print("as a key:  ", as_key.data.round(4))
assert abs((as_value + as_key).data - h.grad).max() < 1e-15
