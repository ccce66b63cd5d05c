"""Writes the digits model with its classes moved by one: output K + 1 (modulo 10) is what output K was.

A program that compiled this model and still reports the same accuracy is not running the model it was given.

    python examples/digits/train/permute.py OUT.onnx
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import dataset


def permute(model):
    """Moves the rows of the last layer's weight and bias, in place."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in ("fc.weight", "fc.bias"):
        moved = np.roll(numpy_helper.to_array(tensors[name]), 1, axis=0)
        tensors[name].CopyFrom(numpy_helper.from_array(moved, name))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = onnx.load(dataset.MODEL_FILE)
    permute(model)
    Path(sys.argv[1]).write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
