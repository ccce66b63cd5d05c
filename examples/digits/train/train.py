"""Trains the digits model and writes it as ONNX.

A small convolutional network in plain numpy: forward and backward by hand, Adam, fixed seeds. On one machine the same
bytes come out each time; another BLAS may round differently, so the committed model is the reference.

    python examples/digits/train/train.py              writes examples/digits/models/digits.onnx
    python examples/digits/train/train.py OTHER.onnx   writes elsewhere

The graph is what an exporter would write in inference mode, batch normalisation and dropout included: removing them is
the compiler's work, and the example shows it.
"""

import os
import sys
from pathlib import Path

# One thread adds in one order; several do not.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dataset

SEED = 2024
EPOCHS = 40
BATCH = 32
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-3
DROPOUT = 0.25
CHANNELS = 32
# Share of the running statistics that one batch replaces.
MOMENTUM = 0.1
EPSILON = 1e-5


class Conv:
    """3 x 3 convolution, stride 1, padding 1, no bias (the batch normalisation after it has one)."""

    def __init__(self, rng, name, inputs, outputs):
        self.name = name
        scale = np.sqrt(2 / (inputs * 9))
        self.params = {"weight": rng.normal(0, scale, (outputs, inputs, 3, 3)).astype(np.float32)}

    def forward(self, x, training):
        n, c, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
        self.shape = x.shape
        weight = self.params["weight"]
        out = self.columns @ weight.reshape(len(weight), -1).T
        return out.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, grad):
        n, c, h, w = self.shape
        weight = self.params["weight"]
        rows = grad.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        self.grads = {"weight": (rows.T @ self.columns).reshape(weight.shape)}
        patches = (rows @ weight.reshape(len(weight), -1)).reshape(n, h, w, c, 3, 3)
        padded = np.zeros((n, c, h + 2, w + 2), np.float32)
        for i in range(3):
            for j in range(3):
                padded[:, :, i : i + h, j : j + w] += patches[..., i, j].transpose(0, 3, 1, 2)
        return padded[:, :, 1:-1, 1:-1]


class BatchNorm:
    def __init__(self, name, channels):
        self.name = name
        self.params = {
            "weight": np.ones(channels, np.float32),
            "bias": np.zeros(channels, np.float32),
        }
        self.running_mean = np.zeros(channels, np.float32)
        self.running_var = np.ones(channels, np.float32)

    def forward(self, x, training):
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            count = x.size / x.shape[1]
            self.running_mean += MOMENTUM * (mean - self.running_mean)
            self.running_var += MOMENTUM * (var * count / (count - 1) - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        self.inverse = 1 / np.sqrt(var + np.float32(EPSILON))
        self.normal = (x - channelwise(mean)) * channelwise(self.inverse)
        return self.normal * channelwise(self.params["weight"]) + channelwise(self.params["bias"])

    def backward(self, grad):
        self.grads = {"weight": (grad * self.normal).sum((0, 2, 3)), "bias": grad.sum((0, 2, 3))}
        count = np.float32(grad.size / grad.shape[1])
        centred = grad - channelwise(self.grads["bias"] / count)
        centred -= self.normal * channelwise(self.grads["weight"] / count)
        return centred * channelwise(self.params["weight"] * self.inverse)


class Relu:
    params = {}

    def forward(self, x, training):
        self.mask = x > 0
        return x * self.mask

    def backward(self, grad):
        return grad * self.mask


class MaxPool:
    """2 x 2 windows, stride 2."""

    params = {}

    def forward(self, x, training):
        n, c, h, w = x.shape
        windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
        self.shape = x.shape
        windows = windows.reshape(n, c, h // 2, w // 2, 4)
        self.winner = windows.argmax(-1)[..., None]
        return np.take_along_axis(windows, self.winner, -1)[..., 0]

    def backward(self, grad):
        n, c, h, w = self.shape
        windows = np.zeros((n, c, h // 2, w // 2, 4), np.float32)
        np.put_along_axis(windows, self.winner, grad[..., None], -1)
        windows = windows.reshape(n, c, h // 2, w // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5)
        return windows.reshape(self.shape)


class Dropout:
    params = {}

    def __init__(self, rng):
        self.rng = rng

    def forward(self, x, training):
        if not training:
            return x
        keep = self.rng.random(x.shape) >= DROPOUT
        self.scale = keep.astype(np.float32) / np.float32(1 - DROPOUT)
        return x * self.scale

    def backward(self, grad):
        return grad * self.scale


class Dense:
    def __init__(self, rng, name, inputs, outputs):
        self.name = name
        scale = 1 / np.sqrt(inputs)
        self.params = {
            "weight": rng.uniform(-scale, scale, (outputs, inputs)).astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }

    def forward(self, x, training):
        self.shape = x.shape
        self.flat = x.reshape(len(x), -1)
        return self.flat @ self.params["weight"].T + self.params["bias"]

    def backward(self, grad):
        self.grads = {"weight": grad.T @ self.flat, "bias": grad.sum(0)}
        return (grad @ self.params["weight"]).reshape(self.shape)


def channelwise(values):
    return values[None, :, None, None]


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def build(rng):
    return [
        Conv(rng, "conv1", 1, CHANNELS),
        BatchNorm("bn1", CHANNELS),
        Relu(),
        Conv(rng, "conv2", CHANNELS, CHANNELS),
        BatchNorm("bn2", CHANNELS),
        Relu(),
        MaxPool(),
        Dropout(rng),
        Dense(rng, "fc", CHANNELS * 16, 10),
    ]


def forward(layers, x, training=False):
    for layer in layers:
        x = layer.forward(x, training)
    return x


def shift(rng, images):
    """Moves each image by up to one pixel each way: writers do not centre their digits."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, len(images)))
    moved = [p[:, r : r + 8, c : c + 8] for p, r, c in zip(padded, rows, columns)]
    return np.stack(moved)


def train():
    """Returns the trained layers."""
    rng = np.random.default_rng(SEED)
    images, labels, _, _ = dataset.load()
    images = dataset.to_input(images)
    targets = np.eye(10, dtype=np.float32)[labels]
    layers = build(rng)
    slots = [(layer, key) for layer in layers for key in layer.params]
    means = [np.zeros_like(layer.params[key]) for layer, key in slots]
    squares = [np.zeros_like(layer.params[key]) for layer, key in slots]
    steps = EPOCHS * (len(images) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            grad = softmax(forward(layers, shift(rng, images[batch]), training=True))
            grad = (grad - targets[batch]) / np.float32(BATCH)
            for layer in reversed(layers):
                grad = layer.backward(grad)
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for slot, (layer, key) in enumerate(slots):
                g = layer.grads[key]
                means[slot] = 0.9 * means[slot] + 0.1 * g
                squares[slot] = 0.999 * squares[slot] + 0.001 * g * g
                mean = means[slot] / (1 - 0.9**step)
                square = squares[slot] / (1 - 0.999**step)
                update = mean / (np.sqrt(square) + 1e-8)
                if layer.params[key].ndim > 1:
                    update = update + WEIGHT_DECAY * layer.params[key]
                layer.params[key] = (layer.params[key] - rate * update).astype(np.float32)
    return layers


def to_onnx(layers):
    """Returns the ONNX model, named as an exporter names things."""
    conv1, bn1, _, conv2, bn2, _, _, _, fc = layers
    initializers = []
    for layer in (conv1, bn1, conv2, bn2, fc):
        tensors = dict(layer.params)
        if isinstance(layer, BatchNorm):
            tensors |= {"running_mean": layer.running_mean, "running_var": layer.running_var}
        for key, value in tensors.items():
            array = np.ascontiguousarray(value, dtype=np.float32)
            initializers.append(numpy_helper.from_array(array, f"{layer.name}.{key}"))
    ratio = np.array(DROPOUT, dtype=np.float32)
    initializers.append(numpy_helper.from_array(ratio, "dropout.ratio"))

    nodes = []

    def node(op, name, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def block(x, conv, bn, index):
        window = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1)
        x = node("Conv", f"/{conv.name}/Conv", [x, f"{conv.name}.weight"], f"/{conv.name}/Conv_output_0", **window)
        statistics = [f"{bn.name}.{key}" for key in ("weight", "bias", "running_mean", "running_var")]
        x = node(
            "BatchNormalization",
            f"/{bn.name}/BatchNormalization",
            [x, *statistics],
            f"/{bn.name}/BatchNormalization_output_0",
            epsilon=EPSILON,
            momentum=1 - MOMENTUM,
        )
        return node("Relu", f"/relu{index}/Relu", [x], f"/relu{index}/Relu_output_0")

    x = block("image", conv1, bn1, 1)
    x = block(x, conv2, bn2, 2)
    x = node("MaxPool", "/pool/MaxPool", [x], "/pool/MaxPool_output_0", kernel_shape=[2, 2], strides=[2, 2])
    x = node("Dropout", "/dropout/Dropout", [x, "dropout.ratio"], "/dropout/Dropout_output_0")
    x = node("Flatten", "/flatten/Flatten", [x], "/flatten/Flatten_output_0", axis=1)
    x = node("Gemm", "/fc/Gemm", [x, "fc.weight", "fc.bias"], "/fc/Gemm_output_0", alpha=1.0, beta=1.0, transB=1)
    node("Softmax", "/softmax/Softmax", [x], "probabilities", axis=1)

    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        initializers,
    )
    model = helper.make_model(
        graph,
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="niello-digits",
        doc_string="Classifies 8 x 8 images of handwritten digits, pixels from 0 to 1.",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else dataset.MODEL_FILE
    layers = train()
    for name, (images, labels) in zip(("training", "test"), (dataset.load()[:2], dataset.load()[2:])):
        right = (forward(layers, dataset.to_input(images)).argmax(1) == labels).sum()
        print(f"{name}: {right} of {len(labels)}, {100 * right / len(labels):.2f}%")
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(to_onnx(layers).SerializeToString(deterministic=True))
    print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
