"""A network of random weights, while a generator writes it node by node."""

import zlib

import numpy as np
from onnx import helper, numpy_helper

# The name of the first dimension of inputs.
BATCH = "batch"


class Net:
    """An ONNX graph in the making. Values are their names; layers take a value and return one.

    Weights are normal, divided by the root of how many products a sum has, so that values keep their size from layer to
    layer. They and the inputs follow from the name of the model.
    """

    def __init__(self, name, opset=21):
        self.name, self.opset = name, opset
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.inputs, self.constants, self.feeds = [], [], [], {}

    def input(self, *shape, batch=True, classes=None, dtype=np.float32, name=None):
        """An input of this shape behind the batch: integers below `classes`, else normal numbers."""
        name = name or f"x{len(self.inputs)}"
        dims = [BATCH, *shape] if batch else list(shape)
        kind = np.dtype(np.int64) if classes else np.dtype(dtype)
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), dims))

        def feed(size):
            actual = [size, *shape] if batch else shape
            if classes:
                return self.random.integers(0, classes, actual)
            return self.random.standard_normal(actual).astype(kind)

        self.feeds[name] = feed
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def scalar(self, value):
        return self.constant(np.array(value, np.float32))

    def weight(self, *shape, fan=None):
        fan = fan or int(np.prod(shape[1:])) or 1
        return self.constant((self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def bias(self, size):
        return self.constant((self.random.standard_normal(size) * 0.1).astype(np.float32))

    def node(self, op, *inputs, outputs=1, domain="", **attributes):
        """The node's result, or a list of them."""
        names = [f"n{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    # Layers.

    def add(self, a, b):
        return self.node("Add", a, b)

    def mul(self, a, b):
        return self.node("Mul", a, b)

    def act(self, x, kind="Relu"):
        if kind == "Silu":
            return self.mul(x, self.node("Sigmoid", x))
        if kind == "Relu6":
            return self.node("Clip", x, self.scalar(0), self.scalar(6))
        if kind is None:
            return x
        return self.node(kind, x)

    def conv(self, x, inner, outer, kernel=3, stride=1, groups=1, dilation=1, act=None, bias=True, rank=2, pads=None):
        """Convolution that keeps sizes if the stride is 1."""
        kernel = kernel if isinstance(kernel, (tuple, list)) else [kernel] * rank
        pads = pads if pads is not None else [dilation * (k - 1) // 2 for k in kernel] * 2
        weights = [self.weight(outer, inner // groups, *kernel)] + ([self.bias(outer)] if bias else [])
        strides = stride if isinstance(stride, (tuple, list)) else [stride] * rank
        y = self.node(
            "Conv", x, *weights, kernel_shape=list(kernel), strides=list(strides), pads=pads, group=groups,
            dilations=[dilation] * rank,
        )
        return self.act(y, act)

    def conv_transpose(self, x, inner, outer, kernel=4, stride=2, pad=1, act=None, rank=2):
        weights = [self.weight(inner, outer, *[kernel] * rank, fan=inner * kernel), self.bias(outer)]
        y = self.node("ConvTranspose", x, *weights, strides=[stride] * rank, pads=[pad] * 2 * rank)
        return self.act(y, act)

    def batch_norm(self, x, channels, act=None):
        scale = (1 + 0.2 * self.random.standard_normal(channels)).astype(np.float32)
        variance = (0.5 + self.random.random(channels)).astype(np.float32)
        parts = [self.constant(scale), self.bias(channels), self.bias(channels), self.constant(variance)]
        return self.act(self.node("BatchNormalization", x, *parts), act)

    def conv_norm(self, x, inner, outer, kernel=3, act="Relu", **options):
        return self.batch_norm(self.conv(x, inner, outer, kernel, bias=False, **options), outer, act)

    def scale(self, size):
        return self.constant((1 + 0.1 * self.random.standard_normal(size)).astype(np.float32))

    def layer_norm(self, x, size):
        return self.node("LayerNormalization", x, self.scale(size), self.bias(size), axis=-1, epsilon=1e-5)

    def rms_norm(self, x, size):
        """Root mean square normalisation, as exporters spell it out."""
        mean = self.node("ReduceMean", self.node("Pow", x, self.scalar(2)), self.ints(-1), keepdims=1)
        root = self.node("Sqrt", self.add(mean, self.scalar(1e-5)))
        return self.mul(self.node("Div", x, root), self.scale(size))

    def group_norm(self, x, channels, groups, act=None):
        y = self.node("GroupNormalization", x, self.scale(channels), self.bias(channels), num_groups=groups, epsilon=1e-5)
        return self.act(y, act)

    def linear(self, x, inner, outer, act=None, bias=True):
        """On the last axis."""
        y = self.node("MatMul", x, self.weight(inner, outer, fan=inner))
        return self.act(self.add(y, self.bias(outer)) if bias else y, act)

    def dense(self, x, inner, outer, act=None):
        """On vectors, as a `Gemm`."""
        return self.act(self.node("Gemm", x, self.weight(outer, inner), self.bias(outer), transB=1), act)

    def pool(self, x, kind="MaxPool", kernel=2, stride=2, pad=0, rank=2, **attributes):
        return self.node(kind, x, kernel_shape=[kernel] * rank, strides=[stride] * rank, pads=[pad] * 2 * rank, **attributes)

    def head(self, x, channels, classes, softmax=False):
        """Global pooling and a linear layer on images."""
        x = self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)
        x = self.dense(x, channels, classes)
        return self.node("Softmax", x, axis=-1) if softmax else x

    def concat(self, *parts, axis=1):
        return self.node("Concat", *parts, axis=axis)

    def reshape(self, x, *shape):
        return self.node("Reshape", x, self.ints(*shape))

    def transpose(self, x, *perm):
        return self.node("Transpose", x, perm=list(perm))

    def slice(self, x, start, end, axis, step=1):
        return self.node("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))

    def split(self, x, *sizes, axis=-1):
        return self.node("Split", x, self.ints(*sizes), outputs=len(sizes), axis=axis)

    def mean(self, x, *axes, keepdims=0):
        return self.node("ReduceMean", x, self.ints(*axes), keepdims=keepdims)

    def resize(self, x, factor, mode="nearest", **attributes):
        scales = self.constant(np.array([1, 1, factor, factor], np.float32))
        return self.node("Resize", x, "", scales, mode=mode, **attributes)

    def embedding(self, tokens, count, size):
        return self.node("Gather", self.weight(count, size, fan=4), tokens, axis=0)

    def model(self, outputs):
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, [helper.make_empty_tensor_value_info(name) for name in outputs], self.constants
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
