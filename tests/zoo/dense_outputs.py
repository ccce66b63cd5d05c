"""Networks whose results are images or lists of boxes: segmentation, detection, super-resolution, depth."""

import numpy as np

from family import families

FAMILIES, family = families()


@family(transposed=dict(), nearest=dict(up="nearest"), linear=dict(up="linear"), shallow=dict(levels=1))
def unet(net, up="transposed", levels=2):
    """down, up, and across"""
    x, inner, across = net.input(3, 32, 32), 3, []
    for level in range(levels):
        outer = 8 << level
        x, inner = net.conv_norm(net.conv_norm(x, inner, outer), outer, outer), outer
        across.append((x, outer))
        x = net.pool(x)
    x, inner = net.conv_norm(x, inner, 2 * inner), 2 * inner
    for short, channels in reversed(across):
        if up == "transposed":
            x = net.conv_transpose(x, inner, channels, 2, pad=0)
        else:
            mode = "half_pixel" if up == "linear" else "asymmetric"
            x = net.conv(net.resize(x, 2, up, coordinate_transformation_mode=mode), inner, channels)
        x, inner = net.conv_norm(net.concat(short, x), 2 * channels, channels), channels
    return net.conv(x, inner, 2, 1, act="Sigmoid")


@family(rates_2_4=dict(rates=(2, 4)), rates_1_2_3=dict(rates=(1, 2, 3)))
def deeplab(net, rates):
    """dilated convolutions side by side, bilinear up to the image"""
    x = net.conv_norm(net.input(3, 32, 32), 3, 16, stride=2)
    x = net.conv_norm(x, 16, 16, stride=2)
    parts = [net.conv_norm(x, 16, 8, 1)] + [net.conv_norm(x, 16, 8, dilation=rate) for rate in rates]
    whole = net.conv(net.node("GlobalAveragePool", x), 16, 8, 1, act="Relu")
    parts.append(net.resize(whole, 8))
    x = net.conv_norm(net.concat(*parts), 8 * len(parts), 16, 1)
    logits = net.resize(net.conv(x, 16, 5, 1), 4, "linear", coordinate_transformation_mode="align_corners")
    return net.node("ArgMax", logits, axis=1, keepdims=0), logits


@family(sum=dict(), concatenated=dict(concatenated=True), levels_2=dict(levels=2))
def feature_pyramid(net, levels=3, concatenated=False):
    """a pyramid of features with lateral connections"""
    x, inner, found = net.conv_norm(net.input(3, 48, 48), 3, 8, stride=2), 8, []
    for _ in range(levels):
        x, inner = net.conv_norm(x, inner, 2 * inner, stride=2), 2 * inner
        found.append((x, inner))
    above, outputs = None, []
    for x, channels in reversed(found):
        x = net.conv(x, channels, 12, 1)
        if above is not None and concatenated:
            x = net.conv(net.concat(x, net.resize(above, 2)), 24, 12, 1)
        elif above is not None:
            x = net.add(x, net.resize(above, 2))
        above = x
        outputs.append(net.conv(x, 12, 12))
    return outputs


@family(anchors_2=dict(anchors=2), anchors_3=dict(anchors=3), free=dict(anchors=1, exponential=True))
def yolo(net, anchors, exponential=False):
    """boxes and scores of a grid, decoded"""
    classes, side = 4, 6
    x = net.conv_norm(net.input(3, 48, 48), 3, 16, stride=2, act="Silu")
    x = net.conv_norm(net.conv_norm(x, 16, 16, stride=2, act="Silu"), 16, 24, stride=2, act="Silu")
    # Pools of three sizes, one behind the other.
    pools = [x]
    for _ in range(3):
        pools.append(net.pool(pools[-1], kernel=5, stride=1, pad=2))
    x = net.conv_norm(net.concat(*pools), 96, 24, 1, act="Silu")
    x = net.conv(x, 24, anchors * (5 + classes), 1)
    x = net.transpose(net.reshape(x, 0, anchors, 5 + classes, side, side), 0, 1, 3, 4, 2)
    places, sizes, scores = net.split(x, 2, 2, 1 + classes)
    rows, columns = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    grid = net.constant(np.stack([columns, rows], -1).astype(np.float32)[None, None])
    places = net.mul(net.add(net.node("Sigmoid", places), grid), net.scalar(8))
    if exponential:
        sizes = net.mul(net.node("Exp", sizes), net.scalar(8))
    else:
        doubled = net.mul(net.node("Sigmoid", sizes), net.scalar(2))
        sizes = net.mul(net.node("Pow", doubled, net.scalar(2)), net.scale((anchors, 1, 1, 2)))
    return net.reshape(net.concat(places, sizes, net.node("Sigmoid", scores), axis=-1), 0, anchors * side**2, 5 + classes)


@family(two_levels=dict(levels=2), three_levels=dict(levels=3))
def ssd(net, levels):
    """boxes from maps of several sizes, relative to fixed ones"""
    x, boxes, scores, count = net.conv(net.input(3, 40, 40), 3, 16, stride=2, act="Relu"), [], [], 0
    side = 20
    for _ in range(levels):
        x, side = net.conv(x, 16, 16, stride=2, act="Relu"), (side + 1) // 2
        for found, width in ((boxes, 8), (scores, 6)):
            y = net.transpose(net.conv(x, 16, width), 0, 2, 3, 1)
            found.append(net.reshape(y, 0, -1, width // 2))
        count += 2 * side**2
    boxes, scores = net.concat(*boxes), net.node("Softmax", net.concat(*scores), axis=-1)
    prior = net.constant(net.random.random((1, count, 4)).astype(np.float32))
    centre, size = net.slice(prior, 0, 2, 2), net.slice(prior, 2, 4, 2)
    place = net.add(net.mul(net.mul(net.slice(boxes, 0, 2, 2), size), net.scalar(0.1)), centre)
    half = net.mul(net.mul(net.node("Exp", net.mul(net.slice(boxes, 2, 4, 2), net.scalar(0.2))), size), net.scalar(0.5))
    return net.concat(net.node("Sub", place, half), net.add(place, half), axis=2), scores


@family(peaks=dict(), offsets=dict(offsets=True))
def centernet(net, offsets=False):
    """heat maps, the peaks of which are objects"""
    x = net.conv_norm(net.conv_norm(net.input(3, 32, 32), 3, 16, stride=2), 16, 16, stride=2)
    heat = net.conv(net.conv(x, 16, 16, act="Relu"), 16, 3, 1, act="Sigmoid")
    peak = net.node("Equal", net.pool(heat, kernel=3, stride=1, pad=1), heat)
    kept = net.mul(heat, net.node("Cast", peak, to=1))
    values, places = net.node("TopK", net.reshape(kept, 0, -1), net.ints(5), outputs=2, axis=1)
    outputs = [values, places]
    if offsets:
        moved = net.reshape(net.transpose(net.conv(x, 16, 2, 1), 0, 2, 3, 1), 0, 64, 2)
        cell = net.node("Mod", places, net.ints(64))
        index = net.node("Expand", net.node("Unsqueeze", cell, net.ints(2)), net.ints(1, 1, 2))
        outputs.append(net.node("GatherElements", moved, index, axis=1))
    return outputs


@family(shuffled=dict(), factor_3=dict(factor=3), transposed=dict(up="transposed"), resized=dict(up="cubic"))
def super_resolution(net, factor=2, up="shuffled"):
    """images made larger"""
    image = net.input(1, 16, 16)
    x = net.conv(net.conv(image, 1, 16, 5, act="Relu"), 16, 16, act="Relu")
    if up == "shuffled":
        return net.node("DepthToSpace", net.conv(x, 16, factor**2), blocksize=factor, mode="CRD")
    if up == "transposed":
        return net.conv_transpose(x, 16, 1)
    large = net.resize(image, factor, "cubic", coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75)
    return net.add(large, net.conv(net.resize(x, factor), 16, 1))


@family(residual=dict(), dense=dict(dense=True))
def denoiser(net, dense=False):
    """what is noise, taken from the image"""
    image = net.input(1, 20, 20)
    x, inner = net.conv(image, 1, 16, act="Relu"), 16
    for _ in range(3):
        y = net.conv_norm(x, inner, 16)
        x, inner = (net.concat(x, y), inner + 16) if dense else (y, 16)
    return net.node("Sub", image, net.conv(x, inner, 1))


@family(instance=dict(), reflected=dict(reflected=True))
def style_transfer(net, reflected=False):
    """instance norm between convolutions, down and up"""

    def layer(x, inner, outer, kernel, stride=1, act="Relu"):
        half = kernel // 2
        if reflected:
            x = net.node("Pad", x, net.ints(0, 0, half, half, 0, 0, half, half), mode="reflect")
        y = net.conv(x, inner, outer, kernel, stride=stride, pads=[0] * 4 if reflected else None)
        return net.act(net.node("InstanceNormalization", y, net.scale(outer), net.bias(outer)), act)

    x = layer(layer(net.input(3, 24, 24), 3, 8, 9), 8, 16, 3, 2)
    x = net.add(x, layer(layer(x, 16, 16, 3), 16, 16, 3, act=None))
    return layer(net.resize(x, 2), 16, 3, 9, act="Tanh")


@family(bilinear=dict(mode="linear"), nearest=dict(mode="nearest", padding_mode="border"))
def spatial_transformer(net, mode, **attributes):
    """an image that is sampled where a network says"""
    image = net.input(2, 16, 16)
    x = net.node("Flatten", net.pool(net.conv(image, 2, 4, stride=2, act="Relu")), axis=1)
    moved = net.mul(net.dense(x, 64, 6), net.scalar(0.05))
    still = net.constant(np.array([1, 0, 0.03, 0, 1, 0.02], np.float32))
    theta = net.reshape(net.add(moved, still), 0, 2, 3)
    ys, xs = np.meshgrid(np.linspace(-0.8, 0.8, 12), np.linspace(-0.8, 0.8, 12), indexing="ij")
    places = np.stack([xs, ys, np.ones_like(xs)]).reshape(3, 144).astype(np.float32)
    grid = net.node("MatMul", theta, net.constant(places))
    grid = net.reshape(net.transpose(grid, 0, 2, 1), 0, 12, 12, 2)
    return net.node("GridSample", image, grid, mode=mode, **attributes)
