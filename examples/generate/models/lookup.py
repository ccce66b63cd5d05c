"""Writes lookup.onnx: a transformer that continues a text by what came after the same letters before.

It has two layers of attention and no trained weights. In the first, four heads look at the letters
one to four places back, by sines and cosines of positions. In the second, each place looks for those
whose four last letters are its own, the last one counting most, and near ones before far ones. That is
what trained transformers do to repeat what they have read (Olsson et al., "In-context Learning and
Induction Heads", 2022).

    python lookup.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LETTERS = 96  # The printable ones of ASCII, and the end of a line.
BACK = 4
WAVES = np.geomspace(np.pi, np.pi / 2048, 32).astype(np.float32)
SHARP = np.float32(6)  # Times the sum of cosines: at the right place by 40 more than elsewhere.
WEIGHTS = np.array([24, 12, 6, 3], np.float32)  # Of letters that agree, from the last one backwards.
SLOPE = np.float32(-0.05)  # For each place that lies between.

nodes, constants = [], []


def constant(value, dtype=None):
    name = f"c{len(constants)}"
    constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def node(op, *inputs, output=None, **attributes):
    output = output or f"v{len(nodes)}"
    nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
    return output


def ints(*values):
    return constant(values, np.int64)


def attention(q, k, v, mask):
    scores = node("MatMul", q, node("Transpose", k, perm=[0, 1, 3, 2]))
    return node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), v)


def main():
    zero, one, two = (constant(value, np.int64) for value in (0, 1, 2))
    past = node("Gather", node("Shape", "past.0.key"), two)
    end = node("Add", past, node("Gather", node("Shape", "ids"), one))
    own = node("Cast", node("Range", past, end, one), to=TensorProto.FLOAT)
    every = node("Cast", node("Range", zero, end, one), to=TensorProto.FLOAT)
    row = node("Unsqueeze", own, ints(1))
    distance = node("Sub", row, every)
    later = node("Less", distance, constant(0, np.float32))
    masked, free = constant(-1e9, np.float32), constant(0, np.float32)
    causal = node("Where", later, masked, free)
    near = node("Where", later, masked, node("Mul", distance, constant(SLOPE)))

    # Letters as vectors with a single 1: [1, 1, seq, LETTERS].
    letter = node("Gather", constant(np.eye(LETTERS, dtype=np.float32)), node("Unsqueeze", "ids", ints(1)))

    def waves(places):
        angles = node("Mul", places, constant(WAVES))
        return node("Concat", node("Sin", angles), node("Cos", angles), axis=-1)

    def cached(name, new):
        return node("Concat", f"past.{name}", new, output=f"present.{name}", axis=2)

    # How far back each head looks: [BACK, 1, 1]; its places: [BACK, seq, 1].
    back = constant(np.arange(1, BACK + 1, dtype=np.float32).reshape(BACK, 1, 1))
    looks = node("Unsqueeze", waves(node("Sub", row, back)), ints(0))
    is_at = node("Unsqueeze", waves(row), ints(0, 1))
    before = attention(
        node("Mul", looks, constant(SHARP)), cached("0.key", is_at), cached("0.value", letter), causal
    )

    # The letters of the four places, one after the other: [1, 1, seq, BACK * LETTERS].
    side_by_side = ints(1, 1, -1, BACK * LETTERS)
    before_it = node("Reshape", node("Transpose", before, perm=[0, 2, 1, 3]), side_by_side)
    up_to_it = node("Concat", letter, before_it, axis=3)
    up_to_it = node("Slice", up_to_it, ints(0), ints(BACK * LETTERS), ints(3))
    sought = node("Mul", up_to_it, constant(np.repeat(WEIGHTS, LETTERS)))
    found = attention(sought, cached("1.key", before_it), cached("1.value", letter), near)
    node("Squeeze", found, ints(1), output="scores")

    info = helper.make_tensor_value_info
    widths = {"0.key": 2 * WAVES.size, "0.value": LETTERS, "1.key": BACK * LETTERS, "1.value": LETTERS}
    inputs = [info("ids", TensorProto.INT64, [1, "seq"])]
    outputs = [info("scores", TensorProto.FLOAT, [1, "seq", LETTERS])]
    for name, width in widths.items():
        inputs.append(info(f"past.{name}", TensorProto.FLOAT, [1, 1, "past", width]))
        outputs.append(info(f"present.{name}", TensorProto.FLOAT, [1, 1, "past + seq", width]))
    graph = helper.make_graph(nodes, "lookup", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, Path(__file__).with_name("lookup.onnx"))


if __name__ == "__main__":
    main()
