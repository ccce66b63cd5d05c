"""Networks that classify images, each small: two or three stages of its kind of block."""

from family import families

FAMILIES, family = families()


@family(basic=dict(), bottleneck=dict(bottleneck=True), preactivated=dict(before=True), wide=dict(channels=32, size=16))
def resnet(net, bottleneck=False, before=False, channels=16, size=24):
    """residual blocks with batch norm"""
    x = net.conv_norm(net.input(3, size, size), 3, channels, stride=2)
    inner = channels
    for outer, stride in ((channels, 1), (2 * channels, 2)):
        if before:
            y = net.conv(net.batch_norm(x, inner, "Relu"), inner, outer, stride=stride)
            y = net.conv(net.batch_norm(y, outer, "Relu"), outer, outer)
        elif bottleneck:
            y = net.conv_norm(x, inner, outer // 4, 1)
            y = net.conv_norm(y, outer // 4, outer // 4, stride=stride)
            y = net.conv_norm(y, outer // 4, outer, 1, act=None)
        else:
            y = net.conv_norm(net.conv_norm(x, inner, outer, stride=stride), outer, outer, act=None)
        short = x if stride == 1 else net.conv_norm(x, inner, outer, 1, act=None, stride=stride)
        x, inner = net.add(y, short), outer
        x = x if before else net.act(x)
    return net.head(x, inner, 10)


@family(cardinality_4=dict(groups=4), cardinality_8=dict(groups=8))
def resnext(net, groups):
    """residual blocks with grouped convolutions"""
    x = net.conv_norm(net.input(3, 20, 20), 3, 32)
    for stride in (1, 2):
        y = net.conv_norm(net.conv_norm(x, 32, 32, 1), 32, 32, groups=groups, stride=stride)
        y = net.conv_norm(y, 32, 32, 1, act=None)
        x = net.act(net.add(y, x if stride == 1 else net.pool(x, "AveragePool")))
    return net.head(x, 32, 7)


@family(depthwise=dict(), inverted=dict(inverted=True), hard_swish=dict(inverted=True, act="HardSwish", squeeze=True))
def mobilenet(net, inverted=False, act="Relu6", squeeze=False):
    """depthwise convolutions; inverted residuals; squeeze and excitation"""
    x = net.conv_norm(net.input(3, 24, 24), 3, 16, stride=2, act=act)
    for stride in (1, 2, 1):
        wide = 48 if inverted else 16
        y = net.conv_norm(x, 16, wide, 1, act=act) if inverted else x
        y = net.conv_norm(y, wide, wide, groups=wide, stride=stride, act=act)
        if squeeze:
            y = squeezed(net, y, wide, 8, "HardSigmoid")
        y = net.conv_norm(y, wide, 16, 1, act=None if inverted else act)
        x = net.add(x, y) if inverted and stride == 1 else y
    return net.head(x, 16, 10)


def squeezed(net, x, channels, inner, gate="Sigmoid"):
    s = net.conv(net.node("GlobalAveragePool", x), channels, inner, 1, act="Relu")
    return net.mul(x, net.conv(s, inner, channels, 1, act=gate))


@family(se=dict(), kernel_5=dict(kernel=5))
def efficientnet(net, kernel=3):
    """SiLU, inverted residuals with squeeze and excitation"""
    x = net.conv_norm(net.input(3, 24, 24), 3, 16, stride=2, act="Silu")
    for stride in (1, 2):
        y = net.conv_norm(x, 16, 64, 1, act="Silu")
        y = squeezed(net, net.conv_norm(y, 64, 64, kernel, groups=64, stride=stride, act="Silu"), 64, 4)
        y = net.conv_norm(y, 64, 16, 1, act=None)
        x = net.add(x, y) if stride == 1 else y
    return net.head(net.conv_norm(x, 16, 48, 1, act="Silu"), 48, 10)


@family(max=dict(), average=dict(pool="AveragePool"), padded=dict(count_include_pad=1, pool="AveragePool"))
def inception(net, pool="MaxPool", **attributes):
    """four branches side by side"""
    x, inner = net.conv(net.input(3, 21, 21), 3, 16, stride=2, act="Relu"), 16
    for _ in range(2):
        branches = [
            net.conv(x, inner, 8, 1, act="Relu"),
            net.conv(net.conv(x, inner, 6, 1, act="Relu"), 6, 12, (1, 7), act="Relu"),
            net.conv(net.conv(x, inner, 4, 1, act="Relu"), 4, 8, (5, 1), act="Relu"),
            net.conv(net.pool(x, pool, 3, 1, 1, **attributes), inner, 8, 1, act="Relu"),
        ]
        x, inner = net.concat(*branches), 36
    return net.head(x, 36, 10, softmax=True)


@family(growth_8=dict(growth=8), growth_12=dict(growth=12, bottleneck=True))
def densenet(net, growth, bottleneck=False):
    """each layer reads all before it"""
    x, inner = net.conv(net.input(3, 24, 24), 3, 16, stride=2), 16
    for block in range(2):
        for _ in range(3):
            y = net.batch_norm(x, inner, "Relu")
            width = inner
            if bottleneck:
                y, width = net.batch_norm(net.conv(y, inner, 24, 1), 24, "Relu"), 24
            x, inner = net.concat(x, net.conv(y, width, growth)), inner + growth
        if block == 0:
            x = net.pool(net.conv(net.batch_norm(x, inner, "Relu"), inner, 16, 1), "AveragePool")
            inner = 16
    return net.head(net.batch_norm(x, inner, "Relu"), inner, 10)


@family(groups_2=dict(groups=2), groups_4=dict(groups=4), split=dict(groups=2, split=True))
def shufflenet(net, groups, split=False):
    """channel shuffles between grouped convolutions"""
    channels, size = 32, 10
    x = net.conv_norm(net.input(3, 2 * size, 2 * size), 3, channels, stride=2)
    for _ in range(2):
        if split:
            kept, y = net.split(x, channels // 2, channels // 2, axis=1)
            y = net.conv_norm(y, channels // 2, channels // 2, groups=channels // 2, act=None)
            x = net.concat(kept, net.conv_norm(y, channels // 2, channels // 2, 1))
        y = net.reshape(x, 0, groups, channels // groups, size, size)
        y = net.reshape(net.transpose(y, 0, 2, 1, 3, 4), 0, channels, size, size)
        x = y if split else net.act(net.add(x, net.conv_norm(y, channels, channels, groups=groups, act=None)))
    return net.head(x, channels, 10)


@family(plain=dict(), normed=dict(norm=True), leaky=dict(act="LeakyRelu"), one_channel=dict(channels=1, size=28))
def vgg(net, norm=False, act="Relu", channels=3, size=16):
    """plain stacks of convolutions, and dense layers on all that is left"""
    x, inner = net.input(channels, size, size), channels
    for outer in (8, 16):
        for _ in range(2):
            x = net.conv_norm(x, inner, outer, act=act) if norm else net.conv(x, inner, outer, act=act)
            inner = outer
        x = net.pool(x)
    x = net.node("Flatten", x, axis=1)
    return net.dense(net.dense(x, inner * (size // 4) ** 2, 32, act), 32, 10)


@family(tanh=dict(act="Tanh"), sigmoid=dict(act="Sigmoid"))
def lenet(net, act):
    """the oldest of them"""
    x = net.conv(net.input(1, 28, 28), 1, 6, 5, act=act, pads=[0] * 4)
    x = net.conv(net.pool(x, "AveragePool"), 6, 16, 5, act=act, pads=[0] * 4)
    x = net.node("Flatten", net.pool(x, "AveragePool"), axis=1)
    return net.dense(net.dense(net.dense(x, 256, 60, act), 60, 42, act), 42, 10)


@family(lrn=dict(), overlapping=dict(ceil=1))
def alexnet(net, ceil=0):
    """normalisation across channels, overlapping pools"""
    x = net.conv(net.input(3, 35, 35), 3, 16, 7, stride=2, act="Relu")
    x = net.pool(net.node("LRN", x, size=5, alpha=1e-2, beta=0.75, bias=1.0), kernel=3, stride=2, ceil_mode=ceil)
    x = net.conv(net.node("LRN", x, size=3), 16, 24, 5, groups=2, act="Relu")
    return net.head(net.pool(x, kernel=3, stride=2), 24, 10)


@family(fire=dict(), bypass=dict(bypass=True))
def squeezenet(net, bypass=False):
    """fire modules"""
    x = net.pool(net.conv(net.input(3, 27, 27), 3, 32, stride=2, act="Relu"), kernel=3)
    for _ in range(2):
        s = net.conv(x, 32, 8, 1, act="Relu")
        y = net.concat(net.conv(s, 8, 16, 1, act="Relu"), net.conv(s, 8, 16, 3, act="Relu"))
        x = net.add(x, y) if bypass else y
    return net.node("Flatten", net.node("GlobalAveragePool", net.conv(x, 32, 10, 1, act="Relu")), axis=1)


@family(layer_norm=dict(), scaled=dict(layer_scale=True))
def convnext(net, layer_scale=False):
    """depthwise 7x7, layer norm on channels last, GELU"""
    x = net.conv(net.input(3, 32, 32), 3, 24, 4, stride=4, pads=[0] * 4)
    for _ in range(2):
        y = net.transpose(net.conv(x, 24, 24, 7, groups=24), 0, 2, 3, 1)
        y = net.linear(net.linear(net.layer_norm(y, 24), 24, 96, "Gelu"), 96, 24)
        y = net.mul(y, net.scale(24)) if layer_scale else y
        x = net.add(x, net.transpose(y, 0, 3, 1, 2))
    return net.head(x, 24, 10)


@family(plain=dict(), deep=dict(depth=4))
def convmixer(net, depth=2):
    """patches, then depthwise and pointwise convolutions"""
    x = net.batch_norm(net.conv(net.input(3, 28, 28), 3, 24, 4, stride=4, pads=[0] * 4, act="Gelu"), 24)
    for _ in range(depth):
        x = net.add(x, net.batch_norm(net.conv(x, 24, 24, 5, groups=24, act="Gelu"), 24))
        x = net.batch_norm(net.conv(x, 24, 24, 1, act="Gelu"), 24)
    return net.head(x, 24, 10)


@family(plain=dict(), half=dict(ratio=2))
def ghostnet(net, ratio=4):
    """cheap copies of features by depthwise convolutions"""
    x, inner = net.conv_norm(net.input(3, 20, 20), 3, 16), 16
    for stride in (1, 2):
        first = net.conv_norm(x, inner, 32 // ratio, 1)
        cheap = [net.conv_norm(first, 32 // ratio, 32 // ratio, groups=32 // ratio) for _ in range(ratio - 1)]
        x = net.concat(first, *cheap)
        x = net.conv_norm(x, 32, 32, groups=32, stride=stride, act=None)
        inner = 32
    return net.head(x, 32, 10)


@family(three=dict(), two=dict(streams=2))
def hrnet(net, streams=3):
    """streams of several resolutions that are exchanged"""
    x = net.conv_norm(net.input(3, 32, 32), 3, 8, stride=2)
    ys = [x]
    for _ in range(streams - 1):
        ys.append(net.conv_norm(ys[-1], 8, 8, stride=2))
    ys = [net.conv_norm(y, 8, 8) for y in ys]
    fused = ys[0]
    for level, y in enumerate(ys[1:], 1):
        fused = net.add(fused, net.resize(net.conv(y, 8, 8, 1), 2**level))
    return net.conv(net.act(fused), 8, 4, 1)


@family(max=dict(), residual=dict(residual=True))
def volumes(net, residual=False):
    """convolutions of three axes, for scans and clips"""
    x = net.conv(net.input(1, 8, 12, 12), 1, 8, rank=3, act="Relu")
    y = net.conv(x, 8, 8, rank=3)
    x = net.act(net.add(x, y) if residual else y)
    x = net.conv(net.pool(x, rank=3), 8, 16, rank=3, act="Relu")
    return net.head(x, 16, 5)
