"""After `loss.backward()` every quantity of the papers holds its gradient: h, s, e, α, c and the logits."""

import numpy as np

import tinygrad_attn as ta

model = ta.nn.Seq2Seq(source_size=14, target_size=14, rng=np.random.default_rng(0))
source = np.array([[5, 8, 6, 4]])  # four words
target_in, target_out = np.array([[ta.BOS, 4, 6, 8, 5]]), np.array([[4, 6, 8, 5, ta.EOS]])

output = model(source, lengths=None, target_in=target_in)
loss = ta.cross_entropy(output.logits, target_out)
loss.backward()

print(f"loss {loss.item():.4f}")
for i, step in enumerate(output.steps, start=1):
    print(f"step {i}:  α = {step.weights.data[0].round(3)}   ∂loss/∂α = {step.weights.grad[0].round(4)}")
    print(f"         e = {step.scores.data[0].round(3)}   ∂loss/∂e = {step.scores.grad[0].round(4)}")
norms = np.array([np.linalg.norm(step.s.grad) for step in output.steps])
print("|∂loss/∂s_i| over the steps:", norms.round(4))
print("|∂loss/∂h_j| over the words:", np.linalg.norm(output.annotations.grad[0], axis=-1).round(4))
