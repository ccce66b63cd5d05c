"""Writes the ONNX backend node tests as folders, the operator conformance suite.

    python tests/conformance/generate.py OUT

makes OUT/<case>/model.onnx, OUT/<case>/test_data_set_0/input_K.pb and output_K.pb, K being the position in the graph's
inputs and outputs. A value is a TensorProto, SequenceProto or OptionalProto, as its type in the graph says. The cases
come from the package `onnx`, which seeds numpy before each one; the same package version gives the same files.
"""

import random
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node

# What onnx 1.23.2 has. Another count means that the suite changed and the lists beside this file with it.
CASES = 1884


def to_proto(value, info):
    """Returns the protobuf message of one input or output."""
    match info.type.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.from_list(value, info.name)
        case "optional_type":
            return numpy_helper.from_optional(value, info.name)
        case "map_type":
            return numpy_helper.from_dict(value, info.name)
        case "tensor_type":
            if isinstance(value, onnx.TensorProto):
                return value
            return numpy_helper.from_array(np.asarray(value), info.name)
        case other:
            raise ValueError(f"{info.name} has a {other}, which no case had so far")


def write(case, folder):
    folder.mkdir()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString(deterministic=True))
    for index, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{index}"
        data.mkdir()
        for kind, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for position, (value, info) in enumerate(zip(values, infos, strict=True)):
                proto = to_proto(value, info)
                (data / f"{kind}_{position}.pb").write_bytes(proto.SerializeToString(deterministic=True))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    warnings.simplefilter("ignore")
    # Each case seeds numpy itself; these two are for code that runs between them.
    random.seed(0)
    np.random.seed(0)
    cases = node.collect_testcases()
    names = {case.name for case in cases}
    if len(cases) != CASES or len(names) != CASES:
        sys.exit(f"onnx {onnx.__version__} has {len(cases)} cases ({len(names)} names), not {CASES}")
    for case in cases:
        write(case, out / case.name)
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
