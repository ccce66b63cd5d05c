"""Writes a recogniser of text lines for sizes.py: images 48 pixels high and of any width, a step for each 8 columns.

    recogniser.py [--classes 6625] OUT.onnx

Blocks of depthwise and pointwise convolutions, then an LSTM in both directions and scores of each class. Weights are
random. The input is `x` of the shape [batch, 3, 48, width].
"""

import argparse

import numpy as np
import onnx
from decoder import Builder
from onnx import TensorProto

# Channels and strides of the blocks.
BLOCKS = [(32, (1, 1)), (64, (2, 2)), (96, (2, 1)), (128, (2, 2)), (192, (2, 1)), (256, (1, 1))]
HIDDEN = 96


def recogniser(classes):
    b = Builder()
    conv = lambda x, weights, group, stride, pad: b.node(
        "Conv", x, b.weight(*weights), b.weight(weights[0]), group=group, strides=stride, pads=[pad] * 4
    )
    x, channels = b.node("HardSwish", conv("x", (16, 3, 3, 3), 1, (2, 2), 1)), 16
    for wider, stride in BLOCKS:
        x = b.node("HardSwish", conv(x, (channels, 1, 5, 5), channels, stride, 2))
        x, channels = b.node("HardSwish", conv(x, (wider, channels, 1, 1), 1, (1, 1), 0)), wider
    # Rows are left out, columns are the steps.
    x = b.node("ReduceMean", x, b.ints(2), keepdims=0)
    x = b.node("Transpose", x, perm=[2, 0, 1])
    gates = 4 * HIDDEN
    weights = b.weight(2, gates, channels), b.weight(2, gates, HIDDEN), b.weight(2, 2 * gates)
    x = b.node("LSTM", x, *weights, hidden_size=HIDDEN, direction="bidirectional")
    x = b.node("Reshape", b.node("Transpose", x, perm=[2, 0, 1, 3]), b.ints(0, 0, 2 * HIDDEN))
    b.node("Softmax", b.dense(x, 2 * HIDDEN, classes), to=["scores"], axis=-1)
    inputs, outputs = [("x", TensorProto.FLOAT, ["batch", 3, 48, "width"])], [("scores", TensorProto.FLOAT, ["batch", "steps", classes])]
    return b.model("recogniser", inputs, outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=6625)
    parser.add_argument("out")
    args = parser.parse_args()
    onnx.save(recogniser(args.classes), args.out)


if __name__ == "__main__":
    main()
