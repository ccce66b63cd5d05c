"""The engines that are compared: each gets a model file and inputs, and hands back a call on bound memory.

Where outputs lie decides up to half of the time of what memory bounds, so all engines can be given the same arrays.
"""

import ctypes
import json
import subprocess

import numpy as np


class Failed(Exception):
    """The engine cannot run the model; the text says why."""


def reason(error):
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    # Where in its source an engine gave up says nothing to anybody else.
    lines = [line for line in lines if line and not line.startswith("Exception from")]
    return (lines[0] if lines else type(error).__name__)[:200]


def onnxruntime_call(model, inputs, threads):
    """The outputs of ONNX Runtime, and a call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        names = [port.name for port in session.get_inputs()]
        outputs = session.run(None, dict(zip(names, inputs, strict=True)))
        binding = session.io_binding()
        for name, array in zip(names, inputs):
            binding.bind_cpu_input(name, array)
        kept = [np.empty_like(array) for array in outputs]
        for port, out in zip(session.get_outputs(), kept):
            binding.bind_output(port.name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)
        session.run_with_iobinding(binding)
    except Exception as error:
        raise Failed(reason(error)) from error
    return kept, lambda: session.run_with_iobinding(binding)


def openvino_call(model, inputs, threads, outputs=None):
    """The outputs of OpenVINO in float32 and its latency mode, and a call. It writes to `outputs`, if given."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    try:
        compiled = openvino.Core().compile_model(str(model), "CPU", settings)
        request = compiled.create_infer_request()
        for position, array in enumerate(inputs):
            request.set_input_tensor(position, openvino.Tensor(array, shared_memory=True))
        request.infer()
        own = [request.get_output_tensor(position).data for position in range(len(compiled.outputs))]
        if outputs is None or [(a.shape, a.dtype) for a in outputs] != [(a.shape, a.dtype) for a in own]:
            outputs = [np.empty_like(array) for array in own]
        for position, array in enumerate(outputs):
            request.set_output_tensor(position, openvino.Tensor(array, shared_memory=True))
        request.infer()
    except Exception as error:
        raise Failed(reason(error)) from error

    return outputs, lambda: request.infer(share_inputs=True, share_outputs=True)


def niello_library(niello, backend, model, folder, threads, options=()):
    """The library that the command makes of a model, and what the command says about it."""
    summary = folder / "summary.json"
    command = [niello, "compile", str(model), "-o", str(folder), "--emit", "shared"]
    command += ["--backend", backend, "--json", str(summary), "--threads", str(threads), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(reason(done.stderr.removeprefix("error: ")))
    (library,) = [path for path in folder.iterdir() if path.suffix in (".so", ".dylib", ".dll")]
    return library, json.loads(summary.read_text())


def library_call(library, inputs, outputs):
    """The outputs of a library on inputs, and a call that writes to them."""
    run = ctypes.CDLL(str(library)).niello_run
    run.restype = ctypes.c_int

    def pointers(arrays):
        return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])

    given, taken = pointers(inputs), pointers(outputs)
    if run(given, taken) != 0:
        raise Failed("the compiled model failed")
    return outputs, lambda: run(given, taken)


def niello_call(niello, backend, model, inputs, outputs, folder, threads):
    """The outputs of a model that the command compiled, a call that writes to them, and what the command said."""
    library, summary = niello_library(niello, backend, model, folder, threads)
    return *library_call(library, inputs, outputs), summary
