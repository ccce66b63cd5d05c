"""Writes attend.onnx, which has operators of a domain of its own: pip install onnx."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = np.random.default_rng(1).standard_normal((16, 12)).astype(np.float32)
graph = helper.make_graph(
    [
        helper.make_node("Snake", ["signal"], ["wave"], name="snake", domain="audio", alpha=0.5),
        helper.make_node("MatMul", ["wave", "weights"], ["scores"], name="scores"),
        helper.make_node("SoftmaxOne", ["scores"], ["attention"], name="softmax", domain="audio"),
    ],
    "attend",
    [helper.make_tensor_value_info("signal", TensorProto.FLOAT, [8, 16])],
    [
        helper.make_tensor_value_info("wave", TensorProto.FLOAT, [8, 16]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [8, 12]),
        helper.make_tensor_value_info("attention", TensorProto.FLOAT, [8, 12]),
    ],
    [numpy_helper.from_array(weights, "weights")],
)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("audio", 1)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "attend.onnx")
