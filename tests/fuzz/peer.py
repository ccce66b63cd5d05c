"""Models by ONNX Runtime, without its optimisations: what results are compared with first."""

import numpy as np
import onnxruntime


def options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Its warnings are about models that nobody will keep.
    options.log_severity_level = 4
    return options


OPTIONS = options()


def run(model, feeds):
    """The outputs of a model; an exception if ONNX Runtime does not take it."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]
