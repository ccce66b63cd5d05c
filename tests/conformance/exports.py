"""Writes cases of what exporters write besides ONNX's own operators, with what ONNX Runtime computes.

    python tests/conformance/exports.py OUT

makes folders of the form of generate.py's. Each case is a small model of one node or a few; its inputs follow from its
name. The modules beside this one have them: a case is a function that is given a `Case` to fill.
"""

import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import microsoft
import ml
import sizes


class Case:
    """One model, while a function writes it."""

    def __init__(self, name, domain, opset):
        self.name, self.domain, self.opset, self.ml_opset = name, domain, opset, 3
        # The strings that outputs hold, which are their positions in what is compared with.
        self.labels = None
        # Fills another case, whose model says what this one computes.
        self.equivalent = None
        # Values of the inputs in other runs; then outputs are of any size.
        self.more = []
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.inputs, self.constants, self.feeds, self.outputs = [], [], [], {}, []

    def normal(self, *shape, scale=1.0, dtype=np.float32):
        return (self.random.standard_normal(shape) * scale).astype(dtype)

    def bytes(self, *shape, dtype=np.uint8):
        info = np.iinfo(dtype)
        return self.random.integers(info.min, info.max + 1, shape).astype(dtype)

    def input(self, array, name=None):
        """The name of an input of the model."""
        name = name or f"x{len(self.inputs)}"
        array = np.asarray(array)
        self.inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        )
        self.feeds[name] = array
        return name

    def constant(self, array, name=None):
        """The name of an initializer."""
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, outputs=("y",), domain=None, **attributes):
        outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        domain = self.domain if domain is None else domain
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def output(self, *names):
        self.outputs.extend(names)

    def model(self):
        outputs = self.outputs or [name for name in self.nodes[-1].output if name]
        graph = helper.make_graph(
            self.nodes,
            self.name,
            self.inputs,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.constants,
        )
        sets = [("", self.opset), ("com.microsoft", 1), ("ai.onnx.ml", self.ml_opset)]
        opsets = [helper.make_opsetid(domain, version) for domain, version in sets]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model, feeds):
    """What ONNX Runtime computes, as the nodes are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def as_numbers(case, result):
    """Labels as their positions, and maps from labels to scores as rows of these."""
    if isinstance(result, list):
        return np.array([[row[label] for label in case.labels] for row in result], np.float32)
    if result.dtype.kind in "OUS":
        return np.vectorize(case.labels.index)(result).astype(np.int64)
    return result


def write(case, out):
    model = case.model()
    run_by = model
    if case.equivalent:
        # Of the same name, and so of the same numbers.
        other = Case(case.name, case.domain, case.opset)
        case.equivalent(other)
        run_by = other.model()
    for number, feeds in enumerate([case.feeds, *case.more]):
        results = [as_numbers(case, result) for result in run(run_by, feeds)]
        for info, result in zip(model.graph.output, results, strict=True):
            kind = helper.np_dtype_to_tensor_dtype(result.dtype)
            shape = [None] * result.ndim if case.more else result.shape
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, shape))
        data = out / case.name / f"test_data_set_{number}"
        data.mkdir(parents=True)
        write_data(data, model, feeds, results)
    (out / case.name / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))


def write_data(data, model, feeds, results):
    for kind, arrays, infos in (
        ("input", feeds.values(), model.graph.input),
        ("output", results, model.graph.output),
    ):
        for position, (array, info) in enumerate(zip(arrays, infos, strict=True)):
            proto = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), info.name)
            (data / f"{kind}_{position}.pb").write_bytes(proto.SerializeToString(deterministic=True))


# Cases with products of bytes.
QUANTISED = ("dynamic_quantize_", "qattention_", "qgemm_", "qlinear_conv_")


def saturates():
    """Whether ONNX Runtime adds products of bytes in 16 bits, as it does on machines without dot products of them."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "saturates",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [numpy_helper.from_array(np.full((16, 1), 127, np.int8), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return run(model, {"a": np.full((1, 16), 255, np.uint8)})[0].item() != 16 * 255 * 127


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    count, failed = 0, []
    inexact = QUANTISED if saturates() else ()
    if inexact:
        print("skipped: quantised products, whose sums ONNX Runtime lets saturate on this machine", file=sys.stderr)
    for family in (microsoft, ml, sizes):
        for name, function in family.CASES.items():
            if family is microsoft and name.startswith(inexact):
                continue
            case = Case(f"{family.__name__}_{name}", family.DOMAIN, 21)
            try:
                function(case)
                write(case, out)
            except Exception as error:  # noqa: BLE001: it has many exceptions
                failed.append(f"{case.name}: {error}")
                continue
            count += 1
    if failed:
        sys.exit("\n".join(failed))
    print(f"{count} cases")


if __name__ == "__main__":
    main()
