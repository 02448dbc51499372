"""Floor 8: the command `tinygrad-attn`, the same as `python -m tinygrad_attn`; a module for each command."""

from tinygrad_attn.cli.command import main

__all__ = ["main"]
