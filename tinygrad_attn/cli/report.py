"""`tinygrad-attn report`."""

from __future__ import annotations

import argparse
from typing import Any

from tinygrad_attn.cli.out import PAGE, check_out
from tinygrad_attn.cli.parser import OK, say
from tinygrad_attn.errors import UserError
from tinygrad_attn.train import RunFolder
from tinygrad_attn.train.observation import observe
from tinygrad_attn.viz import report

_DESCRIPTION = """\
Write the page of a run: one file for a browser, without a network, with the curves, the alignments of test
examples, how the gradient flows through the decoder in the course of training, and the graph of a training
step to follow it through. Training writes it when it ends; this command makes it anew, also of a run that
has not ended.

  tinygrad-attn report runs/reverse
  tinygrad-attn report runs/reverse --out lecture.html
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("report", help="write the page of a run", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("folder", metavar="FOLDER", help="a run folder")
    parser.add_argument("--out", metavar="FILE", help="an .html file (default: report.html in the folder)")


def run(arguments: argparse.Namespace) -> int:
    """Observe the best weights, write the page, and say where it is."""
    folder = RunFolder(arguments.folder)
    folder.config()  # wrong folders end here
    page = folder.path / "report.html"
    check_out(str(page) if arguments.out is None else arguments.out, "a page", PAGE)
    if (folder.path / "model.safetensors").exists():
        folder.weights()
    folder.snapshots()  # damaged files end here, before anything is written
    notes = []  # said once there is a page for them
    if not folder.rows():
        metrics = folder.path / "metrics.jsonl"
        lost = f"{metrics}: {'empty' if metrics.exists() else 'not there'}"
        if arguments.out is None and page.exists():
            raise UserError(
                f"{lost}; {page} is left as it was, --out FILE.html writes a page without figures"
            )
        notes.append(f"{lost}; the page is without figures and curves")
    try:
        observe(folder)
    except (UserError, OSError) as error:
        # No weights yet, the data are gone, or nothing may be written: the page shows what there is.
        said = f"{folder.path}: {error.strerror}" if isinstance(error, OSError) else error
        notes.append(f"examples are left as they were: {said}")
    written = report(folder.path, arguments.out)
    for note in notes:
        say(note)
    print(written)
    return OK
