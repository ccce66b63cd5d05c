"""Writes voice.onnx: tells of 32 milliseconds of sound whether a voice is in them.

It has no trained weights. Filters of a convolution measure the energy of five bands; a voice has most
of it in the low ones, and noise as much in the high ones. A GRU keeps two numbers from run to run:
how much of a voice there was just now, and how much of one there is in the noise between words. It
follows a voice at once, and the noise fast when it becomes less and slowly when it becomes more.

    python voice.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RATE = 16000
FRAME = 512
WINDOW, STRIDE = 256, 128
# Frequencies at which filters listen, in Hz. Those of a band are as far apart as they hear.
BANDS = [
    np.arange(125, 500, 125),
    np.arange(500, 1000, 125),
    np.arange(1000, 2000, 125),
    np.arange(2000, 4000, 250),
    np.arange(5000, 8000, 500),
]
FLOOR = 1e-10  # Energy that silence counts as; 1 is a sine of full scale.
DECIBEL = np.log(10) / 10
QUIET = -70  # Of a band, in decibels.
# How much of the evidence is that high tones are quieter: of that, loud noise has none.
HIGH_COUNTS = 0.7

nodes, constants = [], []


def constant(value, dtype=np.float32):
    name = f"c{len(constants)}"
    constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def node(op, *inputs, output=None, **attributes):
    output = output or f"v{len(nodes)}"
    nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
    return output


def ints(*values):
    return constant(values, np.int64)


def filters():
    """Cosines and sines of all frequencies, faded in and out: [2 * frequencies, 1, WINDOW]."""
    at = np.arange(WINDOW)
    fade = np.hanning(WINDOW + 1)[:-1]
    angles = 2 * np.pi * np.concatenate(BANDS)[:, None] * at / RATE
    waves = np.vstack([np.cos(angles), np.sin(angles)])
    return (waves * fade * 2 / fade.sum())[:, None]


def bands():
    """Which filters a band sums up: [bands, 2 * frequencies, 1]."""
    of = np.repeat(np.arange(len(BANDS)), [len(band) for band in BANDS])
    return np.equal(np.arange(len(BANDS))[:, None], np.tile(of, 2))[..., None]


def evidence(loudness):
    """How much of a voice there is: 1 if it is 40 dB above QUIET, and 40 dB above the high tones."""
    voice = np.array([0.5, 0.3, 0.2, 0, 0])
    high = np.array([0, 0, 0, 0, 1])
    weights = (voice - HIGH_COUNTS * high) / (40 * DECIBEL)
    least = (1 - HIGH_COUNTS) * QUIET / 40
    return node("Sub", node("MatMul", loudness, constant(weights[:, None])), constant([least]))


def gru(x):
    """Of the two numbers in the state, the first follows a voice and the second the noise."""
    # How much of a number stays, as the argument of a sigmoid: the more of a voice there is beyond it,
    # the less stays of the first one, and the more of the second.
    stays_x, stays_state, stays = [-1, 5], np.diag([1, -5]), [-0.5, 3]
    nothing = np.zeros((2, 2))
    weights = np.concatenate([stays_x, [0, 0], [1, 1]])[None, :, None]
    recurrence = np.concatenate([stays_state, nothing, nothing])[None]
    biases = np.concatenate([stays, np.zeros(10)])[None]
    inputs = [x, constant(weights), constant(recurrence), constant(biases), "", "state"]
    nodes.append(helper.make_node("GRU", inputs, ["", "state_out"], hidden_size=2))
    return "state_out"


def main():
    sound = node("Unsqueeze", "samples", ints(1))
    waves = node("Conv", sound, constant(filters()), strides=[STRIDE])
    energies = node("Conv", node("Mul", waves, waves), constant(bands()))
    energies = node("ReduceMean", energies, axes=[2], keepdims=0)
    loudness = node("Log", node("Add", energies, constant(FLOOR)))
    state = gru(node("Unsqueeze", evidence(loudness), ints(0)))
    # A voice is what is above the noise by 0.4.
    above = node("MatMul", node("Squeeze", state, ints(0)), constant([[12], [-12]]))
    node("Sigmoid", node("Add", above, constant([-12 * 0.4])), output="probability")

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = [info("samples", 1, FRAME), info("state", 1, 1, 2)]
    outputs = [info("probability", 1, 1), info("state_out", 1, 1, 2)]
    graph = helper.make_graph(nodes, "voice", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, Path(__file__).with_name("voice.onnx"))


if __name__ == "__main__":
    main()
