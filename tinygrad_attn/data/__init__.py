"""Floor 5: data to train on: vocabularies, batches, the toy tasks, and pairs from a file.

A data set is a `Task` ("copy", "reverse") or `Pairs` from a file; both offer what `Dataset` says.
"""

from tinygrad_attn.data.batch import Batch, Split, make_batch, pad
from tinygrad_attn.data.dataset import Dataset, files_of, from_description, text_format
from tinygrad_attn.data.pairs import Pairs
from tinygrad_attn.data.tasks import TASKS, Task
from tinygrad_attn.data.text import SplitAt, TextFormat
from tinygrad_attn.data.vocabulary import Ids, Tokens, Vocabulary

__all__ = [
    "TASKS",
    "Batch",
    "Dataset",
    "Ids",
    "Pairs",
    "Split",
    "SplitAt",
    "Task",
    "TextFormat",
    "Tokens",
    "Vocabulary",
    "files_of",
    "from_description",
    "make_batch",
    "pad",
    "text_format",
]
