"""Random nodes that sum: convolutions, matrix products, pools, reductions and normalisations."""

import math

import numpy as np
from elementwise import partner_shape
from graph import BOOL, F16, F32, F64, FLOATS, I8, I32, I64, U8


def weights(g, shape, dtype, terms):
    """Elements for a sum of `terms` products, small enough that the sum has about the magnitude of its operand.

    They are finite: the standard leaves open whether padding is multiplied with an infinite weight.
    """
    array = np.nan_to_num(g.array(shape, np.float64), nan=0.0, posinf=1.0, neginf=-1.0).clip(-4, 4)
    return (array / max(1.0, math.sqrt(terms)) if g.chance(0.7) else array).astype(dtype)


def summed(x, w, terms):
    """About the greatest magnitude of a sum of products."""
    return max(x.high * w.high * 2 * math.sqrt(terms), 1e-3)


class Window:
    """Kernel, strides, dilations and pads of a convolution or a pool over the axes behind the second."""

    def __init__(self, g, spatial, pool=False):
        rank = len(spatial)
        self.kernel = g.alike(g.kernels, rank)
        self.strides = g.alike(g.strides, rank)
        self.dilations = g.alike(g.dilations, rank)
        if g.chance(0.3):
            self.kernel, self.strides, self.dilations = [3] * rank, [1] * rank, [1] * rank
        self.ceil = int(pool and g.chance(0.35))
        self.auto = g.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]) if g.chance(0.12) and not self.ceil else None
        for axis, extent in enumerate(spatial):
            while self.dilations[axis] > 1 and self.covered(axis) > extent:
                self.dilations[axis] -= 1
            if self.covered(axis) > extent:
                self.kernel[axis] = g.rng.randint(1, extent)
        if self.auto and any(dilation > 1 for dilation in self.dilations):
            self.auto = None
        # A window that is padding alone is defined in no way.
        most = [self.kernel[axis] - 1 if pool else self.covered(axis) for axis in range(rank)]
        symmetric = [g.padding(bound) for bound in most]
        self.begins = symmetric if g.chance(0.7) else [0] * rank
        self.ends = symmetric if g.chance(0.5) else [g.padding(bound) for bound in most]
        if self.auto:
            self.begins = self.ends = [0] * rank
        self.output = [self.extent_of(axis, extent) for axis, extent in enumerate(spatial)]

    def covered(self, axis):
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def extent_of(self, axis, extent):
        stride = self.strides[axis]
        if self.auto in ("SAME_UPPER", "SAME_LOWER"):
            return -(-extent // stride)
        room = extent + self.begins[axis] + self.ends[axis] - self.covered(axis)
        if not self.ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        # The last window begins inside the tensor or its padding in front.
        return count - 1 if (count - 1) * stride >= extent + self.begins[axis] else count

    def attributes(self, g):
        plain = g.chance(0.5)
        ones = [1] * len(self.kernel)
        return {
            "kernel_shape": self.kernel,
            "strides": None if plain and self.strides == ones else self.strides,
            "dilations": None if plain and self.dilations == ones else self.dilations,
            "pads": None if self.auto or (plain and not any(self.begins + self.ends)) else self.begins + self.ends,
            "auto_pad": self.auto,
        }


def image(g, x):
    """`x` as a tensor with at least one axis behind the channels, made from leaves if it is none."""
    if x is not None and x.rank in (3, 4, 5) and x.size:
        return x
    return g.input(g.array(g.shape(g.rng.choice(g.image_ranks)), g.float if g.float != F64 else F32))


def groups_of(g, channels):
    """A number of groups and of output channels that is a multiple of it."""
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    group = g.rng.choice([1, 1, 1, channels, g.rng.choice(divisors)])
    per_group = g.extent(channel=True) if group == 1 else g.rng.choice([1, 1, 2, 3])
    return group, min(per_group * group, g.most_channels) // group * group or group


def conv(g, x):
    x = image(g, x)
    if x.dtype not in (F32, F16):
        return None
    channels, window = x.shape[1], Window(g, x.shape[2:])
    group, filters = groups_of(g, channels)
    shape = (x.shape[0], filters, *window.output)
    if math.prod(shape) > g.most_elements or any(extent < 1 for extent in window.output):
        return None
    terms = channels // group * math.prod(window.kernel)
    w = g.leaf(weights(g, (filters, channels // group, *window.kernel), x.dtype, terms))
    bias = g.leaf(g.array((filters,), x.dtype)) if g.chance(0.6) else None
    attributes = window.attributes(g) | {"group": group if group > 1 or g.chance(0.3) else None}
    return g.node("Conv", [x, w, bias], shape, attributes=attributes, high=summed(x, w, terms) + 3)


def conv_transpose(g, x):
    x = image(g, x)
    if x.dtype not in (F32, F16) or x.rank == 5:
        return None
    rank, channels = x.rank - 2, x.shape[1]
    kernel = g.alike(g.transposed_kernels, rank)
    strides = g.alike(g.transposed_strides, rank)
    dilations = g.alike(g.transposed_dilations, rank)
    covered = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    begins = [min(2, g.padding(c - 1)) for c in covered]
    ends = [min(2, g.padding(c - 1)) for c in covered]
    extra = [g.rng.randint(0, max(s, d) - 1) if g.chance(0.3) else 0 for s, d in zip(strides, dilations)]
    spatial = [
        s * (extent - 1) + e + c - b - t
        for s, extent, e, c, b, t in zip(strides, x.shape[2:], extra, covered, begins, ends)
    ]
    group, filters = groups_of(g, channels)
    shape = (x.shape[0], filters, *spatial)
    if math.prod(shape) > g.most_elements or min(spatial) < 1:
        return None
    terms = channels // group * math.prod(kernel)
    w = g.leaf(weights(g, (channels, filters // group, *kernel), x.dtype, terms))
    bias = g.leaf(g.array((filters,), x.dtype)) if g.chance(0.5) else None
    attributes = {
        "strides": strides, "dilations": dilations, "pads": begins + ends, "group": group,
        "output_padding": extra if any(extra) else None,
    }  # fmt: skip
    return g.node("ConvTranspose", [x, w, bias], shape, attributes=attributes, high=summed(x, w, terms) + 3)


def pool(g, x):
    x = image(g, x)
    op = g.rng.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    if x.dtype not in ((F32, F16, F64, U8, I8) if op == "MaxPool" else (F32,)) or (g.wild and op == "MaxPool"):
        return None
    if op == "MaxPool" and x.dtype not in (F32, F64, F16) and x.rank == 5:
        return None
    window = Window(g, x.shape[2:], pool=True)
    if op == "AveragePool" and g.opset < 19 or op == "LpPool" and g.opset < 18:
        window.dilations = [1] * len(window.kernel)
        window.output = [window.extent_of(axis, extent) for axis, extent in enumerate(x.shape[2:])]
    if op == "LpPool" and window.ceil and g.opset < 18:
        return None
    attributes = window.attributes(g) | {"ceil_mode": window.ceil or None}
    if op == "AveragePool" and g.opset < 19 or op == "LpPool" and g.opset < 18:
        attributes.pop("dilations")
    if op == "AveragePool":
        attributes["count_include_pad"] = g.rng.choice([None, 0, 1])
    if op == "LpPool":
        attributes["p"] = g.rng.choice([None, 1, 2, 3])
    shape = (*x.shape[:2], *window.output)
    high = x.high * (math.prod(window.kernel) if op == "LpPool" else 1)
    return g.node(op, [x], shape, attributes=attributes, high=high, exact=x.exact and op == "MaxPool")


def global_pool(g, x):
    x = image(g, x)
    if x.dtype != F32:
        return None
    op = g.rng.choice(["GlobalAveragePool", "GlobalMaxPool"])
    return g.node(op, [x], (*x.shape[:2], *(1 for _ in x.shape[2:])), exact=x.exact and op == "GlobalMaxPool")


def matmul(g, x):
    if not x.rank or x.dtype not in (*FLOATS, I32, I64):
        return None
    inner, batch = x.shape[-1], x.shape[:-2]
    if g.chance(0.1):
        right = (inner,)
    else:
        columns = g.extent(channel=True)
        lead = [extent if g.chance(0.5) else 1 for extent in batch] if g.chance(0.4) else []
        if x.rank < 4 and g.chance(0.1):
            lead = [g.rng.choice([2, 3])] + [1 if extent > 1 and g.chance(0.5) else extent for extent in batch]
        while lead and lead[0] == 1 and g.chance(0.5):
            lead = lead[1:]
        right = (*lead, inner, columns)
    try:
        shape = np.matmul(np.empty(x.shape, np.int8), np.empty(right, np.int8)).shape
    except ValueError:
        return None
    if math.prod(shape) > g.most_elements or math.prod(right) > g.most_elements:
        return None
    w = g.leaf(weights(g, right, x.dtype, inner) if x.is_float else g.array(right, x.dtype))
    if x.rank == 2 and len(right) == 2 and g.chance(0.15):
        # From the left: what was computed is the right operand.
        rows = g.extent()
        w = g.leaf(weights(g, (rows, x.shape[0]), x.dtype, x.shape[0]))
        return g.node("MatMul", [w, x], (rows, x.shape[1]), high=summed(x, w, x.shape[0]), exact=x.is_int)
    return g.node("MatMul", [x, w], shape, high=summed(x, w, inner) * (inner if x.is_int else 1), exact=x.is_int)


def gemm(g, x):
    if x.rank != 2 or x.dtype not in FLOATS:
        return None
    turned, turned_right = g.rng.choice([0, 0, 1]), g.rng.choice([0, 1])
    rows, inner = x.shape[::-1] if turned else x.shape
    columns = g.extent(channel=True)
    w = g.leaf(weights(g, (columns, inner) if turned_right else (inner, columns), x.dtype, inner))
    c = None
    if g.chance(0.75):
        c = g.rng.choice([(rows, columns), (columns,), (1, columns), (rows, 1), (1, 1), (1,), ()])
        c = g.leaf(g.array(c, x.dtype))
    attributes = {
        "transA": turned or None, "transB": turned_right or None,
        "alpha": g.rng.choice([None, None, 0.5, -1.5]), "beta": g.rng.choice([None, None, 2.0, -0.25, 0.0]),
    }  # fmt: skip
    high = summed(x, w, inner) * 1.5 + (2 * c.high if c else 0)
    return g.node("Gemm", [x, w, c], (rows, columns), attributes=attributes, high=high)


def quantized(g, x):
    """Integer convolutions and matrix products, with zero points and scales for each channel."""
    op = g.rng.choice(["QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger"])
    kind = x.dtype if x is not None and x.dtype in (U8, I8) else g.rng.choice([U8, U8, I8])
    conv = "Conv" in op
    if conv and kind == I8 and op == "ConvInteger":
        return None
    if x is None or x.dtype != kind or x.rank != (4 if conv else 2):
        shape = g.shape(4 if conv else 2)
        x = g.input(g.data.integers(*((0, 256) if kind == U8 else (-128, 128)), shape).astype(kind))
    # Wide enough for every sum: the standard leaves open what saturates.
    right = g.rng.choice([U8, I8]) if kind == U8 else I8
    window = Window(g, x.shape[2:]) if conv else None
    group, filters = groups_of(g, x.shape[1]) if conv else (1, g.extent(channel=True))
    wshape = (filters, x.shape[1] // group, *window.kernel) if conv else (x.shape[1], filters)
    shape = (x.shape[0], filters, *window.output) if conv else (x.shape[0], filters)
    if math.prod(shape) > g.most_elements or math.prod(wshape) > g.most_elements:
        return None
    w = g.constant(g.data.integers(*((0, 128) if right == U8 else (-64, 64)), wshape).astype(right))
    zero = g.leaf(np.asarray(g.rng.randint(100, 140) if kind == U8 else g.rng.randint(-5, 5), kind))
    each = conv and right == I8 and g.chance(0.5)
    wzero = np.zeros((filters,), right) if each else np.asarray(g.rng.choice([0, 3, 64]) if right == U8 else 0, right)
    wzero = g.constant(wzero)
    attributes = (window.attributes(g) | {"group": group}) if conv else {}
    if op.endswith("Integer"):
        known = {"dtype": I32, "high": 1e8, "exact": True}
        return g.node(op, [x, w, zero, wzero], shape, attributes=attributes, **known)
    terms = math.prod(wshape) / filters
    scale, wscale = (np.asarray(value, F32) for value in (0.02, 0.01))
    if each:
        wscale = g.data.uniform(0.005, 0.02, filters).astype(F32)
    yscale = np.asarray(0.02 * 0.01 * math.sqrt(terms) * 60, F32)
    yzero = np.asarray(g.rng.randint(100, 140) if kind == U8 else g.rng.randint(-5, 5), kind)
    operands = [x, g.constant(scale), zero, w, g.constant(wscale), wzero, g.constant(yscale), g.constant(yzero)]
    if conv and g.chance(0.5):
        operands.append(g.constant(g.data.integers(-9999, 9999, filters).astype(I32)))
    return g.node(op, operands, shape, attributes=attributes, dtype=kind, high=255.0)


def axes_of(g, x):
    return sorted(g.rng.sample(range(x.rank), g.rng.randint(1, x.rank)))


def reduce(g, x):
    ops = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
    op = g.rng.choice([*ops, "ReduceLogSumExp", "ReduceSum", "ReduceMean"])
    if not x.rank or x.dtype == BOOL:
        return None
    if x.dtype == F16 or x.dtype not in FLOATS:
        op = g.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"] if x.is_float else ["ReduceSum", "ReduceMax"])
        if x.dtype in (U8, I8):
            op = "ReduceMax"
    if g.wild and op in ("ReduceMax", "ReduceMin"):
        return None
    axes = axes_of(g, x)
    terms = math.prod(x.shape[axis] for axis in axes)
    if (op == "ReduceProd" and terms > 12) or (op == "ReduceLogSumExp" and x.high > 60):
        return None
    keep = g.rng.choice([0, 1])
    whole = g.chance(0.12)
    if whole:
        axes = list(range(x.rank))
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape) if keep or axis not in axes]
    given = [axis - x.rank * g.rng.randint(0, 1) for axis in axes]
    g.rng.shuffle(given)
    as_input = g.opset >= (13 if op == "ReduceSum" else 18)
    attributes = {"keepdims": keep if keep == 0 or g.chance(0.5) else None}
    operands = [x]
    if not whole:
        if as_input:
            operands.append(g.ints(given))
        else:
            attributes["axes"] = given
    high = {"ReduceProd": min(max(x.high, 1), 1e20) ** min(terms, 12), "ReduceSumSquare": x.high**2 * terms}.get(op, x.high * terms)
    if "Max" in op or "Min" in op or "Mean" in op:
        high = x.high
    if x.is_int and high > 1e8:
        return None
    exact = x.exact and op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1") and high < 200
    return g.node(op, operands, shape, attributes=attributes, high=high, exact=exact)


def arg_reduce(g, x):
    if not x.rank or x.dtype not in (F32, F64, I32) or g.wild or (not x.exact and g.chance(0.5)):
        return None
    axis, keep = g.rng.randrange(x.rank), g.rng.choice([0, 1])
    shape = [1 if a == axis else extent for a, extent in enumerate(x.shape) if keep or a != axis]
    attributes = {"axis": axis - x.rank * g.rng.randint(0, 1), "keepdims": keep}
    attributes["select_last_index"] = g.rng.choice([None, 0, 1])
    high = x.shape[axis]
    return g.node(g.rng.choice(["ArgMax", "ArgMin"]), [x], shape, attributes=attributes, dtype=I64, high=high, exact=True)


def scan_axis(g, x):
    if not x.rank or x.dtype not in (F32, F64, I32, I64):
        return None
    axis = g.rng.randrange(x.rank)
    attributes = {"exclusive": g.rng.choice([None, 1]), "reverse": g.rng.choice([None, 1])}
    index = g.constant(np.asarray(axis - x.rank * g.rng.randint(0, 1), g.rng.choice([I32, I64])))
    high = x.high * x.shape[axis]
    return g.node("CumSum", [x, index], x.shape, attributes=attributes, high=high, exact=x.is_int)


def softmax(g, x):
    if not x.rank or not x.is_float:
        return None
    op = g.rng.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"])
    if op == "Hardmax" and (x.dtype != F32 or not x.exact):
        return None
    axis = g.rng.randrange(x.rank)
    attributes = {"axis": axis - x.rank * g.rng.randint(0, 1)}
    return g.node(op, [x], x.shape, attributes=attributes, high=1.0 if op != "LogSoftmax" else x.high * 2 + 8)


def normalize(g, x):
    op = g.rng.choice(["BatchNormalization"] * 4 + ["InstanceNormalization", "LayerNormalization", "LRN",
                                                    "LpNormalization", "MeanVarianceNormalization"])  # fmt: skip
    if op in ("InstanceNormalization", "LRN"):
        x = image(g, x)
    if x.rank < 2 or x.dtype not in (F32, F16) or (x.dtype == F16 and op != "LayerNormalization" and op[0] != "B"):
        return None
    channels = x.shape[1]
    if op == "BatchNormalization":
        scale, bias, mean = (g.leaf(g.array((channels,), x.dtype)) for _ in range(3))
        variance = g.leaf(g.array((channels,), x.dtype, "positive"))
        high = (x.high + mean.high) * scale.high * 2 + bias.high
        attributes = {"epsilon": g.rng.choice([None, 1e-3])}
        return g.node(op, [x, scale, bias, mean, variance], x.shape, attributes=attributes, high=high)
    if op == "InstanceNormalization":
        scale, bias = (g.leaf(g.array((channels,), x.dtype)) for _ in range(2))
        return g.node(op, [x, scale, bias], x.shape, attributes={"epsilon": 1e-2}, high=scale.high * 8 + bias.high)
    if op == "LayerNormalization":
        if g.opset < 17:
            return None
        axis = g.rng.randrange(x.rank)
        shape = x.shape[axis:]
        scale = g.leaf(g.array(shape, x.dtype))
        bias = g.leaf(g.array(shape, x.dtype)) if g.chance(0.6) else None
        attributes = {"axis": axis - x.rank * g.rng.randint(0, 1), "epsilon": 1e-2}
        return g.node(op, [x, scale, bias], x.shape, attributes=attributes, high=scale.high * 8 + 3)
    if op == "LRN":
        if x.rank != 4:
            return None
        attributes = {"size": g.rng.choice([1, 3, 5]), "alpha": 0.1, "beta": 0.75, "bias": 1.0}
        return g.node(op, [x], x.shape, attributes=attributes)
    if op == "LpNormalization":
        attributes = {"axis": g.rng.randrange(x.rank), "p": g.rng.choice([1, 2])}
        return g.node(op, [x], x.shape, attributes=attributes, high=1.0)
    if x.rank != 4:
        return None
    return g.node(op, [x], x.shape, attributes={"axes": [0, 2, 3]} if g.chance(0.5) else {}, high=8.0)


def einsum(g, x):
    if x.dtype not in (F32, F64) or x.rank != 3:
        return None
    a, b, c = x.shape
    d = g.extent()
    equation, right, shape = g.rng.choice([
        ("abc,acd->abd", (a, c, d), (a, b, d)), ("abc,dc->abd", (d, c), (a, b, d)),
        ("abc,abc->ab", (a, b, c), (a, b)), ("abc->cab", None, (c, a, b)), ("abc,adc->abd", (a, d, c), (a, b, d)),
        ("abc,b->ac", (b,), (a, c)), ("abc->b", None, (b,)), ("abc,c->acb", (c,), (a, c, b)),
    ])  # fmt: skip
    if math.prod(shape) > g.most_elements or (right and math.prod(right) > g.most_elements):
        return None
    operands = [x] + ([g.leaf(weights(g, right, x.dtype, b * c))] if right else [])
    high = x.high * (operands[-1].high if right else 1) * math.sqrt(max(b * c, a * c)) * 2
    return g.node("Einsum", operands, shape, attributes={"equation": equation}, high=high)


FLOAT_OPS = [
    (conv, 6), (matmul, 6), (gemm, 4), (pool, 4), (global_pool, 1), (reduce, 6), (softmax, 2), (normalize, 4),
    (conv_transpose, 2), (einsum, 1), (arg_reduce, 0.7), (scan_axis, 0.7),
]  # fmt: skip
INT_OPS = [(reduce, 2), (matmul, 1), (arg_reduce, 0.5), (scan_axis, 0.7), (quantized, 2), (pool, 0.5)]
