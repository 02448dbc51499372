"""Floor 4: modules, from a linear layer to the encoder-decoder with attention."""

from tinygrad_attn.nn.attention import (
    AdditiveAttention,
    Attended,
    Attention,
    BahdanauAttention,
    ConcatAttention,
    DotAttention,
    FixedContext,
    GeneralAttention,
    ScaledDotAttention,
)
from tinygrad_attn.nn.cells import Cell, GRUCell, LSTMCell, RNNCell
from tinygrad_attn.nn.decoder import AttentionDecoder, DecoderState, DecoderStep, Memory
from tinygrad_attn.nn.encoder import BidirectionalEncoder, Encoding
from tinygrad_attn.nn.layers import Dropout, Embedding, Linear
from tinygrad_attn.nn.module import Module
from tinygrad_attn.nn.paper import initialise_as_paper
from tinygrad_attn.nn.query_key_value import SelfAttention
from tinygrad_attn.nn.search import Decoded
from tinygrad_attn.nn.seq2seq import Seq2Seq, Seq2SeqOutput

__all__ = [
    "AdditiveAttention",
    "Attended",
    "Attention",
    "AttentionDecoder",
    "BahdanauAttention",
    "BidirectionalEncoder",
    "Cell",
    "ConcatAttention",
    "Decoded",
    "DecoderState",
    "DecoderStep",
    "DotAttention",
    "Dropout",
    "Embedding",
    "Encoding",
    "FixedContext",
    "GRUCell",
    "GeneralAttention",
    "LSTMCell",
    "Linear",
    "Memory",
    "Module",
    "RNNCell",
    "ScaledDotAttention",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqOutput",
    "initialise_as_paper",
]
