# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.sparse24.*: pure functions of tensors.

A packed weight is a tensor of bytes in the order that its device's kernels read (a layout of
docs/format.md, section 4), which a product uses where it lies: nothing is made or kept between
calls. What it stands for, [n, k] of a dtype, goes along as numbers and the layout's name.
"""
from __future__ import annotations

import functools

import torch

from sparse24 import _core

from . import torch_cuda

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
_BYTES = {torch.uint8: "u8", torch.bool: "bool"}
# A layout's name holds its dtype: "rows16-bf16-pairs", "hopper-e4m3".
_DTYPE_OF = {name: dtype for dtype, name in {**DTYPES, **torch_cuda.NAMES}.items()}

_library = torch.library.Library("sparse24", "DEF")
_library.define("prune_pack(Tensor w, str select, int seed=0) -> Tensor")
_library.define("prune_pack_pair(Tensor w, str select) -> (Tensor, Tensor)")
_library.define("to_dense(Tensor packed, int n, int k, str layout) -> Tensor")
# An operator with gradients costs more than one without, wanted or not: `product` calls the latter
# where it may.
for _name in ("linear", "linear_forward"):
    _library.define(f"{_name}(Tensor x, Tensor packed, Tensor? bias, int n, int k, str layout) "
                    "-> Tensor")
_library.define("columns(Tensor packed, Tensor x, int n, int k, str layout) -> Tensor")
_library.define("scaled_linear(Tensor x, Tensor packed, Tensor scale, Tensor? bias, int n, int k, "
                "str layout) -> Tensor")
_library.define("mm(Tensor packed, Tensor x, int n, int k, str layout) -> Tensor")
_library.define("addmm(Tensor input, Tensor packed, Tensor x, int n, int k, str layout, *, "
                "Scalar beta=1, Scalar alpha=1) -> Tensor")
_library.define("training_linear(Tensor x, Tensor w, Tensor? bias, str select) -> "
                "(Tensor, Tensor)")
_ops = torch.ops.sparse24


@functools.cache
def layout_of(dtype: torch.dtype, device: str = "cpu") -> str:
    """The layout of this machine's kernels for weights of a dtype on a type of device. Raises
    TypeError (a dtype that it has not), NotImplementedError (another device)."""
    if device == "cuda":
        return torch_cuda.layout_of(dtype)
    if device != "cpu":
        raise NotImplementedError(f"2:4 weights on {device}")
    if dtype not in DTYPES:
        raise TypeError(f"{dtype}: expected {', '.join(map(str, DTYPES))}")
    layout = _core.layout_of(DTYPES[dtype])
    if layout is None:
        raise _core.Error(f"this CPU's kernels have no layout of {dtype}")
    return layout


@functools.cache
def dtype_of(layout: str) -> torch.dtype:
    """The dtype of a layout's weights. Raises ValueError."""
    name = (layout.split("-") + [""])[1]
    if name not in _DTYPE_OF:
        raise ValueError(f"layout {layout!r}: expected one as rows16-f32 or hopper-f16")
    return _DTYPE_OF[name]


@functools.cache
def bytes_of(layout: str, n: int, k: int) -> int:
    """Bytes of [n, k] in a layout; 0 if there is none."""
    if layout.startswith("hopper"):
        return torch_cuda.bytes_of(layout, n, k)
    return _core.order_bytes(layout, "f32", n, k)


@functools.cache
def takes_bf16(layout: str) -> bool:
    """May x and y be bf16?"""
    if dtype_of(layout) is not torch.bfloat16:
        return False
    w = torch.zeros(16, 64, dtype=torch.bfloat16)
    matrix = _core.matrix_create(operand(w), "strict", None, None, 0)
    return _core.plan_info(_core.plan_create(matrix, None, None), 1)[2]


def operand(x: torch.Tensor) -> tuple:
    """A tensor whose last dimension has no gaps, as the extension reads it; it must live on."""
    *lead, cols = x.shape
    name = DTYPES.get(x.dtype) or _BYTES.get(x.dtype)
    if name is None:
        raise TypeError(f"{x.dtype} on cpu: expected {', '.join(map(str, (*DTYPES, *_BYTES)))}")
    rows = x.numel() // cols if cols else 0
    ld = x.stride(-2) if len(lead) == 1 and rows > 1 else cols
    return (x.data_ptr(), name, rows, cols, ld)


def _plain(x: torch.Tensor) -> torch.Tensor:
    """x as rows whose elements stand side by side; a copy if it must be."""
    if x.dim() == 2 and x.stride(1) == 1 and x.stride(0) >= x.shape[1]:
        return x
    return x.contiguous()


def _create(w: torch.Tensor, select: str, seed: int = 0):
    if w.dim() != 2:
        raise ValueError(f"w has {w.dim()} dimensions, expected 2")
    layout_of(w.dtype)
    w = _plain(w)
    return _core.matrix_create(operand(w), select, None, None, seed)


def _laid_out(handle, n: int, k: int, layout: str) -> torch.Tensor:
    packed = torch.empty(bytes_of(layout, n, k), dtype=torch.uint8)
    _core.matrix_to_order(layout, handle, operand(packed), None)
    return packed


def _prune_pack(w, select, seed=0):
    handle = _create(w, select, seed)
    return _laid_out(handle, *w.shape, layout_of(w.dtype))


def _prune_pack_pair(w, select):
    if w.dim() != 2:
        raise ValueError(f"w has {w.dim()} dimensions, expected 2")
    layout, w = layout_of(w.dtype), _plain(w)
    one, two = _core.matrix_create_pair(operand(w), select, None, None, 0)
    n, k = w.shape
    return _laid_out(one, n, k, layout), _laid_out(two, k, n, layout)


def _to_dense(packed, n, k, layout):
    out = torch.empty(n, k, dtype=dtype_of(layout))
    handle = _core.matrix_from_order(layout, operand(packed), None,
                                     DTYPES[dtype_of(layout)], n, k)
    _core.matrix_to_dense(handle, operand(out))
    return out


def _linear(x, packed, bias, n, k, layout):
    if bias is not None and bias.numel() != n:
        torch_cuda.check_vectors(x.device, bias=(bias, n))
    if not x.dim() or x.shape[-1] != k or packed.numel() != bytes_of(layout, n, k):
        raise ValueError(f"x is {list(x.shape)}, packed has {packed.numel()} bytes; expected "
                         f"[..., {k}] and {bytes_of(layout, n, k)} bytes")
    dtype = x.dtype
    same = dtype is torch.float32 or (dtype is torch.bfloat16 and takes_bf16(layout))
    x = x.contiguous() if same else x.float().contiguous()
    out = x.new_empty(*x.shape[:-1], n)
    if out.numel():
        if packed.data_ptr() % 64:
            packed = packed.clone()  # PyTorch's own memory is aligned, a file's is not
        if bias is not None:
            bias = bias.float().contiguous()
        _core.linear_in_place(out.data_ptr(), x.data_ptr(), packed.data_ptr(),
                              0 if bias is None else bias.data_ptr(), DTYPES[x.dtype], layout,
                              x.numel() // k, n, k)
    return out if same else out.to(dtype)


def _columns(packed, x, n, k, layout):
    return _linear(x.t(), packed, None, n, k, layout).t().contiguous()


def select_mask(w: torch.Tensor, select: str) -> torch.Tensor:
    """What "magnitude" or a rule of tiles ("tile-best" …) keeps of w [n, k], bool."""
    w = w.detach().contiguous()
    if w.is_cuda:
        return torch_cuda.mask(w, select)
    kept = torch.empty(w.shape, dtype=torch.bool)
    if select == "magnitude":
        _core.magnitude_mask(operand(kept), operand(w), False)
    else:
        _core.tile_mask(operand(kept), operand(w), select.removeprefix("tile-"), False)
    return kept


def _mm(packed, x, n, k, layout):
    return _ops.columns(packed, x, n, k, layout)


def _addmm(input, packed, x, n, k, layout, *, beta=1, alpha=1):  # pylint: disable=redefined-builtin
    return torch.add(beta * input, _mm(packed, x, n, k, layout), alpha=alpha)


def _training_linear(x, w, bias, select):
    packed, transposed = _prune_pack_pair(w.to(x.dtype), select)
    return _linear(x, packed, bias, *w.shape, layout_of(x.dtype)), transposed


def _cuda_training_linear(x, w, bias, select):
    packed, transposed = torch_cuda.prune_pack_pair(w.to(x.dtype), select)
    n, k = w.shape
    y = torch_cuda.linear(x, packed, bias, n, k, layout_of(x.dtype, "cuda"), x.dtype)
    return y, transposed


def _cuda(function):
    """An operator of torch_cuda that is told the weight's dtype as well."""
    def run(*args):
        return function(*args, dtype_of(args[-1]))
    return run


def _cuda_linear(x, packed, bias, n, k, layout):
    return torch_cuda.linear(x, packed, bias, n, k, layout, dtype_of(layout))
for _name, _cpu, _there in (
        ("prune_pack", _prune_pack, torch_cuda.prune_pack),
        ("prune_pack_pair", _prune_pack_pair, torch_cuda.prune_pack_pair),
        ("to_dense", _to_dense, _cuda(torch_cuda.to_dense)), ("linear", _linear, _cuda_linear),
        ("linear_forward", _linear, _cuda_linear),
        ("columns", _columns, _cuda(torch_cuda.columns)),
        ("training_linear", _training_linear, _cuda_training_linear)):
    _library.impl(_name, _cpu, "CPU")
    _library.impl(_name, _there, "CUDA")
_library.impl("scaled_linear", _cuda(torch_cuda.scaled_linear), "CUDA")
for _name, _function in (("mm", _mm), ("addmm", _addmm)):
    _library.impl(_name, _function, "CompositeImplicitAutograd")


# ---- what the compiler may know without data

def _packed_like(w, n, k):
    # int: a weight's shape is a constant to the compiler.
    layout = layout_of(w.dtype, w.device.type)
    return w.new_empty(bytes_of(layout, int(n), int(k)), dtype=torch.uint8)


@torch.library.register_fake("sparse24::prune_pack", lib=_library)
def _(w, select, seed=0):
    return _packed_like(w, *w.shape)


@torch.library.register_fake("sparse24::prune_pack_pair", lib=_library)
def _(w, select):
    n, k = w.shape
    return _packed_like(w, n, k), _packed_like(w, k, n)


@torch.library.register_fake("sparse24::to_dense", lib=_library)
def _(packed, n, k, layout):
    return packed.new_empty(n, k, dtype=dtype_of(layout))


@torch.library.register_fake("sparse24::linear", lib=_library)
@torch.library.register_fake("sparse24::linear_forward", lib=_library)
def _(x, packed, bias, n, k, layout):
    return x.new_empty(*x.shape[:-1], n, dtype=torch_cuda.result_of(x.dtype))


@torch.library.register_fake("sparse24::columns", lib=_library)
def _(packed, x, n, k, layout):
    return x.new_empty(n, x.t().shape[0], dtype=torch_cuda.result_of(x.dtype))


@torch.library.register_fake("sparse24::scaled_linear", lib=_library)
def _(x, packed, scale, bias, n, k, layout):
    return x.new_empty(*x.shape[:-1], n)


@torch.library.register_fake("sparse24::training_linear", lib=_library)
def _(x, w, bias, select):
    n, k = w.shape
    return x.new_empty(*x.shape[:-1], n), _packed_like(x, k, n)


# ---- gradients

def _keep_linear(ctx, inputs, output):
    _, packed, bias, n, k, layout = inputs
    ctx.save_for_backward(packed)
    ctx.shape, ctx.bias = (n, k, layout), None if bias is None else bias.dtype


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _bias_gradient(grad, dtype):
    return None if dtype is None else _rows(grad).sum(0).to(dtype)


def _linear_backward(ctx, grad):
    packed, = ctx.saved_tensors
    grad_x = None
    if ctx.needs_input_grad[0]:
        grad_x = grad @ _ops.to_dense(packed, *ctx.shape).to(grad.dtype)
    return grad_x, None, _bias_gradient(grad, ctx.bias), None, None, None


def _keep_columns(ctx, inputs, output):
    packed, _, n, k, layout = inputs
    ctx.save_for_backward(packed)
    ctx.shape = (n, k, layout)


def _columns_backward(ctx, grad):
    packed, = ctx.saved_tensors
    return None, _ops.to_dense(packed, *ctx.shape).to(grad.dtype).t() @ grad, None, None, None


def _keep_training(ctx, inputs, output):
    x, w, bias, _ = inputs
    ctx.save_for_backward(x, output[1])
    ctx.shape, ctx.dtype = tuple(w.shape), w.dtype
    ctx.bias = None if bias is None else bias.dtype


def _training_backward(ctx, grad, _):
    x, transposed = ctx.saved_tensors
    n, k = ctx.shape
    grad_x = grad_w = None
    if ctx.needs_input_grad[0]:
        layout = layout_of(x.dtype, x.device.type)
        grad_x = _ops.linear(grad, transposed, None, k, n, layout)
    if ctx.needs_input_grad[1]:
        grad_w = (_rows(grad).t() @ _rows(x)).to(ctx.dtype)
    return grad_x, grad_w, _bias_gradient(grad, ctx.bias), None


torch.library.register_autograd("sparse24::linear", _linear_backward, setup_context=_keep_linear,
                                lib=_library)
torch.library.register_autograd("sparse24::columns", _columns_backward,
                                setup_context=_keep_columns, lib=_library)
torch.library.register_autograd("sparse24::training_linear", _training_backward,
                                setup_context=_keep_training, lib=_library)


# torch.func (grad, vjp, jacrev …) takes no gradient that is an operator's: people's functions below
# give it these.

class _LinearFunction(torch.autograd.Function):
    generate_vmap_rule = True
    backward = staticmethod(_linear_backward)

    @staticmethod
    def forward(*args):  # pylint: disable=arguments-differ
        return _ops.linear_forward(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep_linear(ctx, inputs, output)
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx, x, _packed, bias, *_):  # pylint: disable=arguments-differ
        packed, = ctx.saved_tensors
        return _ops.linear_forward(x, packed, bias, *ctx.shape)


class _TrainingFunction(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context, backward = staticmethod(_keep_training), staticmethod(_training_backward)

    @staticmethod
    def forward(*args):  # pylint: disable=arguments-differ
        return _ops.training_linear(*args)


def _in_torch_func() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


# ---- under autocast tokens, weights that are not packed and biases have its dtype, as F.linear's

def autocast(name: str, cast: int = 8) -> None:
    """Gives an operator its rule: its first `cast` arguments are cast where they are floats."""
    op = getattr(_ops, name).default

    def run(device, *args):
        with torch.amp.autocast(device, enabled=False):
            dtype = torch.get_autocast_dtype(device)
            return op(*(a.to(dtype) if i < cast and _casts(a) else a for i, a in enumerate(args)))
    for device, key in (("cuda", "AutocastCUDA"), ("cpu", "AutocastCPU")):
        _library.impl(name, functools.partial(run, device), key)


def _casts(a) -> bool:
    return isinstance(a, torch.Tensor) and a.is_floating_point() and a.dtype is not torch.float64


for _name in ("linear", "linear_forward", "training_linear", "columns"):
    autocast(_name)


# ---- for people

def product(x, packed, bias, n, k, layout):
    """linear, through the operator without gradients where none is wanted."""
    if _in_torch_func():
        return _LinearFunction.apply(x, packed, bias, n, k, layout)
    wanted = torch.is_grad_enabled() and (x.requires_grad or
                                          bias is not None and bias.requires_grad)
    wanted = wanted or torch.jit.is_tracing()  # a trace is checked, and run, with and without
    op = _ops.linear if wanted else _ops.linear_forward
    return op(x, packed, bias, n, k, layout)


def prune_pack(w: torch.Tensor, select: str = "magnitude", seed: int = 0) -> torch.Tensor:
    """The packed bytes of w [n, k], chosen as Matrix.from_dense says: of f32, bf16 or f16 on the
    CPU, on CUDA of bf16 or f16, or of int8 or float8_e4m3fn strictly or by magnitude."""
    return _ops.prune_pack(w, select, seed)


def prune_pack_pair(w: torch.Tensor,
                    select: str = "tile-signed") -> tuple[torch.Tensor, torch.Tensor]:
    """From one selection the packed bytes of w and of its transpose."""
    return _ops.prune_pack_pair(w, select)


def linear(x: torch.Tensor, packed: torch.Tensor, n: int, k: int,
           bias: torch.Tensor | None = None, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """y [..., n] = x [..., k] times the packed w transposed, plus bias; of x's dtype. dtype: the
    weight's, if it is not x's. Gradients flow to x and bias."""
    return product(x, packed, bias, n, k, layout_of(dtype or x.dtype, x.device.type))


def training_linear(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None,
                    select: str = "tile-signed") -> torch.Tensor:
    """y = x·S(w)ᵀ + bias, where S makes w 2:4 along both sides, anew in each call. Backward the
    gradient of x is a 2:4 product too; that of w is dense and goes to all of w (straight
    through)."""
    call = _TrainingFunction.apply if _in_torch_func() else _ops.training_linear
    return call(x, w, bias, select)[0]
