"""Cases of results that are as large as the elements of inputs say, each run with several inputs."""

import numpy as np
from onnx import TensorProto, helper

DOMAIN = ""
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def runs(c, *names):
    """Inputs of a run for each row of values, of which the model has the first."""

    def add(*rows):
        for name, value in zip(names, rows[0], strict=True):
            c.input(value, name)
        c.more = [dict(zip(names, row, strict=True)) for row in rows[1:]]

    return add


def sparse(c, *shape):
    """Numbers of which about half are zero."""
    return c.normal(*shape) * (c.random.random(shape) > 0.5)


def around(c, *shape):
    """Some, none and all elements that are not zero."""
    return [(sparse(c, *shape).astype(np.float32),), (np.zeros(shape, np.float32),), (np.ones(shape, np.float32),)]


@case
def elements_that_are_not_zero(c):
    runs(c, "x")(*around(c, 3, 4, 5))
    c.node("NonZero", ["x"], "at")
    c.node("Transpose", ["at"], "rows", perm=[1, 0])
    c.node("GatherND", ["x", "rows"], "found")
    c.node("Mul", ["found", "found"], "squares")
    c.node("ReduceSum", ["squares"], "sum", keepdims=0)
    c.output("at", "squares", "sum")


@case
def how_many_are_not_zero(c):
    runs(c, "x", "v")(*[(x, np.float32([2])) for (x,) in around(c, 6, 5)])
    one, zero, axes = c.constant(np.int64(1)), c.constant(np.int64(0)), c.constant(np.int64([0]))
    c.node("NonZero", ["x"], "at")
    c.node("Shape", ["at"], "shape")
    c.node("Gather", ["shape", one], "count", axis=0)
    c.node("Range", [zero, "count", one], "numbers")
    c.node("Cast", ["numbers"], "floats", to=TensorProto.FLOAT)
    c.node("Unsqueeze", ["count", axes], "length")
    c.node("Expand", ["v", "length"], "twos")
    c.node("Add", ["twos", "floats"], "y")


@case
def rows_that_are_kept(c):
    rows = c.normal(9, 8)
    runs(c, "x", "a")(*[(rows, a) for (a,) in around(c, 9)])
    c.node("Greater", ["a", c.constant(np.float32(0))], "keep")
    c.node("Compress", ["x", "keep"], "kept", axis=0)
    c.node("MatMul", ["kept", c.constant(c.normal(8, 3))], "product")
    c.node("Softmax", ["product"], "y", axis=-1)
    c.node("ReduceMax", ["y", c.constant(np.int64([1]))], "most")
    c.output("y", "most")


@case
def images_that_are_kept(c):
    images = c.normal(5, 8, 11, 9)
    kept = [[True, False, True, True, False], [False] * 5, [True] * 5]
    runs(c, "x", "keep")(*[(images, np.array(keep)) for keep in kept])
    c.node("Compress", ["x", "keep"], "kept", axis=0)
    c.node("Conv", ["kept", c.constant(c.normal(16, 8, 3, 3))], "image", pads=[1, 1, 1, 1])
    c.node("Relu", ["image"], "positive")
    c.node("MaxPool", ["positive"], "y", kernel_shape=[2, 2], strides=[2, 2])


@case
def what_is_kept_of_what_is_kept(c):
    runs(c, "x")((c.normal(30),), (-np.ones(30, np.float32),))
    half = c.constant(np.float32(0.5))
    c.node("Greater", ["x", c.constant(np.float32(0))], "positive")
    c.node("Compress", ["x", "positive"], "some")
    c.node("Greater", ["some", half], "large")
    c.node("Compress", ["some", "large"], "few")
    c.node("Where", ["large", "some", half], "clipped")
    c.output("few", "clipped")


@case
def attention_of_what_is_there(c):
    rows = c.normal(20, 16)
    runs(c, "x", "mask")(*[(rows, mask) for (mask,) in around(c, 20)])
    c.node("NonZero", ["mask"], "at")
    c.node("Squeeze", ["at", c.constant(np.int64([0]))], "which")
    c.node("Gather", ["x", "which"], "k", axis=0)
    c.node("Transpose", ["k"], "t", perm=[1, 0])
    c.node("MatMul", ["k", "t"], "scores")
    c.node("Softmax", ["scores"], "weights", axis=-1)
    c.node("MatMul", ["weights", "k"], "y")


@case
def as_many_as_an_input_says(c):
    x = c.normal(4, 7)
    runs(c, "x", "k")(*[(x, np.int64([k])) for k in (3, 0, 7)])
    c.node("TopK", ["x", "k"], ["values", "places"], axis=1)


def unique(sorted_, axis, shape, dtype):
    def add(c):
        runs(c, "x")(*[(c.random.integers(0, most, shape).astype(dtype),) for most in (3, 1, 1000)])
        attributes = {} if axis is None else {"axis": axis}
        c.node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=sorted_, **attributes)

    return add


for order, sorted_ in (("sorted", 1), ("in_order", 0)):
    CASES[f"unique_{order}"] = unique(sorted_, None, (4, 6), np.float32)
    CASES[f"unique_rows_{order}"] = unique(sorted_, 0, (7, 3), np.float32)
    CASES[f"unique_columns_{order}"] = unique(sorted_, 1, (2, 5, 2), np.int64)


def boxes(c, images, count, centred):
    places, sizes = c.random.random((images, count, 2)) * 10, c.random.random((images, count, 2)) * 4 + 0.1
    return np.concatenate([places, sizes if centred else places + sizes], -1).astype(np.float32)


def suppression(images, count, classes, most, overlap, score, centred):
    def add(c):
        some = [(boxes(c, images, count, centred), c.random.random((images, classes, count), np.float32)) for _ in "123"]
        alike = np.repeat(boxes(c, images, 1, centred), count, 1)
        none = (some[0][0], np.zeros((images, classes, count), np.float32))
        runs(c, "boxes", "scores")(*some, none, (alike, np.ones((images, classes, count), np.float32)))
        inputs = ["boxes", "scores", c.constant(np.int64([most])), c.constant(np.float32([overlap]))]
        if score is not None:
            inputs.append(c.constant(np.float32([score])))
        c.node("NonMaxSuppression", inputs, "y", center_point_box=int(centred))

    return add


CASES["suppression"] = suppression(1, 20, 1, 5, 0.5, 0.2, False)
CASES["suppression_of_images"] = suppression(2, 30, 3, 100, 0.3, None, False)
CASES["suppression_around_centres"] = suppression(1, 50, 2, 7, 0.0, 0.5, True)


@case
def detector(c):
    """What follows a detector's network: the best boxes, with their scores and classes."""
    scores = [c.random.random((1, 6, 100), np.float32) for _ in "12"] + [np.zeros((1, 6, 100), np.float32)]
    runs(c, "boxes", "scores")(*[(boxes(c, 1, 100, False), s) for s in scores])
    numbers = [c.constant(np.array(number)) for number in (0, 1, 2)]
    axes = [c.constant(np.int64([axis])) for axis in (0, 1)]
    limits = [c.constant(np.int64([20])), c.constant(np.float32([0.4])), c.constant(np.float32([0.6]))]
    c.node("NonMaxSuppression", ["boxes", "scores", *limits], "rows")
    c.node("Gather", ["rows", numbers[2]], "which", axis=1)
    c.node("Gather", ["rows", numbers[1]], "class", axis=1)
    c.node("Squeeze", ["boxes", axes[0]], "all")
    c.node("Gather", ["all", "which"], "best", axis=0)
    c.node("GatherND", ["scores", "rows"], "score")
    c.node("Cast", ["class"], "classes", to=TensorProto.FLOAT)
    c.node("Unsqueeze", ["score", axes[1]], "scores_of")
    c.node("Unsqueeze", ["classes", axes[1]], "classes_of")
    c.node("Concat", ["best", "scores_of", "classes_of"], "y", axis=1)


@case
def a_loop_that_a_condition_ends(c):
    value, row = helper.make_tensor_value_info, [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "before"], ["after"]),
            helper.make_node("Less", ["after", "limit"], ["goes_on"]),
            helper.make_node("Mul", ["after", "w"], ["row"]),
        ],
        "body",
        [value("step", row[1], []), value("condition", row[2], []), value("before", row[0], [])],
        [value("goes_on", row[2], []), value("after", row[0], []), value("row", row[0], [3])],
    )
    starts = [np.array(start, np.float32) for start in (1, 30, 1e-9, 200)]
    runs(c, "x", "limit")(*[(start, np.array(100, np.float32)) for start in starts])
    c.constant(c.normal(3), "w")
    c.node("Loop", [c.constant(np.array(20)), c.constant(np.array(True)), "x"], ["last", "rows"], body=body)
    c.node("ReduceSum", ["rows"], "sum", keepdims=0)
    c.output("last", "rows", "sum")
