"""Gives a model random weights in place of constant ones.

The networks that the package `onnx` carries as `light_*.onnx` have weights whose elements are all the same, made by
ConstantOfShape: their files are small, and their cost is that of the real network. A compiler that noticed would win
for nothing. The weights made here are seeded, and keep the scale of what passes through the network: convolutions and
products get the normal distribution of He, the statistics of normalisations stay near those of normalised data.
"""

import zlib

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

# Less is no weight but an exponent, a scale or a shape.
MIN_ELEMENTS = 2


def constant_shape(node, initializers):
    """The shape that a ConstantOfShape makes, if it is known and its elements are float32."""
    shape = initializers.get(node.input[0])
    if node.op_type != "ConstantOfShape" or shape is None:
        return None
    values = [a.t for a in node.attribute if a.name == "value" and a.type == AttributeProto.TENSOR]
    if values and values[0].data_type != TensorProto.FLOAT:
        return None
    return tuple(int(extent) for extent in numpy_helper.to_array(shape))


def uses(graph):
    """For each name the first node that reads it, and the position there."""
    found = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            found.setdefault(name, (node, position))
    return found


def random_weight(name, shape, use):
    """Elements for a weight of this shape that is used there."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    node, position = use if use else (None, 0)
    op = node.op_type if node else ""
    if op == "BatchNormalization":
        # Scale, bias, mean, variance.
        if position in (1, 4):
            return rng.uniform(0.5, 1.5, shape)
        return rng.normal(0.0, 0.1, shape)
    if len(shape) < 2:
        return rng.normal(0.0, 0.05, shape)
    if op == "Gemm":
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        fan_in = shape[1] if transposed else shape[0]
    elif op == "MatMul":
        fan_in = shape[-2]
    else:
        fan_in = int(np.prod(shape[1:]))
    return rng.normal(0.0, np.sqrt(2.0 / max(fan_in, 1)), shape)


def randomize(model):
    """Replaces constant weights in place; returns how many there were."""
    graph = model.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    used = uses(graph)
    new = []
    for node in list(graph.node):
        shape = constant_shape(node, initializers) if node.input else None
        if shape is None or int(np.prod(shape)) < MIN_ELEMENTS:
            continue
        name = node.output[0]
        new.append((name, random_weight(name, shape, used.get(name))))
        graph.node.remove(node)
    for tensor in list(graph.initializer):
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size >= MIN_ELEMENTS and values.ndim > 0 and (values == values.flat[0]).all():
            new.append((tensor.name, random_weight(tensor.name, values.shape, used.get(tensor.name))))
            graph.initializer.remove(tensor)
    names = {port.name for port in graph.input}
    for name, values in new:
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
        # Models of the first versions list their weights among the inputs.
        if model.ir_version < 4 and name not in names:
            graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape))
    return len(new)
