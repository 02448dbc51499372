"""Data, model, training and evaluation in one file, without the trainer: reversing sequences of digits.

python examples/04_train_from_scratch.py [--steps 1200]
"""

import argparse
import time

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.train import workers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=1200)
steps = parser.parse_args().steps
if steps < 0:
    parser.error("--steps is negative")
rng = np.random.default_rng(0)
FIRST = ta.UNK + 1  # the ids of content follow those of PAD, BOS, EOS and UNK


def batch(size, length):
    """Random digits, and the same reversed: (source, lengths, decoder input, decoder output)."""
    source = rng.integers(FIRST, FIRST + 10, (size, length))
    target = source[:, ::-1]
    begin, end = np.full((size, 1), ta.BOS), np.full((size, 1), ta.EOS)
    return source, np.full(size, length), np.hstack([begin, target]), np.hstack([target, end])


model = ta.nn.Seq2Seq(FIRST + 10, FIRST + 10, embedding_size=32, hidden_size=64, rng=rng)
optimizer = ta.optim.Adam(model.named_parameters(), lr=3e-3)
start = time.perf_counter()
with workers(1):  # one thread for each product: several would wait for one another
    for step in range(1, steps + 1):
        source, lengths, target_in, target_out = batch(64, length=int(rng.integers(1, 11)))
        loss = ta.cross_entropy(model(source, lengths, target_in).logits, target_out)
        optimizer.zero_grad()
        loss.backward()
        ta.optim.clip_grad_norm(model.parameters(), 1.0)
        optimizer.lr = 3e-3 * (1 - step / (steps + 1))
        optimizer.step()
        if step % max(1, steps // 6) == 0:
            print(f"step {step:5d}  loss {loss.item():.4f}  {time.perf_counter() - start:5.1f} s")

source, lengths, _, target_out = batch(256, length=10)
decoded = model.greedy(source, lengths, max_length=12)
right = [np.array_equal(a, b[:-1]) for a, b in zip(decoded.sequences(), target_out, strict=True)]
print(f"exact match on {len(right)} new sequences of length 10: {np.mean(right):.1%}")
print("where the first one looks, a row for each digit written:")
for row in decoded.weights[0]:
    print(" ".join(" ░▒▓█"[min(4, int(weight * 5))] * 2 for weight in row))
