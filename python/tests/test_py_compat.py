# SPDX-License-Identifier: Apache-2.0
"""The names of other libraries: the same results as golden vectors of theirs."""
import contextlib
import copy
import io
import os
import re
import tempfile
import unittest

import sparse24
from py_support import golden

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing

import run_theirs
from sparse24.torch import compat


def tensors(path):
    checkpoint = sparse24.Checkpoint(golden(path))
    return {name: torch.from_numpy(checkpoint[name].copy()) for name in checkpoint}


class Sparsifiers(unittest.TestCase):
    def masked(self, weight, sparsifier):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data.copy_(weight)
        sparsifier.prepare(layer, [{"tensor_fqn": "weight"}])
        sparsifier.step()
        return layer, sparsifier.mask_of(sparsifier.groups[0])

    def test_golden_masks(self):
        data = tensors("prune/torch_ao.safetensors")
        names = [name for name in data if name.startswith("mask.")]
        self.assertEqual(len(names), 12)
        for name in names:
            with self.subTest(name):
                if "nearly" in name:
                    sparsifier = compat.NearlyDiagonalSparsifier(int(name.split("=")[1]))
                else:
                    level, rows, cols, zeros, norm = re.fullmatch(
                        r"mask.level=(.*),block=(\d+)x(\d+),zeros=(\d+),norm=(\w+)", name).groups()
                    sparsifier = compat.WeightNormSparsifier(
                        float(level), (int(rows), int(cols)), int(zeros),
                        None if norm == "None" else int(norm))
                _, mask = self.masked(data["weight"], sparsifier)
                self.assertTrue(torch.equal(mask != 0, data[name] != 0))

    def test_the_tutorial_s_steps(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(),
                                    torch.nn.Linear(32, 64))
        before = model[0].weight.detach().clone()
        sparsifier = compat.WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4),
                                                 zeros_per_block=2)
        sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "2.weight"}])
        sparsifier.step()
        state = sparsifier.state_dict()
        self.assertEqual(set(state["state"]), {"0.weight", "2.weight"})
        sparsifier.load_state_dict(state)
        sparsifier.squash_mask(params_to_keep=("sparsity_level",))
        self.assertEqual(model[0].sparse_params, {"sparsity_level": 1.0})
        self.assertTrue(torch.equal(model[0].weight, compat.sparse24(before)[0]))
        x = torch.randn(5, 64)
        y = model(x)
        for layer in (model[0], model[2]):
            layer.weight = torch.nn.Parameter(compat.to_sparse_semi_structured(layer.weight))
        torch.testing.assert_close(model(x), y, atol=1e-4, rtol=1e-4)

    def test_wanda(self):
        layer, x = torch.nn.Linear(64, 32, bias=False), torch.randn(3, 40, 64) * torch.rand(64) * 4
        w = layer.weight.detach().clone()
        scores = w.abs() * x.reshape(-1, 64).norm(dim=0)
        for options, expected in (
                ({"semi_structured_block_size": 4},
                 scores.view(-1, 4).argsort(dim=1).argsort(dim=1).view(32, 64) >= 2),
                ({"sparsity_level": 0.75},
                 scores.view(-1).argsort().argsort().view(32, 64) >= 32 * 64 * 3 // 4)):
            sparsifier = compat.WandaSparsifier(**options)
            model = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False))
            model[0].weight.data.copy_(w)
            sparsifier.prepare(model)
            with self.assertRaisesRegex(RuntimeError, "0.weight: its layer has seen no input"):
                sparsifier.step()
            for part in x:
                model(part)
            sparsifier.step()
            sparsifier.squash_mask()
            self.assertTrue(torch.equal(model[0].weight, w * expected))
            self.assertEqual(len(model[0]._forward_pre_hooks), 0)

    def test_refusals(self):
        with self.assertRaises(NotImplementedError):
            compat.WeightNormSparsifier(norm=3)
        with self.assertRaisesRegex(ValueError, "zeros_per_block 5"):
            self.masked(torch.randn(8, 8), compat.WeightNormSparsifier(1.0, (1, 4), 5))
        with self.assertRaises(ValueError):
            self.masked(torch.randn(8, 8), compat.NearlyDiagonalSparsifier(2))
        with self.assertRaises(AssertionError):
            compat.WeightNormSparsifier().prepare(torch.nn.Linear(8, 8), [{"name": "weight"}])


class Tensors(unittest.TestCase):
    def weight(self, dtype=torch.float16):
        return compat.sparse24(torch.randn(64, 128))[0].to(dtype)

    def test_pruning_along_both_sides(self):
        w = torch.randn(64, 128, requires_grad=True)
        for name, rule in (("", "signed"), ("largest_values_greedy", "signed"),
                           ("largest_abs_values_greedy", "greedy"), ("causal1122", "causal1122")):
            made = compat.SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort(w, name)
            self.assertIs(type(made), compat.SparseSemiStructuredTensorCUTLASS)
            kept = torch.from_numpy(sparse24.tile_mask(w.detach().numpy(), rule))
            self.assertTrue(torch.equal(made.to_dense(), w.detach() * kept))
            x = torch.randn(3, 128, requires_grad=True)
            (x @ made.t()).sum().backward()
            torch.testing.assert_close(x.grad, (w.detach() * kept).sum(0).expand(3, -1))
        with self.assertRaisesRegex(ValueError, "algo 'best': expected one of"):
            compat.SparseSemiStructuredTensor.prune_dense_static_sort(w, "best")

    def test_the_class_is_the_backend_s(self):
        w, force = self.weight(), compat.SparseSemiStructuredTensor._FORCE_CUTLASS
        try:
            for cutlass, kind in ((True, compat.SparseSemiStructuredTensorCUTLASS),
                                  (False, compat.SparseSemiStructuredTensorCUSPARSELT)):
                compat.SparseSemiStructuredTensor._FORCE_CUTLASS = cutlass
                for made in (compat.to_sparse_semi_structured(w),
                             compat.SparseSemiStructuredTensor.from_dense(w),
                             kind.from_dense(w, 0), kind.from_dense(w).t().t(),
                             kind.from_dense(w).to(torch.bfloat16)):
                    self.assertIs(type(made), kind)
                    self.assertIsInstance(made, compat.SparseSemiStructuredTensor)
        finally:
            compat.SparseSemiStructuredTensor._FORCE_CUTLASS = force
        self.assertIsNot(compat.SparseSemiStructuredTensorCUTLASS,
                         compat.SparseSemiStructuredTensorCUSPARSELT)

    def test_errors_are_pytorch_s(self):
        for w, what in ((self.weight()[None], "dim = 3"), (self.weight(torch.float64), "dtype"),
                        (self.weight()[:, :66], "shape"), (self.weight()[:0], "shape")):
            for make in (compat.to_sparse_semi_structured,
                         compat.SparseSemiStructuredTensorCUTLASS.from_dense):
                with self.assertRaisesRegex(RuntimeError, f"Error original_tensor.{what}"):
                    make(w)

    def test_from_and_to_pytorch(self):
        for dtype in (torch.float16, torch.bfloat16):
            w = self.weight(dtype)
            sparse = compat.to_sparse_semi_structured(w)
            theirs = sparse.to_torch()
            self.assertIs(type(theirs), torch.sparse.SparseSemiStructuredTensorCUTLASS)
            self.assertTrue(torch.equal(theirs.to_dense(), w))
            again = compat.SparseSemiStructuredTensor.from_torch(theirs)
            self.assertTrue(torch.equal(again.packed, sparse.packed))
            self.assertFalse(again.requires_grad)
        learnt = compat.to_sparse_semi_structured(torch.nn.Parameter(self.weight()))
        self.assertTrue(learnt.to_torch().requires_grad)
        self.assertTrue(compat.SparseSemiStructuredTensor.from_torch(
            learnt.to_torch()).requires_grad)
        with self.assertRaisesRegex(TypeError, "float32"):
            compat.to_sparse_semi_structured(self.weight(torch.float32)).to_torch()
        with self.assertRaisesRegex(NotImplementedError, "transpose"):
            sparse.t().to_torch()

    def test_their_own_tests(self):
        text = ("import unittest, torch\n"
                "from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured\n"
                "_IS_SM8X = False\n"
                "class Theirs(unittest.TestCase):\n"
                "    def made(self):\n"
                "        w = torch.tensor([[1.0, 0, 2, 0] * 32] * 32, device='cuda')\n"
                "        return w, to_sparse_semi_structured(w)\n"
                "    @unittest.skipIf(not _IS_SM8X, 'no')\n"
                "    def test_dense(self):\n"
                "        w, s = self.made()\n"
                "        assert isinstance(s, SparseSemiStructuredTensor)\n"
                "        assert torch.equal(s.to_dense(), w)\n"
                "    def test_mm_sparse_first_T(self):\n"
                "        w, s = self.made()\n"
                "        with self.assertRaises(NotImplementedError):\n"
                "            torch.mm(s.t(), w)\n"
                "    def test_wrong(self):\n"
                "        assert False, 'of this sentence'\n"
                "    @unittest.skip('why')\n"
                "    def test_left(self):\n"
                "        pass\n")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "theirs.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                result = run_theirs.run(path, "cpu")
        self.assertEqual((result.passed, result.unknown, result.explained), (1, 1, 1))
        for line in ("ok        theirs.Theirs.test_dense",
                     "otherwise theirs.Theirs.test_mm_sparse_first_T: such a product is computed",
                     "FAILED    theirs.Theirs.test_wrong: AssertionError: of this sentence",
                     "skipped   theirs.Theirs.test_left: why",
                     "1 passed, 1 failed, 1 skipped, 1 otherwise on purpose"):
            self.assertIn(line, said.getvalue())


class Ao(unittest.TestCase):
    def test_swap_there_and_back(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32),
                                    torch.nn.Sequential(torch.nn.Linear(32, 64)))
        weight = model[1][0].weight
        compat.swap_linear_with_semi_sparse_linear(
            model, {"0": compat.SemiSparseActivationLinear, "1.0": compat.SemiSparseLinear})
        self.assertIs(model[1][0].weight, weight)
        x = torch.randn(8, 64)
        h = compat.semi_sparse_sparsify(x) @ model[0].weight.t() + model[0].bias
        expected = h @ compat.semi_sparse_sparsify(weight).t() + model[1][0].bias
        torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=1e-4)
        model(x).sum().backward()
        self.assertGreater(int((weight.grad != 0).sum()), weight.numel() // 2)
        compat.swap_semi_sparse_linear_with_linear(model)
        self.assertIs(type(model[1][0]), torch.nn.Linear)
        self.assertIs(type(model[0]), torch.nn.Linear)

    def test_sparsify(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 64))
        compat.apply_fake_sparsity(model)
        x = torch.randn(3, 64)
        y = model(x)
        compat.sparsify_(model, compat.semi_sparse_weight(), lambda _, name: name == "0")
        self.assertIsInstance(model[0].weight, compat.SparseSemiStructuredTensor)
        torch.testing.assert_close(model(x), y, atol=1e-4, rtol=1e-4)
        with self.assertRaises(ValueError):
            compat.semi_sparse_weight(alg_id=3)

    def test_sparsify_in_attention(self):
        """Its fused pass in inference reads dense memory."""
        dense, x = torch.nn.MultiheadAttention(32, 4, batch_first=True), torch.randn(2, 5, 32)
        dense.eval()
        compat.apply_fake_sparsity(dense)
        sparse = compat.sparsify_(copy.deepcopy(dense), compat.semi_sparse_weight())
        self.assertIsInstance(sparse.out_proj.weight, compat.SparseSemiStructuredTensor)
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(sparse(x, x, x)[0], dense(x, x, x)[0], atol=1e-4,
                                           rtol=1e-4)

    def test_quantize(self):
        x = torch.randn(3, 256)
        for config in (compat.int8_dynamic_activation_int8_weight(layout=compat.SemiSparseLayout()),
                       compat.int8_dynamic_activation_int8_semi_sparse_weight(),
                       compat.int4_weight_only(layout=compat.MarlinSparseLayout())):
            model = torch.nn.Sequential(torch.nn.Linear(256, 32), torch.nn.Linear(16, 8))
            expected = torch.nn.functional.linear(x, compat.sparse24(model[0].weight)[0],
                                                  model[0].bias)
            compat.quantize_(model, config, lambda _, name: name == "0")
            self.assertLess(float((model[0](x) - expected).detach().abs().max()),
                            0.05 if model[0].bits == 8 else 0.5)

    def test_blocks(self):
        model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.Linear(64, 10))
        model[0].weight.data.mul_((torch.rand(4, 8) > 0.6).float().repeat_interleave(16, 0)
                                  .repeat_interleave(16, 1))
        x, dense = torch.randn(2, 5, 128, requires_grad=True), model[0]
        compat.sparsify_(model, compat.block_sparse_weight(blocksize=16))
        self.assertIs(type(model[1]), torch.nn.Linear)
        torch.testing.assert_close(model[0](x), dense(x), atol=1e-4, rtol=1e-4)
        one, two = (torch.autograd.grad(layer(x).square().sum(), (x, layer.bias))
                    for layer in (model[0], dense))
        torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)
        layer = model[0]
        result = torch.library.opcheck(
            torch.ops.sparse24.block_linear.default,
            (x.detach().requires_grad_(), layer.values, layer.starts, layer.index, layer.bias, 128))
        self.assertEqual(set(result.values()), {"SUCCESS"})
        with self.assertRaisesRegex(ValueError, r"expected \[..., 128\]"):
            layer(torch.randn(5, 64))
        with self.assertRaises(ValueError):
            compat.sparsify_(torch.nn.Sequential(torch.nn.Linear(24, 24)),
                             compat.block_sparse_weight(12))

    def test_what_is_not_made_says_its_name(self):
        with self.assertRaisesRegex(NotImplementedError, "group_size=32"):
            compat.int4_weight_only(32, layout=compat.MarlinSparseLayout())
        with self.assertRaisesRegex(NotImplementedError, "bitwidth=2"):
            compat.SupermaskLinear(0.5, False, False, 2, None, None, 8, 8)
        for name in compat.__all__:
            self.assertTrue(hasattr(compat, name), name)

    def test_a_pattern_like_another(self):
        pattern = compat.semi_sparse_sparsify(torch.randn(16, 32))
        for like in (pattern, compat.to_sparse_semi_structured(pattern)):
            for kind in compat.GRADIENT_TYPE:
                x = torch.randn(16, 32, requires_grad=True)
                y = compat.semi_structured_sparsify_like(x, like, kind)
                self.assertTrue(torch.equal(y, x * (pattern != 0)))
                y.sum().backward()
                ones = torch.ones_like(x) if kind.name == "STE" else (pattern != 0).float()
                self.assertTrue(torch.equal(x.grad, ones))
        with self.assertRaisesRegex(ValueError, "16, 32"):
            compat.semi_structured_sparsify_like(torch.randn(8, 8), pattern)

    def test_supermasks(self):
        dense = torch.nn.Linear(40, 24)
        layer = compat.SupermaskLinear.from_linear(dense, 0.5, blocksize=16, inference=False)
        self.assertEqual(list(layer.scores.shape), [2, 3])
        mask, x = layer.get_mask().detach(), torch.randn(5, 40)
        self.assertEqual(int(mask[::16, ::16].sum()), 4)  # of six: what the median keeps
        layer(x).sum().backward()
        self.assertTrue(bool((layer.scores.grad != 0).all()))
        torch.testing.assert_close(layer.weight.grad[0], x.sum(0))
        before = layer(x)
        layer.sparsify_offline()
        torch.testing.assert_close(layer(x), before)
        torch.testing.assert_close(layer.weight.detach(), dense.weight.detach() * mask)
        most = compat.SupermaskLinear.from_linear(dense, 1.0, blocksize=64)
        self.assertEqual(most.sparsity, 0)

    def test_inputs_of_8_bits(self):
        dense = torch.nn.Linear(64, 32, bias=False)
        x = torch.randn(3, 4, 64)
        layer = compat.FP8SemiSparseActivationLinear.from_dense(dense)
        rows = torch.relu(x.reshape(-1, 64)).square()
        expected = (compat.sparse24(rows)[0] @ dense.weight.t()).reshape(3, 4, 32)
        error = (layer(x) - expected).detach()
        self.assertLess(float(error.norm() / expected.detach().norm()), 0.05)
        self.assertEqual(layer(x.bfloat16()).dtype, torch.bfloat16)
        with self.assertRaisesRegex(ValueError, "no bias"):
            compat.FP8SemiSparseActivationLinear.from_dense(torch.nn.Linear(8, 8))


class Pretrain(unittest.TestCase):
    def test_golden(self):
        data = tensors("train/by4_pretrain.safetensors")
        weight = data["weight"]
        out, mask = compat.sparse24_torch(weight)
        self.assertTrue(torch.equal(out, data["sparse24.out"]))
        self.assertTrue(torch.equal(mask, data["sparse24.mask"] != 0))
        out, mask = compat.soft_threshold24(weight)
        self.assertTrue(torch.equal(out, data["soft_threshold24.out"]))
        self.assertTrue(torch.equal(mask, data["soft_threshold24.mask"] != 0))
        grad = data["masked_add.grad_in"].clone()
        compat.masked_add_(grad, weight, data["sparse24.mask"], alpha=2e-4)
        self.assertTrue(torch.allclose(grad, data["masked_add.grad_out_alpha2e-4"], rtol=1e-6))
        f16 = data["transposable.f16.weight"].to(torch.float16)
        out, mask = compat.TransposableSparse(abs=True)(f16)
        score = f16.float().abs()
        self.assertAlmostEqual(float((score * mask).sum()),
                               float((score * data["transposable.f16.mask"]).sum()), places=1)

    def test_signed_tiles(self):
        x = torch.randn(24, 16)
        sparse, mask = compat.TransposableSparse(abs=False)(x)
        self.assertTrue(torch.equal(sparse, x * mask))
        tiles = mask.reshape(6, 4, 4, 4).float()
        self.assertTrue(bool((tiles.sum(1) == 2).all() and (tiles.sum(3) == 2).all()))
        positive = compat.TransposableSparse(abs=True)(x.abs())[1]
        self.assertTrue(torch.equal(compat.TransposableSparse(abs=False)(x.abs())[1],
                                    positive.bool()))
        with self.assertRaises(ValueError):
            compat.TransposableSparse(abs=False)(torch.randn(6, 8))

    def test_to_sparse(self):
        w = torch.randn(64, 64)
        sparse, mask = compat.sparse24(w.half())
        self.assertTrue(torch.equal(
            compat.to_sparse_semi_structured(w, dtype=torch.float16).to_dense(), sparse))
        self.assertTrue(torch.equal(
            compat.to_sparse_semi_structured(w, mask=mask).to_dense(), w.half() * mask))
        mean = torch.stack([compat.to_sparse_semi_structured(w, MVUE24=True,
                                                             dtype=torch.float32).to_dense()
                            for _ in range(400)]).mean(0)
        self.assertLess(float((mean - w).abs().mean()), 0.1)
        with self.assertRaises(RuntimeError):
            compat.to_sparse_semi_structured(w, mask=mask, MVUE24=True)
        with self.assertRaises(RuntimeError):
            compat.to_sparse_semi_structured(w[0])
        with self.assertRaises(sparse24.Error):
            compat.to_sparse_semi_structured(w)

    def test_adamw_step(self):
        data = tensors("train/adamw_step.safetensors")
        for option in (1, 2):
            of = f"option{option}."
            p, q = (torch.nn.Parameter(data[of + n].clone()) for n in ("p0", "q0"))
            p.mask = "dense"
            optimizer = compat.AdamW_STEP([p, q], lr=1e-2, betas=(0.9, 0.95), eps=1e-8,
                                          weight_decay=0.1, clipping=(3, 12), option=option)
            for step in range(20):
                p.grad, q.grad = data[f"{of}grad_p.{step:02}"], data[f"{of}grad_q.{step:02}"]
                optimizer.step()
                for name, mine in (("p", p), ("q", q)):
                    torch.testing.assert_close(mine.detach(), data[f"{of}{name}.{step + 1:02}"],
                                               rtol=2e-6, atol=1e-6)
                self.assertEqual(p.mask == "sparse", bool(data[of + "sparse_phase"][step]))


if __name__ == "__main__":
    unittest.main()
