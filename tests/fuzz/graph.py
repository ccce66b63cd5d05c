"""A graph under construction: values with what the generator has to know of them, constants, nodes."""

import math
import random
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
I8, U8, I32, I64 = (np.dtype(name) for name in ("int8", "uint8", "int32", "int64"))
BOOL = np.dtype("bool")
FLOATS = (F16, F32, F64)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    `high` is about the greatest magnitude of its elements; `low` their least value if all are positive, else None.
    `exact` means that they are small multiples of 1/8, on which operators that jump, such as Floor, agree everywhere.
    """

    name: str
    dtype: np.dtype
    shape: tuple
    high: float = 1.0
    low: float | None = None
    exact: bool = False

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def is_float(self):
        return self.dtype in FLOATS

    @property
    def is_int(self):
        return self.dtype.kind in "iu"


def onnx_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Graph:
    """What an ONNX model is made of, and the source of all decisions about it.

    Sizes are those of faults; `tests/bench/workload.py` has those of networks.
    """

    # Faults of shapes show in small tensors, and small kernels compile fast.
    most_elements, most_channels = 6000, 64
    # Of the windows of convolutions and pools, and of transposed convolutions.
    kernels, strides, dilations = [1, 2, 3, 3, 4, 5], [1, 1, 2, 3, 4], [1, 1, 1, 2, 3]
    transposed_kernels, transposed_strides, transposed_dilations = [1, 2, 3, 4], [1, 2, 2, 3], [1, 1, 1, 2]
    image_ranks = [3, 4, 4, 4, 4, 5]
    # How many of the leaves are inputs of the model.
    open_leaves = 0.15

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(self.rng.getrandbits(64))
        self.opset = self.rng.choice([13, 15, 17, 18, 20, 21, 22])
        self.float = self.rng.choices([F32, F16, F64], [80, 12, 8])[0]
        # NaN and infinities are in a few graphs only, as they hide whatever else is wrong. In `float16`, what is zero by
        # rounding alone is frequent, and times an infinity it is NaN.
        self.wild = self.rng.random() < 0.05 and self.float != F16
        self.inputs, self.feeds, self.initializers, self.nodes, self.values = [], {}, [], [], []
        self.count = 0

    def chance(self, probability):
        return self.rng.random() < probability

    def fresh(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def extent(self, channel=False):
        if channel:
            return self.rng.choice([1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 19, 24, 31, 32, 33])
        return self.rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17])

    def alike(self, choices, rank):
        """A number for each axis of a window."""
        return [self.rng.choice(choices) for _ in range(rank)]

    def padding(self, most):
        """Elements before or behind a tensor of which a window covers `most` beside one of its own."""
        return self.rng.randint(0, most)

    def shape(self, rank):
        shape = [self.extent(axis == 1) for axis in range(rank)]
        if rank > 2:
            shape[0] = self.rng.choice([1, 1, 1, 2, 3])
        while math.prod(shape) > self.most_elements:
            axis = self.rng.randrange(rank)
            shape[axis] = max(1, shape[axis] // 2)
        return tuple(shape)

    # Elements

    def array(self, shape, dtype, kind=None):
        """Random elements: normal, small exact numbers, or one number everywhere."""
        dtype = np.dtype(dtype)
        if dtype == BOOL:
            return self.data.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -9
            return self.data.integers(low, 10, shape).astype(dtype)
        kind = kind or self.rng.choices(["normal", "exact", "splat", "positive"], [10, 5, 1, 2])[0]
        if kind == "exact":
            array = self.data.integers(-16, 17, shape) / 8
        elif kind == "splat":
            array = np.full(shape, self.rng.choice([0.0, 1.0, -1.0, 0.5, -2.0, 3.0]))
        elif kind == "positive":
            array = self.data.uniform(0.25, 2.0, shape)
        else:
            array = np.clip(self.data.standard_normal(shape), -3, 3)
        array = np.asarray(array).astype(dtype)
        if self.wild and array.size and self.chance(0.4):
            wild = self.rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-40, 1e30])
            with np.errstate(over="ignore"):
                array.reshape(-1)[self.rng.randrange(array.size)] = wild
        return array

    def describe(self, name, array):
        """The value of given elements."""
        if array.dtype == BOOL or array.size == 0:
            return Value(name, array.dtype, array.shape, exact=array.dtype != BOOL)
        with np.errstate(invalid="ignore", over="ignore"):
            elements = array.astype(np.float64)
            finite = np.isfinite(elements).all()
            high = float(np.abs(elements).max()) if finite else 1e3
            low = float(elements.min()) if finite else -1.0
            exact = bool(finite and (elements * 8 == np.rint(elements * 8)).all())
        return Value(name, array.dtype, array.shape, max(high, 1e-3), low if low > 0 else None, exact)

    # Leaves

    def input(self, array):
        name = self.fresh("x")
        array = np.asarray(array)
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(array.dtype), array.shape))
        self.feeds[name] = array
        return self.describe(name, array)

    def constant(self, array):
        """An initializer, or now and then a node."""
        array = np.asarray(array)
        name = self.fresh("c")
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.12):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return self.describe(name, array)

    def ints(self, values):
        """A constant of shapes, axes and the like."""
        return self.constant(np.array(values, np.int64))

    def leaf(self, array):
        """A constant, or now and then an input of the model."""
        return self.input(array) if self.chance(self.open_leaves) else self.constant(array)

    # Nodes

    def node(self, op, inputs, shape, like=None, outputs=1, attributes=None, **known):
        """Adds a node. Its first output has `shape` and, unless `known` says otherwise, the type of `like`."""
        like = like or inputs[0]
        names = [self.fresh("v") for _ in range(outputs)]
        operands = [operand.name if isinstance(operand, Value) else "" for operand in inputs]
        while operands and not operands[-1]:
            operands.pop()
        attributes = {key: value for key, value in (attributes or {}).items() if value is not None}
        node = helper.make_node(op, operands, names, **attributes)
        self.nodes.append(node)
        value = Value(
            names[0],
            np.dtype(known.get("dtype", like.dtype)),
            tuple(int(extent) for extent in shape),
            min(known.get("high", like.high), 1e30),
            known.get("low"),
            known.get("exact", False),
        )
        self.values.append(value)
        return value

    def also(self, position, value):
        """Makes another output of the last node known: `value` under the name that it has there."""
        made = Value(self.nodes[-1].output[position], value.dtype, value.shape, value.high, value.low, value.exact)
        self.values.append(made)
        return made

    # The model

    def model(self):
        """The model, its outputs being what nothing reads and some of what something reads."""
        used = {name for node in self.nodes for name in node.input}
        outputs = [value for value in self.values if value.name not in used]
        inner = [value for value in self.values if value.name in used]
        for value in self.rng.sample(inner, min(len(inner), self.rng.choice([0, 0, 1, 2]))):
            outputs.append(value)
        declared = [helper.make_tensor_value_info(v.name, onnx_type(v.dtype), v.shape) for v in outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, declared, self.initializers)
        # The newest file format that ONNX Runtime reads, whatever the package `onnx` writes.
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def types_of(model):
    """The element type of each value of a model, as numpy knows it."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    infos = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {
        name: helper.tensor_dtype_to_np_dtype(kind) for name, kind in types.items() if kind != TensorProto.UNDEFINED
    }
