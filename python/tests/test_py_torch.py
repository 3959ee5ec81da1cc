# SPDX-License-Identifier: Apache-2.0
"""sparse24.torch: operators, tensors, layers, whole models. Skips where there is no PyTorch."""
import copy
import io
import unittest

import numpy as np
import sparse24

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing

import sparse24.torch as st
from sparse24.torch import torch_ops

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NEAR = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 2e-2}


def two_four(n, k, dtype=torch.float32):
    w = torch.randn(n, k)
    return (w * torch.from_numpy(sparse24.magnitude_mask(w.numpy()))).to(dtype)


def near(test, one, two, within=1e-4):
    test.assertEqual(one.shape, two.shape)
    test.assertLess(float((one.float() - two.float()).detach().abs().max()), within)


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)


class Operators(Case):
    def test_linear_in_every_dtype(self):
        for dtype in DTYPES:
            w, x, b = two_four(64, 96, dtype), torch.randn(2, 5, 96).to(dtype), torch.randn(64)
            packed = st.prune_pack(w, "strict")
            self.assertTrue(torch.equal(packed, st.prune_pack(w.t().contiguous().t(), "strict")))
            y = st.linear(x, packed, 64, 96, b.to(dtype))
            self.assertIs(y.dtype, dtype)
            near(self, y, F.linear(x.float(), w.float(), b), NEAR[dtype] * 3)

    def test_dtypes_of_weight_and_input_may_differ(self):
        w, x = two_four(64, 96, torch.bfloat16), torch.randn(5, 96)
        y = st.linear(x, st.prune_pack(w), 64, 96, dtype=torch.bfloat16)
        near(self, y, F.linear(x, w.float()), 0.2)  # the kernel rounds x to bf16

    def test_opcheck(self):
        w, layout = torch.randn(64, 96), torch_ops.layout_of(torch.float32)
        packed, x = st.prune_pack(w), torch.randn(5, 96, requires_grad=True)
        bias, columns = torch.randn(64, requires_grad=True), torch.randn(96, 5, requires_grad=True)
        shape, ops = (64, 96, layout), torch.ops.sparse24
        for op, args in ((ops.linear, (x, packed, bias, *shape)),
                         (ops.linear_forward, (x.detach(), packed, None, *shape)),
                         (ops.prune_pack, (w, "magnitude")),
                         (ops.prune_pack_pair, (w, "tile-signed")),
                         (ops.to_dense, (packed, *shape)),
                         (ops.training_linear, (x, w.clone().requires_grad_(), bias, "tile-best")),
                         (ops.mm, (packed, columns, *shape)),
                         (ops.addmm, (torch.randn(64, 5), packed, columns, *shape))):
            with self.subTest(op=str(op)):
                result = torch.library.opcheck(op.default, args)
                self.assertEqual(set(result.values()), {"SUCCESS"})

    def test_gradients_against_f64(self):
        w, x, b = two_four(32, 64), torch.randn(7, 64), torch.randn(32)
        mine = [x.clone().requires_grad_(), b.clone().requires_grad_()]
        theirs = [x.double().requires_grad_(), b.double().requires_grad_()]
        (st.linear(mine[0], st.prune_pack(w), 32, 64, mine[1]) ** 2).sum().backward()
        (F.linear(theirs[0], w.double(), theirs[1]) ** 2).sum().backward()
        for one, two in zip(mine, theirs):
            near(self, one.grad, two.grad, 1e-2)

    def test_training_linear_against_f64(self):
        w, x = torch.randn(32, 64), torch.randn(8, 64)
        mask = torch.from_numpy(sparse24.tile_mask(w.numpy(), "signed"))
        mine = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        theirs = [x.double().requires_grad_(), (w * mask).double().requires_grad_()]
        (st.training_linear(*mine) ** 2).sum().backward()
        (F.linear(*theirs) ** 2).sum().backward()
        for one, two in zip(mine, theirs):
            near(self, one.grad, two.grad, 1e-2)

    def test_torch_func(self):
        w, x, bias = torch.randn(16, 32), torch.randn(4, 32), torch.randn(16)
        packed = st.prune_pack(w)
        dense = torch.ops.sparse24.to_dense(packed, 16, 32, st.torch_ops.layout_of(w.dtype))

        def ours(x, bias):
            return st.linear(x, packed, 16, 32, bias).square().sum()

        def theirs(x, bias):
            return F.linear(x, dense, bias).square().sum()
        for transform in (torch.func.grad, torch.func.jacrev, torch.func.hessian):
            for at in (0, 1):
                one, two = (transform(f, argnums=at)(x, bias) for f in (ours, theirs))
                torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
        batch = torch.randn(3, 4, 32)
        one, two = (torch.func.vmap(torch.func.grad(f), (0, None))(batch, bias)
                    for f in (ours, theirs))
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
        grad = torch.func.grad(lambda w: st.training_linear(x, w, bias).square().sum())(w)
        w.requires_grad_()
        st.training_linear(x, w, bias).square().sum().backward()
        torch.testing.assert_close(grad, w.grad)
        layer = st.SparseLinear.from_dense(torch.nn.Linear(32, 16), "magnitude")
        grad = torch.func.grad(lambda x: layer(x).sum())(x)
        torch.testing.assert_close(grad, layer.dense_weight().sum(0).expand(4, 32))

    def test_mm_and_addmm(self):
        w, x, c = two_four(32, 64), torch.randn(64, 9), torch.randn(32, 9)
        packed, shape = st.prune_pack(w), (32, 64, torch_ops.layout_of(torch.float32))
        near(self, torch.ops.sparse24.mm(packed, x, *shape), w @ x)
        near(self, torch.ops.sparse24.addmm(c, packed, x, *shape, beta=2, alpha=0.5),
             2 * c + 0.5 * (w @ x))

    def test_refusals(self):
        packed = st.prune_pack(torch.randn(16, 32))
        with self.assertRaisesRegex(ValueError, r"x is \[2, 28\]"):
            st.linear(torch.randn(2, 28), packed, 16, 32)
        with self.assertRaisesRegex(TypeError, "float64"):
            st.prune_pack(torch.randn(16, 32).double())
        with self.assertRaisesRegex(sparse24.Error, "row 0"):
            st.prune_pack(torch.ones(16, 32), "strict")
        with self.assertRaisesRegex(ValueError, "select 'luck'"):
            st.prune_pack(torch.randn(16, 32), "luck")

    def test_dlpack_tensors_reach_the_core(self):
        w = sparse24.Matrix.magnitude(torch.randn(16, 32, dtype=torch.bfloat16))
        self.assertEqual(w.dtype, "bf16")
        x = torch.randn(3, 32)
        np.testing.assert_allclose(sparse24.linear(x, w), x.numpy() @ w.to_dense().T, atol=0.1)


class Tensors(Case):
    def test_products(self):
        w, x = two_four(64, 96), torch.randn(5, 96)
        s = st.SparseTensor.from_dense(w)
        self.assertTrue(torch.equal(s.to_dense(), w))
        self.assertTrue(torch.equal(s.t().to_dense(), w.t()))
        near(self, F.linear(x, s), F.linear(x, w))
        near(self, F.linear(x.reshape(1, 5, 96), s, torch.ones(64)),
             F.linear(x, w, torch.ones(64))[None])
        near(self, x @ s.t(), x @ w.t())
        near(self, s @ x.t(), w @ x.t())
        near(self, torch.randn(2, 64).fill_(1) @ s, torch.ones(2, 64) @ w)
        near(self, torch.addmm(torch.ones(64), x, s.t(), beta=2), 2 + x @ w.t())
        with self.assertRaises(ValueError):
            _ = s @ s.t()
        with self.assertRaisesRegex(NotImplementedError, "to_dense"):
            torch.relu(s)
        np.testing.assert_array_equal(s.matrix().to_dense(), w.numpy())

    def test_as_a_weight(self):
        layer, w = torch.nn.Linear(96, 64), two_four(64, 96)
        layer.weight = torch.nn.Parameter(st.SparseTensor.from_dense(w))
        x = torch.randn(5, 96, requires_grad=True)
        y = layer(x)
        near(self, y, F.linear(x, w, layer.bias))
        y.sum().backward()
        near(self, x.grad, torch.ones(5, 64) @ w, 1e-3)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        near(self, compiled(x), y)
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        again = torch.load(file, weights_only=False)["weight"]
        self.assertTrue(torch.equal(again.to_dense(), w))
        near(self, copy.deepcopy(layer)(x), y)
        self.assertIs(layer.weight.to(torch.bfloat16).dtype, torch.bfloat16)


class Quantised(Case):
    def test_layers(self):
        dense, x = torch.nn.Linear(256, 48), torch.randn(2, 5, 256)
        for scheme, integers in (("int8", False), ("int8", True), ("int4-g64", False)):
            layer = st.QuantizedSparseLinear.from_dense(dense, scheme, integers=integers)
            expected = F.linear(x, layer.dense_weight(), dense.bias)
            near(self, layer(x), expected, 0.05)
            near(self, layer(x.bfloat16()), expected, 0.1)
            near(self, copy.deepcopy(layer)(x), layer(x), 1e-6)
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            near(self, compiled(x), layer(x), 1e-6)
            with torch.inference_mode():
                near(self, layer(x), expected, 0.05)
            args = (x, layer.values, layer.indices, layer.scales, dense.bias, 256, layer.bits,
                    integers)
            result = torch.library.opcheck(torch.ops.sparse24.quantized_linear.default, args)
            self.assertEqual(set(result.values()), {"SUCCESS"})

    def test_gradients_and_new_values(self):
        layer = st.QuantizedSparseLinear.from_dense(torch.nn.Linear(64, 32))
        x = torch.randn(5, 64, requires_grad=True)
        layer(x).sum().backward()
        near(self, x.grad, torch.ones(5, 32) @ layer.dense_weight(), 1e-4)
        other = st.QuantizedSparseLinear.from_dense(torch.nn.Linear(64, 32))
        layer.load_state_dict(other.state_dict())
        near(self, layer(x), other(x), 1e-6)


class Models(Case):
    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.ReLU(),
                                   torch.nn.Linear(64, 96), torch.nn.Linear(96, 3))

    def test_prune_and_accelerate(self):
        batches = [torch.randn(100, 96), (torch.randn(100, 96),), {"input": torch.randn(9, 96)}]
        for method in sparse24.criteria():
            if sparse24._core.criterion_needs_gradients(method):
                continue
            model = self.model()
            kept = st.prune_(model, method, calibration=batches,
                             filter_fn=lambda _, name: name != "3")
            self.assertEqual(set(kept), {"0", "2"})
            self.assertIsNone(sparse24.check(model[0].weight.detach().numpy()))
        x, choices = torch.randn(5, 96), st.accelerate_(model, measure=False)
        self.assertEqual([c.kind for c in choices], ["2:4", "2:4", "dense"])
        self.assertEqual(choices[2].why, "its weight is not 2:4")
        self.assertIsInstance(model[0], st.SparseLinear)
        measured = st.accelerate_(self.model_like(model))
        self.assertIn("x dense at 128 tokens", measured[0].why)
        y = model(x)
        for backend in ("aot_eager", "eager"):
            near(self, torch.compile(model, backend=backend, fullgraph=True)(x), y)
        with self.assertRaisesRegex(ValueError, "luck"):
            st.prune_(self.model(), "luck")

    def model_like(self, sparse):
        model = self.model()
        model.load_state_dict(sparse.state_dict())
        return model

    def test_a_model_of_one_layer(self):
        layer = torch.nn.Linear(32, 16)
        self.assertEqual(set(st.prune_(layer)), {""})
        self.assertIsNone(sparse24.check(layer.weight.detach().numpy()))
        self.assertIn("whole model", st.accelerate_(layer)[0].why)

    def test_state_dicts_go_both_ways(self):
        dense = self.model()
        st.prune_(dense)
        sparse = copy.deepcopy(dense)
        st.accelerate_(sparse, measure=False)
        x = torch.randn(5, 96)
        near(self, sparse(x), dense(x))
        near(self, self.model_like(sparse)(x), dense(x))
        other = self.model()
        st.prune_(other)
        sparse.load_state_dict(other.state_dict())
        near(self, sparse(x), other(x))
        near(self, sparse[0].to_dense()(x), other[0](x))
        self.assertIn("layout=", repr(sparse[0]))

    def test_gradients_reach_what_is_below(self):
        model = self.model()
        st.prune_(model)
        st.accelerate_(model, measure=False)
        x = torch.randn(5, 96, requires_grad=True)
        model(x).sum().backward()
        self.assertGreater(float(x.grad.abs().sum()), 0)
        self.assertIsNotNone(model[0].bias.grad)


if __name__ == "__main__":
    unittest.main()
