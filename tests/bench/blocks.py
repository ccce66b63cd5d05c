"""Writes blocks that well-known networks are made of, each a model of its own with random weights.

    blocks.py DIR

`latency.py` measures them: DIR/*.onnx. What is slow here is slow in many networks.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)


class Block:
    """A model in the making. Values are names; methods return the name of what they compute."""

    def __init__(self):
        self.nodes, self.inputs, self.constants = [], [], []
        self.names = 0

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def input(self, *shape):
        name = self.name()
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, value):
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def number(self, value):
        return self.constant(np.float32(value))

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape):
        """Random numbers, as large as sums of that many products should be."""
        scale = max(np.prod(shape[1:]), 1) ** -0.5
        return self.constant((RANDOM.standard_normal(shape) * scale).astype(np.float32))

    def node(self, op, *operands, results=1, **attributes):
        names = [self.name() for _ in range(results)]
        self.nodes.append(helper.make_node(op, operands, names, **attributes))
        return names[0] if results == 1 else names

    def save(self, path, *outputs):
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, path.stem, self.inputs, outputs, self.constants)
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        onnx.save(model, path)

    def conv(self, x, channels, to, kernel=1, stride=1, groups=1, dilation=1):
        operands = [x, self.weight(to, channels // groups, kernel, kernel), self.weight(to)]
        border = [(kernel - 1) // 2 * dilation] * 4
        attributes = {"pads": border, "strides": [stride] * 2, "dilations": [dilation] * 2}
        return self.node("Conv", *operands, group=groups, **attributes)

    def relu(self, x):
        return self.node("Relu", x)

    def silu(self, x):
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x):
        erf = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        product = self.node("Mul", x, self.node("Add", erf, self.number(1)))
        return self.node("Mul", product, self.number(0.5))

    def norm(self, x, width):
        return self.node("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def dense(self, x, width, to):
        return self.node("Add", self.node("MatMul", x, self.weight(width, to)), self.weight(to))

    def reshape(self, x, *shape):
        return self.node("Reshape", x, self.integers(*shape))

    def transpose(self, x, *order):
        return self.node("Transpose", x, perm=order)

    def heads(self, x, rows, heads, width):
        return self.transpose(self.reshape(x, -1, rows, heads, width), 0, 2, 1, 3)

    def attention(self, q, k, v, width):
        """Of heads, axes 1 and 2 of the result changed back."""
        scaled = self.node("Mul", q, self.number(width**-0.5))
        scores = self.node("MatMul", scaled, self.transpose(k, 0, 1, 3, 2))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        return self.transpose(mixed, 0, 2, 1, 3)


def bottleneck(b, side, channels, groups, stride=1):
    """ResNeXt, RegNet."""
    x = b.input(1, channels, side, side)
    y = b.relu(b.conv(x, channels, channels))
    y = b.relu(b.conv(y, channels, channels, 3, stride, groups))
    y = b.conv(y, channels, channels)
    return b.relu(y if stride > 1 else b.node("Add", x, y))


def convnext(b, side, channels):
    x = b.input(1, channels, side, side)
    y = b.transpose(b.conv(x, channels, channels, 7, groups=channels), 0, 2, 3, 1)
    y = b.gelu(b.dense(b.norm(y, channels), channels, 4 * channels))
    y = b.node("Mul", b.dense(y, 4 * channels, channels), b.weight(channels))
    return b.node("Add", x, b.transpose(y, 0, 3, 1, 2))


def squeezed(b, side, channels, wide, kernel):
    """EfficientNet's inverted residual with squeeze and excitation."""
    x = b.input(1, channels, side, side)
    y = b.silu(b.conv(x, channels, wide))
    y = b.silu(b.conv(y, wide, wide, kernel, groups=wide))
    s = b.silu(b.conv(b.node("GlobalAveragePool", y), wide, channels // 4))
    y = b.node("Mul", y, b.node("Sigmoid", b.conv(s, channels // 4, wide)))
    return b.node("Add", x, b.conv(y, wide, channels))


def swin(b, side, channels, heads, window=7):
    x = b.input(1, side, side, channels)
    count, rows = side // window, window * window
    y = b.reshape(b.norm(x, channels), 1, count, window, count, window, channels)
    y = b.reshape(b.transpose(y, 0, 1, 3, 2, 4, 5), count * count, rows, channels)
    width = channels // heads
    q, k, v = [b.heads(b.dense(y, channels, channels), rows, heads, width) for _ in range(3)]
    y = b.reshape(b.attention(q, k, v, width), count * count, rows, channels)
    y = b.reshape(b.dense(y, channels, channels), 1, count, count, window, window, channels)
    y = b.reshape(b.transpose(y, 0, 1, 3, 2, 4, 5), 1, side, side, channels)
    y = b.node("Add", x, y)
    z = b.gelu(b.dense(b.norm(y, channels), channels, 4 * channels))
    return b.node("Add", y, b.dense(z, 4 * channels, channels))


def queries(b, rows, keys, channels, heads):
    """DETR's decoder looking at an image."""
    x, memory = b.input(1, rows, channels), b.input(1, keys, channels)
    width = channels // heads
    q = b.heads(b.dense(x, channels, channels), rows, heads, width)
    k, v = [b.heads(b.dense(memory, channels, channels), keys, heads, width) for _ in range(2)]
    y = b.reshape(b.attention(q, k, v, width), 1, rows, channels)
    return b.norm(b.node("Add", x, b.dense(y, channels, channels)), channels)


def gated(b, rows, width, wide):
    """Llama's feed-forward layer behind its norm."""
    x = b.input(1, rows, width)
    squares = b.node("ReduceMean", b.node("Pow", x, b.number(2)), axes=[-1])
    root = b.node("Sqrt", b.node("Add", squares, b.number(1e-6)))
    y = b.node("Mul", b.node("Div", x, root), b.weight(width))
    gate = b.silu(b.node("MatMul", y, b.weight(width, wide)))
    y = b.node("Mul", gate, b.node("MatMul", y, b.weight(width, wide)))
    return b.node("Add", x, b.node("MatMul", y, b.weight(wide, width)))


def split_stage(b, side, channels):
    """YOLOv8's C2f."""
    half = channels // 2
    y = b.silu(b.conv(b.input(1, channels, side, side), channels, channels))
    parts = b.node("Split", y, b.integers(half, half), axis=1, results=2)
    for _ in range(2):
        y = b.silu(b.conv(parts[-1], half, half, 3))
        parts.append(b.node("Add", parts[-1], b.silu(b.conv(y, half, half, 3))))
    return b.silu(b.conv(b.node("Concat", *parts, axis=1), 4 * half, channels))


def pyramid_pool(b, side, channels):
    """YOLO's SPPF."""
    half = channels // 2
    parts = [b.silu(b.conv(b.input(1, channels, side, side), channels, half))]
    for _ in range(3):
        parts.append(b.node("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4))
    return b.silu(b.conv(b.node("Concat", *parts, axis=1), 4 * half, channels))


def dilated_pyramid(b, side, channels, to):
    """DeepLab's ASPP."""
    x = b.input(1, channels, side, side)
    parts = [b.relu(b.conv(x, channels, to))]
    parts += [b.relu(b.conv(x, channels, to, 3, dilation=dilation)) for dilation in (6, 12, 18)]
    pooled = b.relu(b.conv(b.node("GlobalAveragePool", x), channels, to))
    sizes = b.integers(1, to, side, side)
    parts.append(b.node("Resize", pooled, "", "", sizes, mode="linear"))
    return b.relu(b.conv(b.node("Concat", *parts, axis=1), 5 * to, to))


def decoder(b, side, channels, to):
    """U-Net: upwards, beside what the encoder hands over."""
    x, skipped = b.input(1, channels, side, side), b.input(1, to, 2 * side, 2 * side)
    weights = b.weight(channels, to, 2, 2), b.weight(to)
    y = b.node("ConvTranspose", x, *weights, strides=[2, 2])
    y = b.relu(b.conv(b.node("Concat", skipped, y, axis=1), 2 * to, to, 3))
    return b.relu(b.conv(y, to, to, 3))


def text_head(b, side, channels, few):
    """DBNet's map of probabilities."""
    y = b.relu(b.conv(b.input(1, channels, side, side), channels, few, 3))
    weights = b.weight(few, few, 2, 2), b.weight(few)
    y = b.relu(b.node("ConvTranspose", y, *weights, strides=[2, 2]))
    weights = b.weight(few, 1, 2, 2), b.weight(1)
    return b.node("Sigmoid", b.node("ConvTranspose", y, *weights, strides=[2, 2]))


def upwards(b, side, channels, to, kernel, groups=1):
    """A transposed convolution of stride 2 alone."""
    x = b.input(1, channels, side, side)
    weights, border = b.weight(channels, to // groups, kernel, kernel), [(kernel - 1) // 2] * 4
    return b.node("ConvTranspose", x, weights, strides=[2, 2], pads=border, group=groups)


def conformer(b, rows, channels, taps):
    """The convolution module of a speech encoder."""
    x = b.input(1, rows, channels)
    y = b.transpose(b.norm(x, channels), 0, 2, 1)
    y = b.node("Conv", y, b.weight(2 * channels, channels, 1))
    y, gate = b.node("Split", y, b.integers(channels, channels), axis=1, results=2)
    y = b.node("Mul", y, b.node("Sigmoid", gate))
    border = [taps // 2] * 2
    y = b.silu(b.node("Conv", y, b.weight(channels, 1, taps), pads=border, group=channels))
    y = b.node("Conv", y, b.weight(channels, channels, 1))
    return b.node("Add", x, b.transpose(y, 0, 2, 1))


def spectrum(b, samples, window, step, bands):
    """A spectrogram by a convolution, and mel bands."""
    half = window // 2 + 1
    y = b.node("Conv", b.input(1, 1, samples), b.weight(2 * half, 1, window), strides=[step])
    parts = b.node("Split", y, b.integers(half, half), axis=1, results=2)
    squares = b.node("Add", *[b.node("Mul", part, part) for part in parts])
    y = b.transpose(b.node("Sqrt", squares), 0, 2, 1)
    y = b.node("Abs", b.node("MatMul", y, b.weight(half, bands)))
    return b.node("Log", b.node("Max", y, b.number(1e-5)))


def sampled(b, side, channels):
    """An image at places that are computed."""
    x, places = b.input(1, channels, side, side), b.input(1, side, side, 2)
    return b.node("GridSample", x, b.node("Tanh", places), mode="bilinear")


def distances(b, anchors, bins):
    """YOLOv8's distances of box edges as expectations."""
    y = b.reshape(b.input(1, 4 * bins, anchors), 1, 4, bins, anchors)
    y = b.node("Softmax", b.transpose(y, 0, 2, 1, 3), axis=1)
    numbers = b.constant(np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1))
    return b.reshape(b.node("Conv", y, numbers), 1, 4, anchors)


BLOCKS = {
    "resnext_28x128x32": lambda b: bottleneck(b, 28, 128, 32),
    "resnext_14x256x32": lambda b: bottleneck(b, 14, 256, 32),
    "resnext_28x256x32_stride2": lambda b: bottleneck(b, 28, 256, 32, 2),
    "regnet_28x64x4": lambda b: bottleneck(b, 28, 64, 4),
    "convnext_56x96": lambda b: convnext(b, 56, 96),
    "convnext_14x384": lambda b: convnext(b, 14, 384),
    "efficientnet_28x40": lambda b: squeezed(b, 28, 40, 240, 5),
    "efficientnet_14x80": lambda b: squeezed(b, 14, 80, 480, 3),
    "swin_28x192": lambda b: swin(b, 28, 192, 6),
    "detr_100x256": lambda b: queries(b, 100, 400, 256, 8),
    "llama_64x512": lambda b: gated(b, 64, 512, 1376),
    "llama_1x512": lambda b: gated(b, 1, 512, 1376),
    "yolo_c2f_40x64": lambda b: split_stage(b, 40, 64),
    "yolo_sppf_20x128": lambda b: pyramid_pool(b, 20, 128),
    "yolo_dfl_8400": lambda b: distances(b, 8400, 16),
    "deeplab_aspp_33x64": lambda b: dilated_pyramid(b, 33, 64, 32),
    "unet_32x128": lambda b: decoder(b, 32, 128, 64),
    "dbnet_80x64": lambda b: text_head(b, 80, 64, 16),
    "upwards_28x128_2x2": lambda b: upwards(b, 28, 128, 64, 2),
    "upwards_16x256_4x4": lambda b: upwards(b, 16, 256, 128, 4),
    "upwards_56x64_3x3": lambda b: upwards(b, 56, 64, 32, 3),
    "upwards_28x64_depthwise": lambda b: upwards(b, 28, 64, 64, 4, 64),
    "conformer_100x144": lambda b: conformer(b, 100, 144, 31),
    "spectrum_16000": lambda b: spectrum(b, 16000, 512, 160, 80),
    "sampled_64x32": lambda b: sampled(b, 64, 32),
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in BLOCKS.items():
        block = Block()
        block.save(folder / f"{name}.onnx", make(block))


if __name__ == "__main__":
    main()
