"""Networks that make something: autoencoders, generators, diffusion, flows."""

import numpy as np

from family import families

FAMILIES, family = families()


@family(dense=dict(), convolutional=dict(images=True), sparse=dict(act="ThresholdedRelu"))
def autoencoder(net, images=False, act="Relu"):
    """down to few numbers, and up"""
    if images:
        x = net.conv(net.conv(net.input(1, 16, 16), 1, 8, stride=2, act=act), 8, 4, stride=2, act=act)
        return net.conv_transpose(net.conv_transpose(x, 4, 8, act=act), 8, 1, act="Sigmoid")
    x = net.dense(net.dense(net.input(64), 64, 32, act), 32, 8)
    return net.dense(net.dense(x, 8, 32, act), 32, 64, "Sigmoid")


@family(dense=dict(), images=dict(images=True))
def variational_autoencoder(net, images=False):
    """noise is an input, scaled by exp of half the log variance"""
    if images:
        x = net.node("Flatten", net.conv(net.input(1, 16, 16), 1, 8, stride=2, act="Relu"), axis=1)
        x = net.dense(x, 512, 32, "Relu")
    else:
        x = net.dense(net.input(40), 40, 32, "Relu")
    mean, log = net.dense(x, 32, 6), net.dense(x, 32, 6)
    noise = net.input(6)
    z = net.add(mean, net.mul(noise, net.node("Exp", net.mul(log, net.scalar(0.5)))))
    y = net.dense(z, 6, 32, "Relu")
    if images:
        y = net.reshape(net.dense(y, 32, 128, "Relu"), 0, 2, 8, 8)
        return net.conv_transpose(y, 2, 1, act="Sigmoid"), mean, log
    return net.dense(y, 32, 40, "Sigmoid"), mean, log


@family(dcgan=dict(), conditional=dict(classes=5), three_axes=dict(rank=3))
def gan_generator(net, classes=None, rank=2):
    """transposed convolutions from a vector"""
    z, width = net.input(12), 12
    if classes:
        z, width = net.concat(z, net.embedding(net.input(classes=classes), classes, 8)), 20
    x = net.reshape(net.dense(z, width, 16 * 4**rank), 0, 16, *[4] * rank)
    x = net.batch_norm(net.conv_transpose(net.batch_norm(x, 16, "Relu"), 16, 8, rank=rank), 8, "Relu")
    return net.conv_transpose(x, 8, 2, act="Tanh", rank=rank)


@family(leaky=dict(), patches=dict(patches=True))
def gan_discriminator(net, patches=False):
    """strided convolutions with leaky ramps"""
    x, inner = net.input(3, 32, 32), 3
    for outer in (8, 16, 16):
        x = net.conv_norm(x, inner, outer, 4, stride=2, pads=[1] * 4, act="LeakyRelu")
        inner = outer
    if patches:
        return net.conv(x, 16, 1, 3)
    return net.node("Sigmoid", net.dense(net.node("Flatten", x, axis=1), 256, 1))


@family(adaptive=dict(), noisy=dict(noisy=True))
def style_generator(net, noisy=False):
    """instance norm whose scale and bias come from a vector"""
    z, width = net.input(8), 16
    style = net.dense(net.dense(z, 8, 24, "LeakyRelu"), 24, 24, "LeakyRelu")
    base = net.constant(net.random.standard_normal((1, width, 4, 4)).astype(np.float32))
    x = net.add(base, net.reshape(net.dense(style, 24, width), 0, width, 1, 1))
    for _ in range(2):
        x = net.conv(net.resize(x, 2), width, width, act="LeakyRelu")
        if noisy:
            side = 8 if noisy is True else 16
            x = net.add(x, net.mul(net.input(1, side, side), net.scale((width, 1, 1))))
            noisy = "second"
        x = net.node("InstanceNormalization", x, net.constant(np.ones(width, np.float32)), net.constant(np.zeros(width, np.float32)))
        scale, shift = net.split(net.reshape(net.dense(style, 24, 2 * width), 0, 2 * width, 1, 1), width, width, axis=1)
        x = net.add(net.mul(x, net.add(scale, net.scalar(1))), shift)
    return net.conv(x, width, 3, 1, act="Tanh")


def times(net, t, size):
    """Sines and cosines of a step number."""
    rates = net.constant(np.exp(-np.arange(size // 2) * 0.5).astype(np.float32))
    angles = net.mul(net.node("Unsqueeze", net.node("Cast", t, to=1), net.ints(1)), rates)
    return net.concat(net.node("Sin", angles), net.node("Cos", angles))


@family(plain=dict(), attention=dict(attention=True), conditioned=dict(attention=True, context=True))
def diffusion_block(net, attention=False, context=False):
    """a residual block that knows the time, with or without attention"""
    channels, side = 16, 8
    x, t = net.input(channels, side, side), net.input(classes=20)
    time = net.linear(net.linear(times(net, t, 8), 8, 32, "Silu"), 32, channels)
    y = net.conv(net.group_norm(x, channels, 4, "Silu"), channels, channels)
    y = net.add(y, net.reshape(time, 0, channels, 1, 1))
    x = net.add(x, net.conv(net.group_norm(y, channels, 4, "Silu"), channels, channels))
    if not attention:
        return x
    flat = net.transpose(net.reshape(net.group_norm(x, channels, 4), 0, channels, side * side), 0, 2, 1)
    source, width = (net.input(6, 10), 10) if context else (flat, channels)
    q, k, v = net.linear(flat, channels, channels), net.linear(source, width, channels), net.linear(source, width, channels)
    scores = net.node("MatMul", q, net.transpose(k, 0, 2, 1))
    weights = net.node("Softmax", net.mul(scores, net.scalar(channels**-0.5)), axis=-1)
    y = net.linear(net.node("MatMul", weights, v), channels, channels)
    return net.add(x, net.reshape(net.transpose(y, 0, 2, 1), 0, channels, side, side))


@family(plain=dict(), gated=dict(gated=True))
def diffusion_transformer(net, gated=False):
    """attention blocks whose norms are shifted by the time"""
    width, length, heads = 24, 9, 3
    x, t = net.input(length, width), net.input(classes=20)
    time = net.linear(net.linear(times(net, t, 8), 8, width, "Silu"), width, 3 * width)
    shift, scale, gate = net.split(net.node("Unsqueeze", time, net.ints(1)), width, width, width)
    y = net.node("LayerNormalization", x, net.constant(np.ones(width, np.float32)), axis=-1)
    y = net.add(net.mul(y, net.add(scale, net.scalar(1))), shift)
    q, k, v = net.split(net.linear(y, width, 3 * width), width, width, width)
    q, k, v = (net.transpose(net.reshape(p, 0, length, heads, width // heads), 0, 2, 1, 3) for p in (q, k, v))
    weights = net.node("MatMul", net.mul(q, net.scalar((width // heads) ** -0.5)), net.transpose(k, 0, 1, 3, 2))
    y = net.node("MatMul", net.node("Softmax", weights, axis=-1), v)
    y = net.linear(net.reshape(net.transpose(y, 0, 2, 1, 3), 0, length, width), width, width)
    return net.add(x, net.mul(y, gate) if gated else y)


@family(affine=dict(), additive=dict(additive=True))
def flow(net, additive=False):
    """coupling layers, forward, with the log of the determinant"""
    x, total = net.input(10), None
    for layer in range(3):
        a, b = net.split(x, 5, 5)
        shift = net.dense(net.dense(a, 5, 16, "Tanh"), 16, 5)
        if not additive:
            log = net.dense(net.dense(a, 5, 16, "Tanh"), 16, 5, "Tanh")
            b = net.mul(b, net.node("Exp", log))
            part = net.node("ReduceSum", log, net.ints(1), keepdims=0)
            total = part if total is None else net.add(total, part)
        x = net.concat(net.add(b, shift), a)
    return [x] if additive else [x, total]


@family(tanh_gates=dict(), deep=dict(layers=5))
def wavenet(net, layers=3):
    """gated, dilated convolutions of the past, with skips"""
    x, skips = net.conv(net.input(1, 64), 1, 8, 1, rank=1), None
    for layer in range(layers):
        past = 2**layer
        f, g = (net.conv(x, 8, 8, 2, rank=1, dilation=past, pads=[past, 0], act=act) for act in ("Tanh", "Sigmoid"))
        y = net.mul(f, g)
        skip = net.conv(y, 8, 12, 1, rank=1)
        skips = skip if skips is None else net.add(skips, skip)
        x = net.add(x, net.conv(y, 8, 8, 1, rank=1))
    return net.conv(net.conv(net.act(skips), 12, 12, 1, rank=1, act="Relu"), 12, 16, 1, rank=1)


@family(vector_quantised=dict(), residual=dict(stages=2))
def quantised_codes(net, stages=1):
    """each vector replaced by the nearest of a code book"""
    left, whole, codes = net.linear(net.input(7, 12), 12, 6), None, []
    for _ in range(stages):
        book = net.random.standard_normal((10, 6)).astype(np.float32)
        products = net.node("MatMul", left, net.constant(np.ascontiguousarray(book.T)))
        distance = net.node("Sub", net.constant((book**2).sum(1)), net.mul(products, net.scalar(2)))
        code = net.node("ArgMin", distance, axis=-1, keepdims=0)
        near = net.node("Gather", net.constant(book), code, axis=0)
        whole = near if whole is None else net.add(whole, near)
        left = net.node("Sub", left, near)
        codes.append(code)
    return [net.linear(whole, 6, 12), *codes]
