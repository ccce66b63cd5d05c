"""Who is right: a float64 evaluation of a model, and how far rounding may lead away from it.

Each node is evaluated by the reference implementation of the package `onnx`, or by one of `own`, on float64 in place of the model's floats.
The same evaluation, disturbed at each node by about what rounding to the declared type does, is repeated a few times: how
far the results are apart tells what a result may differ by. So neither a sum that cancels nor a Floor of what is nearly
whole is taken for a fault.
"""

import numpy as np
import onnx
import own
from graph import F16, F32, F64, FLOATS, types_of
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

# Greatest relative disturbance of one node: a few roundings. The second is absolute, for results near zero.
NOISE = {F16: (2.0**-9, 2.0**-24), F32: (2.0**-21, 1e-38), F64: (2.0**-49, 1e-300)}
DISTURBED_RUNS = 16

# How many times the disturbances' effect a result may be off. Winograd's algorithm and long sums need some.
ALLOWANCE = 16.0

# Within these of ONNX Runtime, relative to an element and to the greatest element, a result needs no other judge.
NEAR = {F16: (2e-3, 2e-4), F32: (1e-5, 3e-7), F64: (1e-13, 1e-14)}

# Operators whose results are elements of their operands, or follow from them without rounding.
EXACT = set(
    """Abs ArgMax ArgMin Ceil Clip Compress Concat Constant ConstantOfShape DepthToSpace Dropout Equal Expand Flatten
    Floor Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity Less LessOrEqual Max MaxPool
    Min Neg OneHot Pad ReduceMax ReduceMin Relu Reshape ReverseSequence Round Shape Sign Slice SpaceToDepth Split Squeeze
    ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where""".split()
)

# Operators that are exact where their result is a number of the type: sums and products that round as a whole. Means are
# not, as their sums may round. ONNX Runtime leaves out a Cast to float16 before an operator that it computes in float32.
ALGEBRAIC = set(
    """Add BatchNormalization Cast Conv ConvTranspose CumSum DequantizeLinear Div Einsum Gemm
    HardSigmoid LeakyRelu MatMul Mul PRelu QuantizeLinear Reciprocal ReduceL1 ReduceProd ReduceSum
    ReduceSumSquare Resize ScatterElements ScatterND Shrink Sqrt Sub Sum""".split()
)

# Operators with more than a few roundings for each element: their operands are disturbed, too.
SUMS = set(
    """AveragePool BatchNormalization Conv ConvTranspose CumSum Einsum Gemm GlobalAveragePool InstanceNormalization
    LayerNormalization LogSoftmax LpNormalization LpPool LRN MatMul Mean MeanVarianceNormalization PRelu ReduceL1 ReduceL2
    ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Resize Softmax Sum QLinearConv QLinearMatMul""".split()
)

# Operators that subtract one mean from many elements: its rounding moves them all the same way, which sums of them show.
CENTERED = {"InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization"}

# Operators whose sums may be as long as their operand.
REDUCTIONS = {"GlobalAveragePool", "ReduceL1", "ReduceMean", "ReduceSum", "ReduceSumSquare"}

# Operators of one operand that are sums in themselves, such as the 1 + tanh(x) of Gelu far below zero: what is left of
# the digits is relative to the terms.
CANCELLING = set("Acosh Asinh Atanh Celu Elu Gelu LogSoftmax Mish ReduceLogSumExp Selu Sinh Softplus Tan".split())


def widened(array):
    return array.astype(np.float64) if array.dtype in FLOATS else array


def widened_node(node):
    """The node with float64 wherever it names another float type."""
    node = onnx.NodeProto.FromString(node.SerializeToString())
    narrow = (TensorProto.FLOAT, TensorProto.FLOAT16)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in narrow:
            attribute.t.CopyFrom(numpy_helper.from_array(widened(numpy_helper.to_array(attribute.t))))
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in narrow:
            attribute.i = TensorProto.DOUBLE
    return node


class Reference:
    """A model that can be evaluated in float64."""

    def __init__(self, model):
        self.types = types_of(model)
        self.constants = {t.name: widened(numpy_helper.to_array(t)) for t in model.graph.initializer}
        self.outputs = [output.name for output in model.graph.output]
        self.nodes = []
        for node in model.graph.node:
            if node.op_type in own.OPERATORS:
                self.nodes.append((node, None))
                continue
            wide = widened_node(node)
            infos = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(node.input) if name]
            results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
            graph = helper.make_graph([wide], "node", infos, results)
            single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
            self.nodes.append((node, ReferenceEvaluator(single)))

    def run(self, feeds, noise=None, flush=False):
        """The outputs, disturbed if there is a source of noise; with denormal numbers as zeros if they are to be flushed."""
        with np.errstate(all="ignore"):
            values = self.constants | {name: widened(array) for name, array in feeds.items()}
            for node, evaluator in self.nodes:
                operands = {name: values[name] for name in node.input if name}
                if flush:
                    operands = {name: self.flushed(name, value) for name, value in operands.items()}
                results = self.evaluate(node, evaluator, operands, noise)
                values |= results
            return [values[name] for name in self.outputs]

    def flushed(self, name, value):
        """The value with zeros for denormal numbers of the type in which operators compute."""
        least = np.finfo(F64 if self.types[name] == F64 else F32).tiny
        return np.where(np.abs(value) < least, 0 * value, value) if value.dtype == F64 else value

    def evaluate(self, node, evaluator, operands, noise):
        names = [name for name in node.output if name]

        def results_of(operands):
            if node.op_type in own.OPERATORS:
                attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                results = [own.OPERATORS[node.op_type](*(operands[name] for name in node.input), **attributes)]
            else:
                results = evaluator.run(None, operands)
            return {name: self.rounded(name, np.asarray(result)) for name, result in zip(names, results)}

        results = results_of(operands)
        if noise is None or node.op_type in EXACT:
            return results
        if node.op_type in ALGEBRAIC and all(self.fits(name, result) for name, result in results.items()):
            return results
        if node.op_type in SUMS:
            kind = self.types[names[0]] if self.types[names[0]] in FLOATS else F32
            shaken = {name: disturbed(value, kind, noise) for name, value in operands.items()}
            calm, results = results, results_of(shaken)
            if node.op_type in CENTERED:
                for name, result in results.items():
                    moved = np.abs(result - calm[name])
                    results[name] = result + moved[np.isfinite(moved)].max(initial=0) * noise.uniform(-1, 1)
        for name, result in results.items():
            if result.dtype == F64:
                results[name] = disturbed(result, self.types[name], noise)
                if node.op_type == "Resize":
                    # The places between elements are rounded, too, and the weights that follow from them.
                    x = next(iter(operands.values()))
                    top = np.abs(x[np.isfinite(x)]).max(initial=0)
                    results[name] += NOISE[F32][0] * top * noise.uniform(-1, 1, result.shape)
                if node.op_type in REDUCTIONS:
                    results[name] += self.summing(operands, results_of, name) * noise.uniform(-1, 1)
                if node.op_type in CANCELLING:
                    x = next(iter(operands.values()))
                    terms = 1 + (np.abs(x) if x.shape == result.shape else 0)
                    results[name] += NOISE[self.types[name]][0] / 4 * terms * noise.uniform(-1, 1, result.shape)
        # What becomes an integer here is rounded by the operator itself, from a quotient that was rounded before.
        if node.op_type == "QuantizeLinear":
            shaken = dict(operands)
            shaken[node.input[0]] = disturbed(operands[node.input[0]], F32, noise)
            results = results_of(shaken)
        return results

    def summing(self, operands, results_of, name):
        """How far a sum may be off whose terms are added one by one, all rounded the same way, in runs of a 16th."""
        x = next(iter(operands.values()))
        terms = results_of({key: np.abs(value) if value is x else value for key, value in operands.items()})[name]
        return NOISE[self.types[name]][0] / 8 * (x.size / max(terms.size, 1)) / 16 * np.abs(terms)

    def rounded(self, name, result):
        """The result with infinities where the declared type has no such number."""
        kind = self.types[name]
        if result.dtype != F64 or kind == F64:
            return result
        return np.where(np.isinf(result.astype(kind)), result.astype(kind).astype(np.float64), result)

    def fits(self, name, result):
        """Whether a result is surely not rounded; one of float64 is not if float32 can hold it."""
        kind = F32 if self.types[name] == F64 else self.types[name]
        return result.dtype != F64 or np.array_equal(result.astype(kind), result, equal_nan=True)


def disturbed(array, kind, noise):
    if array.dtype != F64:
        return array
    relative, absolute = NOISE[np.dtype(kind)]
    shaken = array * (1 + relative * noise.uniform(-1, 1, array.shape)) + absolute * noise.uniform(-1, 1, array.shape)
    # Zeros are mostly exact: what Relu or a mask left.
    return np.asarray(np.where(array == 0, array, shaken))


def near(found, expected):
    """Whether a result needs no other judge."""
    if found.dtype not in FLOATS:
        return np.array_equal(found, expected)
    relative, absolute = NEAR[found.dtype]
    found, expected = widened(found), widened(expected)
    finite = expected[np.isfinite(expected)]
    top = np.abs(finite).max() if finite.size else 0.0
    return bool(np.isclose(found, expected, rtol=relative, atol=absolute * top + 1e-37, equal_nan=True).all())


def summary(found, right, bad):
    where = tuple(int(index) for index in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} elements, the first at {list(where)}: {found[where]} for {right[where]}"


def judge(model, feeds, found, peer, flush=False):
    """Judges outputs that differ from the peer's; `flush` says whether denormal numbers may count as zeros.

    Returns (verdict, text): "right", or "wrong" if they are farther from the float64 evaluation than rounding explains,
    or "open" if the peer's are so as well, or if there is no evaluation.
    """
    try:
        with np.errstate(all="ignore"):
            reference = Reference(model)
            base = reference.run(feeds)
            runs = [reference.run(feeds, np.random.default_rng(seed)) for seed in range(DISTURBED_RUNS)]
            if flush:
                runs.append(reference.run(feeds, flush=True))
    except Exception as error:  # noqa: BLE001: the package `onnx` fails in many ways
        return without_reference(found, peer, f"no evaluation by float64: {type(error).__name__}: {error}")
    verdict, text = "right", ""
    for position, (mine, theirs) in enumerate(zip(found, peer)):
        if near(mine, theirs):
            continue
        center, around = base[position], [run[position] for run in runs]
        if center.shape != mine.shape:
            return without_reference(found, peer, f"the float64 evaluation has the shape {center.shape}")
        allowed = tolerance(mine.dtype, center, around)
        bad = off(mine, center, allowed, theirs)
        if bad.any():
            text = f"output {position}: {summary(mine, center, bad)}"
            # Which of infinity and NaN comes of sums that overflow depends on their order.
            beyond = not np.isfinite(mine[bad]).any() and not np.isfinite(theirs[bad]).any()
            if not beyond and not off(theirs, center, allowed, theirs=None)[bad].any():
                return "wrong", text
            verdict = "open"
            text += f", ONNX Runtime has {theirs[tuple(np.argwhere(bad)[0])]}"
    return verdict, text


def without_reference(found, peer, why):
    for mine, theirs in zip(found, peer):
        top = np.abs(widened(theirs)[np.isfinite(widened(theirs))]).max(initial=1e-3)
        if not np.allclose(widened(mine), widened(theirs), rtol=1e-2, atol=1e-2 * top, equal_nan=True):
            return "open", why
    return "right", why


def tolerance(kind, center, around):
    """How far each element may be from `center`."""
    with np.errstate(all="ignore"):
        wide = center.astype(np.float64)
        spread = np.max([np.abs(run.astype(np.float64) - wide) for run in around], axis=0)
        # What is infinite or no number in some of the runs may be either.
        spread = np.where(np.isnan(spread) & np.isfinite(wide), np.inf, spread)
        if kind not in FLOATS:
            return np.where(spread > 0, np.maximum(spread, 1), 0)
        return ALLOWANCE * spread + 8 * NOISE[kind][0] * np.abs(center) + NOISE[kind][1] * 64


def off(values, center, allowed, theirs):
    """Which elements are farther from `center`, and from what the peer has, than allowed."""
    with np.errstate(all="ignore"):
        values, center = values.astype(np.float64), center.astype(np.float64)
        near_enough = np.abs(values - center) <= allowed
        same = (values == center) | (np.isnan(values) & np.isnan(center)) | (np.isinf(allowed) & np.isfinite(center))
        if theirs is not None:
            theirs = theirs.astype(np.float64)
            room = np.where(np.isnan(allowed), NEAR[F32][0] * np.abs(theirs), allowed)
            same |= (values == theirs) | (np.isnan(values) & np.isnan(theirs)) | (np.abs(values - theirs) <= room)
        return ~(near_enough | same)
