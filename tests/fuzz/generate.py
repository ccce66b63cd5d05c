"""Random ONNX models: graphs of 3 to 14 nodes, biased to what compilers get wrong."""

import random

import contractions
import elementwise
import movement
from graph import BOOL, Graph

LEAST_NODES, MOST_NODES = 3, 14

# What a case is compiled for, and how often. `portable` is what a build script makes, with the level that is to run.
CPUS = [
    ("native", "", 6), ("x86-64", "", 4), ("x86-64-v2", "", 4), ("x86-64-v3", "", 5), ("x86-64-v4", "", 3),
    ("portable", "baseline", 1), ("portable", "x86-64-v3", 1), ("portable", "", 1),
]  # fmt: skip
LEVELS = [0, 1, 2, 3, 3, 3, 3, 4]


def setting(seed, graph):
    """The optimisation level, the CPU and the denormal mode of a case."""
    rng = random.Random(f"setting {seed}")
    cpu, running, _ = rng.choices(CPUS, [weight for _, _, weight in CPUS])[0]
    # ONNX Runtime keeps denormal numbers, and a quotient of two tells.
    return rng.choice(LEVELS), cpu, running, "keep" if graph.wild else "flush"


def choose(g, table, x):
    function = g.rng.choices([entry[0] for entry in table], [entry[1] for entry in table])[0]
    return function(g, x)


def start(g):
    """The first value: what a convolution, a matrix product or a pool makes of an input, or the input itself."""
    kind = g.rng.choices(["image", "matrix", "quantized", "plain", "integers"], [6, 6, 1.2, 3, 1.2])[0]
    if kind == "quantized":
        return contractions.quantized(g, None)
    if kind == "image":
        x = contractions.image(g, None)
        table = [(contractions.conv, 6), (contractions.pool, 2), (contractions.conv_transpose, 1), (contractions.normalize, 1)]
        return choose(g, table, x)
    if kind == "matrix":
        x = g.input(g.array(g.shape(g.rng.choice([2, 2, 2, 3, 3, 4])), g.float))
        return choose(g, [(contractions.matmul, 2), (contractions.gemm, 1)], x)
    dtype = g.float if kind == "plain" else g.rng.choice(["int32", "int64", "uint8", "int8"])
    return g.input(g.array(g.shape(g.rng.choice([0, 1, 2, 3, 3, 4])), dtype))


def step(g, x):
    """A node that reads `x`."""
    if x.dtype == BOOL:
        tables = [(elementwise.BOOL_OPS, 6), (movement.ALL_OPS, 1)]
    elif x.is_int:
        tables = [(elementwise.INT_OPS, 5), (contractions.INT_OPS, 2), (movement.ALL_OPS, 3)]
    else:
        tables = [(elementwise.FLOAT_OPS, 6), (contractions.FLOAT_OPS, 2.2), (movement.ALL_OPS, 2.2)]
    # A value that grows from node to node is soon infinite, which hides all else.
    if x.is_float and x.high > 1e4 and g.chance(0.8):
        return g.node("Tanh", [x], x.shape, high=1.0) if x.high < 1e8 else contractions.softmax(g, x)
    return choose(g, g.rng.choices([table for table, _ in tables], [weight for _, weight in tables])[0], x)


def graph(seed):
    """A random graph; the same for the same seed."""
    g = Graph(seed)
    target = g.rng.randint(LEAST_NODES, MOST_NODES)
    x = None
    for _ in range(200):
        if len(g.values) >= target:
            break
        if x is None:
            made = start(g)
        else:
            # Mostly what came last: chains are what is fused.
            former = g.rng.choice(g.values) if g.values and g.chance(0.2) else x
            made = step(g, former)
        if made is not None and made.size and made.rank <= 6:
            x = made
    return g
