# SPDX-License-Identifier: Apache-2.0
"""The operators on CUDA: enqueued in PyTorch's current stream, in memory that is PyTorch's.

A packed weight is a tensor of bytes in the order of Hopper's tensor cores with a tail for what
packing reports. A call makes nothing but its result, and waits for nothing (a strict packing waits
once, to say what is not 2:4), so that it may be compiled, captured and run in any stream.
"""
from __future__ import annotations

import functools
import os

import torch

from sparse24 import _core

NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.int8: "i8",
         torch.float8_e4m3fn: "e4m3", torch.float32: "f32", torch.int32: "i32",
         torch.uint8: "u8"}
LAYOUTS = {torch.bfloat16: "hopper-bf16", torch.float16: "hopper-f16", torch.int8: "hopper-i8",
           torch.float8_e4m3fn: "hopper-e4m3"}
DTYPES = {name: dtype for dtype, name in LAYOUTS.items()}
REPORT = 64  # bytes after a packed weight
PLUGIN = "SPARSE24_CUDA_PLUGIN"


def layout_of(dtype: torch.dtype) -> str:
    """The layout of a GPU's weights of a dtype. Raises TypeError."""
    if dtype not in LAYOUTS:
        raise TypeError(f"{dtype} on cuda: expected {', '.join(map(str, LAYOUTS))}")
    return LAYOUTS[dtype]


def result_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a product of inputs of one."""
    return torch.int32 if dtype is torch.int8 else dtype


@functools.cache
def bytes_of(layout: str, n: int, k: int) -> int:
    """Bytes of [n, k] in a layout of a GPU, its report included; 0 if there is none."""
    size = _core.order_bytes("hopper", layout.partition("-")[2], n, k)
    return size + REPORT if size else 0


@functools.cache
def device(index: int):
    """The library's device; the plugin lies next to it, or where SPARSE24_CUDA_PLUGIN says."""
    with torch.cuda.device(index):
        torch.cuda.current_stream(index)
        return _core.device_open(f"cuda:{index}", os.environ.get(PLUGIN))


def stream_of(index: int) -> int:
    """PyTorch's current stream there."""
    return torch.cuda.current_stream(index).cuda_stream


# The same in a tenth of the time, where PyTorch is built with CUDA.
stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", stream_of)
current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def there(function):
    """A function of tensors, run with its first one's GPU as the current one."""
    @functools.wraps(function)
    def run(first, *args, **kwargs):
        index = first.device.index
        if index == current_device():
            return function(first, *args, **kwargs)
        with torch.cuda.device(index):
            return function(first, *args, **kwargs)
    return run


def _place(packed: torch.Tensor, n: int, k: int, layout: str) -> tuple:
    index = packed.device.index
    return (device(index), stream_of(index), packed.data_ptr(), layout.split("-")[1], n, k)


def _room(like: torch.Tensor, n: int, k: int, layout: str) -> torch.Tensor:
    """Memory for a packed weight; rows that pad its last slab are zeros."""
    new = like.new_zeros if n % 64 else like.new_empty
    return new(bytes_of(layout, n, k), dtype=torch.uint8)


def _aligned(packed: torch.Tensor) -> torch.Tensor:
    return packed.clone() if packed.data_ptr() % 256 else packed


def _operand(x: torch.Tensor, rows: int, cols: int, ld: int) -> tuple:
    return (x.data_ptr(), NAMES[x.dtype], rows, cols, ld)


def flat(x: torch.Tensor) -> tuple:
    """A tensor without gaps by its address, as a row."""
    return _operand(x, 1, x.numel(), x.numel())


def _rows(x: torch.Tensor, cols: int) -> tuple[torch.Tensor, int]:
    """x [..., cols] as rows that start at multiples of 16 bytes: what holds them, and how far
    apart they are; a copy if it must be."""
    piece = 16 // x.element_size()
    if x.data_ptr() % 16 == 0:
        if cols % piece == 0 and x.is_contiguous():
            return x, cols
        if x.dim() == 2 and x.stride(1) == 1 and x.stride(0) % piece == 0 and x.stride(0) >= cols:
            return x, x.stride(0)
    wide = cols + -cols % piece
    copy = x.new_empty(x.numel() // cols, wide)
    copy[:, :cols] = x.reshape(-1, cols)
    return copy, wide


def _dense(w: torch.Tensor) -> tuple[torch.Tensor, tuple]:
    if w.dim() != 2:
        raise ValueError(f"w has {w.dim()} dimensions, expected 2")
    layout_of(w.dtype)
    w = w.contiguous()
    return w, _operand(w, *w.shape, w.shape[1])


@there
def prune_pack(w, select, seed=0):
    """Packed bytes of w."""
    w, source = _dense(w)
    layout = layout_of(w.dtype)
    packed = _room(w, *w.shape, layout)
    _core.device_pack(_place(packed, *w.shape, layout), 0, source, select, seed)
    return packed


@there
def prune_pack_pair(w, select):
    """Packed bytes of w and of its transpose."""
    w, source = _dense(w)
    (n, k), layout = w.shape, layout_of(w.dtype)
    packed, turned = _room(w, n, k, layout), _room(w, k, n, layout)
    _core.device_pack(_place(packed, n, k, layout), turned.data_ptr(), source, select, 0)
    return packed, turned


@there
def to_dense(packed, n, k, layout, dtype):
    """The weight with its zeros."""
    if packed.numel() != bytes_of(layout, n, k):
        raise ValueError(f"packed has {packed.numel()} bytes; expected {bytes_of(layout, n, k)} of "
                         f"[{n}, {k}] in {layout}")
    packed, out = _aligned(packed), packed.new_empty(n, k, dtype=dtype)
    _core.device_to_dense(_place(packed, n, k, layout), _operand(out, n, k, k))
    return out


def _check(x, packed, k, size, expected):
    if size != k or packed.numel() != expected:
        raise ValueError(f"x is {list(x.shape)}, packed has {packed.numel()} bytes; expected "
                         f"{k} elements along the sum and {expected} bytes")
    if packed.device != x.device:
        raise ValueError(f"x is on {x.device} and the weight on {packed.device}")


def check_vectors(device: torch.device, **vectors) -> None:
    """Of each (tensor or None, elements): as many, and on the device? Raises ValueError."""
    for name, (vector, count) in vectors.items():
        if vector is not None and (vector.numel() != count or vector.device != device):
            raise ValueError(f"{name} is {list(vector.shape)} on {vector.device}; expected {count} "
                             f"elements on {device}")


def _multiply(x, packed, bias, shape, scales=(None, None), y_dtype=None):
    """y of its dtype (x's by default, of integers their exact sums); x has the weight's dtype and
    (n, k, layout) is shape."""
    n, k, layout = shape
    _check(x, packed, k, x.shape[-1] if x.dim() else 0, bytes_of(layout, n, k))
    y_dtype = y_dtype or result_of(x.dtype)
    piece = 16 // (2 if y_dtype in (torch.float16, torch.bfloat16) else 4)
    wide, m = n + -n % piece, x.numel() // k
    check_vectors(x.device, bias=(bias, n), x_scale=(scales[0], m), scale=(scales[1], n))
    out = x.new_empty((*x.shape[:-1], n) if wide == n else (m, wide), dtype=y_dtype)
    if m:
        x, ld = _rows(x, k)
        packed = _aligned(packed)
        if bias is not None:
            bias = bias.to(torch.float32 if y_dtype is torch.int32 else y_dtype).contiguous()
        addresses = [0 if t is None else t.data_ptr() for t in (bias, *scales)]
        _core.device_linear(_place(packed, n, k, layout), _operand(out, m, n, wide),
                            _operand(x, m, k, ld), *addresses, False)
    return out if wide == n else out[:, :n].contiguous()


@functools.cache
def _plain_size(layout: str, dtype: torch.dtype, n: int, k: int) -> tuple[str, int] | None:
    """Of a product whose rows all start at multiples of 16 bytes: the dtype's name, and the bytes
    of the weight. Else None."""
    if dtype is not DTYPES.get(layout) or dtype.itemsize != 2 or n % 8 or k % 8:
        return None
    return NAMES[dtype], bytes_of(layout, n, k)


def linear(x, packed, bias, n, k, layout, dtype):
    """x times the packed weight of `dtype`, of x's dtype. What lies as it must goes straight
    on."""
    plain, at, index = _plain_size(layout, x.dtype, n, k), x.data_ptr(), x.get_device()
    if (plain is None or not x.dim() or x.shape[-1] != k or not x.is_contiguous() or at % 16
            or not x.numel() or packed.numel() != plain[1] or packed.get_device() != index
            or index != current_device()
            or bias is not None and (bias.dtype is not x.dtype or not bias.is_contiguous()
                                     or bias.numel() != n or bias.get_device() != index)):
        return _linear(x, packed, bias, n, k, layout, dtype)
    weight = packed.data_ptr()
    if weight % 256:
        return _linear(x, packed, bias, n, k, layout, dtype)
    out = x.new_empty(*x.shape[:-1], n)
    _core.device_product(device(index), stream_of(index), out.data_ptr(), at, weight,
                         0 if bias is None else bias.data_ptr(), plain[0], x.numel() // k, n, k)
    return out


@there
def _linear(x, packed, bias, n, k, layout, dtype):
    shape, lead = (n, k, layout), x.shape[:-1]
    if x.dtype is dtype:
        return _multiply(x, packed, bias, shape).view(*lead, n)
    y = _multiply(x.to(dtype), packed, bias, shape, y_dtype=torch.float32)
    return y.to(x.dtype).view(*lead, n)


@there
def columns(packed, x, n, k, layout, dtype):
    """The packed weight times x [k, m], of x's dtype."""
    if (x.dtype is not dtype or dtype.itemsize != 2 or x.dim() != 2 or x.shape[1] % 8
            or x.shape[1] == 0):
        return linear(x.t(), packed, None, n, k, layout, dtype).t().contiguous()
    _check(x, packed, k, x.shape[0], bytes_of(layout, n, k))
    m = x.shape[1]
    x, ld = _rows(x, m)
    packed, out = _aligned(packed), x.new_empty(n, m)
    _core.device_linear(_place(packed, n, k, layout), _operand(out, n, m, m),
                        _operand(x, k, m, ld), 0, 0, 0, True)
    return out


@there
def scaled_linear(x, packed, scale, bias, n, k, layout, dtype):
    """Tokens of f16 or bf16 quantised to the weight's 8-bit dtype as they come, each by its largest
    magnitude, times the packed weight, whose outputs have a scale each."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return scaled_linear(x.bfloat16(), packed, scale, bias, n, k, layout, dtype).to(x.dtype)
    lead, m, index = x.shape[:-1], x.numel() // k if k else 0, x.device.index
    if not m:
        return x.new_empty(*lead, n)
    if k % 16:
        raise ValueError(f"{k} inputs of 8 bits on cuda: expected a multiple of 16")
    x, ld = _rows(x, k)
    narrow, factors = x.new_empty(m, k, dtype=dtype), x.new_empty(m, dtype=torch.float32)
    _core.device_quantise(device(index), stream_of(index), _operand(narrow, m, k, k),
                          factors.data_ptr(), _operand(x, m, k, ld))
    y = _multiply(narrow, packed, bias, (n, k, layout), (factors, scale), x.dtype)
    return y.view(*lead, n)


@there
def mask(w, select):
    """What `select` keeps of w [n, k], bool."""
    w = w.contiguous()
    index, kept = w.device.index, torch.empty(w.shape, dtype=torch.bool, device=w.device)
    work = torch.empty(REPORT, dtype=torch.uint8, device=w.device)
    n, k = w.shape
    _core.device_mask(device(index), stream_of(index), kept.data_ptr(), _operand(w, n, k, k),
                      select, work.data_ptr())
    return kept
