"""What the scripts that measure in rounds have in common."""

from __future__ import annotations

import argparse
import os


def rounds_asked(description: str | None) -> int:
    """How many rounds the command line asks for; the end where the environment holds BLAS back."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    if any(name in os.environ for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")):
        raise SystemExit("unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE: they hold BLAS back")
    return rounds
