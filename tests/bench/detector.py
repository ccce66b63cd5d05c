"""Adds what comes after YOLOX to its graph: boxes from the outputs, and NonMaxSuppression. For sizes.py and latency.py.

    detector.py [--boxes 20] [--overlap 0.45] [--score 0.01] MODEL OUT.onnx

The model's output is [1, places, 5 + classes] for strides of 8, 16 and 32. The new outputs are `boxes`, [n, 4], as
corners in pixels, `scores`, [n], and `classes`, [n], where n depends on the image.
"""

import argparse

import numpy as np
import onnx
from decoder import Builder
from onnx import TensorProto, helper

STRIDES = (8, 16, 32)


def places(side):
    """The corners and strides of a YOLOX's places in an image of that side."""
    corners, strides = [], []
    for stride in STRIDES:
        rows, columns = np.mgrid[: side // stride, : side // stride]
        corners.append(np.stack([columns.ravel(), rows.ravel()], -1))
        strides.append(np.full((rows.size, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(strides).astype(np.float32)


def with_boxes(model, most, overlap, score):
    b = Builder()
    raw = model.graph.output[0].name
    classes = model.graph.output[0].type.tensor_type.shape.dim[2].dim_value - 5
    corners, strides = places(model.graph.input[0].type.tensor_type.shape.dim[2].dim_value)
    sizes = b.ints(2, 2, 1, classes)
    parts = ["centre", "extent", "is_object", "of_class"]
    centre, extent, is_object, of_class = b.node("Split", raw, sizes, to=parts, axis=2)
    strides = b.constant(strides)
    centre = b.node("Mul", b.node("Add", centre, b.constant(corners)), strides)
    half = b.node("Mul", b.node("Mul", b.node("Exp", extent), strides), b.constant(np.float32(0.5)))
    # As NonMaxSuppression takes them, opposite corners in any order of the axes.
    boxes = b.node("Concat", b.node("Sub", centre, half), b.node("Add", centre, half), axis=2)
    scores = b.node("Transpose", b.node("Mul", is_object, of_class), perm=[0, 2, 1])
    limits = [b.ints(most), *(b.constant(np.float32([limit])) for limit in (overlap, score))]
    kept = b.node("NonMaxSuppression", boxes, scores, *limits)
    place = b.node("Gather", kept, b.constant(np.int64(2)), axis=1)
    b.node("Gather", b.node("Squeeze", boxes, b.ints(0)), place, to=["boxes"], axis=0)
    b.node("GatherND", scores, kept, to=["scores"])
    b.node("Gather", kept, b.constant(np.int64(1)), to=["classes"], axis=1)
    model.graph.node.extend(b.nodes)
    model.graph.initializer.extend(b.constants.values())
    del model.graph.output[:]
    info = helper.make_tensor_value_info
    for name, dtype, shape in (
        ("boxes", TensorProto.FLOAT, ["n", 4]),
        ("scores", TensorProto.FLOAT, ["n"]),
        ("classes", TensorProto.INT64, ["n"]),
    ):
        model.graph.output.append(info(name, dtype, shape))
    model = onnx.version_converter.convert_version(model, 13) if model.opset_import[0].version < 13 else model
    onnx.checker.check_model(model)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=20)
    parser.add_argument("--overlap", type=float, default=0.45)
    parser.add_argument("--score", type=float, default=0.01)
    parser.add_argument("model")
    parser.add_argument("out")
    args = parser.parse_args()
    onnx.save(with_boxes(onnx.load(args.model), args.boxes, args.overlap, args.score), args.out)


if __name__ == "__main__":
    main()
