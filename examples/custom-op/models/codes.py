"""Writes codes.onnx, which finds the nearest entries of a codebook: pip install onnx."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

codebook = np.random.default_rng(2).standard_normal((50, 12)).astype(np.float32)
graph = helper.make_graph(
    [
        helper.make_node(
            "Distances", ["frames", "codebook"], ["distances"], name="distances", domain="audio"
        ),
        helper.make_node("ArgMin", ["distances"], ["codes"], name="codes", axis=1, keepdims=0),
    ],
    "codes",
    [helper.make_tensor_value_info("frames", TensorProto.FLOAT, [20, 12])],
    [
        helper.make_tensor_value_info("distances", TensorProto.FLOAT, [20, 50]),
        helper.make_tensor_value_info("codes", TensorProto.INT64, [20]),
    ],
    [numpy_helper.from_array(codebook, "codebook")],
)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("audio", 1)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "codes.onnx")
