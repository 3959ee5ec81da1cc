# SPDX-License-Identifier: Apache-2.0
"""sparse24.torch on a GPU: everything of it that runs there, in one program. Skips with a line
where there is none, or no plugin for it.

    python3 test_py_cuda.py
"""
import copy
import sys
import threading
import unittest

import numpy as np
import sparse24

try:
    from cuda_case import DTYPES, SHAPES, Case, dense, two_four
except unittest.SkipTest as why:
    if __name__ != "__main__":
        raise
    print(f"skipped: {why}")
    sys.exit(0)

import torch
import torch.nn.functional as F

import sparse24.torch as st
from sparse24.torch import compat, torch_cuda

from cuda_models import Models  # noqa: F401 pylint: disable=unused-import


class Operators(Case):
    def test_linear(self):
        for dtype in DTYPES:
            for m, n, k in SHAPES:
                with self.subTest(dtype=dtype, shape=(m, n, k)):
                    w, x, b = two_four(n, k, dtype), dense(m, k, dtype), dense(1, n, dtype)[0]
                    packed = st.prune_pack(w, "strict")
                    y = st.linear(x, packed, n, k, b)
                    self.assertIs(y.dtype, dtype)
                    self.near(y, F.linear(x.double(), w.double(), b.double()), dtype)
                    self.assertTrue(torch.equal(
                        torch.ops.sparse24.to_dense(packed, n, k, torch_cuda.layout_of(dtype)), w))

    def test_inputs_of_every_layout(self):
        w = two_four(96, 64)
        packed, wide = st.prune_pack(w), dense(40, 200)
        for x in (wide[:, :64], wide[:, 8:72], wide[:, 3:67], wide[::2, :64], dense(64, 9).t(),
                  dense(6, 64).view(2, 3, 64), dense(1, 64).expand(5, 64), dense(0, 64),
                  dense(1, 64)[0]):
            self.near(st.linear(x, packed, 96, 64), F.linear(x.double(), w.double()),
                      torch.float16)
        x = torch.randn(5, 64, device="cuda")
        y = st.linear(x, packed, 96, 64, dtype=torch.float16)
        self.assertIs(y.dtype, torch.float32)
        self.near(y, F.linear(x.double(), w.double()), torch.float16)

    def test_opcheck(self):
        w, layout = dense(64, 96), torch_cuda.layout_of(torch.float16)
        packed, x = st.prune_pack(w), dense(5, 96).requires_grad_()
        bias, columns = dense(1, 64)[0].requires_grad_(), dense(96, 8).requires_grad_()
        shape, ops = (64, 96, layout), torch.ops.sparse24
        narrow = (dense(64, 96) * 20).to(torch.int8)
        eight = ops.prune_pack(narrow, "magnitude")
        scale = torch.rand(64, device="cuda")
        for op, args in ((ops.linear, (x, packed, bias, *shape)),
                         (ops.linear_forward, (x.detach(), packed, None, *shape)),
                         (ops.prune_pack, (w, "magnitude")),
                         (ops.prune_pack_pair, (w, "tile-signed")),
                         (ops.to_dense, (packed, *shape)),
                         (ops.training_linear, (x, w.clone().requires_grad_(), bias, "tile-best")),
                         (ops.columns, (packed, columns, *shape)),
                         (ops.mm, (packed, columns, *shape)),
                         (ops.addmm, (dense(64, 8), packed, columns, *shape)),
                         (ops.scaled_linear,
                          (x.detach(), eight, scale, None, 64, 96, "hopper-i8"))):
            with self.subTest(op=str(op)):
                result = torch.library.opcheck(op.default, args)
                self.assertEqual(set(result.values()), {"SUCCESS"})

    def test_choices_are_the_library_s(self):
        for dtype in DTYPES:
            w = dense(64, 96, dtype)
            host = w.float().cpu().numpy()
            for select in ("magnitude", "tile-best", "tile-greedy", "tile-signed"):
                kept = (sparse24.magnitude_mask(host) if select == "magnitude"
                        else sparse24.tile_mask(host, select[5:]))
                expected = w * torch.from_numpy(kept).cuda()
                packed = st.prune_pack(w, select)
                layout = torch_cuda.layout_of(dtype)
                self.assertTrue(torch.equal(
                    torch.ops.sparse24.to_dense(packed, 64, 96, layout), expected), select)
            one, two = st.prune_pack_pair(w, "tile-signed")
            back = torch.ops.sparse24.to_dense(two, 96, 64, layout)
            self.assertTrue(torch.equal(back.t(), expected))
            same = sparse24.Matrix.from_order("hopper", one[:-64].cpu().numpy(),
                                              dtype=torch_cuda.NAMES[dtype], shape=(64, 96))
            np.testing.assert_array_equal(same.to_dense("f32"), expected.float().cpu().numpy())

    def test_gradients(self):
        w, x, b = two_four(64, 128), dense(24, 128), dense(1, 64)[0]
        mine = [x.clone().requires_grad_(), b.clone().requires_grad_()]
        theirs = [x.double().requires_grad_(), b.double().requires_grad_()]
        st.linear(mine[0], st.prune_pack(w), 64, 128, mine[1]).square().sum().backward()
        F.linear(theirs[0], w.double(), theirs[1]).square().sum().backward()
        for one, two in zip(mine, theirs):
            self.near(one.grad, two.grad, torch.float16, 16)

    def test_training_linear(self):
        for dtype in DTYPES:
            w, x = dense(64, 128, dtype), dense(24, 128, dtype)
            mask = torch.from_numpy(sparse24.tile_mask(w.float().cpu().numpy(), "signed")).cuda()
            mine = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            theirs = [x.double().requires_grad_(), (w * mask).double().requires_grad_()]
            st.training_linear(*mine).square().sum().backward()
            F.linear(*theirs).square().sum().backward()
            for one, two in zip(mine, theirs):
                self.near(one.grad, two.grad, dtype, 32)

    def test_columns(self):
        w = two_four(32, 64)
        packed, layout = st.prune_pack(w), torch_cuda.layout_of(torch.float16)
        for m in (8, 9, 64, 200):
            x, c = dense(64, m), dense(32, m)
            ops = torch.ops.sparse24
            self.near(ops.mm(packed, x, 32, 64, layout), w.double() @ x.double(), torch.float16)
            self.near(ops.addmm(c, packed, x, 32, 64, layout, beta=2, alpha=0.5),
                      2 * c.double() + 0.5 * (w.double() @ x.double()), torch.float16)

    def test_eight_bits(self):
        w, x, b = two_four(96, 64, torch.float32), dense(33, 64), dense(1, 96)[0]
        for dtype, most in ((torch.int8, 127.0), (torch.float8_e4m3fn, 448.0)):
            scale = w.abs().amax(1) / most
            narrow = w / scale[:, None]
            narrow = narrow.round().to(dtype) if dtype is torch.int8 else narrow.to(dtype)
            packed = torch.ops.sparse24.prune_pack(narrow, "strict")
            y = torch.ops.sparse24.scaled_linear(x, packed, scale, b, 96, 64,
                                                 torch_cuda.layout_of(dtype))
            self.near(y, F.linear(x.double(), w.double(), b.double()), torch.bfloat16,
                      2 if dtype is torch.int8 else 8)

    def test_refusals(self):
        with self.assertRaisesRegex(TypeError, "float32 on cuda"):
            st.prune_pack(dense(8, 8, torch.float32))
        with self.assertRaisesRegex(sparse24.Error, "not 2:4: row 0, columns 0 to 3"):
            st.prune_pack(torch.ones(8, 8, device="cuda", dtype=torch.float16), "strict")
        packed = st.prune_pack(dense(64, 64))
        for x in (dense(5, 60), torch.randn(5, 64).half()):
            with self.assertRaises((ValueError, RuntimeError, NotImplementedError)):
                st.linear(x, packed, 64, 64)
        with self.assertRaisesRegex(ValueError, "3 dimensions"):
            st.prune_pack(dense(64, 64).view(2, 32, 64))
        with self.assertRaisesRegex(ValueError, "there is no|expected one of"):
            st.prune_pack(dense(64, 64), "nearly")

    def test_autocast(self):
        layer = compat.SemiSparseLinear(64, 32, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(torch.randn(8, 64, device="cuda"))
        self.assertIs(y.dtype, torch.bfloat16)
        y.float().sum().backward()
        self.assertIs(layer.weight.grad.dtype, torch.float32)


class Streams(Case):
    def test_graphs(self):
        w, x = two_four(256, 128), dense(32, 128)
        packed = st.prune_pack(w)
        st.linear(x, packed, 256, 128)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = st.linear(x, packed, 256, 128)
            trained = st.training_linear(x, w)
        for _ in range(3):
            x.copy_(dense(32, 128))
            graph.replay()
            self.near(y, F.linear(x.double(), w.double()), torch.float16)
            self.near(trained, st.training_linear(x, w), torch.float16)

    def test_every_stream(self):
        w = two_four(512, 256)
        packed, streams = st.prune_pack(w), [torch.cuda.Stream() for _ in range(4)]
        inputs = [dense(64, 256) for _ in streams]
        torch.cuda.synchronize()
        results = []
        for _ in range(50):
            for x, stream in zip(inputs, streams):
                with torch.cuda.stream(stream):
                    results.append((x, st.linear(x, packed, 512, 256)))
        torch.cuda.synchronize()
        for x, y in results:
            self.near(y, F.linear(x.double(), w.double()), torch.float16)

    def test_a_call_takes_only_its_result(self):
        """PyTorch counts what it allocates. What another would allocate fails: the driver refuses
        that while a process is captured. (Its free memory is also other processes'.)"""
        packed, x = st.prune_pack(dense(256, 128)), dense(32, 128)

        def allocations():
            return torch.cuda.memory_stats()["allocation.all.allocated"]
        with torch.inference_mode():
            st.linear(x, packed, 256, 128)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="global"):
                before = allocations()
                for _ in range(1000):
                    st.linear(x, packed, 256, 128)
                after = allocations()
        self.assertEqual(after - before, 1000)

    def test_threads(self):
        w, faults = two_four(128, 256), []
        packed = st.prune_pack(w)

        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(100):
                    x = dense(1 + i, 256)
                    y = st.linear(x, packed, 128, 256)
                    if not torch.allclose(y.float(), F.linear(x.float(), w.float()), atol=0.05):
                        faults.append(i)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def test_compiled(self):
        model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(),
                                    torch.nn.Linear(256, 128)).half().cuda().eval()
        st.prune_(model)
        expected, x = copy.deepcopy(model), dense(32, 128)
        st.accelerate_(model, measure=False)
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        with torch.inference_mode():
            for _ in range(4):
                x = dense(32, 128)
                self.near(compiled(x).clone(), expected(x), torch.float16, 8)

    def test_compiled_training(self):
        for mode in (None, "reduce-overhead", "max-autotune"):
            layer = compat.SemiSparseLinear(128, 64, device="cuda", dtype=torch.bfloat16)
            same, compiled = copy.deepcopy(layer), torch.compile(layer, fullgraph=True, mode=mode)
            for _ in range(3):
                x = dense(32, 128, torch.bfloat16)
                for model in (compiled, same):
                    model.zero_grad()
                    model(x).float().square().mean().backward()
                self.near(layer.weight.grad, same.weight.grad, torch.bfloat16)

    def test_max_autotune(self):
        model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(),
                                    torch.nn.Linear(256, 128)).bfloat16().cuda().eval()
        st.prune_(model)
        expected = copy.deepcopy(model)
        st.accelerate_(model, measure=False)
        compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
        with torch.inference_mode():
            for rows in (32, 32, 32, 48, 48, 48):
                x = dense(rows, 128, torch.bfloat16)
                self.near(compiled(x).clone(), expected(x), torch.bfloat16, 8)

    def test_a_call_does_not_wait(self):
        w, x = two_four(256, 128), dense(32, 128)
        packed, trained = st.prune_pack(w), w.clone().requires_grad_()
        layer = st.QuantizedSparseLinear.from_dense(
            torch.nn.Linear(128, 256, dtype=torch.float16, device="cuda"), integers=True)
        calls = (lambda: st.linear(x, packed, 256, 128), lambda: st.prune_pack(w),
                 lambda: st.prune_pack_pair(w), lambda: layer(x),
                 lambda: st.training_linear(x, trained).sum().backward())
        for i, call in enumerate(calls):
            for _ in range(2):
                call()
            with self.subTest(call=i):
                self.does_not_wait(call)


class Modules(Case):
    def test_tensors(self):
        w, x = two_four(64, 128), dense(9, 128)
        sparse = compat.to_sparse_semi_structured(w)
        self.assertTrue(sparse.is_cuda)
        self.assertTrue(torch.equal(sparse.to_dense(), w))
        self.near(F.linear(x, sparse), F.linear(x, w), torch.float16)
        self.near(x @ sparse.t(), x @ w.t(), torch.float16)
        self.near(sparse @ x.t(), w @ x.t(), torch.float16)
        host = sparse.cpu()
        self.assertTrue(torch.equal(host.to_dense(), w.cpu()))
        self.assertTrue(torch.equal(host.cuda().to_dense(), w))
        self.assertTrue(torch.equal(sparse.to(torch.bfloat16).to_dense(), w.bfloat16()))
        np.testing.assert_array_equal(sparse.matrix().to_dense(), w.cpu().numpy())
        masked = compat.to_sparse_semi_structured(w, mask=(w != 0).int(), dtype=torch.bfloat16)
        self.assertTrue(torch.equal(masked.to_dense(), w.bfloat16()))
        unbiased = compat.to_sparse_semi_structured(dense(64, 128), MVUE24=True)
        self.assertTrue(bool(((unbiased.to_dense().view(-1, 4) != 0).sum(1) <= 2).all()))
        self.assertTrue(torch.equal(compat.to_sparse_semi_structured(
            dense(64, 128), dtype=torch.float16).to_dense().view(-1, 4).ne(0).sum(1),
            torch.full((2048,), 2, device="cuda")))

    def test_tensors_of_integers(self):
        w = torch.randint(-9, 9, (64, 128), device="cuda", dtype=torch.int8)
        w = w * st.torch_ops.select_mask(w, "magnitude")
        x = torch.randint(-9, 9, (33, 128), device="cuda", dtype=torch.int8)
        sparse = compat.to_sparse_semi_structured(w)
        sums = (x.cpu().int() @ w.cpu().int().t()).cuda()
        expected = sums.clamp(-128, 127).to(torch.int8)
        self.assertTrue(bool((sums != expected).any()))
        self.assertTrue(torch.equal(F.linear(x, sparse), expected))
        self.assertTrue(torch.equal(sparse @ x.t(), expected.t()))
        exact = st.SparseTensor.from_dense(w)
        self.assertTrue(torch.equal(F.linear(x, exact), sums))
        self.assertTrue(torch.equal(exact @ x.t(), sums.t()))
        half = compat.to_sparse_semi_structured(w.half())
        self.assertEqual(half.values().shape, (64, 64))
        self.assertEqual((half.indices().shape, half.indices().dtype), ((64, 8), torch.int16))
        self.assertEqual((sparse.indices().shape, sparse.indices().dtype), ((64, 4), torch.int32))

    def test_what_pytorch_tests(self):
        """As its test_sparse_semi_structured.py: products of both classes from either side, layers
        of every shape of input, compiled ones, and pruning along both sides."""
        for made in (compat.SparseSemiStructuredTensorCUTLASS,
                     compat.SparseSemiStructuredTensorCUSPARSELT):
            for dtype in DTYPES:
                w, bias = two_four(256, 128, dtype), dense(1, 256, dtype)[0]
                sparse = made.from_dense(w)
                self.assertIs(type(sparse), made)
                for columns in (1, 64, 128):
                    x, rows = dense(128, columns, dtype), dense(columns, 128, dtype)
                    self.near(torch.mm(sparse, x), torch.mm(w, x), dtype)
                    self.near(torch.mm(sparse, rows.t()), torch.mm(w, rows.t()), dtype)
                    self.near(torch.mm(rows, sparse.t()), torch.mm(rows, w.t()), dtype)
                self.assertTrue(torch.equal(sparse.t().to_dense(), w.t()))
                layer = torch.nn.Linear(128, 256, device="cuda", dtype=dtype)
                layer.weight = torch.nn.Parameter(sparse)
                layer.bias = torch.nn.Parameter(bias)
                model = torch.nn.Sequential(layer, torch.nn.ReLU())
                for lead in ((1,), (), (64,), (64, 128)):
                    x = dense(64 * 128, 128, dtype)[:max(1, int(np.prod(lead)))].view(*lead, 128)
                    expected = F.linear(x, w, bias).relu()
                    for inference in (False, True):
                        with torch.inference_mode(inference):
                            self.near(model(x), expected, dtype)
                torch._dynamo.reset()
                compiled = torch.compile(model, fullgraph=True)(x.view(8, -1, 128))
                self.near(compiled, F.linear(x.view(8, -1, 128), w, bias).relu(), dtype)
                self.assertTrue(compiled.is_contiguous())
                x = dense(256, 128, dtype).requires_grad_()
                pruned = made.prune_dense_static_sort(x)
                kept = x.detach() * st.torch_ops.select_mask(x, "tile-signed")
                self.assertTrue(torch.equal(pruned.to_dense(), kept))
                self.near(x @ pruned.t(), x @ kept.t(), dtype)

    def test_layers_move(self):
        linear = torch.nn.Linear(128, 64).half()
        st.prune_(linear)
        host = st.SparseLinear.from_dense(linear)
        layer, x = copy.deepcopy(host).cuda(), dense(9, 128)
        self.near(layer(x), copy.deepcopy(linear).cuda()(x), torch.float16)
        self.assertTrue(torch.equal(layer.dense_weight().cpu(), linear.weight))
        self.assertTrue(torch.equal(layer.cpu().packed, host.packed))
        layer.cuda().load_state_dict(linear.state_dict())
        self.assertTrue(torch.equal(layer.to_dense().weight.cpu(), linear.weight))

    def test_quantised(self):
        linear = torch.nn.Linear(128, 64, dtype=torch.float16, device="cuda")
        st.prune_(linear)
        x = dense(33, 128)
        for scheme, integers, scale in (("int8", True, 4), ("int8", False, 4),
                                        ("int4-g64", False, 32)):
            layer = st.QuantizedSparseLinear.from_dense(linear, scheme, integers=integers)
            self.near(layer(x), linear(x), torch.bfloat16, scale)
        model = torch.nn.Sequential(linear)
        compat.quantize_(model, compat.int8_dynamic_activation_int8_semi_sparse_weight())
        self.near(model(x), linear(x), torch.bfloat16)
        eight = compat.FP8SparseLinear.from_dense(linear)
        self.near(eight(x), linear(x), torch.bfloat16, 16)
        self.near(eight.dense_weight(), linear.weight, torch.bfloat16, 8)

    def test_torchao_s_training(self):
        model = torch.nn.Sequential(torch.nn.Linear(128, 64)).half().cuda()
        weight, x = model[0].weight, dense(32, 128)
        compat.swap_linear_with_semi_sparse_linear(model, {"0": compat.SemiSparseLinear})
        kept = weight * st.torch_ops.select_mask(weight, "tile-signed")
        self.near(model(x), F.linear(x, kept, model[0].bias), torch.float16)
        compat.swap_semi_sparse_linear_with_linear(model)
        self.assertIs(type(model[0]), torch.nn.Linear)
        compat.swap_linear_with_semi_sparse_linear(model, {"0": compat.SemiSparseActivationLinear})
        model(x).sum().backward()
        sparse = compat.sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)).half().cuda(),
                                  compat.semi_sparse_weight(), lambda *_: False)
        self.assertIs(type(sparse[0].weight), torch.nn.Parameter)

    def test_pretrain_s_functions(self):
        x = dense(32, 64)
        host = x.float().cpu()
        for one, two in ((compat.sparse24(x), compat.sparse24(host)),
                         (compat.TransposableSparse()(x), compat.TransposableSparse()(host)),
                         (compat.soft_threshold24(x), compat.soft_threshold24(host))):
            self.assertTrue(torch.equal(one[1].cpu(), two[1]))
            self.near(one[0].cpu(), two[0], torch.float16)
        grad, p, mask = dense(4, 8, torch.float32), dense(4, 8), (dense(4, 8) > 0)
        expected = grad + 0.5 * p.float() * ~mask
        self.near(compat.masked_add_(grad, p, mask, 0.5), expected, torch.float16)


if __name__ == "__main__":
    unittest.main()
