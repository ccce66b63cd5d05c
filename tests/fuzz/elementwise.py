"""Random nodes that compute element by element, with operands of every shape that broadcasts."""

import numpy as np
from graph import BOOL, F16, F32, F64, FLOATS, I8, I32, I64, U8, Value, onnx_type


def broadcast(a, b):
    """The shape of two shapes broadcast to each other, or None."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


def partner_shape(g, shape):
    """A shape that broadcasts with `shape`: usually to it, now and then beyond it."""
    kind = g.rng.choices(["whole", "some", "channel", "scalar", "one", "last", "beyond"], [3, 5, 4, 2, 2, 2, 1])[0]
    if kind == "whole" or (kind in ("channel", "last") and not shape):
        return shape
    if kind == "scalar":
        return ()
    if kind == "one":
        return (1,) * g.rng.randint(1, max(1, len(shape)))
    if kind == "last":
        return shape[-1:]
    if kind == "channel":
        axis = 1 if len(shape) > 1 else 0
        channel = shape[axis : axis + 1] + (1,) * (len(shape) - axis - 1)
        return (1,) * axis + channel if g.chance(0.4) else channel
    some = [extent if g.chance(0.5) else 1 for extent in shape]
    if kind == "beyond":
        some = [g.rng.choice([2, 3, 5]) if extent == 1 and g.chance(0.5) else extent for extent in shape]
        if g.chance(0.4):
            some = [g.rng.choice([1, 2]), *some]
    while some and some[0] == 1 and g.chance(0.5):
        some = some[1:]
    return tuple(some)


def partner(g, x, kind=None, reuse=0.35):
    """Another operand for an elementwise operator of `x`: a value that is there, or a leaf."""
    if kind is None and g.chance(reuse):
        fits = [v for v in g.values if v.dtype == x.dtype and broadcast(v.shape, x.shape) is not None]
        fits = [v for v in fits if np.prod(broadcast(v.shape, x.shape)) <= g.most_elements]
        if fits:
            return g.rng.choice(fits)
    shape = partner_shape(g, x.shape)
    if np.prod(broadcast(shape, x.shape)) > g.most_elements:
        shape = ()
    return g.leaf(g.array(shape, x.dtype, kind))


def relu_like(g, x):
    """Operators of one float operand that are defined everywhere."""
    op, attributes, high = g.rng.choice([
        ("Relu", {}, x.high), ("Relu", {}, x.high), ("LeakyRelu", {"alpha": g.rng.choice([0.1, 1.5, 0.0])}, x.high * 1.5),
        ("Elu", {"alpha": g.rng.choice([1.0, 0.5, 2.0])}, x.high + 2), ("Selu", {}, x.high + 2),
        ("Celu", {"alpha": g.rng.choice([1.0, 0.5, 2.0])}, x.high + 2), ("Sigmoid", {}, 1.0),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, 1.0), ("HardSwish", {}, x.high), ("Tanh", {}, 1.0),
        ("Softplus", {}, x.high + 1), ("Softsign", {}, 1.0), ("ThresholdedRelu", {"alpha": 0.5}, x.high),
        ("Mish", {}, x.high), ("Gelu", {"approximate": g.rng.choice(["none", "tanh"])}, x.high), ("Abs", {}, x.high),
        ("Neg", {}, x.high), ("Identity", {}, x.high), ("Erf", {}, 1.0), ("Sin", {}, 1.0), ("Cos", {}, 1.0),
        ("Atan", {}, 2.0), ("Asinh", {}, x.high), ("Shrink", {"lambd": 0.6, "bias": 0.25}, x.high), ("Dropout", {}, x.high),
    ])  # fmt: skip
    if (op == "Mish" and g.opset < 18) or (op == "Gelu" and g.opset < 20) or (op == "HardSwish" and g.opset < 14):
        return None
    if x.dtype == F64 and op not in ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Identity", "Sin", "Cos", "Dropout"):
        return None
    if x.dtype == F16 and op == "Celu":
        return None
    if op == "ThresholdedRelu" and not x.exact:
        return None
    exact = x.exact and op in ("Relu", "Abs", "Neg", "Identity", "Dropout")
    return g.node(op, [x], x.shape, attributes=attributes, high=high, exact=exact)


def bounded_domain(g, x):
    """Operators that need positive or small operands, behind what makes them so."""
    op = g.rng.choice(["Sqrt", "Log", "Reciprocal", "Exp", "Asin", "Acos", "Atanh", "Sinh", "Cosh", "Acosh", "Tan"])
    # Operators that ONNX Runtime lacks for a type are left out, here as elsewhere.
    if x.dtype == F64 and op not in ("Sqrt", "Log", "Reciprocal", "Exp"):
        return None
    if op in ("Sqrt", "Log", "Reciprocal", "Acosh"):
        if x.low is None or x.low < 1e-3 or op == "Acosh":
            offset = g.leaf(np.asarray(1.5 if op == "Acosh" else 0.5, x.dtype))
            x = g.node("Abs", [x], x.shape, exact=x.exact)
            x = g.node("Add", [x, offset], x.shape, high=x.high + 1.5, low=0.5, exact=x.exact)
        high = {"Sqrt": x.high**0.5 + 1, "Log": 8.0, "Reciprocal": 1 / x.low, "Acosh": 8.0}[op]
        low = {"Sqrt": x.low**0.5, "Reciprocal": 1 / max(x.high, 1)}.get(op)
        return g.node(op, [x], x.shape, high=high, low=low)
    if x.high > 1 or op in ("Asin", "Acos", "Atanh"):
        x = g.node("Tanh", [x], x.shape, high=1.0)
        scale = g.leaf(np.asarray(0.75, x.dtype))
        x = g.node("Mul", [x, scale], x.shape, high=0.75)
    return g.node(op, [x], x.shape, high=3.0, low=0.3 if op in ("Exp", "Cosh") else None)


def jump(g, x):
    """Operators that jump, mostly of exact operands."""
    if not x.exact and g.chance(0.8):
        return None
    op = g.rng.choice(["Floor", "Ceil", "Round", "Sign"])
    return g.node(op, [x], x.shape, high=x.high + 1, exact=x.exact)


def clip(g, x):
    if x.dtype not in (*FLOATS, I32, I64, U8, I8):
        return None
    low, high = sorted(g.rng.choice([0, 1, 2, 3, 6]) - (0 if x.dtype == U8 else 2) for _ in range(2))
    bounds = [g.leaf(np.asarray(bound, x.dtype)) if g.chance(0.8) else None for bound in (low, high)]
    return g.node("Clip", [x, *bounds], x.shape, high=max(x.high, 4), exact=x.exact)


def arithmetic(g, x, ops=("Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min", "PRelu")):
    op = g.rng.choice(ops)
    if op in ("Add", "Mul") and g.chance(0.1):
        return binary(g, op, x, x)
    if op == "Div":
        y = partner(g, x, "positive")
        if y.low is None:
            return None
        a, b = (x, y) if x.low is None or g.chance(0.7) else (y, x)
        shape = broadcast(x.shape, y.shape)
        return g.node("Div", [a, b], shape, high=a.high / b.low)
    if op == "PRelu":
        if x.dtype == F64:
            return None
        shape = partner_shape(g, x.shape)
        if broadcast(shape, x.shape) != x.shape:
            return None
        slope = g.leaf(g.array(shape, x.dtype))
        return g.node("PRelu", [x, slope], x.shape, high=x.high * max(1, slope.high))
    y = partner(g, x)
    if g.wild and op in ("Max", "Min"):
        return None
    return binary(g, op, x, y) if g.chance(0.6) else binary(g, op, y, x)


def binary(g, op, a, b):
    high = {"Mul": a.high * b.high}.get(op, a.high + b.high)
    exact = a.exact and b.exact and high < 256 and op != "Mul"
    low = None
    if a.low is not None and b.low is not None and op != "Sub":
        low = a.low * b.low if op == "Mul" else min(a.low, b.low)
    return g.node(op, [a, b], broadcast(a.shape, b.shape), high=high, low=low, exact=exact)


def variadic(g, x):
    operands = [x] + [partner(g, x) for _ in range(g.rng.randint(0, 3))]
    shape = x.shape
    for operand in operands[1:]:
        shape = broadcast(shape, operand.shape) if shape is not None else None
    if shape is None or np.prod(shape) > g.most_elements:
        return None
    g.rng.shuffle(operands)
    if x.dtype == F64:
        return None
    op = g.rng.choice(["Sum", "Mean"] if g.wild else ["Sum", "Mean", "Max", "Min"])
    exact = op != "Mean" and all(operand.exact for operand in operands)
    return g.node(op, operands, shape, high=sum(operand.high for operand in operands), exact=exact)


def power(g, x):
    exponent = g.rng.choice([2.0, 3.0, 2.0, 1.0, 0.5, -1.0, 4.0])
    if exponent in (0.5, -1.0) and (x.low is None or x.low < 0.01):
        return None
    if x.high**exponent > 1e4:
        return None
    shape = g.rng.choice([(), (), (1,), partner_shape(g, x.shape)])
    if broadcast(shape, x.shape) != x.shape:
        return None
    y = g.leaf(np.full(shape, exponent, g.rng.choice([x.dtype, np.dtype("int64")]) if exponent >= 1 else x.dtype))
    return g.node("Pow", [x, y], x.shape, high=max(x.high**exponent, (x.low or 1) ** exponent))


def compare(g, x):
    op = g.rng.choice(["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"])
    if x.dtype == BOOL or (not x.exact and g.chance(0.6)):
        return None
    if op.endswith("OrEqual") and g.opset < 16 and x.dtype == F16:
        return None
    y = partner(g, x, "exact" if x.is_float else None)
    return g.node(op, [x, y], broadcast(x.shape, y.shape), dtype=BOOL, high=1.0)


def where(g, x):
    if x.dtype not in (F32, F16, F64, I32, I64, U8):
        return None
    y = partner(g, x)
    shape = broadcast(x.shape, y.shape)
    masks = [v for v in g.values if v.dtype == BOOL and broadcast(v.shape, shape) is not None]
    mask = g.rng.choice(masks) if masks and g.chance(0.7) else g.leaf(g.array(partner_shape(g, shape), BOOL))
    shape = broadcast(mask.shape, shape)
    if np.prod(shape) > g.most_elements:
        return None
    a, b = (x, y) if g.chance(0.5) else (y, x)
    return g.node("Where", [mask, a, b], shape, like=x, high=max(x.high, y.high), exact=x.exact and y.exact)


def logic(g, x):
    if x.dtype != BOOL:
        return None
    op = g.rng.choice(["And", "Or", "Xor", "Not"])
    if op == "Not":
        return g.node("Not", [x], x.shape)
    y = partner(g, x)
    return g.node(op, [x, y], broadcast(x.shape, y.shape))


def nan_or_inf(g, x):
    if not x.is_float or (x.dtype != F32 and g.opset < 20) or x.dtype == F16:
        return None
    op = g.rng.choice(["IsNaN", "IsInf"])
    return g.node(op, [x], x.shape, dtype=BOOL, high=1.0)


def integer(g, x):
    """Operators on integers; results stay in the range of their type unless they wrap on purpose."""
    if not x.is_int:
        return None
    # ONNX Runtime has these for 32 and 64 bits alone.
    op = g.rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Sign", "BitShift", "And", "Pow"])
    if x.dtype not in (I32, I64):
        op = g.rng.choice(["Max", "Min", "Mod", "Abs", "Sign"])
        if x.dtype != U8 and op == "Sign":
            return None
    if op in ("Abs", "Neg", "Sign"):
        return g.node(op, [x], x.shape, exact=True)
    if op in ("Div", "Mod"):
        shape = partner_shape(g, x.shape)
        array = np.abs(g.array(shape, x.dtype)) + 1
        if x.dtype.kind == "i" and op == "Div" and x.low is None:
            array = array * g.data.choice([-1, 1], shape)
        y = g.leaf(array.astype(x.dtype))
        fmod = {"fmod": g.rng.choice([0, 1])} if op == "Mod" else {}
        return g.node(op, [x, y], broadcast(x.shape, shape), attributes=fmod, exact=True)
    if op == "BitShift":
        return None if x.dtype.kind != "u" else g.node("BitShift", [x, x], x.shape, attributes={"direction": "LEFT"})
    if op == "And":
        if g.opset < 18:
            return None
        op = g.rng.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
        if op == "BitwiseNot":
            return g.node(op, [x], x.shape, high=x.high + 1, exact=True)
        y = partner(g, x)
        return g.node(op, [x, y], broadcast(x.shape, y.shape), high=2 * (x.high + y.high), exact=True)
    if op == "Pow":
        if x.high > 100:
            return None
        return g.node("Pow", [x, g.leaf(np.asarray(2, x.dtype))], x.shape, high=x.high**2, exact=True)
    y = partner(g, x)
    high = x.high * y.high if op == "Mul" else x.high + y.high
    limit = {I8: 100, U8: 200, I32: 1e9, I64: 1e15}.get(x.dtype, 100)
    if high > limit:
        return None
    return g.node(op, [x, y], broadcast(x.shape, y.shape), high=high, exact=True)


def cast(g, x):
    """Changes of type; floats become integers if they are small and mostly if they are exact."""
    if x.dtype == BOOL or x.is_int:
        to = g.rng.choice([g.float, g.float, g.float, F32, I32, I64])
        if to == F16 and x.high > 2048:
            to = F32
    else:
        to = g.rng.choice([F32, F64, F16, g.float, I32, I64, BOOL, I8, U8])
        if to not in FLOATS and not x.exact and g.chance(0.8):
            return None
        if to == BOOL and not x.exact:
            return None
        # `high` is an estimate, and what a float beyond the range becomes is not defined.
        if (to in (F16, I8) and x.high > 50) or (to == U8 and (x.low is None or x.high > 100)):
            return None
        if to not in FLOATS and (x.high > 1e6 or g.wild):
            return None
    if to == x.dtype and g.chance(0.7):
        return None
    return g.node("Cast", [x], x.shape, attributes={"to": onnx_type(to)}, dtype=to, exact=x.exact)


def fake_quantize(g, x):
    """QuantizeLinear and DequantizeLinear, for one scale or one of each channel."""
    if x.dtype != F32 or g.wild or not x.rank or x.high > 1e5:
        return None
    axis = g.rng.randrange(x.rank) if g.chance(0.5) else None
    shape = () if axis is None else (x.shape[axis],)
    kind = g.rng.choice([U8, I8])
    scale = g.data.choice([0.0625, 0.125, 0.25, 0.5] if x.exact else [0.013, 0.05, 0.11, 0.3], shape).astype(F32)
    zero = g.data.integers(-3, 4, shape) + (128 if kind == U8 else 0)
    scale = g.leaf(np.asarray(scale))
    zero = g.leaf(np.asarray(zero).astype(kind)) if kind == I8 or g.chance(0.9) else None
    attributes = {"axis": None if axis is None else axis - x.rank * g.rng.randint(0, 1)}
    q = g.node("QuantizeLinear", [x, scale, zero], x.shape, attributes=attributes, dtype=kind, high=255.0)
    if g.chance(0.2):
        return q
    return g.node("DequantizeLinear", [q, scale, zero], x.shape, attributes=attributes, dtype=F32, high=scale.high * 256)


FLOAT_OPS = [
    (relu_like, 12), (bounded_domain, 3), (jump, 2), (clip, 2), (arithmetic, 16), (variadic, 2), (power, 2),
    (compare, 1), (where, 2), (nan_or_inf, 0.3), (cast, 1.5), (fake_quantize, 1.5),
]  # fmt: skip
INT_OPS = [(integer, 8), (clip, 1), (compare, 1), (where, 1), (cast, 4)]
BOOL_OPS = [(logic, 3), (cast, 4), (where, 1)]
