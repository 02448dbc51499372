"""`python -m tinygrad_attn`, the same as the command `tinygrad-attn`."""

from __future__ import annotations

import sys

from tinygrad_attn.cli import main

if __name__ == "__main__":
    sys.exit(main())
