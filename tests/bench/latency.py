"""Latency of compiled models beside ONNX Runtime, one thread, in one run.

    latency.py NIELLO MODEL_FOLDER...

Each folder is an ONNX test case. The model is compiled to a shared library by the command NIELLO and
called in this process, as ONNX Runtime is; both get the same inputs, and their outputs must agree.
The two take turns in short rounds, so that both see the same machine, and the medians are compared.
Prints a Markdown table.
"""

import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

ROUNDS = 11
SECONDS_A_ROUND = 0.1


def dims_of(folder):
    path = folder / "dims.json"
    return json.loads(path.read_text()) if path.exists() else {}


def inputs_of(folder, session):
    """The recorded inputs, or seeded random ones."""
    data = folder / "test_data_set_0"
    arrays = []
    rng = np.random.default_rng(0)
    for index, port in enumerate(session.get_inputs()):
        path = data / f"input_{index}.pb"
        if path.exists():
            tensor = onnx.TensorProto()
            tensor.ParseFromString(path.read_bytes())
            arrays.append(np.ascontiguousarray(numpy_helper.to_array(tensor)))
        else:
            arrays.append(rng.standard_normal(port.shape).astype(np.float32))
    return arrays


def ort_runner(model, folder):
    """Inputs, outputs and a call of ONNX Runtime on bound memory, and what must stay alive."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(model), options, providers=["CPUExecutionProvider"]
    )
    inputs = inputs_of(folder, session)
    names = [port.name for port in session.get_inputs()]
    expected = session.run(None, dict(zip(names, inputs)))
    binding = session.io_binding()
    for name, array in zip(names, inputs):
        binding.bind_cpu_input(name, array)
    kept = [np.empty_like(array) for array in expected]
    for port, out in zip(session.get_outputs(), kept):
        binding.bind_output(port.name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return inputs, expected, lambda: session.run_with_iobinding(binding), kept


def niello_runner(niello, model, folder, out, inputs, expected):
    """Compiles the model; the time that took, and a call of it."""
    command = [niello, "compile", str(model), "-o", str(out), "--emit", "shared"]
    for name, size in dims_of(folder).items():
        command += ["--dim", f"{name}={size}"]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    compile_seconds = time.perf_counter() - start
    (library,) = [p for p in out.iterdir() if p.suffix in (".so", ".dylib")]
    run = ctypes.CDLL(str(library)).niello_run
    run.restype = ctypes.c_int
    outputs = [np.empty_like(array) for array in expected]

    def pointers(arrays):
        return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])

    given, taken = pointers(inputs), pointers(outputs)
    if run(given, taken) != 0:
        sys.exit(f"{model}: the compiled model failed")
    for found, wanted in zip(outputs, expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    return compile_seconds, lambda: run(given, taken), outputs


def main():
    niello, folders = sys.argv[1], [pathlib.Path(arg) for arg in sys.argv[2:]]
    print("| model | compile, ms | niello, µs | ONNX Runtime, µs | ratio |")
    print("|---|--:|--:|--:|--:|")
    ratios = []
    for folder in folders:
        model = folder / "model.onnx" if folder.is_dir() else folder
        folder = model.parent
        name = folder.name if model.name == "model.onnx" else model.stem
        inputs, expected, ort, kept = ort_runner(model, folder)
        with tempfile.TemporaryDirectory() as out:
            compile_seconds, ours, outputs = niello_runner(
                niello, model, folder, pathlib.Path(out), inputs, expected
            )
            times = {ours: [], ort: []}
            calls = {}
            for run in times:
                run()
                start = time.perf_counter()
                run()
                once = max(time.perf_counter() - start, 1e-7)
                calls[run] = max(1, int(SECONDS_A_ROUND / once))
            for _ in range(ROUNDS):
                for run, samples in times.items():
                    start = time.perf_counter()
                    for _ in range(calls[run]):
                        run()
                    samples.append((time.perf_counter() - start) / calls[run])
        del kept, outputs
        ours_us, ort_us = (statistics.median(times[run]) * 1e6 for run in (ours, ort))
        ratios.append(ours_us / ort_us)
        row = [name, f"{compile_seconds * 1e3:.0f}", f"{ours_us:.1f}", f"{ort_us:.1f}"]
        print(f"| {' | '.join(row)} | {ratios[-1]:.2f} |", flush=True)
    print(f"\nGeometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")


main()
