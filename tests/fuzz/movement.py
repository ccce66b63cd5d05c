"""Random nodes that move elements: views, slices, gathers, pads, copies, resizes."""

import math

import numpy as np
from graph import BOOL, F16, F32, F64, I32, I64


def moved(g, op, inputs, shape, attributes=None):
    """A node whose elements are those of its first operand."""
    x = inputs[0]
    return g.node(op, inputs, shape, attributes=attributes, high=x.high, low=x.low, exact=x.exact)


def transpose(g, x):
    if x.rank < 2:
        return None
    order = list(range(x.rank))
    g.rng.shuffle(order)
    return moved(g, "Transpose", [x], [x.shape[axis] for axis in order], {"perm": order})


def factors(g, size, count):
    """Extents of which there are `size` elements."""
    shape = []
    for _ in range(count - 1):
        divisors = [d for d in range(1, min(size, 64) + 1) if size % d == 0]
        shape.append(g.rng.choice(divisors))
        size //= shape[-1]
    shape.append(size)
    g.rng.shuffle(shape)
    return shape


def reshape(g, x):
    shape = factors(g, x.size, g.rng.randint(1, 4))
    if g.chance(0.3) and x.rank > 1:
        axis = g.rng.randrange(x.rank - 1)
        shape = [*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]]
    given = list(shape)
    if g.chance(0.4):
        given[g.rng.randrange(len(given))] = -1
    for axis in range(min(len(given), x.rank)):
        if given[axis] == x.shape[axis] and g.chance(0.3):
            given[axis] = 0
    return moved(g, "Reshape", [x, g.ints(given)], shape)


def channel_shuffle(g, x):
    """Channels of some groups in turns, as ShuffleNet has them: two shapes and a transpose between them."""
    groups = [count for count in (2, 3, 4, 8) if x.rank > 2 and x.shape[1] > count and x.shape[1] % count == 0]
    if not groups:
        return None
    group, rest = g.rng.choice(groups), x.shape[2:]
    apart = (x.shape[0], group, x.shape[1] // group, *rest)
    turned = moved(g, "Reshape", [x, g.ints(apart)], apart)
    order = [0, 2, 1, *range(3, x.rank + 1)]
    turned = moved(g, "Transpose", [turned], [apart[axis] for axis in order], {"perm": order})
    return moved(g, "Reshape", [turned, g.ints(x.shape)], x.shape)


def views(g, x):
    op = g.rng.choice(["Flatten", "Squeeze", "Unsqueeze"])
    if op == "Flatten":
        axis = g.rng.randint(0, x.rank)
        return moved(g, op, [x], [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])], {"axis": axis})
    if op == "Squeeze":
        ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
        if not ones:
            return None
        axes = g.rng.sample(ones, g.rng.randint(1, len(ones)))
        shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
        return moved(g, op, [x, g.ints([axis - x.rank * g.rng.randint(0, 1) for axis in axes])], shape)
    if x.rank > 4:
        return None
    rank = x.rank + g.rng.randint(1, 2)
    axes = g.rng.sample(range(rank), rank - x.rank)
    rest = iter(x.shape)
    shape = [1 if axis in axes else next(rest) for axis in range(rank)]
    return moved(g, op, [x, g.ints([axis - rank * g.rng.randint(0, 1) for axis in axes])], shape)


def slice_(g, x):
    if not x.rank:
        return None
    axes = g.rng.sample(range(x.rank), g.rng.randint(1, min(3, x.rank)))
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for axis in axes:
        extent = x.shape[axis]
        step = g.rng.choice([1, 1, 1, 2, 3, -1, -1, -2])
        first, last = sorted((g.rng.randrange(extent), g.rng.randrange(extent)))
        start, end = (first, last + 1) if step > 0 else (last, first - 1)
        shape[axis] = -(-(last - first + 1) // abs(step))
        # Beyond the ends counts as the end, and negative positions count from there.
        if end < 0 or (step > 0 and end == extent and g.chance(0.4)):
            end = 2**31 - 1 if step > 0 else -(2**31)
        elif g.chance(0.3) and end != extent:
            end -= extent
        if g.chance(0.3):
            start -= extent
        starts.append(start)
        ends.append(end)
        steps.append(step)
    given = [axis - x.rank * g.rng.randint(0, 1) for axis in axes]
    operands = [x, g.ints(starts), g.ints(ends), g.ints(given)]
    if any(step != 1 for step in steps) or g.chance(0.3):
        operands.append(g.ints(steps))
    return moved(g, "Slice", operands, shape)


def others(g, x, axis):
    """Values that can be joined with `x` along an axis."""
    def rest(shape):
        return (*shape[:axis], *shape[axis + 1 :])

    return [v for v in g.values if v.dtype == x.dtype and v.rank == x.rank and rest(v.shape) == rest(x.shape)]


def concat(g, x):
    if not x.rank:
        return None
    axis = g.rng.randrange(x.rank)
    parts = [x]
    for _ in range(g.rng.randint(1, 3)):
        if g.chance(0.6):
            parts.append(g.rng.choice(others(g, x, axis) or [x]))
        else:
            shape = list(x.shape)
            shape[axis] = g.rng.randint(1, 5)
            parts.append(g.leaf(g.array(shape, x.dtype)))
    g.rng.shuffle(parts)
    shape = list(x.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    if math.prod(shape) > g.most_elements:
        return None
    known = {"high": max(part.high for part in parts), "exact": all(part.exact for part in parts)}
    return g.node("Concat", parts, shape, attributes={"axis": axis - x.rank * g.rng.randint(0, 1)}, **known)


def split(g, x):
    axes = [axis for axis, extent in enumerate(x.shape) if extent > 1]
    if not axes:
        return None
    axis = g.rng.choice(axes)
    first = g.rng.randint(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    operands, attributes = [x, g.ints(sizes)], {"axis": axis - x.rank * g.rng.randint(0, 1)}
    known = {"attributes": attributes, "high": x.high, "low": x.low, "exact": x.exact}
    one = g.node("Split", operands, shapes[0], outputs=2, **known)
    other = g.also(1, type(one)(one.name, x.dtype, shapes[1], x.high, x.low, x.exact))
    if sizes[0] == sizes[1] and g.chance(0.7):
        return g.node(g.rng.choice(["Add", "Mul"]), [one, other], shapes[0], high=max(2 * x.high, x.high**2)) if x.is_float else one
    return g.rng.choice([one, other])


def gather(g, x):
    if not x.rank:
        return None
    axis = g.rng.randrange(x.rank)
    extent = x.shape[axis]
    op = g.rng.choice(["Gather", "Gather", "GatherElements", "GatherND"])
    if op == "Gather":
        shape = g.rng.choice([(), (1,), (3,), (2, 2), (extent,)])
        indices = g.leaf(g.data.integers(-extent, extent, shape).astype(g.rng.choice([I32, I64])))
        result = (*x.shape[:axis], *shape, *x.shape[axis + 1 :])
        return moved(g, op, [x, indices], result, {"axis": axis}) if math.prod(result) <= g.most_elements else None
    if op == "GatherElements":
        shape = list(x.shape)
        shape[axis] = g.rng.randint(1, 6)
        if math.prod(shape) > g.most_elements:
            return None
        indices = g.leaf(g.data.integers(-extent, extent, shape).astype(g.rng.choice([I32, I64])))
        return moved(g, op, [x, indices], shape, {"axis": axis})
    depth, count = g.rng.randint(1, x.rank), g.rng.randint(1, 4)
    indices = np.stack([g.data.integers(-x.shape[a], x.shape[a], count) for a in range(depth)], -1)
    return moved(g, op, [x, g.leaf(indices.astype(np.int64))], (count, *x.shape[depth:]))


def scatter(g, x):
    if not x.rank or x.dtype == BOOL or not x.size:
        return None
    axis = g.rng.randrange(x.rank)
    sums = g.opset >= 16 and x.dtype in (F32, I32, I64) and g.chance(0.5)
    kinds = ["add", "mul"] + (["max", "min"] if g.opset >= 18 and not g.wild else [])
    reduction = g.rng.choice(kinds) if sums else None
    if g.chance(0.5):
        # Each position is written once, so that the order does not matter.
        count = g.rng.randint(1, x.shape[axis])
        shape = [g.rng.randint(1, extent) for extent in x.shape]
        shape[axis] = count
        order = np.argsort(g.data.random([*shape[:axis], x.shape[axis], *shape[axis + 1 :]]), axis=axis)
        indices = np.take(order, range(count), axis=axis).astype(np.int64)
        indices = np.where(g.data.random(shape) < 0.3, indices - x.shape[axis], indices)
        operands = [x, g.leaf(indices), g.leaf(g.array(shape, x.dtype))]
        op, attributes = "ScatterElements", {"axis": axis, "reduction": reduction}
    else:
        depth = g.rng.randint(1, x.rank)
        total = math.prod(x.shape[:depth])
        flat = g.data.permutation(total)[: g.rng.randint(1, min(4, total))]
        indices = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
        operands = [x, g.leaf(indices), g.leaf(g.array((len(flat), *x.shape[depth:]), x.dtype))]
        op, attributes = "ScatterND", {"reduction": reduction}
    high = max(x.high * operands[2].high, x.high + operands[2].high)
    return g.node(op, operands, x.shape, attributes=attributes, high=high)


def grow(g, x):
    op = g.rng.choice(["Expand", "Tile"])
    if op == "Tile":
        repeats = [g.rng.choice([1, 1, 2, 3]) for _ in x.shape]
        shape = [extent * times for extent, times in zip(x.shape, repeats)]
        if not x.rank or math.prod(shape) > g.most_elements:
            return None
        return moved(g, op, [x, g.ints(repeats)], shape)
    shape = [g.rng.choice([2, 3, 5]) if extent == 1 else extent for extent in x.shape]
    if g.chance(0.4) and x.rank < 4:
        shape = [g.rng.choice([1, 2, 3]), *shape]
    given = [1 if extent in x.shape and g.chance(0.2) else extent for extent in shape]
    shape = np.broadcast_shapes(tuple(given), x.shape)
    if math.prod(shape) > g.most_elements or not given:
        return None
    return moved(g, op, [x, g.ints(given)], shape)


def pad(g, x):
    if not x.rank or x.dtype == BOOL:
        return None
    mode = g.rng.choice(["constant", "constant", "edge", "reflect"] + (["wrap"] if g.opset >= 19 else []))
    begins, ends, shape = [], [], []
    for extent in x.shape:
        bound = 2 if mode in ("constant", "edge") else min(2, extent - 1)
        both = [g.rng.randint(-1 if mode == "constant" and extent > 3 else 0, bound) for _ in range(2)]
        if g.chance(0.3):
            both = [0, 0]
        begins.append(both[0])
        ends.append(both[1])
        shape.append(extent + sum(both))
    if math.prod(shape) > g.most_elements:
        return None
    operands = [x, g.ints(begins + ends)]
    if mode == "constant" and g.chance(0.6):
        operands.append(g.leaf(np.asarray(g.rng.choice([0, 1, 2]), x.dtype)))
    return moved(g, "Pad", operands, shape, {"mode": mode if mode != "constant" or g.chance(0.5) else None})


def blocks(g, x):
    if x.rank != 4 or x.dtype not in (F32, F64):
        return None
    n, c, h, w = x.shape
    op = g.rng.choice(["DepthToSpace", "SpaceToDepth"])
    size = g.rng.choice([1, 2, 3])
    if op == "DepthToSpace":
        if c % size**2:
            return None
        attributes = {"blocksize": size, "mode": g.rng.choice([None, "DCR", "CRD"])}
        return moved(g, op, [x], (n, c // size**2, h * size, w * size), attributes)
    if h % size or w % size:
        return None
    return moved(g, op, [x], (n, c * size**2, h // size, w // size), {"blocksize": size})


def resize(g, x):
    if x.rank != 4 or x.dtype != F32:
        return None
    spatial = [max(1, g.rng.choice([extent // 2, extent * 2, extent + 1, extent, extent * 3])) for extent in x.shape[2:]]
    # An infinite element times weights of both signs is no number, or infinite where they are added first.
    mode = g.rng.choice(["nearest", "linear", "linear"] + ([] if g.wild else ["cubic"]))
    shape = [*x.shape[:2], *spatial]
    if math.prod(shape) > g.most_elements:
        return None
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": g.rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
        "nearest_mode": g.rng.choice(["floor", "ceil", "round_prefer_floor"]) if mode == "nearest" else None,
        "cubic_coeff_a": g.rng.choice([None, -0.5]) if mode == "cubic" else None,
    }
    return g.node("Resize", [x, None, None, g.ints(shape)], shape, attributes=attributes, high=x.high * 1.5)


def triangle(g, x):
    if x.rank < 2 or x.dtype not in (F32, F64, I64, BOOL) or g.opset < 14:
        return None
    operands = [x, g.ints(g.rng.randint(-3, 3))] if g.chance(0.6) else [x]
    return moved(g, "Trilu", operands, x.shape, {"upper": g.rng.choice([None, 0, 1])})


def top(g, x):
    if not x.rank or x.dtype not in (F32, F64, I32, I64) or g.wild or not (x.exact or g.chance(0.3)):
        return None
    axis = g.rng.randrange(x.rank)
    k = g.rng.randint(1, x.shape[axis])
    shape = [*x.shape[:axis], k, *x.shape[axis + 1 :]]
    attributes = {"axis": axis, "largest": g.rng.choice([None, 0]), "sorted": 1}
    known = {"attributes": attributes, "high": x.high, "exact": x.exact}
    values = g.node("TopK", [x, g.ints([k])], shape, outputs=2, **known)
    # Which of equal elements comes first is not open: that of the least index.
    g.also(1, type(values)(values.name, I64, tuple(shape), float(x.shape[axis]), None, True))
    return values


def one_hot(g, x):
    if x.dtype not in (I32, I64) or x.rank > 3 or x.high > 1000:
        return None
    depth = g.rng.choice([1, 3, 5])
    axis = g.rng.randint(0, x.rank)
    shape = [*x.shape[:axis], depth, *x.shape[axis:]]
    if math.prod(shape) > g.most_elements or x.dtype != I64:
        return None
    operands = [x, g.constant(np.asarray(depth, np.int64)), g.leaf(np.array([0.5, 2.0], F32))]
    return g.node("OneHot", operands, shape, attributes={"axis": axis}, dtype=F32, high=2.0, exact=True)


def reverse(g, x):
    if x.rank < 2 or x.dtype not in (F32, F64, I32, I64):
        return None
    time, batch = g.rng.choice([(0, 1), (1, 0)])
    lengths = g.leaf(g.data.integers(1, x.shape[time] + 1, x.shape[batch]).astype(np.int64))
    return moved(g, "ReverseSequence", [x, lengths], x.shape, {"time_axis": time, "batch_axis": batch})


def of_shape(g, x):
    """What shapes are computed with: a constant of the same shape as a value, by way of Shape."""
    if not x.rank:
        return None
    shape = g.node("Shape", [x], (x.rank,), dtype=np.int64, high=100.0, exact=True)
    if not x.rank:
        return shape
    value = np.array([g.rng.choice([0.5, 2.0, -1.0])], F32)
    from onnx import numpy_helper

    filled = g.node("ConstantOfShape", [shape], x.shape, attributes={"value": numpy_helper.from_array(value)},
                    dtype=F32, high=2.0, exact=True)  # fmt: skip
    return g.node("Mul", [x, filled], x.shape, high=2 * x.high) if x.dtype == F32 else filled


ALL_OPS = [
    (transpose, 3), (reshape, 3), (views, 3), (slice_, 4), (concat, 4), (split, 3), (gather, 3), (scatter, 1.5),
    (grow, 3), (pad, 2.5), (blocks, 1), (resize, 1.5), (triangle, 0.5), (top, 0.7), (one_hot, 0.7), (reverse, 0.5),
    (of_shape, 0.5), (channel_shuffle, 0.7),
]  # fmt: skip
