"""Trains the keyword model and writes it as ONNX; niello's command makes integers of its numbers.

A small network of depthwise separable convolutions in plain numpy: forward and backward by hand, Adam, fixed seeds.

    python examples/keywords/train/train.py FILE.onnx SAMPLES    writes the float32 model, and samples to a folder
    niello quantize FILE.onnx --data SAMPLES -o examples/keywords/models/keywords.onnx

The second line writes the model that is committed, by ranges that the first one's samples have.
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
EPOCHS = 12
BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-3
# Share of the running statistics that one batch replaces.
MOMENTUM = 0.1
EPSILON = 1e-5
# Bytes of features become numbers from 0 to 4.
SCALE = 1 / 64
# Sounds for the ranges of the integers.
SAMPLES = 128


class Window:
    """Where a convolution reads: kernel, strides and pads, each (down, across)."""

    def __init__(self, kernel, strides, pads):
        self.kernel, self.strides, self.pads = kernel, strides, pads

    def parts(self, x):
        """Yields (row, column, what the kernel's number there is multiplied with) of a padded batch."""
        down, across = self.strides
        rows, columns = self.count(x)
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                yield i, j, x[:, i : i + rows * down : down, j : j + columns * across : across]

    def count(self, x):
        return [(size - kernel) // stride + 1 for size, kernel, stride in zip(x.shape[1:3], self.kernel, self.strides)]

    def pad(self, x):
        (top, bottom), (left, right) = self.pads
        return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))

    def unpad(self, x):
        (top, bottom), (left, right) = self.pads
        return x[:, top : x.shape[1] - bottom, left : x.shape[2] - right]

    def attributes(self):
        (top, bottom), (left, right) = self.pads
        return dict(kernel_shape=list(self.kernel), strides=list(self.strides), pads=[top, left, bottom, right])


class Conv:
    """A convolution of one channel. Its input needs no gradient: it is the first layer."""

    def __init__(self, rng, name, outputs, window):
        self.name, self.window, self.groups = name, window, 1
        taps = window.kernel[0] * window.kernel[1]
        self.params = {"weight": rng.normal(0, np.sqrt(2 / taps), (taps, outputs)).astype(np.float32)}

    def forward(self, x, training):
        self.columns = np.concatenate([part for _, _, part in self.window.parts(self.window.pad(x))], axis=-1)
        return self.columns @ self.params["weight"]

    def backward(self, grad):
        taps, outputs = self.params["weight"].shape
        self.grads = {"weight": self.columns.reshape(-1, taps).T @ grad.reshape(-1, outputs)}

    def weight(self):
        return self.params["weight"].T.reshape(-1, 1, *self.window.kernel)


class Depthwise:
    def __init__(self, rng, name, channels, window):
        self.name, self.window, self.groups = name, window, channels
        taps = window.kernel[0] * window.kernel[1]
        self.params = {"weight": rng.normal(0, np.sqrt(2 / taps), (*window.kernel, channels)).astype(np.float32)}

    def forward(self, x, training):
        self.padded = self.window.pad(x)
        return sum(part * self.params["weight"][i, j] for i, j, part in self.window.parts(self.padded))

    def backward(self, grad):
        weight = np.zeros_like(self.params["weight"])
        padded = np.zeros_like(self.padded)
        to = {(i, j): part for i, j, part in self.window.parts(padded)}
        for i, j, part in self.window.parts(self.padded):
            weight[i, j] = np.einsum("nhwc,nhwc->c", part, grad)
            to[i, j] += grad * self.params["weight"][i, j]
        self.grads = {"weight": weight}
        return self.window.unpad(padded)

    def weight(self):
        return self.params["weight"].transpose(2, 0, 1)[:, None]


class Pointwise:
    window, groups = Window((1, 1), (1, 1), ((0, 0), (0, 0))), 1

    def __init__(self, rng, name, inputs, outputs):
        self.name = name
        self.params = {"weight": rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)}

    def forward(self, x, training):
        self.x = x
        return x @ self.params["weight"]

    def backward(self, grad):
        inputs, outputs = self.params["weight"].shape
        self.grads = {"weight": self.x.reshape(-1, inputs).T @ grad.reshape(-1, outputs)}
        return grad @ self.params["weight"].T

    def weight(self):
        return self.params["weight"].T[:, :, None, None]


class BatchNorm:
    def __init__(self, name, channels):
        self.name = name
        self.params = {"weight": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}
        self.running_mean = np.zeros(channels, np.float32)
        self.running_var = np.ones(channels, np.float32)

    def forward(self, x, training):
        if training:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            count = x.size / x.shape[-1]
            self.running_mean += MOMENTUM * (mean - self.running_mean)
            self.running_var += MOMENTUM * (var * count / (count - 1) - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        self.inverse = 1 / np.sqrt(var + np.float32(EPSILON))
        self.normal = (x - mean) * self.inverse
        return self.normal * self.params["weight"] + self.params["bias"]

    def backward(self, grad):
        self.grads = {"weight": np.einsum("nhwc,nhwc->c", grad, self.normal), "bias": grad.sum((0, 1, 2))}
        count = np.float32(grad.size / grad.shape[-1])
        centred = grad - self.grads["bias"] / count - self.normal * (self.grads["weight"] / count)
        return centred * (self.params["weight"] * self.inverse)


class Relu:
    params = {}

    def forward(self, x, training):
        self.mask = x > 0
        return x * self.mask

    def backward(self, grad):
        return grad * self.mask


class Mean:
    """Of all places."""

    params = {}

    def forward(self, x, training):
        self.shape = x.shape
        return x.mean((1, 2))

    def backward(self, grad):
        places = self.shape[1] * self.shape[2]
        return np.broadcast_to(grad[:, None, None] / np.float32(places), self.shape)


class Dense:
    def __init__(self, rng, name, inputs, outputs):
        self.name = name
        scale = 1 / np.sqrt(inputs)
        self.params = {
            "weight": rng.uniform(-scale, scale, (outputs, inputs)).astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }

    def forward(self, x, training):
        self.x = x
        return x @ self.params["weight"].T + self.params["bias"]

    def backward(self, grad):
        self.grads = {"weight": grad.T @ self.x, "bias": grad.sum(0)}
        return grad @ self.params["weight"]


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def build(rng):
    around = ((1, 1), (1, 1))
    layers = []

    def add(layer, channels):
        layers.extend([layer, BatchNorm(layer.name.replace("conv", "bn"), channels), Relu()])

    add(Conv(rng, "conv0", 32, Window((10, 4), (2, 2), ((4, 5), (1, 1)))), 32)
    for block, inputs, down in ((1, 32, 2), (2, 48, 1), (3, 48, 1), (4, 48, 1)):
        add(Depthwise(rng, f"conv{block}.depth", inputs, Window((3, 3), (down, 1), around)), inputs)
        add(Pointwise(rng, f"conv{block}.point", inputs, 48), 48)
    return [*layers, Mean(), Dense(rng, "fc", 48, len(dataset.WORDS))]


def to_input(features):
    """Returns a batch as the layers take it: channels last."""
    return (features.astype(np.float32) * np.float32(SCALE)).transpose(0, 2, 3, 1)


def forward(layers, x, training=False):
    for layer in layers:
        x = layer.forward(x, training)
    return x


def train(features, labels):
    """Returns the trained layers."""
    rng = np.random.default_rng(SEED)
    targets = np.eye(len(dataset.WORDS), dtype=np.float32)[labels]
    layers = build(rng)
    slots = [(layer, key) for layer in layers for key in layer.params]
    means = [np.zeros_like(layer.params[key]) for layer, key in slots]
    squares = [np.zeros_like(layer.params[key]) for layer, key in slots]
    steps = EPOCHS * (len(features) // BATCH)
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(features))
        right = 0
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            found = softmax(forward(layers, to_input(features[batch]), training=True))
            right += (found.argmax(1) == labels[batch]).sum()
            grad = (found - targets[batch]) / np.float32(BATCH)
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
        print(f"epoch {epoch + 1}: {100 * right / len(order):.2f}% of what it trains on", flush=True)
    return layers


def to_onnx(layers):
    """Returns the ONNX model of one sound."""
    initializers, nodes = [], []

    def constant(name, value):
        initializers.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def node(op, name, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    x = node("Cast", "numbers", ["features"], to=TensorProto.FLOAT)
    x = node("Mul", "scaled", [x, constant("scale", SCALE)])
    for conv, bn, _ in zip(*[iter(layers[:-2])] * 3):
        weight = constant(f"{conv.name}.weight", conv.weight())
        x = node("Conv", f"{conv.name}.out", [x, weight], group=conv.groups, **conv.window.attributes())
        tensors = bn.params | {"running_mean": bn.running_mean, "running_var": bn.running_var}
        statistics = [constant(f"{bn.name}.{key}", value) for key, value in tensors.items()]
        x = node("BatchNormalization", f"{bn.name}.out", [x, *statistics], epsilon=EPSILON)
        x = node("Relu", f"{bn.name}.relu", [x])
    x = node("GlobalAveragePool", "mean", [x])
    x = node("Flatten", "flat", [x])
    fc = layers[-1]
    x = node("Gemm", "logits", [x, *(constant(f"fc.{key}", value) for key, value in fc.params.items())], transB=1)
    node("Softmax", "probabilities", [x], axis=1)

    shape = [1, 1, dataset.FRAMES, dataset.BANDS]
    graph = helper.make_graph(
        nodes,
        "keywords",
        [helper.make_tensor_value_info("features", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, len(dataset.WORDS)])],
        initializers,
    )
    model = helper.make_model(
        graph,
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="niello-keywords",
        doc_string="Tells which word a second of sound has: " + ", ".join(dataset.WORDS) + ".",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    target, samples = map(Path, sys.argv[1:])
    features, labels = dataset.train_set()
    layers = train(features, labels)
    for name, (x, expected) in (("training", (features, labels)), ("test", dataset.read_test_file())):
        found = np.concatenate([forward(layers, to_input(x[at : at + 256])) for at in range(0, len(x), 256)]).argmax(1)
        right = (found == expected).sum()
        print(f"{name}: {right} of {len(expected)}, {100 * right / len(expected):.2f}%")
    target.write_bytes(to_onnx(layers).SerializeToString(deterministic=True))
    samples.mkdir(exist_ok=True)
    for at, row in enumerate(np.linspace(0, len(features) - 1, SAMPLES).astype(int)):
        np.save(samples / f"{at:03}.npy", features[row][None])


if __name__ == "__main__":
    main()
