# SPDX-License-Identifier: Apache-2.0
"""What tests on a GPU share. Raises SkipTest with a line where there is none, or no plugin."""
import unittest

import sparse24

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing

if not torch.cuda.is_available():
    raise unittest.SkipTest("no GPU here")

from sparse24.torch import torch_cuda

try:
    torch_cuda.device(0)
except sparse24.Error as refused:
    raise unittest.SkipTest(str(refused)) from refused

DTYPES = (torch.float16, torch.bfloat16)
EPSILON = {torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}
SHAPES = ((1, 64, 64), (7, 72, 136), (33, 100, 60), (128, 768, 768), (300, 1000, 1004),
          (512, 3072, 768))


def dense(n, k, dtype=torch.float16, scale=1.0):
    return (torch.randn(n, k, device="cuda") * scale).to(dtype)


def two_four(n, k, dtype=torch.float16):
    w = dense(n, k, dtype, k ** -0.5)
    return w * torch.from_numpy(sparse24.magnitude_mask(w.float().cpu().numpy())).cuda()


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def near(self, one, two, dtype, scale=4.0):
        self.assertEqual(one.shape, two.shape)
        if one.numel():
            one, two = one.detach().double(), two.detach().double()
            most = max(1.0, float(two.abs().max()))
            self.assertLess(float((one - two).abs().max()), scale * EPSILON[dtype] * most)

    def does_not_wait(self, call):
        """The stream is busy for long enough that what is enqueued after it is not done."""
        torch.cuda.synchronize()
        torch.cuda._sleep(int(4e8))
        result = call()
        self.assertFalse(torch.cuda.current_stream().query())
        torch.cuda.synchronize()
        return result
