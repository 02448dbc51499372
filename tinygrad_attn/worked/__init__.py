"""Floor 5: the examples that are worked by hand, with every number computed by the package.

The one source of these numbers for the tests, the walkthrough and the documentation.
"""

from tinygrad_attn.worked.example import RUNNING, SCORES, VECTOR, Example, ExampleError
from tinygrad_attn.worked.numbers import NUMBERS, Number, number
from tinygrad_attn.worked.walk import Step, Walk, walk

__all__ = [
    "NUMBERS",
    "RUNNING",
    "SCORES",
    "VECTOR",
    "Example",
    "ExampleError",
    "Number",
    "Step",
    "Walk",
    "number",
    "walk",
]
