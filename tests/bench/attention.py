"""Writes models of attention, written out as exporters do, and of norms and activations around it.

    attention.py DIR

`latency.py` measures them: DIR/*.onnx.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Heads, positions, numbers for each of a head.
HEADS = [(12, 128, 32), (12, 512, 64), (8, 1024, 64)]
# Positions, numbers for each.
ROWS = [(128, 384), (256, 768)]


def save(folder, name, nodes, inputs, output, constants):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        name,
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    node = helper.make_node
    for heads, positions, width in HEADS:
        nodes = [
            node("MatMul", ["q", "k"], ["products"]),
            node("Mul", ["products", "scale"], ["scores"]),
            node("Softmax", ["scores"], ["weights"], axis=-1),
            node("MatMul", ["weights", "v"], ["y"]),
        ]
        rows, columns = [1, heads, positions, width], [1, heads, width, positions]
        inputs = [("q", rows), ("k", columns), ("v", rows)]
        scale = {"scale": np.float32(width**-0.5)}
        save(folder, f"attention_{heads}x{positions}x{width}", nodes, inputs, rows, scale)
    for rows, width in ROWS:
        shape = [1, rows, width]
        norm = [
            node("ReduceMean", ["x"], ["mean"], axes=[-1]),
            node("Sub", ["x", "mean"], ["d"]),
            node("Pow", ["d", "two"], ["squares"]),
            node("ReduceMean", ["squares"], ["variance"], axes=[-1]),
            node("Add", ["variance", "epsilon"], ["positive"]),
            node("Sqrt", ["positive"], ["deviation"]),
            node("Div", ["d", "deviation"], ["y"]),
        ]
        constants = {"two": np.float32(2), "epsilon": np.float32(1e-5)}
        save(folder, f"norm_{rows}x{width}", norm, [("x", shape)], shape, constants)
        gelu = [
            node("Div", ["x", "root"], ["a"]),
            node("Erf", ["a"], ["b"]),
            node("Add", ["b", "one"], ["c"]),
            node("Mul", ["x", "c"], ["d"]),
            node("Mul", ["d", "half"], ["y"]),
        ]
        constants = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
        save(folder, f"gelu_{rows}x{width}", gelu, [("x", shape)], shape, constants)


if __name__ == "__main__":
    main()
