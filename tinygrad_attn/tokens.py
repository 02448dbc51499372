"""The four special tokens. Content ids start after them, so that no symbol of the data has a special id."""

from __future__ import annotations

PAD = 0
"""Fills a row of a batch up to the longest row; never counts."""
BOS = 1
"""Begin of sequence: the first token that is fed to the decoder."""
EOS = 2
"""End of sequence: the last token that the decoder has to produce."""
UNK = 3
"""Stands for a symbol that the vocabulary does not have."""

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""How the special tokens are spelled, by id. A content symbol spelled the same has an id of its own."""
