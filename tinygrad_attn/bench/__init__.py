"""Floor 7: what `tinygrad-attn bench` measures: a training step, single operations, decoding, memory."""

from tinygrad_attn.bench.decode import decode
from tinygrad_attn.bench.memory import memory
from tinygrad_attn.bench.operations import operations
from tinygrad_attn.bench.step import step
from tinygrad_attn.bench.workload import SIZES, Size

__all__ = ["SIZES", "Size", "decode", "memory", "operations", "step"]
