"""Floor 4: pictures. Plotting libraries are imported when something is drawn."""

from tinygrad_attn.viz.curves import curves
from tinygrad_attn.viz.heatmap import heatmap
from tinygrad_attn.viz.terminal import draw_alignment

__all__ = ["curves", "draw_alignment", "heatmap"]
