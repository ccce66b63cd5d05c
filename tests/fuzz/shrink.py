"""Making a failing model smaller while it fails in the same way."""

import numpy as np
import onnx
import peer
from graph import FLOATS, onnx_type
from onnx import helper, numpy_helper


class Case:
    """A model in parts that are easy to change: constants and inputs are arrays."""

    def __init__(self, opset, nodes, constants, inputs, outputs):
        self.opset, self.nodes, self.outputs = opset, nodes, outputs
        self.constants, self.inputs = constants, inputs

    @staticmethod
    def of(model, feeds):
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        nodes = []
        for node in model.graph.node:
            if node.op_type == "Constant":
                constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            else:
                nodes.append(node)
        outputs = [output.name for output in model.graph.output]
        return Case(model.opset_import[0].version, nodes, constants, dict(feeds), outputs)

    def with_(self, **changes):
        parts = {"nodes": self.nodes, "constants": self.constants, "inputs": self.inputs, "outputs": self.outputs}
        return Case(self.opset, **(parts | changes)).pruned()

    def pruned(self):
        """Without what no output needs."""
        needed, nodes = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed |= set(node.input)
        constants = {name: array for name, array in self.constants.items() if name in needed}
        inputs = {name: array for name, array in self.inputs.items() if name in needed}
        return Case(self.opset, nodes[::-1], constants, inputs, self.outputs)

    def leaves(self):
        return self.constants | self.inputs

    def replaced(self, leaves):
        """With other elements of constants and inputs."""
        constants = {name: leaves.get(name, array) for name, array in self.constants.items()}
        return self.with_(constants=constants, inputs={name: leaves.get(name, array) for name, array in self.inputs.items()})

    def produced(self):
        return [name for node in self.nodes for name in node.output if name]

    def model(self, results=None):
        """The model; its outputs are declared as they are in `results`, or not at all."""
        inputs = [helper.make_tensor_value_info(n, onnx_type(a.dtype), a.shape) for n, a in self.inputs.items()]
        if results is None:
            outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        else:
            declared = zip(self.outputs, results)
            outputs = [helper.make_tensor_value_info(n, onnx_type(a.dtype), a.shape) for n, a in declared]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "shrunk", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def values(self):
        """Every value by ONNX Runtime; none if it does not take the model."""
        names = self.produced()
        try:
            found = peer.run(self.with_(outputs=names).model(), self.inputs)
        except Exception:  # noqa: BLE001: it has many exceptions
            return {}
        return dict(zip(names, found)) | self.leaves()


def candidates(case):
    """Smaller models, the most promising first."""
    values = case.values()
    if not values:
        return
    yield from cuts(case, values)
    for node in case.nodes:
        yield from without(case, node, values)
    yield from smaller_extents(case)
    for node in case.nodes:
        yield from plainer(case, node)
    yield from simpler_elements(case)


def cuts(case, values):
    """One output, and inputs in place of what comes before some node."""
    for name in case.produced():
        candidate = case.with_(outputs=[name])
        if len(case.outputs) > 1 or len(candidate.nodes) < len(case.nodes):
            yield candidate
    for position in range(len(case.nodes) - 1, 0, -1):
        before = {name for node in case.nodes[:position] for name in node.output if name}
        if before & set(case.outputs):
            continue
        read = {name for node in case.nodes[position:] for name in node.input} & before
        inputs = case.inputs | {name: values[name] for name in sorted(read)}
        yield case.with_(nodes=case.nodes[position:], inputs=inputs)


def without(case, node, values):
    """The model without a node: what read its result reads an operand, or an input that has the result."""
    rest = [other for other in case.nodes if other is not node]
    result = node.output[0]
    if result in case.outputs or len([name for name in node.output if name]) > 1:
        return
    for operand in dict.fromkeys(node.input):
        if operand and values[operand].shape == values[result].shape and values[operand].dtype == values[result].dtype:
            yield case.with_(nodes=[renamed(other, result, operand) for other in rest])
    yield case.with_(nodes=rest, inputs=case.inputs | {result: values[result]})


def renamed(node, old, new):
    if old not in node.input:
        return node
    node = onnx.NodeProto.FromString(node.SerializeToString())
    for position, name in enumerate(node.input):
        if name == old:
            node.input[position] = new
    return node


def plainer(case, node):
    """The node without one of its attributes or its last operand."""
    def changed(edit):
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        edit(copy)
        return case.with_(nodes=[copy if other is node else other for other in case.nodes])

    for position in range(len(node.attribute)):
        yield changed(lambda copy, position=position: copy.attribute.pop(position))
    if len(node.input) > 1:
        yield changed(lambda copy: copy.input.pop())


def smaller_extents(case):
    """All axes of one extent cut to a smaller one, and the same number in shapes."""
    leaves = case.leaves()
    extents = sorted({extent for array in leaves.values() for extent in array.shape if extent > 1}, reverse=True)
    for extent in extents:
        for new in dict.fromkeys([1, 2, extent // 2, extent - 1]):
            if 0 < new < extent:
                yield case.replaced({name: cut(array, extent, new) for name, array in leaves.items()})


def cut(array, old, new):
    array = array[tuple(slice(0, new) if extent == old else slice(None) for extent in array.shape)]
    if array.dtype == np.int64 and array.ndim == 1:
        return np.where(array == old, new, array)
    return np.ascontiguousarray(array)


def simpler_elements(case):
    for name, array in case.leaves().items():
        if array.dtype not in FLOATS or not array.size:
            continue
        for simple in (np.ones_like(array), np.rint(array), np.rint(array * 4) / 4):
            simple = simple.astype(array.dtype)
            if not np.array_equal(simple, array, equal_nan=True):
                yield case.replaced({name: simple})


def shrink(model, feeds, fails, tries):
    """The smallest model found within so many tries for which `fails` is true, with its inputs."""
    case = Case.of(model, feeds)
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in candidates(case):
            tries -= 1
            if tries <= 0:
                break
            try:
                results = peer.run(candidate.model(), candidate.inputs)
            except Exception:  # noqa: BLE001: not a model any more
                continue
            smaller = candidate.model(results)
            if fails(smaller, candidate.inputs):
                case, progress = candidate, True
                break
    return case.model(peer.run(case.model(), case.inputs)), case.inputs
