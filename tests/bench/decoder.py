"""Generates tokens with decoders of GPT-2's kind that keep keys and values, beside ONNX Runtime.

    decoder.py [--backend llvm] [--threads 1] [--tokens 64] [--rounds 5] NIELLO

The decoders have random weights. Each engine is given the same prompt, and then its own best token, one by
one; niello's model keeps the cache, ONNX Runtime gets back what it returned, in its own memory. Prints
how long a token takes in the median of all rounds, and how much logits differ; other tokens are an error.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Layers, width, heads, words.
DECODERS = [(2, 128, 4, 500), (6, 384, 6, 2000), (12, 768, 12, 8000)]
PROMPT = 16


class Builder:
    """A graph, node by node; names of values are handed out."""

    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.constants = [], {}

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape, scale=0.08):
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def node(self, op, *inputs, to=None, **attributes):
        outputs = to or [f"v{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def norm(self, x, width):
        scale = self.constant((1 + 0.1 * self.random.standard_normal(width)).astype(np.float32))
        return self.node("LayerNormalization", x, scale, self.weight(width), axis=-1)

    def dense(self, x, rows, columns):
        product = self.node("MatMul", x, self.weight(rows, columns))
        return self.node("Add", product, self.weight(columns))

    def model(self, name, inputs, outputs, opset=20):
        """The checked model of the nodes so far; each input and output is a name, a type and a shape."""
        inputs, outputs = ([helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs))
        graph = helper.make_graph(self.nodes, name, inputs, outputs, list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def decoder(layers, width, heads, words, places):
    b = Builder()
    cache = lambda length: [1, heads, length, width // heads]
    inputs = [("ids", TensorProto.INT64, [1, "seq"])]
    outputs = [("logits", TensorProto.FLOAT, [1, "seq", words])]
    two, one, zero = (b.constant(np.int64(value)) for value in (2, 1, 0))
    past = b.node("Gather", b.node("Shape", "past.0.key"), two)
    end = b.node("Add", past, b.node("Gather", b.node("Shape", "ids"), one))
    own, all_places = b.node("Range", past, end, one), b.node("Range", zero, end, one)
    seen = b.node("LessOrEqual", all_places, b.node("Unsqueeze", own, b.ints(1)))
    word = b.node("Gather", b.weight(words, width, scale=0.3), "ids")
    x = b.node("Add", word, b.node("Gather", b.weight(places, width, scale=0.1), own))
    by_head, flat = b.ints(0, 0, heads, width // heads), b.ints(0, 0, width)
    parts, scale = b.ints(width, width, width), b.constant(np.float32((width // heads) ** -0.5))
    least = b.constant(np.float32(-1e9))
    for layer in range(layers):
        for kind in ("key", "value"):
            inputs.append((f"past.{layer}.{kind}", TensorProto.FLOAT, cache("past")))
            outputs.append((f"present.{layer}.{kind}", TensorProto.FLOAT, cache("past + seq")))
        qkv = b.dense(b.norm(x, width), width, 3 * width)
        split = b.node("Split", qkv, parts, to=[f"{name}.{layer}" for name in "qkv"], axis=2)
        q, k, v = (b.node("Transpose", b.node("Reshape", part, by_head), perm=[0, 2, 1, 3]) for part in split)
        k, v = (
            b.node("Concat", f"past.{layer}.{kind}", new, to=[f"present.{layer}.{kind}"], axis=2)
            for kind, new in (("key", k), ("value", v))
        )
        scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), scale)
        weights = b.node("Softmax", b.node("Where", seen, scores, least), axis=-1)
        found = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = b.node("Add", x, b.dense(b.node("Reshape", found, flat), width, width))
        hidden = b.dense(b.norm(x, width), width, 4 * width)
        x = b.node("Add", x, b.dense(b.node("Gelu", hidden, approximate="tanh"), 4 * width, width))
    b.node("MatMul", b.norm(x, width), b.weight(width, words, scale=0.3), to=["logits"])
    return b.model("decoder", inputs, outputs)


class Niello:
    def __init__(self, command, path, folder, args, places, words):
        command = [command, "compile", str(path), "-o", str(folder), "--emit", "shared", "--backend", args.backend]
        command += ["--dim", f"past=0..={places - PROMPT}", "--dim", f"seq=1..={PROMPT}"]
        command += ["--state", "past.*=present.*", "--threads", str(args.threads)]
        subprocess.run(command, check=True, capture_output=True)
        (library,) = [file for file in folder.iterdir() if file.suffix in (".so", ".dylib", ".dll")]
        self.run = ctypes.CDLL(str(library)).niello_run
        self.words = words

    def __call__(self, ids, past):
        sizes = np.array([past, ids.size], np.int64)
        logits = np.empty((ids.size, self.words), np.float32)
        pointers = (ctypes.c_void_p * 2)(ids.ctypes.data, sizes.ctypes.data)
        if self.run(pointers, (ctypes.c_void_p * 1)(logits.ctypes.data)) != 0:
            sys.exit("the compiled model failed")
        return logits


class OnnxRuntime:
    def __init__(self, path, threads, shape):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.caches = [port.name for port in self.session.get_inputs()[1:]]
        self.empty = np.zeros(shape, np.float32)
        self.past = {}

    def __call__(self, ids, past):
        if past == 0:
            self.past = {name: self.value(self.empty) for name in self.caches}
        binding = self.session.io_binding()
        binding.bind_cpu_input("ids", ids)
        for name, value in self.past.items():
            binding.bind_ortvalue_input(name, value)
        for port in self.session.get_outputs():
            binding.bind_output(port.name)
        self.session.run_with_iobinding(binding)
        logits, *present = binding.get_outputs()
        self.past = dict(zip(self.caches, present))
        return logits.numpy()[0]


def generate(engine, prompt, tokens):
    """The logits of each step, and how long steps of one token took."""
    logits, times = [engine(prompt, 0)[-1]], []
    for step in range(tokens):
        token = np.array([[logits[-1].argmax()]], np.int64)
        start = time.perf_counter()
        answer = engine(token, prompt.size + step)
        times.append(time.perf_counter() - start)
        logits.append(answer[-1])
    return np.array(logits), times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("niello")
    args = parser.parse_args()
    places = 2 * PROMPT + args.tokens
    print(f"{'decoder':>16} {'niello':>10} {'onnxruntime':>12} {'ratio':>6} {'largest difference':>19}")
    for layers, width, heads, words in DECODERS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            onnx.save(decoder(layers, width, heads, words, places), folder / "decoder.onnx")
            out = folder / "out"
            out.mkdir()
            engines = [
                Niello(args.niello, folder / "decoder.onnx", out, args, places, words),
                OnnxRuntime(folder / "decoder.onnx", args.threads, (1, heads, 0, width // heads)),
            ]
            prompt = np.random.default_rng(1).integers(0, words, (1, PROMPT))
            times = [[], []]
            for _ in range(args.rounds):
                (own, peer) = answers = [generate(engine, prompt, args.tokens) for engine in engines]
                for all_times, (_, these) in zip(times, answers):
                    all_times.extend(these)
            if (own[0].argmax(axis=1) != peer[0].argmax(axis=1)).any():
                sys.exit(f"{layers}x{width}: the tokens are others than ONNX Runtime's")
            ours, theirs = (statistics.median(these) * 1e6 for these in times)
            worst = abs(own[0] - peer[0]).max()
            print(f"{layers:>3} layers of {width:>3} {ours:>7.0f} µs {theirs:>9.0f} µs {ours / theirs:>6.2f} {worst:>19.1e}")


if __name__ == "__main__":
    main()
