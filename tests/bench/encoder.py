"""Writes an encoder of Whisper's kind for sizes.py: spectrograms of any length, half as many rows of features.

    encoder.py [--layers 4] [--width 384] [--heads 6] [--frames 3000] OUT.onnx

Weights are random. The input is `mel` of the shape [1, 80, frames], with up to `--frames` frames.
"""

import argparse

import numpy as np
import onnx
from decoder import Builder
from onnx import TensorProto

MELS = 80


def encoder(layers, width, heads, frames):
    b = Builder()
    by_head, flat = b.ints(0, 0, heads, width // heads), b.ints(0, 0, width)
    scale = b.constant(np.float32((width // heads) ** -0.5))
    x = "mel"
    for channels, stride in ((MELS, 1), (width, 2)):
        weights = b.weight(width, channels, 3)
        x = b.node("Conv", x, weights, b.weight(width), kernel_shape=[3], pads=[1, 1], strides=[stride])
        x = b.node("Gelu", x)
    x = b.node("Transpose", x, perm=[0, 2, 1])
    length = b.node("Gather", b.node("Shape", x), b.ints(1))
    places = b.node("Slice", b.weight((frames + 1) // 2, width), b.ints(0), length, b.ints(0))
    x = b.node("Add", x, places)
    for layer in range(layers):
        rows = b.norm(x, width)
        q, k, v = (b.node("Reshape", b.dense(rows, width, width), by_head) for _ in "qkv")
        q, v = (b.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        k = b.node("Transpose", k, perm=[0, 2, 3, 1])
        weights = b.node("Softmax", b.node("Mul", b.node("MatMul", q, k), scale), axis=-1)
        found = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = b.node("Add", x, b.dense(b.node("Reshape", found, flat), width, width))
        hidden = b.node("Gelu", b.dense(b.norm(x, width), width, 4 * width))
        x = b.node("Add", x, b.dense(hidden, 4 * width, width))
    scale = b.constant(np.ones(width, np.float32))
    b.node("LayerNormalization", x, scale, b.weight(width), to=["features"], axis=-1)
    inputs, outputs = [("mel", TensorProto.FLOAT, [1, MELS, "frames"])], [("features", TensorProto.FLOAT, [1, "rows", width])]
    return b.model("encoder", inputs, outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("out")
    args = parser.parse_args()
    onnx.save(encoder(args.layers, args.width, args.heads, args.frames), args.out)


if __name__ == "__main__":
    main()
