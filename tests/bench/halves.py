"""Errors of networks in `float16`, computed in `float32` and in `float16` (`--numerics float16`).

    halves.py [--by COMMAND] [--target-cpu CPU] NIELLO FOLDER...

A FOLDER has `model.onnx`, recorded inputs and outputs (`test_data_set_0`) and perhaps sizes of symbolic dimensions
(`dims.json`). A model of `float32` is converted by `niello quantize --method float16`. What runs models is COMMAND, such as
niello's command for another machine in an emulator, with the C compiler that it finds; the same niello unless it is given.

Prints Markdown: the root of the mean squared error of the output that is off the most, in percent of the root of the mean
square of what is recorded, and whether the greatest element of each output is where it was.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

NUMERICS = ["default", "float16"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("niello")
    parser.add_argument("folder", nargs="+", type=pathlib.Path)
    parser.add_argument("--by", type=shlex.split)
    parser.add_argument("--target-cpu", default="aarch64-fp16")
    return parser.parse_args()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))} failed:\n{done.stderr}")


def recorded(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor).astype(np.float64)


def in_halves(options, folder, made):
    """A model of `float16`: the folder's, or what becomes of it, and its graph."""
    path = folder / "model.onnx"
    graph = onnx.load(path).graph
    if any(initializer.data_type == onnx.TensorProto.FLOAT16 for initializer in graph.initializer):
        return path, graph
    half = made / "half.onnx"
    run([options.niello, "quantize", path, "--method", "float16", "-o", half])
    return half, graph


def outputs(options, model, graph, folder, made, numerics):
    data = folder / "test_data_set_0"
    weights = {initializer.name for initializer in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    command = [*(options.by or [options.niello]), "run", model, "--numerics", numerics, "--backend", "c"]
    command += ["--target-cpu", options.target_cpu]
    dims = folder / "dims.json"
    for name, size in json.loads(dims.read_text()).items() if dims.exists() else []:
        command += ["--dim", f"{name}={size}"]
    for number, name in enumerate(inputs):
        command += ["--input", f"{name}={data / f'input_{number}.pb'}"]
    files = [made / f"{number}.npy" for number in range(len(graph.output))]
    for value, file in zip(graph.output, files):
        command += ["--output", f"{value.name}={file}"]
    run(command)
    return [np.load(file).astype(np.float64) for file in files]


def error(found, expected):
    scale = np.sqrt(np.mean(expected**2))
    return 100 * np.sqrt(np.mean((found - expected) ** 2)) / (scale or 1.0)


def main():
    options = arguments()
    print("| network | summed in `float32` | in `float16` | greatest element |\n|---|--:|--:|---|")
    for folder in options.folder:
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made)
            model, graph = in_halves(options, folder, made)
            expected = [recorded(folder / f"test_data_set_0/output_{i}.pb") for i in range(len(graph.output))]
            errors, same = [], True
            for numerics in NUMERICS:
                found = outputs(options, model, graph, folder, made, numerics)
                errors.append(max(map(error, found, expected)))
                same &= all(a.argmax() == b.argmax() for a, b in zip(found, expected))
            cells = " | ".join(f"{error:.2f}%" for error in errors)
            print(f"| {folder.name} | {cells} | {'the same' if same else 'another'} |", flush=True)


if __name__ == "__main__":
    main()
