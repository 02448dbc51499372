"""Floor 5: pictures. Plotting libraries are imported when something is drawn."""

from tinygrad_attn.viz.curves import curves
from tinygrad_attn.viz.flow import GradientFlow, gradient_flow
from tinygrad_attn.viz.graph import Graph, graph
from tinygrad_attn.viz.heatmap import heatmap
from tinygrad_attn.viz.render import RenderError
from tinygrad_attn.viz.report import report
from tinygrad_attn.viz.terminal import draw_alignment

__all__ = [
    "GradientFlow",
    "Graph",
    "RenderError",
    "curves",
    "draw_alignment",
    "gradient_flow",
    "graph",
    "heatmap",
    "report",
]
