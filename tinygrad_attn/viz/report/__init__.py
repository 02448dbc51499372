"""`report`: the page of a run, one file that needs no network."""

from __future__ import annotations

import os
from pathlib import Path

from tinygrad_attn.files import write_atomically
from tinygrad_attn.viz.report.page import page
from tinygrad_attn.viz.report.read import read_run


def report(run_folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of a run: curves, alignments, the flow and the graph of the gradients, the settings.

    It is made from the files of the folder alone, `config.json`, `metrics.jsonl`, `snapshots.jsonl` and
    `examples.json`, and the same files make the same page. What a run does not have yet, the page says.

    Args:
        run_folder: what `train` filled.
        out: the file to write; `report.html` in the folder if None.

    Returns:
        The path of the page.

    Raises:
        RunFilesError: if there is no run in the folder, or a file of it is damaged.
    """
    path = Path(run_folder) / "report.html" if out is None else Path(out)
    write_atomically(path, page(read_run(run_folder)))
    return path
