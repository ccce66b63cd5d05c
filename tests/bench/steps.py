"""Times an LSTM of some numbers of steps, beside ONNX Runtime and OpenVINO, and tells what its code takes.

    steps.py [--steps 1,8,64,512,4096] NIELLO [OPTION OF latency.py...]

The layer has 64 inputs and 128 cells with random weights. `code` is the machine code in bytes, `compile` milliseconds.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS, CELLS = 64, 128


def network(steps):
    random = np.random.default_rng(0)
    weights = {
        name: numpy_helper.from_array((random.standard_normal(shape) * 0.1).astype(np.float32), name)
        for name, shape in [("w", (1, 4 * CELLS, INPUTS)), ("r", (1, 4 * CELLS, CELLS)), ("b", (1, 8 * CELLS))]
    }
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=CELLS)]
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    x, y = info("x", [steps, 1, INPUTS]), info("y", [steps, 1, 1, CELLS])
    graph = helper.make_graph(nodes, "steps", [x], [y], list(weights.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="1,8,64,512,4096")
    parser.add_argument("niello")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{steps}-steps" / "model.onnx" for steps in options.steps.split(",")]
        for steps, file in zip(options.steps.split(","), files):
            file.parent.mkdir()
            onnx.save(network(int(steps)), file)
            bench = [options.niello, "bench", "--backend", "llvm", "--seconds", "0.2", file]
            table = subprocess.run(bench, check=True, capture_output=True, text=True).stdout.splitlines()
            row = dict(zip(table[-2].split("\t"), table[-1].split("\t")))
            print(f"{steps:>5} steps: code {row['code_bytes']}, compile {float(row['compile_ms']):.0f}", flush=True)
        latency = [sys.executable, Path(__file__).with_name("latency.py"), *rest, options.niello, *files]
        return subprocess.run(latency, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
