# SPDX-License-Identifier: Apache-2.0
"""prune_ of whole models: which weights, by which inputs, in how much memory. Skips where there is
no PyTorch."""
import unittest
from unittest import mock

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing
try:
    import transformers
except ImportError:
    transformers = None

import sparse24
import sparse24.torch as st
from sparse24.torch import torch_prune


def is_two_four(w):
    return sparse24.check(w.detach().contiguous().numpy()) is None


def by_inputs(w, x, method="sparsegpt"):
    """What sparse24.prune makes of a weight whose inputs are x [..., k]."""
    x = x.detach().reshape(-1, x.shape[-1]).contiguous().numpy()
    return torch.from_numpy(sparse24.prune(w.detach().contiguous().numpy(), method, x).weight)


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def same(self, one, two):
        torch.testing.assert_close(one.detach(), two, atol=1e-5, rtol=1e-5)


class Inputs(Case):
    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(),
                                   torch.nn.Linear(48, 32), torch.nn.Linear(32, 16))

    def test_sequential(self):
        x = torch.randn(400, 32)
        for sequential in (False, True):
            model = self.model()
            before = [layer.weight.detach().clone() for layer in (model[0], model[2], model[3])]
            dense = torch.relu(model[0](x))
            kept = st.prune_(model, "sparsegpt", calibration=[x[:300], x[300:]],
                             sequential=sequential)
            self.assertEqual(list(kept), ["0", "2", "3"])
            self.same(model[0].weight, by_inputs(before[0], x))
            seen = torch.relu(model[0](x)) if sequential else dense
            self.same(model[2].weight, by_inputs(before[1], seen))
            if sequential:
                self.same(model[3].weight, by_inputs(before[2], model[2](seen)))

    def test_memory(self):
        alive, most = set(), [0]

        class Counted(sparse24.Stats):
            def __init__(self, k):
                super().__init__(k)
                alive.add((id(self), 8 * k * k))
                most[0] = max(most[0], sum(size for _, size in alive))

            def __del__(self):
                alive.difference_update([each for each in alive if each[0] == id(self)])

        x, expected = torch.randn(200, 32), self.model()
        for memory, bound in ((4 << 30, None), (8 * 48 * 48, 8 * 48 * 48), (1, 8 * 48 * 48)):
            torch.manual_seed(2)
            model, most[0] = self.model(), 0
            with mock.patch.object(torch_prune, "Stats", Counted):
                st.prune_(model, "wanda", calibration=(batch for batch in x.split(50)),
                          memory=memory)
            if bound is None:
                expected = model
                self.assertEqual(most[0], 8 * (32 * 32 + 48 * 48 + 32 * 32))
            else:
                self.assertLessEqual(most[0], bound)
                for one, two in zip(model.parameters(), expected.parameters()):
                    self.assertTrue(torch.equal(one, two))
            self.assertEqual(alive, set())

    def test_what_calibration_does_not_reach(self):
        class Half(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.idle = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

            def forward(self, x):
                return self.used(input=x)

        model = Half()
        idle = model.idle.weight.detach().clone()
        for sequential in (False, True):
            with self.assertLogs("sparse24", "WARNING") as log:
                kept = st.prune_(model, "wanda", calibration=[torch.randn(9, 32)],
                                 sequential=sequential)
            self.assertEqual(set(kept), {"used"})
            self.assertIn("idle: dense, no batch of the calibration reaches it", log.output[0])
        self.assertTrue(torch.equal(model.idle.weight, idle))
        with self.assertRaisesRegex(ValueError, "expected a batch at least"):
            st.prune_(model, "wanda")
        self.assertFalse(model.used._forward_pre_hooks)


class Attention(Case):
    def test_projections(self):
        x, other = torch.randn(5, 60, 32), torch.randn(5, 60, 32)
        for first in (True, False):
            for query, key in ((x, x), (x, other)):
                model = torch.nn.MultiheadAttention(32, 4, batch_first=first)
                before, out = model.in_proj_weight.detach().clone(), model.out_proj
                w, bias = out.weight.detach().clone(), out.bias
                with torch.no_grad():
                    out.weight.copy_(torch.eye(32))
                    attended = model(query, key, key)[0]
                    out.weight.copy_(w)
                kept = st.prune_(model, "sparsegpt", calibration=[(query, key, key)])
                self.assertEqual(set(kept), {"out_proj", "in_proj_weight"})
                for rows, old, seen in zip(model.in_proj_weight.chunk(3), before.chunk(3),
                                           (query, key, key)):
                    self.same(rows, by_inputs(old, seen))
                self.same(out.weight, by_inputs(w, attended))
                self.assertIs(out.bias, bias)
                self.assertFalse(model._forward_hooks or model._forward_pre_hooks)

    def test_projections_of_other_widths(self):
        model = torch.nn.MultiheadAttention(32, 4, kdim=16, vdim=24, batch_first=True)
        batch = {"query": torch.randn(3, 40, 32), "value": torch.randn(3, 40, 24),
                 "key": torch.randn(3, 40, 16)}
        before = model.k_proj_weight.detach().clone()
        kept = st.prune_(model, "sparsegpt", calibration=[batch])
        self.assertEqual(set(kept), {"out_proj", "q_proj_weight", "k_proj_weight",
                                     "v_proj_weight"})
        self.same(model.k_proj_weight, by_inputs(before, batch["key"]))

    def test_in_an_encoder(self):
        """Its fused pass in inference shows no layer its input."""
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        for sequential in (False, True):
            model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
            kept = st.prune_(model, "wanda", calibration=[torch.randn(4, 20, 32)],
                             sequential=sequential)
            self.assertEqual(len(kept), 8)
            for name, p in model.named_parameters():
                self.assertTrue(p.dim() != 2 or is_two_four(p), name)
            self.assertTrue(torch.backends.mha.get_fastpath_enabled())


@unittest.skipIf(transformers is None, "no transformers here")
class Models(Case):
    def gpt2(self):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=16, bos_token_id=1,
            eos_token_id=2)).eval()

    def llama(self, tied):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, num_key_value_heads=2, tie_word_embeddings=tied)).eval()

    def test_embeddings_stay(self):
        for model in (self.gpt2(), self.llama(True), self.llama(False)):
            ids = torch.randint(1, 96, (4, 16))
            head = model.lm_head.weight.detach().clone()
            for method in ("magnitude", "wanda"):
                with self.assertLogs("sparse24", "INFO") as log:
                    kept = st.prune_(model, method, calibration=[ids], sequential=True)
                self.assertNotIn("lm_head", kept)
                self.assertIn("lm_head: dense, it is the output embedding", log.output[0])
                self.assertTrue(torch.equal(model.lm_head.weight, head))
            self.assertEqual(set(st.prune_(model, filter_fn=lambda _, name: name == "lm_head")),
                             {"lm_head"})
            self.assertTrue(is_two_four(model.lm_head.weight))

    def test_a_weight_that_is_an_embedding_s(self):
        model = torch.nn.ModuleDict({"names": torch.nn.Embedding(32, 16),
                                     "out": torch.nn.Linear(16, 32, bias=False)})
        model["out"].weight = model["names"].weight
        with self.assertLogs("sparse24", "INFO") as log:
            self.assertEqual(st.prune_(model), {})
        self.assertIn("out: dense, its weight is an embedding's too", log.output[0])

    def test_gpt2(self):
        model, ids = self.gpt2(), torch.randint(1, 96, (8, 16))
        seen = []
        layer = model.transformer.h[0].mlp.c_fc
        hook = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        before = layer.weight.detach().clone()
        with torch.no_grad():
            model(ids)
        hook.remove()
        kept = st.prune_(model, "sparsegpt", calibration=[{"input_ids": ids}])
        self.assertEqual(len(kept), 8)
        self.same(layer.weight.t(), by_inputs(before.t(), seen[0]))
        choices = st.accelerate_(model, measure=False)
        self.assertEqual(sum(choice.kind == "2:4" for choice in choices), 8)


if __name__ == "__main__":
    unittest.main()
