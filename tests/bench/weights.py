"""Times products whose weights are kept in fewer bits, beside ONNX Runtime and OpenVINO.

    weights.py [--rows 1] [--layers 4] NIELLO [OPTION OF latency.py...]

Makes pairs of layers of 768 and 3072 numbers with random weights, and of them by `niello quantize` those of each
method that makes weights smaller. The peers multiply with activations of 8 bits where weights have 4 or 8, so that
what counts as the same is a twentieth of the largest number.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

METHODS = ["weights4", "weights8", "float16"]
NARROW, WIDE = 768, 3072


def network(rows, layers):
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for layer, (above, below) in enumerate([(NARROW, WIDE), (WIDE, NARROW)] * layers):
        weight = random.standard_normal((above, below)) / np.sqrt(above)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"p{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"p{layer}"], [f"h{layer}"]))
        value = f"h{layer}"
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, NARROW])
    graph = helper.make_graph(nodes, "layers", [tensor("x")], [tensor(value)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4, help="pairs of layers")
    parser.add_argument("niello")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name / "model.onnx" for name in ["float32", *METHODS]]
        for file in files:
            file.parent.mkdir()
        onnx.save(network(options.rows, options.layers), files[0])
        for method, file in zip(METHODS, files[1:]):
            quantize = [options.niello, "quantize", files[0], "--method", method, "-o", file]
            subprocess.run(quantize, check=True, stdout=subprocess.DEVNULL)
        index = [{"name": method, "rtol": 0.0, "atol": 0.05} for method in METHODS]
        (Path(folder) / "index.json").write_text(json.dumps(index))
        latency = [sys.executable, Path(__file__).with_name("latency.py"), *rest, options.niello, *files]
        return subprocess.run(latency, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
