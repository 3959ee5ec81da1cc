# SPDX-License-Identifier: Apache-2.0
"""Models whose code reads more of a layer than its forward: PyTorch's attention, transformers'
models. accelerate_ must leave them what they were. Skips where there is no PyTorch."""
import copy
import unittest

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing
try:
    import transformers
except ImportError:
    transformers = None

import sparse24
import sparse24.torch as st
from sparse24.torch import compat
from sparse24.torch import torch_attention, torch_blocks, torch_models

MODES = (torch.enable_grad, torch.no_grad, torch.inference_mode)


def near(one, two, within=1e-4):
    torch.testing.assert_close(one, two, atol=within, rtol=within)


@torch.no_grad()
def halve(model):
    """Every weight that accelerate_ may take becomes 2:4, in place."""
    for _, _, _, layer in list(torch_models.linear_layers(model, conv1d=True)):
        w = torch_models.weight_of(layer)
        mask = sparse24.magnitude_mask(w.float().contiguous().numpy())
        w.mul_(torch.from_numpy(mask).to(w.dtype))
    for part in model.modules():
        if isinstance(part, torch.nn.MultiheadAttention):
            for _, w in torch_attention.input_weights(part):
                w.mul_(torch.from_numpy(sparse24.magnitude_mask(w.numpy())))


def both(model, expected=None):
    """A 2:4 model as it is, and accelerated; what was done with its layers."""
    halve(model)
    dense = model.eval()
    sparse = copy.deepcopy(dense)
    choices = st.accelerate_(sparse, measure=False)
    kinds = {choice.name: choice.kind for choice in choices}
    assert expected is None or kinds == expected, kinds
    return dense, sparse, choices


class Weights(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.dense = torch.nn.Linear(64, 32)
        halve(self.dense)

    def layers(self):
        yield st.SparseLinear.from_dense(copy.deepcopy(self.dense)), 1e-4
        yield st.QuantizedSparseLinear.from_dense(copy.deepcopy(self.dense)), 0.05
        yield torch_blocks.BlockSparseLinear.from_dense(copy.deepcopy(self.dense), 8), 1e-4

    def test_of_a_layer(self):
        x = torch.randn(2, 5, 64, requires_grad=True)
        for layer, within in self.layers():
            w = layer.weight
            self.assertIsInstance(w, torch.Tensor)
            self.assertEqual((list(w.shape), w.dtype, w.device.type, w.requires_grad),
                             ([32, 64], torch.float32, "cpu", False))
            for mode in MODES:
                with mode():
                    near(F.linear(x, layer.weight, layer.bias), self.dense(x), within)
                    near(x @ layer.weight.t(), F.linear(x, self.dense.weight), within)
            F.linear(x, w, layer.bias).square().sum().backward()
            mine, x.grad = x.grad, None
            self.dense(x).square().sum().backward()
            near(mine, x.grad, 20 * within)
            x.grad = None
            self.assertNotIn("weight", dict(layer.named_parameters()))

    def test_read_and_written(self):
        for layer, _ in self.layers():
            w = layer.dense_weight()
            for read in (lambda w: w[:3], lambda w: w.abs().mean(), lambda w: w.split(8)[1],
                         lambda w: w.T @ w, lambda w: w.clone(), lambda w: w.bfloat16(),
                         lambda w: w != 0, copy.deepcopy, lambda w: w.view(-1)):
                for mode in MODES:
                    with mode():
                        self.assertTrue(torch.equal(read(layer.weight), read(w)))
            self.assertEqual(layer.weight.tolist(), w.tolist())
            self.assertTrue((layer.weight.detach().numpy() == w.numpy()).all())
            self.assertTrue(torch.equal(layer.weight.to_dense(), w))
            with self.assertRaisesRegex(NotImplementedError, "zero_.* writes to the weight"):
                layer.weight.zero_()
            self.assertTrue(torch.equal(layer.dense_weight(), w))

    def test_dtypes(self):
        x = torch.randn(3, 64)
        for layer, within in self.layers():
            scales = getattr(layer, "scales", None)
            for change, dtype in ((lambda m: m.bfloat16(), torch.bfloat16),
                                  (lambda m: m.to(torch.float32), torch.float32),
                                  (lambda m: m.half(), torch.float16),
                                  (lambda m: m.float(), torch.float32)):
                self.assertIs(change(layer), layer)
                self.assertIs(layer.weight.dtype, dtype)
                self.assertIs(layer.bias.dtype, dtype)
                y = layer(x.to(dtype))
                self.assertIs(y.dtype, dtype)
                near(y.float(), self.dense(x), 0.05)
            if scales is not None:
                self.assertTrue(torch.equal(layer.scales, scales))
        layer = st.SparseLinear.from_dense(self.dense)
        before = layer(x)
        with self.assertRaisesRegex(TypeError, "float64"):
            layer.double()
        self.assertIs(layer.bias.dtype, torch.float32)
        near(layer(x), before)

    def test_autocast(self):
        x = torch.randn(3, 64)
        for layer, within in self.layers():
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype):
                    y, z = layer(x), F.linear(x, layer.weight, layer.bias)
                    self.assertEqual((y.dtype, z.dtype), (dtype, dtype))
                near(y.float(), self.dense(x), within + 0.02)
                near(z, y, 0.02)
        with torch.autocast("cpu"):
            y = st.training_linear(x.requires_grad_(), self.dense.weight, self.dense.bias)
            self.assertIs(y.dtype, torch.bfloat16)
        y.sum().backward()
        self.assertIs(self.dense.weight.grad.dtype, torch.float32)


class Adapter(torch.nn.Module):
    """A layer with something low-rank next to it, as LoRA's."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer
        self.down = torch.nn.Linear(base_layer.in_features, 2, bias=False)
        self.up = torch.nn.Linear(2, base_layer.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x))


class AsLinear(unittest.TestCase):
    """A packed layer where code looks for nn.Linear, loads one, or traces it."""

    def setUp(self):
        torch.manual_seed(1)
        self.dense = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 8))
        st.prune_(self.dense)
        self.sparse = copy.deepcopy(self.dense)
        st.accelerate_(self.sparse, measure=False)

    def test_adapters(self):
        for i, layer in enumerate(self.sparse):
            self.assertIsInstance(layer, torch.nn.Linear)
            self.sparse[i] = Adapter(layer)
        x = torch.randn(3, 64)
        self.sparse(x).sum().backward()
        self.assertIsNotNone(self.sparse[0].down.weight.grad)
        with self.assertRaisesRegex(NotImplementedError, "writes to the weight of a packed layer"):
            self.sparse[0].base_layer.weight.data += 1
        self.assertEqual([c.name for c in st.accelerate_(self.sparse, measure=False)],
                         ["0.down", "0.up", "1.down", "1.up"])

    def test_what_is_loaded(self):
        state = self.dense.state_dict()
        missing = self.sparse.load_state_dict({}, strict=False).missing_keys
        self.assertEqual(missing, ["0.weight", "0.bias", "1.weight", "1.bias"])
        with self.assertRaisesRegex(RuntimeError, 'Missing key.*"0.weight"'):
            self.sparse.load_state_dict({})
        for weight, said in ((torch.ones(32, 64), "0.weight: .* is not 2:4: row 0"),
                             (torch.zeros(64, 32), r"size mismatch for 0.weight: \[64, 32\]"),
                             (torch.zeros(3, 3), r"0.weight: \[3, 3\] in the checkpoint, \[32, ")):
            with self.assertRaisesRegex(RuntimeError, said):
                self.sparse.load_state_dict({**state, "0.weight": weight})
        self.sparse.load_state_dict(state)
        x = torch.randn(3, 64)
        near(self.sparse(x), self.dense(x))

    def test_traced(self):
        x = torch.randn(3, 64)
        traced = torch.jit.trace(self.sparse, x)
        near(traced(x), self.dense(x))
        with torch.no_grad():
            near(torch.jit.trace(self.sparse, x)(x), self.dense(x))


class Attention(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def same(self, dense, sparse, *args, **options):
        """In every mode, trained (without dropout) or not."""
        for training in (True, False):
            dense.train(training)
            sparse.train(training)
            for mode in MODES:
                with mode():
                    near(sparse(*args, **options), dense(*args, **options))

    def test_attention(self):
        for first in (True, False):
            attention = torch.nn.MultiheadAttention(32, 4, batch_first=first)
            dense, sparse, _ = both(attention, {"out_proj": "2:4", "in_proj_weight": "2:4"})
            self.assertIsInstance(sparse, torch_attention.SparseAttention)
            x, other = torch.randn(3, 7, 32), torch.randn(3, 7, 32)
            self.same(dense, sparse, x, x, x)
            self.same(dense, sparse, x, other, other, need_weights=False)
            compiled = torch.compile(sparse, backend="aot_eager")
            near(compiled(x, x, x)[0], dense(x, x, x)[0])
            state = sparse.state_dict()
            self.assertEqual({name: w.shape for name, w in state.items()},
                             {name: w.shape for name, w in dense.state_dict().items()})
            again = torch.nn.MultiheadAttention(32, 4, batch_first=first)
            again.load_state_dict(state)
            near(again(x, x, x)[0], dense(x, x, x)[0])
            other = torch.nn.MultiheadAttention(32, 4, batch_first=first)
            halve(other)
            copied = copy.deepcopy(sparse)
            copied.load_state_dict(other.state_dict())
            near(copied(x, x, x)[0], other(x, x, x)[0])
            near(sparse(x, x, x)[0], dense(x, x, x)[0])
            self.assertEqual(st.accelerate_(sparse, measure=False), [])
            self.assertEqual(st.prune_(sparse), {})

    def test_attention_of_several_widths(self):
        attention = torch.nn.MultiheadAttention(32, 4, kdim=16, vdim=24, batch_first=True)
        dense, sparse, _ = both(attention, {"out_proj": "2:4", "q_proj_weight": "2:4"})
        args = torch.randn(3, 7, 32), torch.randn(3, 5, 16), torch.randn(3, 5, 24)
        self.same(dense, sparse, *args)
        self.assertEqual(set(sparse.state_dict()), set(dense.state_dict()))
        dense.load_state_dict(sparse.state_dict())
        near(copy.deepcopy(sparse).bfloat16()(*(x.bfloat16() for x in args))[0].float(),
             dense(*args)[0], 0.05)

    def test_attention_that_is_dense(self):
        attention = torch.nn.MultiheadAttention(32, 4)
        self.assertEqual([(c.name, c.kind, c.why) for c in st.accelerate_(attention)],
                         [(name, "dense", "its weight is not 2:4")
                          for name in ("out_proj", "in_proj_weight")])

    def encoder(self, layers=2, **options):
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True,
                                                 **options)
        return torch.nn.TransformerEncoder(layer, layers)

    def test_encoder(self):
        x, away = torch.randn(3, 7, 32), torch.arange(7) >= torch.tensor([[7], [4], [2]])
        for options in ({}, {"norm_first": True}, {"activation": "gelu"}):
            dense, sparse, choices = both(self.encoder(**options))
            self.assertEqual({choice.kind for choice in choices}, {"2:4"})
            self.same(dense, sparse, x)
            dense.eval()
            sparse.eval()
            for mode in MODES:
                with mode():
                    one, two = (model(x, src_key_padding_mask=away) for model in (dense, sparse))
                    # a nested tensor ends where the longest text does, and has zeros in the padding
                    near(two[~away], one[~away])
            near(copy.deepcopy(sparse)(x), dense(x))
            low = copy.deepcopy(sparse).bfloat16()
            near(low(x.bfloat16()).float(), dense(x), 0.1)

    def test_one_layer_of_an_encoder(self):
        dense = self.encoder(3).eval()
        halve(dense.layers[1])
        sparse = copy.deepcopy(dense)
        choices = st.accelerate_(sparse, measure=False)
        self.assertEqual({c.name for c in choices if c.kind == "2:4"},
                         {f"layers.1.{name}" for name in ("self_attn.out_proj", "linear1",
                                                          "self_attn.in_proj_weight", "linear2")})
        x, away = torch.randn(2, 5, 32), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        for mode in MODES:
            with mode():
                near(sparse(x, src_key_padding_mask=away)[~away],
                     dense(x, src_key_padding_mask=away)[~away])

    def test_whole_transformer(self):
        model = torch.nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
        dense, sparse, _ = both(model)
        self.same(dense, sparse, torch.randn(2, 6, 32), torch.randn(2, 5, 32))


class Places(unittest.TestCase):
    def test_what_stays(self):
        class Mine(torch.nn.Linear):
            def forward(self, x):  # pylint: disable=arguments-renamed
                return super().forward(x) * 2

        model = torch.nn.ModuleDict({
            "mine": Mine(32, 32), "hooked": torch.nn.Linear(32, 32),
            "weighed": torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(32, 32)),
            "names": torch.nn.Embedding(32, 32), "tied": torch.nn.Linear(32, 32, bias=False)})
        model["hooked"].register_forward_pre_hook(lambda *_: None)
        model["tied"].weight = model["names"].weight
        why = {c.name: c.why for c in st.accelerate_(model, measure=False) if c.kind == "dense"}
        self.assertEqual(why, {
            "mine": "Mine has a forward of its own", "hooked": "it has hooks",
            "weighed": "its weight is computed in each call",
            "tied": "its weight is an embedding's too"})

    def test_classes_that_do_the_same(self):
        class Same(torch.nn.Linear):
            def forward(self, input):  # pylint: disable=redefined-builtin
                y = input @ self.weight.T
                return y if self.bias is None else y + self.bias

        class Switched(torch.nn.Linear):
            def forward(self, x, scale=1.0):  # pylint: disable=arguments-renamed
                return super().forward(x) * scale

        class Raises(torch.nn.Linear):
            def forward(self, x):  # pylint: disable=arguments-renamed
                raise RuntimeError("not like this")

        class Learns(torch.nn.Linear):
            def __init__(self, *sizes):
                super().__init__(*sizes)
                self.more = torch.nn.Parameter(torch.zeros(sizes[1]))

            def forward(self, x):  # pylint: disable=arguments-renamed
                return super().forward(x) + self.more

        kinds = (Same, Switched, Raises, Learns, compat.SemiSparseLinear)
        model = torch.nn.ModuleList(kind(32, 16) for kind in kinds)
        model.append(Same(32, 16, bias=False).bfloat16())
        halve(model)
        chosen = [c.kind for c in st.accelerate_(model, measure=False)]
        self.assertEqual(chosen, ["2:4", *["dense"] * 4, "2:4"])

    def test_traced(self):
        dense, sparse, _ = both(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()))
        for x in (torch.randn(3, 32), torch.randn(2, 5, 32)):
            near(torch.fx.symbolic_trace(sparse)(x), dense(x))
            batch = torch.export.Dim("batch", min=2)
            exported = torch.export.export(sparse, (x,), dynamic_shapes=({0: batch},)).module()
            near(exported(torch.cat([x, x])), dense(torch.cat([x, x])))

    def test_one_layer_in_two_places(self):
        layer = torch.nn.Linear(32, 32)
        halve(layer)
        model = torch.nn.Sequential(layer, torch.nn.Sequential(layer))
        x = torch.randn(3, 32)
        y = model(x)
        st.accelerate_(model, measure=False)
        self.assertIs(model[0], model[1][0])
        near(model(x), y)


@unittest.skipIf(transformers is None, "no transformers here")
class Models(unittest.TestCase):
    """Random models of transformers, small."""

    def models(self):
        ids = torch.randint(1, 90, (2, 9))
        sizes = {"vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "intermediate_size": 128}
        yield transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=90, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
            feed_forward_proj="gated-gelu")), {"input_ids": ids, "decoder_input_ids": ids[:, :4]}
        side = {"image_size": 16, "patch_size": 8}
        yield transformers.CLIPModel(transformers.CLIPConfig(
            text_config={**sizes, "max_position_embeddings": 16, "bos_token_id": 1,
                         "eos_token_id": 2},
            vision_config={**sizes, **side}, projection_dim=32)), {
                "input_ids": ids, "pixel_values": torch.randn(2, 3, 16, 16)}
        yield transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
            vocab_size=90, d_model=64, encoder_layers=2, decoder_layers=2, num_mel_bins=8,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
            decoder_ffn_dim=128, max_source_positions=10, max_target_positions=16, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
            begin_suppress_tokens=None)), {"input_features": torch.randn(2, 8, 20),
                                           "decoder_input_ids": ids[:, :4]}
        yield transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **side)), {
            "pixel_values": torch.randn(2, 3, 16, 16)}
        yield transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=90, n_embd=64, n_layer=2, n_head=4, n_positions=16, bos_token_id=1,
            eos_token_id=2)), {"input_ids": ids}
        yield transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **sizes, num_key_value_heads=2)), {"input_ids": ids}

    def answers(self, model, inputs, dtype=torch.float32):
        inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
        result = model(**inputs)
        return (result.logits if "logits" in result else result.logits_per_image).float()

    @torch.no_grad()
    def test_models(self):
        torch.manual_seed(1)
        for model, inputs in self.models():
            with self.subTest(type(model).__name__):
                dense, sparse, choices = both(model)
                self.assertGreater(sum(choice.kind == "2:4" for choice in choices), 7)
                for choice in choices:
                    self.assertTrue(choice.kind == "2:4" or "embedding's" in choice.why, choice)
                y = self.answers(dense, inputs)
                near(self.answers(sparse, inputs), y, 1e-3)
                near(self.answers(copy.deepcopy(sparse), inputs), y, 1e-3)
                state = sparse.state_dict()
                self.assertEqual({name: w.shape for name, w in state.items()},
                                 {name: w.shape for name, w in dense.state_dict().items()})
                for other in (copy.deepcopy(dense), copy.deepcopy(sparse)):
                    for p in other.parameters():
                        p.zero_()
                    other.load_state_dict(state)
                    near(self.answers(other, inputs), y, 1e-3)
                with torch.autocast("cpu"):
                    near(self.answers(sparse, inputs), self.answers(dense, inputs), 0.1)
                low = copy.deepcopy(sparse).to(torch.bfloat16)
                near(self.answers(low, inputs, torch.bfloat16), y, 0.1)
                near(self.answers(low.float(), inputs), y, 0.1)


if __name__ == "__main__":
    unittest.main()
