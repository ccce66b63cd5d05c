"""Writes models of many families, of random weights, with what ONNX Runtime computes.

    python tests/zoo/zoo.py OUT [FAMILY...]

makes a folder for each model that `niello test` runs: the model, the bounds of its batch, inputs and outputs at two sizes
of it. OUT/index.json lists them. The modules beside this one have the families; each is a function and its variants.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from net import BATCH, Net

MODULES = ["images", "dense_outputs", "generative", "sequences", "attention", "tabular"]
SIZES = (3, 1)


def results(model, feeds):
    """What ONNX Runtime computes of each, as the nodes are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def type_outputs(model, sizes, runs):
    """Gives the outputs the shapes that came out; what grew as the batch did is the batch."""
    for info, *arrays in zip(model.graph.output, *runs, strict=True):
        shapes = [array.shape for array in arrays]
        dims = [BATCH if of != (of[0],) * len(of) and of == tuple(sizes) else of[0] for of in zip(*shapes, strict=True)]
        kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, dims))


def write(folder, model, feeds, batched):
    """One case: `feeds` are the inputs of each data set. Returns how far elements may be apart that are nearly zero: sums
    that cancel keep what the rounding of their terms was."""
    runs = results(model, feeds)
    greatest = [np.abs(array).max() for run in runs for array in run if array.dtype.kind == "f" and array.size]
    if not np.isfinite(greatest).all():
        raise ValueError("elements of the outputs are not finite")
    type_outputs(model, SIZES if batched else (None,), runs)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    if batched:
        (folder / "dims.json").write_text(json.dumps({BATCH: f"1..={max(SIZES)}"}))
    for number, (feed, run) in enumerate(zip(feeds, runs, strict=True)):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for kind, arrays, infos in (("input", feed.values(), model.graph.input), ("output", run, model.graph.output)):
            for position, (array, info) in enumerate(zip(arrays, infos, strict=True)):
                proto = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), info.name)
                (data / f"{kind}_{position}.pb").write_bytes(proto.SerializeToString(deterministic=True))
    return 4e-6 * float(max(greatest, default=0))


def make(name, function, variant):
    """The model of a variant, and a function that gives its inputs for a size of the batch."""
    net = Net(name)
    made = function(net, **variant)
    if isinstance(made, onnx.ModelProto):
        model = made
    else:
        model = net.model([made] if isinstance(made, str) else made)
    return model, lambda size: {name: feed(size) for name, feed in net.feeds.items()}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, asked = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True)
    index, failed, seen = [], [], set()
    for module in map(importlib.import_module, MODULES):
        for family, (function, variants) in module.FAMILIES.items():
            if family in seen:
                sys.exit(f"there are two families {family}")
            seen.add(family)
            if asked and family not in asked:
                continue
            for variant, options in variants.items():
                name = f"{family}-{variant}"
                try:
                    model, feed = make(name, function, options)
                    batched = any(
                        dim.dim_param == BATCH for info in model.graph.input for dim in info.type.tensor_type.shape.dim
                    )
                    atol = write(out / name, model, [feed(size) for size in (SIZES if batched else (1,))], batched)
                except Exception as error:  # noqa: BLE001: the packages have many
                    failed.append(f"{name}: {type(error).__name__}: {error}")
                    continue
                operators = sorted({node.op_type for node in model.graph.node})
                about = function.__doc__.strip()
                index.append(dict(name=name, family=family, about=about, operators=operators, atol=atol))
    if failed:
        sys.exit("\n".join(failed))
    (out / "index.json").write_text(json.dumps(index, indent=1))
    print(f"{len(index)} models")


if __name__ == "__main__":
    main()
