"""Says which operators the ONNX standard has, and which of them each node test uses with which types.

    python tests/conformance/operators.py CASES OUT

CASES is what generate.py wrote. OUT is a JSON object: `opset`, the newest one; `operators`, for each name of the
standard domain the versions in which it appeared or changed, and whether the last one deprecated it; `cases`, for each
case pairs of an operator and the type of its first input (of its output if it has none).
"""

import json
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, defs


def history():
    """Versions and deprecation of every operator of the standard domain."""
    operators = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            operators.setdefault(schema.name, []).append((schema.since_version, schema.deprecated))
    return {
        name: {"since": sorted(since for since, _ in versions), "deprecated": max(versions)[1]}
        for name, versions in operators.items()
    }


def types_of(model):
    """The element type of each value that is a tensor and whose type is known."""
    try:
        model = onnx.shape_inference.infer_shapes(model)
    except Exception:  # Models that are no valid ones are test cases, too.
        pass
    graph = model.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.WhichOneof("value") == "tensor_type":
            types[value.name] = value.type.tensor_type.elem_type
    names = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
    lower = lambda kind: names.get(kind, TensorProto.DataType.Name(kind).lower())
    return {name: lower(kind) for name, kind in types.items()}


def operators_of(model):
    types = types_of(model)
    pairs = set()
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        named = [name for name in node.input if name] or list(node.output)
        kind = types.get(named[0]) if named else None
        if kind:
            pairs.add((node.op_type, kind))
    return sorted(pairs)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cases = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        # What a function expands to says little about the operator that the case is for.
        if not folder.name.endswith("_expanded") and "_expanded_" not in folder.name:
            cases[folder.name] = operators_of(onnx.load(folder / "model.onnx"))
    result = {"opset": defs.onnx_opset_version(), "operators": history(), "cases": cases}
    Path(sys.argv[2]).write_text(json.dumps(result, indent=0, sort_keys=True))


if __name__ == "__main__":
    main()
