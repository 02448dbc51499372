"""The whole model: the loss over padded batches, gradients of every part, what is exposed, wrong uses."""

from __future__ import annotations

import copy
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinygrad_attn as ta
from tests.nn.support import MODELS, largest_error, make_batch
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.tokens import PAD

RNG = np.random.default_rng
every = pytest.mark.parametrize("variant", MODELS)


def make(variant: str = "bahdanau", dtype: Any = np.float64, **others: Any) -> Seq2Seq:
    options = {"embedding_size": 3, "hidden_size": 4, "attention_size": 5} | MODELS[variant] | others
    return Seq2Seq(9, 8, dtype=dtype, rng=RNG(0), **options)


def row(batch: SimpleNamespace, b: int) -> SimpleNamespace:
    """One sentence without its padding."""
    length, count = batch.lengths[b], np.count_nonzero(batch.target_out[b])
    return SimpleNamespace(
        source=batch.source[b : b + 1, :length],
        lengths=batch.lengths[b : b + 1],
        target_in=batch.target_in[b : b + 1, :count],
        target_out=batch.target_out[b : b + 1, :count],
    )


def gradients(model: Seq2Seq, batch: Any) -> tuple[float, list[np.ndarray | None]]:
    model.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    return loss.item(), [p.grad for p in model.parameters()]


@every
@pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])
def test_a_batch_is_the_mean_of_its_sentences_weighted_by_tokens(variant: str, explicit: bool) -> None:
    """Loss and every gradient, whatever the batch is made of."""
    model, batch = make(variant), make_batch([4, 1, 3], [2, 5, 1])
    with ta.explicit() if explicit else ta.scope("plain"):
        loss, together = gradients(model, batch)
    tokens, total, sums = 0, 0.0, [0.0] * len(together)
    for b in range(3):
        single = row(batch, b)
        count = single.target_out.size
        alone, parts = gradients(model, single)
        tokens, total = tokens + count, total + count * alone
        sums = [s + (0 if g is None else count * g) for s, g in zip(sums, parts, strict=True)]
    assert loss == pytest.approx(total / tokens, rel=1e-12)
    for (name, _), found, expected in zip(model.named_parameters(), together, sums, strict=True):
        if found is not None:
            assert largest_error(found, np.asarray(expected) / tokens) < 1e-10, name
        else:
            assert not np.any(expected), name


@every
def test_the_loss_is_the_mean_over_the_tokens_of_the_teacher_forced_pass(variant: str) -> None:
    model, batch = make(variant), make_batch([4, 1, 3], [2, 5, 1])
    logits = model(batch.source, batch.lengths, batch.target_in).logits.data
    total, count = 0.0, 0
    for place in np.ndindex(batch.target_out.shape):
        if batch.target_out[place] != PAD:
            z = logits[place]
            total += np.log(np.exp(z).sum()) - z[batch.target_out[place]]
            count += 1
    assert model.loss(batch).item() == pytest.approx(total / count, rel=1e-12)


@every
def test_padding_never_counts(variant: str) -> None:
    """More padding, and other ids in it, change neither the loss nor a gradient."""
    model, batch = make(variant), make_batch([4, 1, 3], [2, 5, 1])
    expected = gradients(model, batch)
    rng = RNG(7)
    wider = SimpleNamespace(
        **{k: np.pad(v, ((0, 0), (0, 2))) for k, v in vars(batch).items() if k != "lengths"}
    )
    wider.lengths = batch.lengths
    inside = np.arange(wider.source.shape[1]) < batch.lengths[:, None]
    wider.source = np.where(inside, wider.source, rng.integers(0, 9, wider.source.shape))
    wider.target_in = np.where(
        wider.target_out != PAD, wider.target_in, rng.integers(0, 8, wider.target_in.shape)
    )
    loss, found = gradients(model, wider)
    assert loss == pytest.approx(expected[0], rel=1e-13)
    for a, b in zip(found, expected[1], strict=True):
        assert (a is None and b is None) or largest_error(a, b) < 1e-12


@every
def test_every_parameter_gradient_by_complex_steps(variant: str) -> None:
    model, batch = make(variant, embedding_size=2), make_batch([3, 1], [1, 2])

    frozen = [p for name, p in model.named_parameters() if name.endswith("embedding.weight")]
    assert ta.gradcheck(model.loss, (batch,), entries=6)
    assert all(not p.data[PAD].any() for p in frozen)


@settings(max_examples=15)
@given(
    st.sampled_from(list(MODELS)),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=3),
    st.sampled_from([np.float64, np.float32]),
)
def test_kernels_equal_definitions(variant: str, lengths: list[tuple[int, int]], dtype: Any) -> None:
    model = make(variant, dtype)
    batch = make_batch([n for n, _ in lengths], [m for _, m in lengths])
    loss, found = gradients(model, batch)
    with ta.explicit():
        exact, expected = gradients(model, batch)
    tolerance = 1e-12 if dtype == np.float64 else 5e-5
    assert loss == pytest.approx(exact, rel=tolerance)
    for a, b in zip(found, expected, strict=True):
        if a is None:
            assert b is None
        else:
            assert a.dtype == b.dtype == dtype
            assert largest_error(a, b) < tolerance


def test_second_derivatives_through_the_whole_model() -> None:
    """A Hessian-vector product, recorded, against a complex step through the backward pass."""
    model, batch = make("bahdanau"), make_batch([3, 1], [1, 2])
    parameters = list(model.parameters())
    directions = [RNG(4).standard_normal(p.shape) for p in parameters]
    for table in (0, 1):
        directions[table][PAD] = 0
    recorded = ta.grad(model.loss(batch), parameters, create_graph=True)
    along = sum((g * v).sum() for g, v in zip(recorded, directions, strict=True))
    found = ta.grad(along, parameters)
    moved = copy.deepcopy(model)
    for parameter, direction in zip(moved.parameters(), directions, strict=True):
        parameter.data = parameter.data + 1e-30j * direction
    stepped = ta.grad(moved.loss(batch), list(moved.parameters()))
    for a, b in zip(found, stepped, strict=True):
        assert largest_error(a.data, b.data.imag / 1e30**-1) < 1e-10


@every
def test_every_quantity_keeps_its_gradient(variant: str) -> None:
    model, batch = make(variant), make_batch([4, 1, 3], [2, 5, 1])
    output = model(batch.source, batch.lengths, batch.target_in)
    assert output.logits.shape == (3, 6, 8)
    assert output.annotations.shape[:2] == (3, 4)
    assert output.weights.shape == output.scores.shape == (3, 6, 4)
    assert output.contexts.shape == (3, 6, output.annotations.shape[2])
    assert output.states.shape == (3, 6, 4)
    assert output.weights.grad is None
    ta.cross_entropy(output.logits, batch.target_out, ignore_index=PAD).backward()
    for tensor in (output.logits, output.annotations, output.initial.s, output.contexts, output.states):
        assert tensor.grad is not None and tensor.grad.shape == tensor.shape and tensor.grad.any()
    for i, step in enumerate(output.steps):
        np.testing.assert_array_equal(output.states.data[:, i], step.s.data)
        if variant != "no attention":
            np.testing.assert_array_equal(output.weights.grad[:, i], step.weights.grad)
            np.testing.assert_array_equal(output.scores.grad[:, i], step.scores.grad)
    assert output.logits.name == "logits" and output.annotations.name == "h" and output.steps[0].s.name == "s"


def test_steps_that_no_gradient_reached_count_as_zeros() -> None:
    model, batch = make(), make_batch([4], [3])
    output = model(batch.source, batch.lengths, batch.target_in)
    output.steps[1].s.sum().backward()
    assert output.weights.grad[:, 1].any() and not output.weights.grad[:, 2:].any()


def test_lengths_are_counted_if_none_are_given() -> None:
    model, batch = make(), make_batch([4, 1, 3], [2, 5, 1])
    a = model(batch.source, batch.lengths, batch.target_in).logits.data
    np.testing.assert_array_equal(model(batch.source.tolist(), None, batch.target_in.tolist()).logits.data, a)
    np.testing.assert_array_equal(
        model(ta.Tensor(batch.source), None, ta.Tensor(batch.target_in)).logits.data, a
    )


def test_frozen_parts_do_not_train() -> None:
    model, batch = make(), make_batch([4, 1, 3], [2, 5, 1])
    _, whole = gradients(model, batch)
    for parameter in model.encoder.parameters():
        parameter.requires_grad = False
    optimiser = ta.optim.Adam(model.named_parameters(), lr=0.1)
    before = model.state_dict()
    _, found = gradients(model, batch)
    optimiser.step()
    for (name, p), a, b in zip(model.named_parameters(), found, whole, strict=True):
        if name.startswith("encoder."):
            assert a is None
            np.testing.assert_array_equal(p.data, before[name])
        else:
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)
            assert not np.array_equal(p.data, before[name])


def test_everything_frozen_gives_values_without_gradients() -> None:
    model, batch = make(), make_batch([4, 1], [2, 3])
    expected = model.loss(batch).item()
    for parameter in model.parameters():
        parameter.requires_grad = False
    loss = model.loss(batch)
    assert not loss.requires_grad and loss.item() == expected


def test_no_grad_records_nothing() -> None:
    model, batch = make(), make_batch([4, 1], [2, 3])
    with ta.no_grad():
        output = model(batch.source, batch.lengths, batch.target_in)
    assert output.logits.is_leaf and not output.logits.requires_grad and output.weights.is_leaf


def test_a_frozen_encoder_run_without_recording() -> None:
    model, batch = make(), make_batch([4, 1, 3], [2, 5, 1])
    _, whole = gradients(model, batch)
    model.zero_grad()
    with ta.no_grad():
        encoding = model.encode(batch.source, batch.lengths)
    logits = model.decoder.logits(model.target_embedding(batch.target_in), encoding)
    ta.cross_entropy(logits, batch.target_out, ignore_index=PAD).backward()
    for (name, p), expected in zip(model.named_parameters(), whole, strict=True):
        if name.startswith(("encoder.", "source_embedding.")):
            assert p.grad is None
        else:
            np.testing.assert_allclose(p.grad, expected, rtol=1e-12, atol=1e-15)


def test_a_tied_weight_gets_the_sum_of_both_gradients() -> None:
    """The target embedding as the output layer's weight, as wide as the maxout layer."""
    options = {"output": "maxout", "embedding_size": 4}
    apart, tied, batch = make(**options), make(**options), make_batch([4, 1, 3], [2, 5, 1])
    for model in (apart, tied):
        model.decoder.output.weight.data[...] = model.target_embedding.weight.data
    tied.decoder.output.weight = tied.target_embedding.weight
    apart.loss(batch).backward()
    tied.loss(batch).backward()
    both = apart.target_embedding.weight.grad + apart.decoder.output.weight.grad
    np.testing.assert_allclose(tied.target_embedding.weight.grad, both, rtol=1e-12, atol=1e-15)
    assert len(list(tied.parameters())) == len(list(apart.parameters())) - 1
    ta.optim.SGD(tied.named_parameters(), lr=1.0).step()
    assert tied.decoder.output.weight is tied.target_embedding.weight


@pytest.mark.parametrize("parts", ["embeddings", "encoder", "decoder"])
def test_parts_of_another_precision(parts: str) -> None:
    """A float32 embedding in a float64 model, and the like: values agree, gradients have their own dtype."""
    batch = make_batch([4, 1], [2, 3])
    model, exact = make(), make()
    expected = gradients(exact, batch)
    for name, parameter in model.named_parameters():
        if parts in name or (parts == "embeddings" and "embedding" in name):
            parameter.data = parameter.data.astype(np.float32)
    loss, found = gradients(model, batch)
    assert loss == pytest.approx(expected[0], rel=1e-5)
    for p, a, b in zip(model.parameters(), found, expected[1], strict=True):
        assert a.dtype == p.dtype and largest_error(a, b) < 1e-4


def test_two_threads_on_two_models() -> None:
    batches = [make_batch([4, 1, 3], [2, 5, 1]), make_batch([2, 6], [4, 2])]
    models = [make("bahdanau"), make("luong general")]
    expected = [gradients(model, batch) for model, batch in zip(models, batches, strict=True)]
    found: dict[int, list[Any]] = {0: [], 1: []}

    def work(k: int) -> None:
        for i in range(10):
            with ta.explicit() if i % 3 == k else ta.scope(f"thread {k}"):
                found[k].append(gradients(models[k], batches[k]))
            models[k].greedy(batches[k].source, batches[k].lengths, 4)

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in (0, 1):
        assert len(found[k]) == 10
        for loss, parts in found[k]:
            assert loss == pytest.approx(expected[k][0], rel=1e-12)
            for a, b in zip(parts, expected[k][1], strict=True):
                assert largest_error(a, b) < 1e-10


def test_training_makes_the_loss_small() -> None:
    model, batch = make(dtype=np.float32), make_batch([3, 2], [3, 2])
    optimiser = ta.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(120):
        optimiser.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    decoded = model.greedy(batch.source, batch.lengths, 10)
    for words, expected in zip(decoded.sequences(), batch.target_in, strict=True):
        assert words.tolist() == expected[1:][expected[1:] != PAD].tolist()


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "source axes": (
        lambda m: m([4, 5], None, [[1]]),
        ValueError,
        r"Seq2Seq: source has shape \(2,\), expected \(batch, s",
    ),
    "target axes": (
        lambda m: m([[4, 5]], None, [1]),
        ValueError,
        r"Seq2Seq: target_in has shape \(1,\), expected \(batch",
    ),
    "target rows": (
        lambda m: m([[4, 5]], None, [[1], [1]]),
        ValueError,
        "there are 2 rows of words, expected 1",
    ),
    "source id": (
        lambda m: m([[4, 9]], None, [[1]]),
        IndexError,
        "Embedding 'source_embedding': id 9 is outside the table of 9",
    ),
    "target id": (
        lambda m: m([[4]], None, [[8]]),
        IndexError,
        "Embedding 'target_embedding': id 8 is outside the table of 8",
    ),
    "negative id": (lambda m: m([[-1]], [1], [[1]]), IndexError, "id -1 is outside"),
    "floating ids": (
        lambda m: m([[4.0]], None, [[1]]),
        TypeError,
        "ids have dtype float64, expected integers",
    ),
    "only padding": (lambda m: m([[4], [0]], None, [[1], [1]]), ValueError, "a length is 0, expected 1 to 1"),
    "no target": (lambda m: m([[4]], None, np.zeros((1, 0), int)), ValueError, "at least one step"),
    "no source": (lambda m: m(np.zeros((1, 0), int), None, [[1]]), ValueError, "at least one step"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_named(case: str) -> None:
    call, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        call(make())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"source_size": 0}, ValueError, "Seq2Seq: source_size is 0, expected at least 1"),
        (
            {"target_size": 2},
            ValueError,
            "Seq2Seq: target_size is 2, expected at least 3, for PAD, BOS and EOS",
        ),
        ({"hidden_size": 4.0}, TypeError, "Seq2Seq: hidden_size is 4.0, expected an integer"),
        (
            {"attention": "dots"},
            ValueError,
            "attention: 'dots' is not one of additive, dot, scaled, general, concat, none",
        ),
        (
            {"attention": "dot"},
            ValueError,
            "set encoder_hidden_size to half the hidden size, or use 'general'",
        ),
        ({"encoder_hidden_size": 0}, ValueError, "hidden_size is 0, expected at least 1"),
    ],
)
def test_wrong_settings_are_named(options: Any, error: type[Exception], message: str) -> None:
    settings = {"source_size": 9, "target_size": 8, "embedding_size": 3, "hidden_size": 4} | options
    with pytest.raises(error, match=message):
        Seq2Seq(**settings)


class _Zero(ta.nn.GRUCell):
    def forward(self, x: Any, state: Any = None) -> Any:
        return super().forward(x, state) * 0.0


class _Decoder(ta.nn.AttentionDecoder):
    def initial_state(self, encoding: Any) -> Any:
        state = super().initial_state(encoding)
        return state._replace(cell=(state.s, state.s * 2.0))


def _encoder_cell_of_a_subclass(model: Seq2Seq) -> None:
    for place in ("forward_cell", "backward_cell"):
        cell = getattr(model.encoder, place)
        zero = _Zero(cell.input_size, cell.hidden_size, dtype=np.float64)
        setattr(model.encoder, place, zero)


def _another_decoder(model: Seq2Seq) -> None:
    model.decoder.__class__ = _Decoder


def _score_replaced(model: Seq2Seq) -> None:
    attention = model.decoder.attention
    attention.score = lambda query, projected: type(attention).score(attention, query, projected) * 2.0


def _decoder_cell_replaced(model: Seq2Seq) -> None:
    cell = model.decoder.cell
    cell.forward = lambda x, state: type(cell).forward(cell, x, state) * 0.5


def _encoder_cell_replaced(model: Seq2Seq) -> None:
    cell = model.encoder.forward_cell
    cell.forward = lambda x, state: type(cell).forward(cell, x, state) * 0.5


def _unroll_replaced(model: Seq2Seq) -> None:
    decoder, usual = model.decoder, model.decoder.unroll
    decoder.unroll = lambda *given: usual(*given)._replace(logits=usual(*given).logits * 2.0)


def _one_reset_before(model: Seq2Seq) -> None:
    model.encoder.backward_cell.reset_after = False


class _Model(Seq2Seq):
    def forward(self, source: Any, lengths: Any, target_in: Any) -> Any:
        output = super().forward(source, lengths, target_in)
        return output._replace(logits=output.logits * 2.0)


def _another_model(model: Seq2Seq) -> None:
    model.__class__ = _Model


def _forward_replaced(model: Seq2Seq) -> None:
    usual = model.forward
    model.forward = lambda *given: usual(*given)._replace(logits=usual(*given).logits * 2.0)


def _step_replaced(model: Seq2Seq) -> None:
    decoder, usual = model.decoder, model.decoder.step
    decoder.step = lambda *given: usual(*given)._replace(logits=usual(*given).logits * 2.0)


@pytest.mark.parametrize(
    ("change", "cell"),
    [
        (_encoder_cell_of_a_subclass, "gru"),
        (_another_model, "gru"),
        (_forward_replaced, "lstm"),
        (_step_replaced, "gru"),
        (_another_decoder, "lstm"),
        (_score_replaced, "gru"),
        (_decoder_cell_replaced, "gru"),
        (_encoder_cell_replaced, "rnn"),
        (_unroll_replaced, "gru"),
        (_one_reset_before, "gru"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_loss_is_that_of_the_parts_as_they_are_written(change: Any, cell: str) -> None:
    """Kernels stand for the package's own modules alone; `explicit` runs no kernel."""
    model = make(cell=cell)
    batch = make_batch([3, 1, 2], [2, 3, 1])
    usual = model.loss(batch).item()
    change(model)
    found = gradients(model, batch)
    assert abs(found[0] - usual) > 1e-6
    model.zero_grad()
    logits = model(batch.source, batch.lengths, batch.target_in).logits
    loss = ta.cross_entropy(logits, batch.target_out, ignore_index=PAD)
    loss.backward()
    np.testing.assert_allclose(found[0], loss.item(), rtol=1e-13)
    for gradient, parameter in zip(found[1], model.parameters(), strict=True):
        if gradient is None or parameter.grad is None:
            assert gradient is parameter.grad
        else:
            np.testing.assert_allclose(gradient, parameter.grad, rtol=1e-9, atol=1e-14)
    with ta.explicit():
        np.testing.assert_allclose(model.loss(batch).item(), found[0], rtol=1e-13)


def test_encoder_cells_of_ones_own_are_held_past_the_end_of_a_sentence() -> None:
    model = make()
    batch = make_batch([3, 1, 2], [2, 3, 1])
    plain = model.encode(batch.source, batch.lengths)
    for cell in (model.encoder.forward_cell, model.encoder.backward_cell):
        cell.__class__ = type("Mine", (type(cell),), {})
    own = model.encode(batch.source, batch.lengths)
    for mine, usual in zip(own[:3], plain[:3], strict=True):
        np.testing.assert_allclose(mine.data, usual.data, rtol=1e-13)


@pytest.mark.parametrize("change", [_another_model, _forward_replaced, _step_replaced])
def test_the_loss_is_that_of_the_logits_that_a_call_gives(change: Any) -> None:
    model, batch = make(), make_batch([3, 1, 2], [2, 3, 1])
    change(model)
    logits = model(batch.source, batch.lengths, batch.target_in).logits
    expected = ta.cross_entropy(logits, batch.target_out, ignore_index=PAD).item()
    assert model.loss(batch).item() == pytest.approx(expected, rel=1e-12)
    with ta.explicit():
        assert model.loss(batch).item() == pytest.approx(expected, rel=1e-12)


def test_what_is_no_batch_is_named() -> None:
    model = make()
    with pytest.raises(TypeError, match=r"Seq2Seq: loss takes a batch with source.*got a tuple$"):
        model.loss((np.array([[4]]), np.array([[4]])))
    ragged = [[4, 5], [4]]
    for call in (model.encode, model.greedy, model.beam_search, lambda ids: model(ids, None, [[1]])):
        with pytest.raises(ValueError, match="Seq2Seq: source has rows of different lengths"):
            call(ragged)
    with pytest.raises(ValueError, match="Seq2Seq: target_in has rows of different lengths"):
        model([[4], [5]], None, ragged)
