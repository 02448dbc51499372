"""Two ways to add an operation: a row with its gradient, and a fused operation, defined by its reference."""

import numpy as np

import tinygrad_attn as ta

# A primitive: its name, the forward function, and for each input the gradient as a textbook has it.
softplus = ta.Primitive(
    "softplus",
    lambda x: np.log1p(np.exp(x)),
    lambda g, y, x: g * ta.sigmoid(x),
)


# A fused operation: the definition says what it is, the kernel computes it in fewer passes over memory.
def gated(x, gate):
    """x ∘ σ(gate)."""
    return x * ta.sigmoid(gate)


def gated_kernel(x, gate):
    """The value, and what the backward pass wants to see again."""
    opened = 1 / (1 + np.exp(-gate))
    return x * opened, opened


def gated_kernel_vjp(g, y, x, gate, *, saved):
    """The gradients for x and for the gate."""
    return g * saved, g * y * (1 - saved)


fast_gated = ta.fused(gated, gated_kernel, gated_kernel_vjp)

rng = np.random.default_rng(0)
x, gate = (ta.Tensor(rng.standard_normal((2, 3)), requires_grad=True) for _ in range(2))

# Both are operations like any other: they nest, broadcast, and can be differentiated twice.
y = (softplus(x) * fast_gated(x, gate)).sum()
(first,) = ta.grad(y, x, create_graph=True)
(second,) = ta.grad(first.sum(), x)
print("value          ", y.data.round(6))
print("first gradient \n", first.data.round(6))
print("second gradient\n", second.data.round(6))

# The kernel against its definition, which `explicit` runs instead.
fast = ta.grad(fast_gated(x, gate).sum(), (x, gate))
with ta.explicit():
    plain = ta.grad(fast_gated(x, gate).sum(), (x, gate))
for a, b in zip(fast, plain, strict=True):
    np.testing.assert_allclose(a.data, b.data, rtol=1e-12)

# And the rules themselves, entry by entry.
print(ta.gradcheck(softplus, (x,)))
print(ta.gradcheck(fast_gated, (x, gate)))
