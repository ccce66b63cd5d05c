"""Cases of ONNX Runtime's own operators."""

import numpy as np

DOMAIN = "com.microsoft"
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def family(name, variants):
    """Cases of one form: a function for each variant."""

    def add(function):
        for suffix, variant in variants.items():
            CASES[f"{name}_{suffix}"] = lambda c, variant=variant: function(c, **variant)
        return function

    return add


# Functions.

@family("fused_matmul", {
    "plain": dict(a=(3, 4), b=(4, 5)),
    "transposed": dict(a=(2, 4, 3), b=(2, 5, 4), transA=1, transB=1, alpha=0.5),
    "batch_of_a": dict(a=(3, 2, 4), b=(2, 4, 5), transBatchA=1),
    "batch_of_b": dict(a=(2, 3, 4), b=(4, 2, 5), transBatchB=1, alpha=2.0),
    "batch_and_matrix": dict(a=(4, 2, 6, 3), b=(2, 6, 4, 5), transA=1, transBatchA=1),
})
def fused_matmul(c, a, b, **attributes):
    c.node("FusedMatMul", [c.input(c.normal(*a)), c.constant(c.normal(*b))], **attributes)


@case
def transpose_matmul(c):
    c.node("TransposeMatMul", [c.input(c.normal(4, 3)), c.input(c.normal(4, 5))], transA=1, alpha=1.5)


@family("fused_conv", {
    "relu": dict(activation="Relu"),
    "leaky": dict(activation="LeakyRelu", activation_params=[0.2]),
    "clip": dict(activation="Clip", activation_params=[-0.5, 0.75], group=2),
    "hard_sigmoid": dict(activation="HardSigmoid", activation_params=[0.3, 0.4]),
    "tanh_sum": dict(activation="Tanh", total=True),
    "sigmoid_same": dict(activation="Sigmoid", auto_pad="SAME_UPPER", strides=[2, 2]),
})
def fused_conv(c, total=False, **attributes):
    weight = c.normal(6, 4 // attributes.get("group", 1), 3, 3)
    names = [c.input(c.normal(2, 4, 7, 6)), c.constant(weight), c.constant(c.normal(6))]
    if total:
        names.append(c.input(c.normal(2, 6, 7, 6)))
    if "auto_pad" not in attributes:
        attributes["pads"] = [1, 1, 1, 1]
    c.node("FusedConv", names, **attributes)


@family("fused_gemm", {
    "relu": dict(activation="Relu", transB=1, alpha=0.5),
    "leaky": dict(activation="LeakyRelu", activation_alpha=0.3, beta=0.25),
    "elu": dict(activation="Elu", activation_alpha=0.6),
    "sigmoid": dict(activation="Sigmoid"),
    "no_bias": dict(activation="Tanh", bias=False),
})
def fused_gemm(c, bias=True, **attributes):
    weight = c.normal(*((5, 4) if attributes.get("transB") else (4, 5)))
    names = [c.input(c.normal(3, 4)), c.constant(weight)]
    if bias:
        names.append(c.constant(c.normal(5)))
    c.node("FusedGemm", names, **attributes)


@case
def gelu(c):
    c.node("Gelu", [c.input(c.normal(3, 5, scale=2))])


@case
def bias_gelu(c):
    c.node("BiasGelu", [c.input(c.normal(2, 3, 5)), c.constant(c.normal(5))])


@case
def fast_gelu(c):
    c.node("FastGelu", [c.input(c.normal(2, 3, 5))])


@case
def fast_gelu_with_bias(c):
    c.node("FastGelu", [c.input(c.normal(2, 3, 5)), c.constant(c.normal(5))])


@case
def quick_gelu(c):
    c.node("QuickGelu", [c.input(c.normal(2, 3, 5))], alpha=1.3)


@case
def quick_gelu_by_default(c):
    c.node("QuickGelu", [c.input(c.normal(7))])


@case
def expand_dims(c):
    c.node("ExpandDims", [c.input(c.normal(2, 3)), c.constant(np.int32(-1))])


@case
def gather_nd(c):
    c.node("GatherND", [c.input(c.normal(2, 3, 4)), c.constant(np.array([[0, 2], [1, 1]], np.int64))])


@case
def pad(c):
    pads = c.constant(np.array([1, 0, 2, 1], np.int64))
    c.node("Pad", [c.input(c.normal(2, 3)), pads, c.constant(np.float32([1.5]))])


@case
def range_without_step(c):
    total = c.node("Range", [c.constant(np.float32(1)), c.constant(np.float32(6))], "r")
    c.node("Add", [c.input(c.normal(5)), total], domain="")


@case
def trilu(c):
    c.node("Trilu", [c.input(c.normal(4, 5)), c.constant(np.int64(1))], upper=0)


# Normalisation.

@family("skip_layer_norm", {
    "plain": dict(),
    "bias": dict(bias=True, epsilon=1e-5),
    "no_beta": dict(beta=False),
    "sum": dict(bias=True, total=True),
    "one_skip": dict(skip=(1, 3, 8)),
    "matrix_skip": dict(skip=(3, 8), total=True),
})
def skip_layer_norm(c, skip=(2, 3, 8), bias=False, beta=True, total=False, **attributes):
    names = [c.input(c.normal(2, 3, 8)), c.input(c.normal(*skip)), c.constant(c.normal(8))]
    names.append(c.constant(c.normal(8)) if beta else "")
    if bias:
        names.append(c.constant(c.normal(8)))
    c.node("SkipLayerNormalization", names, ["y", "", "", "sum"] if total else ["y"], **attributes)


@family("skip_simplified", {"plain": dict(), "bias_and_sum": dict(bias=True, total=True, epsilon=1e-6)})
def skip_simplified(c, bias=False, total=False, **attributes):
    names = [c.input(c.normal(2, 3, 8)), c.input(c.normal(2, 3, 8)), c.constant(c.normal(8))]
    if bias:
        names.append(c.constant(c.normal(8)))
    outputs = ["y", "", "", "sum"] if total else ["y"]
    c.node("SkipSimplifiedLayerNormalization", names, outputs, **attributes)


@family("embed_layer_norm", {
    "plain": dict(),
    "segments": dict(segments=True, mask=True, mask_index_type=1),
    "places": dict(segments=True, places=True, total=True, mask_index_type=0),
})
def embed_layer_norm(c, segments=False, mask=False, places=False, total=False, **attributes):
    ids = lambda most: c.random.integers(0, most, (2, 5)).astype(np.int32)
    names = [c.input(ids(11)), c.input(ids(2)) if segments else ""]
    names += [c.constant(c.normal(11, 8)), c.constant(c.normal(7, 8))]
    names += [c.constant(c.normal(2, 8)) if segments else "", c.constant(c.normal(8)), c.constant(c.normal(8))]
    names.append(c.input(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)) if mask else "")
    names.append(c.input(ids(7)) if places else "")
    outputs = ["y", "mask_index"] + (["sum"] if total else [])
    c.node("EmbedLayerNormalization", names, outputs, epsilon=1e-9, **attributes)


# Attention.

@family("attention", {
    "plain": dict(),
    "lengths": dict(mask=np.array([2, 4], np.int32)),
    "ends_and_starts": dict(mask=np.array([3, 4, 1, 0], np.int32)),
    "mask": dict(mask=np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32)),
    "cube_mask": dict(mask=np.tril(np.ones((2, 4, 4), np.int32))),
    "unidirectional": dict(unidirectional=1, scale=0.4),
    "past": dict(past=3, unidirectional=1),
    "sizes": dict(sizes=(8, 8, 12)),
    "bias": dict(bias=(2, 2, 4, 4), mask=np.array([3, 4], np.int32), mask_filter_value=-500.0),
    "shared_bias": dict(bias=(1, 2, 4, 4)),
})
def attention(c, mask=None, past=None, sizes=None, bias=None, **attributes):
    width = sum(sizes) if sizes else 24
    if sizes:
        attributes["qkv_hidden_sizes"] = list(sizes)
    names = [c.input(c.normal(2, 4, 6)), c.constant(c.normal(6, width)), c.constant(c.normal(width))]
    names.append("" if mask is None else c.input(mask))
    names.append("" if past is None else c.input(c.normal(2, 2, 2, past, 4)))
    names.append("" if bias is None else c.input(c.normal(*bias)))
    outputs = ["y"] if past is None else ["y", "present"]
    c.node("Attention", names, outputs, num_heads=2, **attributes)


@family("multi_head_attention", {
    "plain": dict(),
    "bias": dict(bias=True, scale=0.3),
    "lengths": dict(mask=np.array([2, 5], np.int32)),
    "mask": dict(mask=np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32), mask_filter_value=-800.0),
    "attention_bias": dict(attention_bias=(1, 2, 4, 5)),
    "past": dict(keys=4, past=3, present=True, bias=True),
    "heads": dict(cross=True),
    "unidirectional": dict(keys=4, unidirectional=1),
    "values": dict(value=12),
})
def multi_head_attention(
    c, keys=5, value=8, bias=False, mask=None, attention_bias=None, past=None, present=False, cross=False, **attributes
):
    names = [c.input(c.normal(2, 4, 8))]
    shapes = [(2, 2, keys, 4), (2, 2, keys, value // 2)] if cross else [(2, keys, 8), (2, keys, value)]
    names += [c.input(c.normal(*shape)) for shape in shapes]
    names.append(c.constant(c.normal(16 + value)) if bias else "")
    names.append("" if mask is None else c.input(mask))
    names.append("" if attention_bias is None else c.input(c.normal(*attention_bias)))
    names += ["", ""] if past is None else [c.input(c.normal(2, 2, past, 4)) for _ in range(2)]
    outputs = ["y", "key", "value"] if present else ["y"]
    c.node("MultiHeadAttention", names, outputs, num_heads=2, **attributes)


@family("group_query_attention", {
    "prompt": dict(length=4, total=4, ends=[3, 3]),
    "prompt_rotary": dict(length=4, total=4, ends=[3, 3], do_rotary=1),
    "packed": dict(length=4, total=4, ends=[3, 3], packed=True, do_rotary=1, rotary_interleaved=1),
    "step": dict(length=1, total=5, ends=[4, 4], past=4, do_rotary=1),
    "step_of_lengths": dict(length=1, total=5, ends=[4, 2], past=8, do_rotary=1),
    "window": dict(length=1, total=7, ends=[6, 6], past=6, local_window_size=3),
    "softcap": dict(length=4, total=4, ends=[3, 3], softcap=2.0, scale=0.7),
    "smooth": dict(length=4, total=4, ends=[3, 3], smooth_softmax=1),
    "sink": dict(length=4, total=4, ends=[3, 3], sink=True),
    "prompt_buffer": dict(length=4, total=4, ends=[3, 3], past=8, do_rotary=1),
    "bias": dict(length=4, total=4, ends=[3, 3], bias=(1, 1, 4, 4)),
    "places": dict(length=1, total=5, ends=[4, 4], past=4, do_rotary=1, places=True),
    "pieces": dict(batch=1, length=2, total=6, ends=[5], past=4, do_rotary=1),
})
def group_query_attention(
    c, length, total, ends, batch=2, past=0, packed=False, sink=False, bias=None, places=False, **attributes
):
    heads, kv_heads, size = 4, 2, 16
    q, kv = heads * size, kv_heads * size
    if packed:
        names = [c.input(c.normal(batch, length, q + 2 * kv)), "", ""]
    else:
        names = [c.input(c.normal(batch, length, width)) for width in (q, kv, kv)]
    names += [c.input(c.normal(batch, kv_heads, past, size)) for _ in range(2)]
    names += [c.input(np.array(ends, np.int32)), c.constant(np.int32(total))]
    if attributes.get("do_rotary"):
        angles = c.normal(12, size // 2)
        names += [c.constant(np.cos(angles)), c.constant(np.sin(angles))]
    else:
        names += ["", ""]
    names.append(c.input(c.random.integers(0, 12, (batch, length))) if places else "")
    names.append(c.input(c.normal(*bias)) if bias else "")
    names.append(c.constant(c.normal(heads)) if sink else "")
    c.node("GroupQueryAttention", names, ["y", "key", "value"], num_heads=heads, kv_num_heads=kv_heads, **attributes)


@family("rotary_embedding", {
    "offset": dict(x=(2, 3, 16), places=np.array([2], np.int64)),
    "places": dict(x=(2, 3, 16), places=np.array([[0, 1, 2], [4, 5, 3]], np.int64), interleaved=1),
    "heads": dict(x=(2, 2, 3, 8), places=np.array([[0, 1, 2], [4, 5, 3]], np.int64)),
    "part": dict(x=(2, 3, 16), places=np.array([0], np.int64), num_heads=2, rotary_embedding_dim=4, width=2),
})
def rotary_embedding(c, x, places, width=4, **attributes):
    angles = c.normal(8, width)
    names = [c.input(c.normal(*x)), c.input(places), c.constant(np.cos(angles)), c.constant(np.sin(angles))]
    c.node("RotaryEmbedding", names, **attributes)


# Quantised operators.

def scale(c, number, name=None):
    return c.constant(np.float32(number), name)


def zero(c, number, dtype=np.uint8):
    return c.constant(dtype(number))


@family("qlinear_average_pool", {
    "plain": dict(kernel_shape=[2, 2]),
    "padded": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=1),
    "signed": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], dtype=np.int8),
    "channels_last": dict(kernel_shape=[2, 2], channels_last=1),
})
def qlinear_average_pool(c, dtype=np.uint8, **attributes):
    names = [c.input(c.bytes(1, 4, 6, 5, dtype=dtype)), scale(c, 0.03), zero(c, 7, dtype)]
    c.node("QLinearAveragePool", [*names, scale(c, 0.0213), zero(c, 11, dtype)], **attributes)


@family("qlinear_global_average_pool", {"plain": dict(), "channels_last": dict(channels_last=1)})
def qlinear_global_average_pool(c, **attributes):
    names = [c.input(c.bytes(2, 3, 6, 5)), scale(c, 0.03), zero(c, 7)]
    c.node("QLinearGlobalAveragePool", [*names, scale(c, 0.0073), zero(c, 11)], **attributes)


@family("qlinear_leaky_relu", {"unsigned": dict(dtype=np.uint8), "signed": dict(dtype=np.int8, alpha=0.2)})
def qlinear_leaky_relu(c, dtype, **attributes):
    names = [c.input(c.bytes(40, dtype=dtype)), scale(c, 0.031), zero(c, 17, dtype)]
    c.node("QLinearLeakyRelu", [*names, scale(c, 0.023), zero(c, 5, dtype)], **attributes)


@case
def qlinear_sigmoid(c):
    names = [c.input(c.bytes(40)), scale(c, 0.031), zero(c, 117)]
    c.node("QLinearSigmoid", [*names, scale(c, 0.00391), zero(c, 0)])


@family("qlinear_softmax", {
    "last": dict(opset=13, axis=-1),
    "first": dict(opset=13, axis=0),
    "flat": dict(opset=11, axis=1),
})
def qlinear_softmax(c, **attributes):
    names = [c.input(c.bytes(2, 3, 5)), scale(c, 0.013), zero(c, 117)]
    # Of other scales ONNX Runtime takes the reciprocal as an integer.
    c.node("QLinearSoftmax", [*names, scale(c, 1 / 256), zero(c, 0)], **attributes)


@case
def qlinear_concat(c):
    names = [scale(c, 0.041), zero(c, 90)]
    for index, width in enumerate((2, 3, 1)):
        names += [c.input(c.bytes(2, width)), scale(c, 0.03 + 0.007 * index), zero(c, 100 + index)]
    c.node("QLinearConcat", names, axis=1)


@case
def qlinear_where(c):
    names = [c.input(c.random.random((3, 4)) < 0.5)]
    for number, shape in ((0.03, (3, 4)), (0.041, (4,))):
        names += [c.input(c.bytes(*shape)), scale(c, number), zero(c, 120)]
    c.node("QLinearWhere", [*names, scale(c, 0.037), zero(c, 99)])


@family("qlinear_conv", {"plain": dict(), "channels_last": dict(channels_last=1)})
def qlinear_conv(c, **attributes):
    x = c.bytes(1, 6, 5, 4) if attributes else c.bytes(1, 4, 6, 5)
    names = [c.input(x), scale(c, 0.02), zero(c, 120), c.constant(c.bytes(3, 4, 3, 3, dtype=np.int8))]
    names += [c.constant(np.float32([0.01, 0.02, 0.03])), c.constant(np.zeros(3, np.int8)), scale(c, 0.9), zero(c, 130)]
    c.node("QLinearConv", [*names, c.constant(np.int32([500, -300, 7]))], **attributes)


@family("qgemm", {
    "float": dict(),
    "bytes": dict(result=True, bias=True),
    "transposed": dict(transA=1, transB=1, alpha=0.5, result=True),
    "columns": dict(columns=True, bias=True, transB=1),
})
def qgemm(c, result=False, bias=False, columns=False, **attributes):
    a = c.bytes(*((6, 3) if attributes.get("transA") else (3, 6)))
    b = c.bytes(*((5, 6) if attributes.get("transB") else (6, 5)), dtype=np.int8)
    names = [c.input(a), scale(c, 0.02), zero(c, 120), c.constant(b)]
    numbers = np.float32([0.01, 0.02, 0.03, 0.01, 0.05])
    names += [c.constant(numbers) if columns else scale(c, 0.01)]
    names += [c.constant(np.zeros(5, np.int8)) if columns else zero(c, 3, np.int8)]
    names.append(c.constant(np.int32([500, -300, 7, 0, 11])) if bias else "")
    if result:
        names += [scale(c, 0.07), zero(c, 127)]
    c.node("QGemm", names, **attributes)


@family("dynamic_quantize_matmul", {
    "plain": dict(),
    "bias": dict(bias=True, zeros=True),
    "columns": dict(columns=True, bias=True),
})
def dynamic_quantize_matmul(c, bias=False, zeros=False, columns=False):
    names = [c.input(c.normal(2, 3, 6)), c.constant(c.bytes(6, 5, dtype=np.int8))]
    names.append(c.constant(np.float32([0.01, 0.02, 0.03, 0.01, 0.05])) if columns else scale(c, 0.01))
    names.append(zero(c, 4, np.int8) if zeros else "")
    names.append(c.constant(c.normal(5)) if bias else "")
    c.node("DynamicQuantizeMatMul", names)


@family("dynamic_quantize_lstm", {
    "plain": dict(),
    "columns": dict(columns=True, bias=True),
    "bidirectional": dict(directions=2, direction="bidirectional", bias=True, zeros=True),
    "states": dict(states=True, bias=True, peepholes=True),
    "long": dict(steps=20, bias=True),
})
def dynamic_quantize_lstm(
    c, directions=1, steps=5, columns=False, zeros=False, bias=False, states=False, peepholes=False, **attributes
):
    batch, elements, hidden = 3, 6, 4
    names = [c.input(c.normal(steps, batch, elements))]
    names += [c.constant(c.bytes(directions, rows, 4 * hidden, dtype=np.int8)) for rows in (elements, hidden)]
    names.append(c.constant(c.normal(directions, 8 * hidden)) if bias else "")
    names.append("")
    names += [c.input(c.normal(directions, batch, hidden)) for _ in range(2)] if states else ["", ""]
    names.append(c.constant(c.normal(directions, 3 * hidden)) if peepholes else "")
    shape = (directions, 4 * hidden) if columns else (directions,)
    for scale_of in (0.02, 0.01):
        names.append(c.constant((scale_of * (1 + np.arange(np.prod(shape)) % 3)).astype(np.float32).reshape(shape)))
        names.append(c.constant(np.full(shape, 4 if zeros else 0, np.int8)))
    c.node("DynamicQuantizeLSTM", names, ["y", "y_h", "y_c"], hidden_size=hidden, **attributes)


@family("matmul_integer_to_float", {
    "plain": dict(),
    "zeros": dict(zeros=True),
    "bias": dict(zeros=True, bias=True, columns=True),
})
def matmul_integer_to_float(c, zeros=False, bias=False, columns=False):
    names = [c.input(c.bytes(3, 6)), c.constant(c.bytes(6, 5))]
    names.append(c.constant(np.float32([0.02])))
    names.append(c.constant(np.float32([0.01, 0.02, 0.03, 0.01, 0.05]) if columns else np.float32([0.01])))
    names += [c.constant(np.uint8([100])), c.constant(np.uint8([120]))] if zeros else ["", ""]
    names.append(c.constant(c.normal(5)) if bias else "")
    c.node("MatMulIntegerToFloat", names)


@family("matmul_n_bits", {
    "four": dict(),
    "zeros": dict(zeros=True),
    "float_zeros": dict(float_zeros=True),
    "part_of_a_block": dict(k=40, bias=True, zeros=True),
    "eight": dict(bits=8, zeros=True),
    "two": dict(bits=2),
})
def matmul_n_bits(c, k=64, bits=4, zeros=False, float_zeros=False, bias=False):
    n, block = 5, 16
    blocks = -(-k // block)
    names = [c.input(c.normal(2, 3, k)), c.constant(c.bytes(n, blocks, block * bits // 8))]
    names.append(c.constant(c.normal(n * blocks, scale=0.1)))
    if zeros:
        names.append(c.constant(c.bytes(n * -(-blocks * bits // 8))))
    elif float_zeros:
        names.append(c.constant((c.normal(n * blocks) + 8).astype(np.float32)))
    if bias:
        names += [""] * (5 - len(names)) + [c.constant(c.normal(n))]
    c.node("MatMulNBits", names, K=k, N=n, bits=bits, block_size=block)


@family("qattention", {
    "plain": dict(),
    "lengths": dict(mask=np.array([2, 4], np.int32)),
    "past": dict(past=3, unidirectional=1),
})
def qattention(c, mask=None, past=None, **attributes):
    names = [c.input(c.bytes(2, 4, 6)), c.constant(c.bytes(6, 24, dtype=np.int8)), c.constant(c.normal(24))]
    names += [scale(c, 0.02), scale(c, 0.01), "" if mask is None else c.input(mask), zero(c, 120), zero(c, 0, np.int8)]
    if past is not None:
        names.append(c.input(c.normal(2, 2, 2, past, 4)))
    outputs = ["y"] if past is None else ["y", "present"]
    c.node("QAttention", names, outputs, num_heads=2, **attributes)


def by_standard(name, standard):
    """A case that ONNX Runtime has no kernel for on CPUs: a model of the standard's operators says what it computes."""

    def add(function):
        def with_equivalent(c):
            c.equivalent = standard
            function(c)

        CASES[name] = with_equivalent
        return function

    return add


def mean_of_numbers(c):
    scales = [scale(c, 0.03), zero(c, 7)], [scale(c, 0.0213), zero(c, 11)]
    c.node("DequantizeLinear", [c.input(c.bytes(2, 3, 5)), *scales[0]], "x", domain="")
    c.node("ReduceMean", ["x", c.constant(np.array([1]))], "mean", domain="", keepdims=1)
    c.node("QuantizeLinear", ["mean", *scales[1]], domain="")


@by_standard("qlinear_reduce_mean", mean_of_numbers)
def qlinear_reduce_mean(c):
    scales = [scale(c, 0.03), zero(c, 7)], [scale(c, 0.0213), zero(c, 11)]
    c.node("QLinearReduceMean", [c.input(c.bytes(2, 3, 5)), *scales[0], *scales[1]], axes=[1], keepdims=1)


def image_and_weights(c):
    return [c.input(c.normal(1, 6, 5, 4)), c.constant(c.normal(3, 4, 3, 3)), c.constant(c.normal(3))]


def conv_of_transposed(c, activation=False):
    image, *weights = image_and_weights(c)
    c.node("Transpose", [image], "image", domain="", perm=[0, 3, 1, 2])
    c.node("Conv", ["image", *weights], "conv", domain="", pads=[1, 1, 1, 1])
    last = c.node("Relu", ["conv"], "relu", domain="") if activation else "conv"
    c.node("Transpose", [last], domain="", perm=[0, 2, 3, 1])


@by_standard("nhwc_conv", conv_of_transposed)
def nhwc_conv(c):
    c.node("NhwcConv", image_and_weights(c), pads=[1, 1, 1, 1])


@by_standard("nhwc_fused_conv", lambda c: conv_of_transposed(c, activation=True))
def nhwc_fused_conv(c):
    c.node("NhwcFusedConv", image_and_weights(c), activation="Relu", pads=[1, 1, 1, 1])


def rows_and_weights(c):
    return [c.input(c.normal(2, 3, 8)), c.constant(c.normal(8)), c.constant(c.normal(8))]


@by_standard("layer_norm", lambda c: c.node("LayerNormalization", rows_and_weights(c), domain=""))
def layer_norm(c):
    c.node("LayerNormalization", rows_and_weights(c))


@case
def nhwc_max_pool(c):
    c.node("NhwcMaxPool", [c.input(c.bytes(1, 6, 5, 4))], kernel_shape=[2, 3], strides=[2, 1])


@case
def quantize_linear(c):
    c.node("QuantizeLinear", [c.input(c.normal(3, 4)), scale(c, 0.013), zero(c, 100)])


# What ONNX Runtime has in ONNX's own domain.

@case
def layer_norm_of_opset_11(c):
    c.opset = 11
    names = [c.input(c.normal(2, 3, 8)), c.constant(c.normal(8)), c.constant(c.normal(8))]
    c.node("LayerNormalization", names, domain="", axis=-1, epsilon=1e-3)


@case
def simplified_layer_norm(c):
    names = [c.input(c.normal(2, 3, 8)), c.constant(c.normal(8))]
    c.node("SimplifiedLayerNormalization", names, ["y", "inverse"], domain="", axis=-1, epsilon=1e-3, stash_type=1)


@case
def image_scaler(c):
    c.opset = 9
    c.node("ImageScaler", [c.input(c.normal(2, 3, 4, 5))], domain="", scale=0.5, bias=[0.1, -0.2, 0.3])


@family("crop", {"border": dict(border=[1, 2, 1, 0]), "scale": dict(border=[1, 2, 0, 0], scale=[3, 2])})
def crop(c, **attributes):
    c.opset = 9
    c.node("Crop", [c.input(c.normal(1, 2, 6, 7))], domain="", **attributes)


@case
def scaled_tanh(c):
    c.opset = 9
    c.node("ScaledTanh", [c.input(c.normal(3, 4))], domain="", alpha=1.2, beta=0.7)


@case
def parametric_softplus(c):
    c.opset = 9
    c.node("ParametricSoftplus", [c.input(c.normal(3, 4))], domain="", alpha=1.2, beta=0.7)


@case
def thresholded_relu_of_opset_9(c):
    c.opset = 9
    c.node("ThresholdedRelu", [c.input(c.normal(3, 4))], domain="", alpha=0.5)
