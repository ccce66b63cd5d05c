"""Networks on sequences without attention: recurrent layers, convolutions in time, state spaces."""

import numpy as np

from family import families

FAMILIES, family = families()

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(net, x, kind, inner, hidden, directions=1, states=False, **attributes):
    """A layer on a sequence whose first axis is time; its results as of the operator."""
    gates = GATES[kind]
    weights = [
        net.weight(directions, gates * hidden, inner, fan=inner),
        net.weight(directions, gates * hidden, hidden, fan=hidden),
        net.constant((0.1 * net.random.standard_normal((directions, 2 * gates * hidden))).astype(np.float32)),
    ]
    if directions == 2:
        attributes["direction"] = "bidirectional"
    outputs = 3 if kind == "LSTM" else 2
    return net.node(kind, x, *weights, *([""] + states if states else []), outputs=outputs, hidden_size=hidden, **attributes)


def joined(net, y, width):
    """Time, directions, batch, hidden: as time, batch, both directions."""
    return net.reshape(net.transpose(y, 0, 2, 1, 3), 0, 0, width)


def classifier(net, kind, length=8, layers=1, directions=1, **attributes):
    inner, hidden = 6, 12
    x = net.transpose(net.input(length, inner), 1, 0, 2)
    for _ in range(layers):
        x = joined(net, recurrent(net, x, kind, inner, hidden, directions, **attributes)[0], directions * hidden)
        inner = directions * hidden
    last = net.node("Gather", x, net.constant(np.array(-1, np.int64)), axis=0)
    return net.dense(last, inner, 4)


@family(
    one=dict(), bidirectional=dict(directions=2), stacked=dict(layers=2), reverse=dict(direction="reverse"),
    clipped=dict(clip=0.4, input_forget=1),
)
def lstm(net, **options):
    """LSTM layers and a linear one on the last step"""
    return classifier(net, "LSTM", **options)


@family(
    one=dict(), bidirectional=dict(directions=2), linear_before_reset=dict(linear_before_reset=1), stacked=dict(layers=2),
    hard=dict(activations=["HardSigmoid", "Softsign"]),
)
def gru(net, **options):
    """the same with GRU"""
    return classifier(net, "GRU", **options)


@family(tanh=dict(), relu=dict(activations=["Relu"]), bidirectional=dict(directions=2), reverse=dict(direction="reverse"))
def rnn(net, **options):
    """the same with plain recurrence"""
    return classifier(net, "RNN", **options)


@family(lstm=dict(kind="LSTM"), gru=dict(kind="GRU"))
def recurrent_step(net, kind):
    """one step of a stream, with the states as inputs and outputs"""
    x = net.reshape(net.input(5), 1, -1, 5)
    states = [net.node("Unsqueeze", net.input(10), net.ints(0)) for _ in range(2 if kind == "LSTM" else 1)]
    y, *after = recurrent(net, x, kind, 5, 10, states=states)
    out = net.dense(net.reshape(y, -1, 10), 10, 3)
    return [out, *(net.node("Squeeze", state, net.ints(0)) for state in after)]


@family(lstm=dict(kind="LSTM"), gru=dict(kind="GRU"))
def encoder_decoder(net, kind):
    """the last state of one sequence begins another"""
    source, target = (net.transpose(net.input(length, 5), 1, 0, 2) for length in (6, 4))
    states = recurrent(net, source, kind, 5, 12)[1:]
    y = recurrent(net, target, kind, 5, 12, states=list(states))[0]
    return net.transpose(net.linear(joined(net, y, 12), 12, 7), 1, 0, 2)


@family(lstm=dict(kind="LSTM"), gru=dict(kind="GRU", directions=2))
def tagger(net, kind, directions=1):
    """words, embedded, and a label for each"""
    x = net.transpose(net.embedding(net.input(9, classes=40), 40, 8), 1, 0, 2)
    y = joined(net, recurrent(net, x, kind, 8, 10, directions)[0], 10 * directions)
    return net.transpose(net.node("LogSoftmax", net.linear(y, 10 * directions, 5), axis=-1), 1, 0, 2)


@family(gru=dict(kind="GRU"), lstm=dict(kind="LSTM"))
def convolutional_recurrent(net, kind):
    """convolutions on an image of text, then a recurrent layer along it"""
    x = net.pool(net.conv_norm(net.input(1, 16, 24), 1, 8))
    x = net.node("MaxPool", net.conv_norm(x, 8, 12), kernel_shape=[8, 1], strides=[8, 1])
    x = net.transpose(net.node("Squeeze", x, net.ints(2)), 2, 0, 1)
    y = joined(net, recurrent(net, x, kind, 12, 10, 2)[0], 20)
    return net.node("LogSoftmax", net.linear(y, 20, 11), axis=-1)


@family(causal=dict(), weighted=dict(norm=True), wide=dict(kernel=5))
def temporal_convolutions(net, kernel=3, norm=False):
    """residual, dilated convolutions of the past"""
    x, inner = net.input(4, 40), 4
    for level in range(3):
        past = (kernel - 1) * 2**level
        y = net.conv(x, inner, 12, kernel, rank=1, dilation=2**level, pads=[past, 0], act="Relu")
        y = net.batch_norm(y, 12) if norm else y
        y = net.conv(y, 12, 12, kernel, rank=1, dilation=2**level, pads=[past, 0], act="Relu")
        x = net.act(net.add(y, x if inner == 12 else net.conv(x, inner, 12, 1, rank=1)))
        inner = 12
    last = net.node("Gather", x, net.constant(np.array(-1, np.int64)), axis=2)
    return net.dense(last, 12, 3)


@family(plain=dict(), residual=dict(residual=True), separable=dict(separable=True))
def keyword_spotting(net, residual=False, separable=False):
    """convolutions on a spectrogram of 49 frames"""
    x = net.conv_norm(net.input(1, 49, 10), 1, 16, (10, 4), stride=2, pads=[4, 1, 5, 1])
    for _ in range(2):
        if separable:
            y = net.conv_norm(net.conv_norm(x, 16, 16, groups=16), 16, 16, 1)
        else:
            y = net.conv_norm(x, 16, 16)
        x = net.add(x, y) if residual else y
    return net.head(x, 16, 12, softmax=True)


@family(plain=dict(), strided=dict(stride=4))
def raw_audio(net, stride=2):
    """convolutions of one axis on samples"""
    x, inner = net.input(1, 512), 1
    for outer in (8, 16, 24):
        x = net.batch_norm(net.conv(x, inner, outer, 9, stride=stride, rank=1), outer, "Relu")
        inner = outer
    return net.dense(net.mean(x, -1), 24, 6)


@family(frame_32=dict(frame=32), frame_16=dict(frame=16, log=True))
def spectrogram(net, frame, log=False):
    """a short-time Fourier transform in the network, and a layer on it"""
    window = np.hanning(frame).astype(np.float32)
    angles = 2 * np.pi * np.outer(np.arange(frame // 2 + 1), np.arange(frame)) / frame
    kernels = np.concatenate([np.cos(angles), -np.sin(angles)]) * window
    kernels = net.constant(kernels.astype(np.float32)[:, None])
    y = net.node("Conv", net.input(1, 8 * frame), kernels, strides=[frame // 2])
    real, imaginary = net.split(y, frame // 2 + 1, frame // 2 + 1, axis=1)
    power = net.add(net.mul(real, real), net.mul(imaginary, imaginary))
    if log:
        power = net.node("Log", net.add(power, net.scalar(1.0)))
    return net.dense(net.mean(power, 2), frame // 2 + 1, 5)


@family(diagonal=dict(), gated=dict(gated=True))
def state_space(net, gated=False):
    """a linear recurrence by `Scan`, step by step"""
    from onnx import TensorProto, helper

    width, length = 10, 7
    x = net.linear(net.input(length, 6), 6, width)
    decay = net.constant(net.random.uniform(0.5, 0.95, width).astype(np.float32))
    y = net.transpose(x, 1, 0, 2)
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", decay], ["kept"]),
            helper.make_node("Add", ["kept", "step"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        "step", [value("state"), value("step")], [value("next"), value("seen")],
    )
    first = net.mul(net.node("Gather", y, net.constant(np.array(0, np.int64)), axis=0), net.scalar(0))
    y = net.node("Scan", first, y, outputs=2, body=body, num_scan_inputs=1)[1]
    y = net.transpose(y, 1, 0, 2)
    return net.linear(net.mul(y, net.act(net.linear(x, width, width), "Silu")) if gated else y, width, 5)


@family(blocks_2=dict(blocks=2), pooled=dict(blocks=1, pooled=True))
def forecasting(net, blocks, pooled=False):
    """blocks that explain the past and foretell"""
    past, future, whole = 24, 6, None
    x = net.input(past)
    for _ in range(blocks):
        y, width = x, past
        if pooled:
            y = net.node("Squeeze", net.pool(net.node("Unsqueeze", x, net.ints(1)), rank=1), net.ints(1))
            width = past // 2
        y = net.dense(net.dense(y, width, 32, "Relu"), 32, 32, "Relu")
        x = net.node("Sub", x, net.dense(y, 32, past))
        said = net.dense(y, 32, future)
        whole = said if whole is None else net.add(whole, said)
    return whole
