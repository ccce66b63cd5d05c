"""Random models of one to three operators over shapes that occur in networks, for `sweep.py`.

Nodes are made by the generator of `tests/fuzz`, whose graphs are small and odd; here are the sizes and the operators of
networks: images of many channels, sequences, heads of attention, volumes.
"""

import math
import pathlib
import sys

import numpy as np
from onnx import helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fuzz"))

import contractions  # noqa: E402
import elementwise  # noqa: E402
import movement  # noqa: E402
from generate import choose  # noqa: E402
from graph import BOOL, F32, I8, I32, I64, U8, Graph  # noqa: E402

# Bounds of what is worth a measurement: what takes no time at all, and what takes too much of it.
LEAST_ELEMENTS, LEAST_PRODUCTS, MOST_PRODUCTS = 16_000, 500_000, 300_000_000

CHANNELS = [1, 3, 8, 16, 24, 32, 32, 40, 48, 58, 64, 64, 96, 100, 116, 128, 128, 144, 192, 255, 256, 320, 384, 512]
COLUMNS = [*CHANNELS[2:], 768, 1000, 1024, 2048, 3072]
ROWS = [1, 1, 4, 16, 32, 49, 50, 64, 77, 100, 128, 128, 196, 197, 256, 384, 400, 512, 1000, 1500]
SIDES = [7, 8, 10, 13, 14, 16, 19, 20, 26, 28, 32, 38, 40, 52, 56, 64, 75, 80, 112, 128, 150, 160, 224]

IMAGES = [
    (contractions.conv, 9), (contractions.conv_transpose, 2), (contractions.pool, 3), (contractions.global_pool, 1),
    (contractions.normalize, 2), (movement.resize, 1.5), (movement.channel_shuffle, 1.5), (movement.blocks, 0.7),
]  # fmt: skip
MATRICES = [
    (contractions.matmul, 4), (contractions.gemm, 1.5), (contractions.softmax, 2), (contractions.normalize, 2),
    (contractions.einsum, 0.5), (movement.triangle, 0.3),
]  # fmt: skip
TENSORS = [
    (contractions.reduce, 5), (contractions.arg_reduce, 0.7), (contractions.scan_axis, 0.7), (contractions.softmax, 1),
    (movement.transpose, 3), (movement.slice_, 2), (movement.concat, 3), (movement.split, 2), (movement.gather, 2),
    (movement.grow, 1.5), (movement.pad, 1), (movement.top, 0.5), (movement.scatter, 0.5), (movement.reshape, 0.5),
    (elementwise.relu_like, 3), (elementwise.arithmetic, 4), (elementwise.clip, 1), (elementwise.power, 0.7),
    (elementwise.compare, 0.7), (elementwise.where, 1),
]  # fmt: skip
INTEGERS = [
    (contractions.quantized, 4), (elementwise.integer, 3), (elementwise.cast, 3), (elementwise.compare, 1),
    (elementwise.where, 0.7), (elementwise.logic, 1), (contractions.reduce, 1), (contractions.arg_reduce, 0.5),
    (contractions.scan_axis, 0.3), (movement.transpose, 1), (movement.gather, 0.5), (movement.concat, 0.5),
]  # fmt: skip


class Workload(Graph):
    """A graph of sizes that occur."""

    most_elements, most_channels = 600_000, 512
    kernels, strides, dilations = [1, 1, 3, 3, 3, 3, 5, 7], [1, 1, 1, 2], [1, 1, 1, 1, 1, 2]
    transposed_kernels, transposed_strides, transposed_dilations = [2, 3, 4, 4, 5], [1, 2, 2], [1]
    open_leaves = 0.04

    def __init__(self, seed):
        super().__init__(seed)
        self.opset, self.float, self.wild = self.rng.choice([13, 17, 20]), F32, False

    def alike(self, choices, rank):
        if self.chance(0.1):
            return super().alike(choices, rank)
        return [self.rng.choice(choices)] * rank

    def padding(self, most):
        return most // 2 if self.chance(0.8) else 0

    def extent(self, channel=False):
        return self.rng.choice(CHANNELS if channel else ROWS)

    def shape(self, rank):
        choice = self.rng.choice
        batch = choice([1, 1, 1, 1, 2, 4])
        if rank < 2:
            shape = [choice([8_400, 20_000, 50_000, 100_000, 300_000])] * rank
        elif rank == 2:
            shape = [choice(ROWS), choice(COLUMNS)]
        elif rank == 3 and self.chance(0.5):
            shape = [batch, choice(CHANNELS), choice(SIDES) * choice([8, 16, 25, 64])]
        elif rank == 3:
            shape = [batch, choice(ROWS), choice(COLUMNS)]
        elif rank == 4 and self.chance(0.15):
            shape = [batch, choice([4, 6, 8, 12]), choice(ROWS), choice([32, 64, 77, 128])]
        else:
            shape = [batch, choice(CHANNELS), *[choice(SIDES)] * 2]
            if self.chance(0.2):
                shape[-1] = choice(SIDES)
            shape[2:2] = [choice([4, 8, 16]) for _ in range(rank - 4)]
        # The first axis of matrices and the space of images are what varies most in networks.
        while math.prod(shape) > self.most_elements:
            axis = max(range(rank), key=lambda axis: shape[axis])
            shape[axis] = max(1, -(-shape[axis] // 2))
        return tuple(shape)

    def array(self, shape, dtype, kind=None):
        plain = np.dtype(dtype).kind == "f" and kind is None
        return super().array(shape, dtype, self.rng.choices(["normal", "positive"], [8, 1])[0] if plain else kind)


def step(g, x):
    """A node that reads `x`; the first one makes its own operand."""
    if x is None:
        table = g.rng.choices([IMAGES, MATRICES, TENSORS, INTEGERS], [5, 2.5, 4, 1.5])[0]
        if table is IMAGES:
            x = contractions.image(g, None)
        else:
            dtype = g.rng.choice([I32, I64, I64, U8, U8, I8, BOOL, F32]) if table is INTEGERS else F32
            rank = g.rng.choice([2, 2, 3, 4] if table is MATRICES else [1, 2, 3, 3, 4, 4, 5])
            x = g.input(g.array(g.shape(rank), dtype))
        return choose(g, table, x)
    if x.dtype == BOOL:
        return choose(g, elementwise.BOOL_OPS, x)
    tables = [(elementwise.FLOAT_OPS, 5), (TENSORS, 3)]
    if x.rank > 1:
        tables.append((MATRICES, 1.5))
    if x.rank > 2:
        tables.append((IMAGES, 3))
    return choose(g, g.rng.choices([table for table, _ in tables], [weight for _, weight in tables])[0], x)


def attempt(seed):
    g = Workload(seed)
    target, x = g.rng.choice([1, 1, 1, 2, 2, 3]), None
    for _ in range(40):
        made = step(g, x)
        if made is not None:
            x = made
            # One operator may be several nodes.
            target -= 1
        elif not g.values:
            return None
        if target == 0 or (x.is_int and x.dtype != BOOL):
            return g
    return None


def shapes_of(g):
    shapes = {value.name: value.shape for value in g.values}
    shapes |= {name: array.shape for name, array in g.feeds.items()}
    for tensor in [*g.initializers, *(a.t for n in g.nodes if n.op_type == "Constant" for a in n.attribute)]:
        shapes[tensor.name] = tuple(tensor.dims)
    return shapes


# Where the weights are among the inputs of convolutions, and operators whose first operand has as many columns as terms.
WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
PRODUCTS = {"MatMul", "Gemm", "Einsum", "MatMulInteger", "QLinearMatMul"}


def products(g):
    """Multiply-accumulate operations of a graph."""
    shapes, total = shapes_of(g), 0
    for node in g.nodes:
        if node.op_type in WEIGHTS:
            result = shapes[node.input[0] if node.op_type == "ConvTranspose" else node.output[0]]
            total += math.prod(result) * math.prod(shapes[node.input[WEIGHTS[node.op_type]]][1:])
        elif node.op_type in PRODUCTS and len(node.input) > 1:
            total += math.prod(shapes[node.output[0]]) * max(shapes[node.input[0]][-2:], default=1)
    return total


def workload(seed):
    """A random graph worth a measurement; the same for the same seed."""
    for number in range(1000):
        g = attempt(f"{seed}/{number}")
        if g is None or not any(value.size for value in g.values):
            continue
        work, largest = products(g), max(math.prod(shape) for shape in shapes_of(g).values())
        if work <= MOST_PRODUCTS and (largest >= LEAST_ELEMENTS or work >= LEAST_PRODUCTS):
            return g
    raise RuntimeError(f"no graph of a thousand for the seed {seed} is worth a measurement")


def described(g):
    """Operators with attributes and shapes in a line."""
    shapes, parts = shapes_of(g), []
    kinds = {tensor.name for tensor in g.initializers}
    for node in g.nodes:
        if node.op_type == "Constant":
            kinds.add(node.output[0])
            continue
        operands = [("c:" if name in kinds else "") + "x".join(map(str, shapes.get(name, ()))) for name in node.input if name]
        given = [f"{a.name}={helper.get_attribute_value(a)}".replace(" ", "") for a in node.attribute if a.type != a.TENSOR]
        parts.append(f"{node.op_type}({', '.join(operands)}{'; ' if given else ''}{' '.join(given)})")
    return " → ".join(parts)


def copies(model, feeds, count):
    """A model of `count` copies of another one side by side, with inputs of their own and the same constants."""
    graph, kept = model.graph, {tensor.name for tensor in model.graph.initializer}
    nodes, inputs, outputs, all_feeds = [], [], [], {}
    for copy in range(count):
        def named(name, copy=copy):
            return name if not name or name in kept else f"{name}_{copy}"

        for node in graph.node:
            made = type(node)()
            made.CopyFrom(node)
            made.input[:] = [named(name) for name in node.input]
            made.output[:] = [named(name) for name in node.output]
            nodes.append(made)
        for ports, into in ((graph.input, inputs), (graph.output, outputs)):
            for port in ports:
                made = type(port)()
                made.CopyFrom(port)
                made.name = named(port.name)
                into.append(made)
        all_feeds |= {named(name): np.array(array) for name, array in feeds.items()}
    several = helper.make_graph(nodes, graph.name, inputs, outputs, graph.initializer)
    return helper.make_model(several, opset_imports=model.opset_import, ir_version=model.ir_version), all_feeds


