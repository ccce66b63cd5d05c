"""Networks with attention, and others that mix tokens."""

import numpy as np

from family import families

FAMILIES, family = families()


def heads_of(net, x, length, heads, width):
    return net.transpose(net.reshape(x, 0, length, heads, width // heads), 0, 2, 1, 3)


def attend(net, q, k, v, width, head, mask=None, bias=None):
    """Attention over four axes, and back to three."""
    scores = net.node("MatMul", q, net.transpose(k, 0, 1, 3, 2))
    scores = net.mul(scores, net.scalar(head**-0.5))
    if bias is not None:
        scores = net.add(scores, bias)
    if mask is not None:
        scores = net.node("Where", mask, scores, net.scalar(-1e9))
    y = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
    return net.reshape(net.transpose(y, 0, 2, 1, 3), 0, -1, width)


def self_attention(net, x, length, width, heads, **options):
    q, k, v = (heads_of(net, net.linear(x, width, width), length, heads, width) for _ in range(3))
    return net.linear(attend(net, q, k, v, width, width // heads, **options), width, width)


def causal(net, length):
    return net.constant(np.tril(np.ones((1, 1, length, length), bool)))


@family(
    after=dict(), before=dict(before=True), erf=dict(act="erf"), tanh=dict(act="tanh"), layers_3=dict(layers=3, before=True),
)
def transformer_encoder(net, before=False, act="Relu", layers=1):
    """attention and two linear layers, with norms before or after"""
    length, width = 10, 24
    x = net.input(length, width)
    for _ in range(layers):
        if before:
            x = net.add(x, self_attention(net, net.layer_norm(x, width), length, width, 4))
            x = net.add(x, feed_forward(net, net.layer_norm(x, width), width, act))
        else:
            x = net.layer_norm(net.add(x, self_attention(net, x, length, width, 4)), width)
            x = net.layer_norm(net.add(x, feed_forward(net, x, width, act)), width)
    return x


def feed_forward(net, x, width, act):
    y = net.linear(x, width, 2 * width)
    if act == "erf":
        erf = net.node("Erf", net.node("Div", y, net.scalar(2**0.5)))
        y = net.mul(net.mul(y, net.add(erf, net.scalar(1))), net.scalar(0.5))
    elif act == "tanh":
        cube = net.mul(net.node("Pow", y, net.scalar(3)), net.scalar(0.044715))
        tanh = net.node("Tanh", net.mul(net.add(y, cube), net.scalar(0.7978846)))
        y = net.mul(net.mul(y, net.scalar(0.5)), net.add(tanh, net.scalar(1)))
    else:
        y = net.act(y, act)
    return net.linear(y, 2 * width, width)


@family(masked=dict(), pooled=dict(pooled=True), shared=dict(layers=2))
def bert(net, pooled=False, layers=1):
    """embedded words, a mask that is an input"""
    length, width = 8, 24
    ids, mask = net.input(length, classes=50, name="input_ids"), net.input(length, classes=2, name="attention_mask")
    places = net.constant(net.random.standard_normal((1, length, width)).astype(np.float32))
    x = net.layer_norm(net.add(net.embedding(ids, 50, width), places), width)
    wide = net.node("Cast", net.node("Unsqueeze", mask, net.ints(1, 2)), to=1)
    bias = net.mul(net.node("Sub", net.scalar(1), wide), net.scalar(-1e4))
    for _ in range(layers):
        x = net.layer_norm(net.add(x, self_attention(net, x, length, width, 3, bias=bias)), width)
        x = net.layer_norm(net.add(x, feed_forward(net, x, width, "erf")), width)
    first = net.node("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    return [x, net.dense(first, width, width, "Tanh")] if pooled else x


@family(plain=dict(), tied=dict(tied=True), alibi=dict(alibi=True))
def gpt(net, tied=False, alibi=False):
    """a causal mask, logits for each word"""
    length, width = 9, 24
    words = net.weight(40, width, fan=4)
    x = net.node("Gather", words, net.input(length, classes=40), axis=0)
    bias = None
    if alibi:
        far = np.arange(length)[None] - np.arange(length)[:, None]
        slopes = 2.0 ** -np.arange(1, 4)
        bias = net.constant((slopes[:, None, None] * far)[None].astype(np.float32))
    else:
        x = net.add(x, net.constant(net.random.standard_normal((length, width)).astype(np.float32)))
    x = net.add(x, self_attention(net, net.layer_norm(x, width), length, width, 3, mask=causal(net, length), bias=bias))
    x = net.layer_norm(net.add(x, feed_forward(net, net.layer_norm(x, width), width, "tanh")), width)
    return net.node("MatMul", x, net.transpose(words, 1, 0)) if tied else net.linear(x, width, 40, bias=False)


def rotated(net, x, length, head):
    """Halves of each head turned by an angle of the place."""
    angles = np.outer(np.arange(length), 100.0 ** (-np.arange(0, head, 2) / head))
    angles = np.concatenate([angles, angles], -1)
    a, b = net.split(x, head // 2, head // 2)
    turned = net.concat(net.node("Neg", b), a, axis=-1)
    cos, sin = (net.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    return net.add(net.mul(x, cos), net.mul(turned, sin))


@family(plain=dict(), grouped=dict(shared=2), one_key=dict(shared=4), query_norm=dict(norm=True))
def llama(net, shared=1, norm=False):
    """root mean square norms, turned heads, keys that heads share, gated layers"""
    length, width, heads = 8, 32, 4
    head, few = width // heads, heads // shared
    x = net.embedding(net.input(length, classes=40), 40, width)
    y = net.rms_norm(x, width)
    q = heads_of(net, net.linear(y, width, width, bias=False), length, heads, width)
    k, v = (heads_of(net, net.linear(y, width, few * head, bias=False), length, few, few * head) for _ in range(2))
    if norm:
        q, k = net.rms_norm(q, head), net.rms_norm(k, head)
    q, k = rotated(net, q, length, head), rotated(net, k, length, head)
    if shared > 1:
        k, v = (
            net.reshape(net.node("Expand", net.node("Unsqueeze", p, net.ints(2)), net.ints(1, few, shared, length, head)), 0, heads, length, head)
            for p in (k, v)
        )
    y = attend(net, q, k, v, width, head, mask=causal(net, length))
    x = net.add(x, net.linear(y, width, width, bias=False))
    y = net.rms_norm(x, width)
    gate = net.linear(y, width, 48, "Silu", bias=False)
    y = net.linear(net.mul(gate, net.linear(y, width, 48, bias=False)), 48, width, bias=False)
    return net.linear(net.rms_norm(net.add(x, y), width), width, 40, bias=False)


@family(one_word=dict(), with_cache=dict(past=6), two_words=dict(past=4, length=2))
def decoder_step(net, past=3, length=1):
    """keys and values of words before are inputs, with the new ones they are outputs"""
    width, heads = 16, 2
    x = net.input(length, width)
    q, k, v = (heads_of(net, net.linear(x, width, width), length, heads, width) for _ in range(3))
    k = net.concat(net.input(heads, past, width // heads, name="past_key"), k, axis=2)
    v = net.concat(net.input(heads, past, width // heads, name="past_value"), v, axis=2)
    return net.linear(attend(net, q, k, v, width, width // heads), width, 20), k, v


@family(plain=dict(), buckets=dict(bias=True))
def translator(net, bias=False):
    """an encoder, and a decoder that attends to it"""
    source, target, width, heads = 7, 5, 24, 3
    near = net.constant(net.random.standard_normal((1, heads, source, source)).astype(np.float32)) if bias else None
    x = net.embedding(net.input(source, classes=30), 30, width)
    x = net.layer_norm(net.add(x, self_attention(net, x, source, width, heads, bias=near)), width)
    y = net.embedding(net.input(target, classes=30), 30, width)
    y = net.layer_norm(net.add(y, self_attention(net, y, target, width, heads, mask=causal(net, target))), width)
    q = heads_of(net, net.linear(y, width, width), target, heads, width)
    k, v = (heads_of(net, net.linear(x, width, width), source, heads, width) for _ in range(2))
    y = net.layer_norm(net.add(y, net.linear(attend(net, q, k, v, width, 8), width, width)), width)
    return net.linear(net.layer_norm(net.add(y, feed_forward(net, y, width, "Relu")), width), width, 30)


@family(class_token=dict(), mean=dict(mean=True), registers=dict(tokens=3))
def vision_transformer(net, mean=False, tokens=1):
    """patches of an image as words"""
    width, length = 24, 16
    x = net.conv(net.input(3, 16, 16), 3, width, 4, stride=4, pads=[0] * 4)
    x = net.transpose(net.reshape(x, 0, width, length), 0, 2, 1)
    if not mean:
        token = net.constant(net.random.standard_normal((1, tokens, width)).astype(np.float32))
        size = net.slice(net.node("Shape", x), 0, 1, 0)
        token = net.node("Expand", token, net.concat(size, net.ints(tokens, width), axis=0))
        x, length = net.concat(token, x), length + tokens
    x = net.add(x, net.constant(net.random.standard_normal((1, length, width)).astype(np.float32)))
    x = net.add(x, self_attention(net, net.layer_norm(x, width), length, width, 3))
    x = net.layer_norm(net.add(x, feed_forward(net, net.layer_norm(x, width), width, "erf")), width)
    x = net.mean(x, 1) if mean else net.node("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    return net.dense(x, width, 10)


@family(windows=dict(), shifted=dict(shift=2))
def swin(net, shift=0):
    """attention within windows of an image"""
    side, window, width, heads = 8, 4, 16, 2
    tokens = window * window
    x = net.transpose(net.conv(net.input(3, 16, 16), 3, width, 2, stride=2, pads=[0] * 4), 0, 2, 3, 1)
    y = net.layer_norm(x, width)

    def roll(y, by):
        for axis in (1, 2):
            y = net.concat(net.slice(y, by, 1 << 30, axis), net.slice(y, 0, by, axis), axis=axis)
        return y

    y = roll(y, shift) if shift else y
    y = net.reshape(y, -1, side // window, window, side // window, window, width)
    y = net.reshape(net.transpose(y, 0, 1, 3, 2, 4, 5), -1, tokens, width)
    near = net.constant(net.random.standard_normal((1, heads, tokens, tokens)).astype(np.float32))
    y = self_attention(net, y, tokens, width, heads, bias=near)
    y = net.reshape(y, -1, side // window, side // window, window, window, width)
    y = net.reshape(net.transpose(y, 0, 1, 3, 2, 4, 5), -1, side, side, width)
    x = net.add(x, roll(y, side - shift) if shift else y)
    # Every second token of each axis beside each other, as patches are merged.
    parts = [net.slice(net.slice(x, a, 1 << 30, 1, 2), b, 1 << 30, 2, 2) for b in (0, 1) for a in (0, 1)]
    return net.linear(net.layer_norm(net.concat(*parts, axis=-1), 4 * width), 4 * width, 2 * width, bias=False)


@family(tokens_and_channels=dict(), gated=dict(gated=True))
def mlp_mixer(net, gated=False):
    """linear layers along tokens, then along channels"""
    length, width = 9, 16
    x = net.input(length, width)
    y = net.transpose(net.layer_norm(x, width), 0, 2, 1)
    if gated:
        y = net.mul(y, net.linear(y, length, length))
    else:
        y = net.linear(net.linear(y, length, 20, "Gelu"), 20, length)
    x = net.add(x, net.transpose(y, 0, 2, 1))
    x = net.add(x, feed_forward(net, net.layer_norm(x, width), width, "Gelu"))
    return net.dense(net.mean(x, 1), width, 5)


@family(elu=dict(), relu=dict(relu=True))
def linear_attention(net, relu=False):
    """features of keys times values first"""
    length, width, heads = 10, 24, 3
    x = net.input(length, width)
    q, k, v = (heads_of(net, net.linear(x, width, width), length, heads, width) for _ in range(3))
    positive = (lambda y: net.add(net.act(y), net.scalar(0.01))) if relu else (lambda y: net.add(net.act(y, "Elu"), net.scalar(1)))
    q, k = positive(q), positive(k)
    product = net.node("MatMul", q, net.node("MatMul", net.transpose(k, 0, 1, 3, 2), v))
    sums = net.node("ReduceSum", k, net.ints(2), keepdims=1)
    norm = net.node("MatMul", q, net.transpose(sums, 0, 1, 3, 2))
    y = net.node("Div", product, net.add(norm, net.scalar(1e-3)))
    return net.linear(net.reshape(net.transpose(y, 0, 2, 1, 3), 0, length, width), width, width)


@family(einsum=dict(), projected=dict(projected=True))
def attention_by_einsum(net, projected=False):
    """attention as equations"""
    length, heads, head = 7, 2, 8
    x = net.input(length, 16)
    if projected:
        q, k, v = (net.node("Einsum", x, net.weight(16, heads, head, fan=16), equation="blw,whd->blhd") for _ in range(3))
    else:
        q, k, v = (net.reshape(net.linear(x, 16, 16), 0, length, heads, head) for _ in range(3))
    scores = net.mul(net.node("Einsum", q, k, equation="bqhd,bkhd->bhqk"), net.scalar(head**-0.5))
    y = net.node("Einsum", net.node("Softmax", scores, axis=-1), v, equation="bhqk,bkhd->bqhd")
    return net.node("Einsum", y, net.weight(heads, head, 16, fan=16), equation="bqhd,hdw->bqw")


@family(plain=dict(), causal=dict(is_causal=1), capped=dict(softcap=2.0), shared_keys=dict(keys=2))
def attention_operator(net, keys=4, **attributes):
    """the operator `Attention` of opset 23"""
    net.opset = 23
    length, width, heads = 8, 32, 4
    x = net.input(length, width)
    q, k, v = (net.linear(x, width, n * 8) for n in (heads, keys, keys))
    y = net.node("Attention", q, k, v, q_num_heads=heads, kv_num_heads=keys, **attributes)
    return net.linear(y, width, width)


@family(top_1=dict(count=1), top_2=dict(count=2))
def mixture_of_experts(net, count):
    """a gate that weighs the best few of four layers"""
    width, experts = 16, 4
    x = net.input(6, width)
    gates = net.node("Softmax", net.linear(x, width, experts), axis=-1)
    best, _ = net.node("TopK", gates, net.ints(count), outputs=2, axis=-1)
    least = net.node("ReduceMin", best, net.ints(-1), keepdims=1)
    kept = net.node("Where", net.node("GreaterOrEqual", gates, least), gates, net.scalar(0))
    kept = net.node("Div", kept, net.node("ReduceSum", kept, net.ints(-1), keepdims=1))
    whole = None
    for gate in net.split(kept, *[1] * experts):
        part = net.mul(feed_forward(net, x, width, "Relu"), gate)
        whole = part if whole is None else net.add(whole, part)
    return whole


@family(half=dict(), macaron=dict(macaron=True))
def conformer(net, macaron=False):
    """attention and a gated convolution along time"""
    length, width = 12, 16
    x = net.input(length, width)
    if macaron:
        x = net.add(x, net.mul(feed_forward(net, net.layer_norm(x, width), width, "Silu"), net.scalar(0.5)))
    x = net.add(x, self_attention(net, net.layer_norm(x, width), length, width, 2))
    y = net.conv(net.transpose(net.layer_norm(x, width), 0, 2, 1), width, 2 * width, 1, rank=1)
    a, b = net.split(y, width, width, axis=1)
    y = net.mul(a, net.node("Sigmoid", b))
    y = net.batch_norm(net.conv(y, width, width, 7, rank=1, groups=width), width, "Silu")
    x = net.add(x, net.transpose(net.conv(y, width, width, 1, rank=1), 0, 2, 1))
    return net.layer_norm(net.add(x, feed_forward(net, x, width, "Silu")), width)


@family(two_layers=dict(), weighted=dict(weighted=True))
def graph_network(net, weighted=False):
    """messages along the edges of a fixed graph, as sparse sums"""
    count, width = 8, 6
    x = net.input(count, width)
    source, target = net.random.integers(0, count, (2, 20))
    for outer in (12, 4):
        sent = net.node("Gather", net.linear(x, width, outer), net.constant(source), axis=1)
        if weighted:
            ends = net.concat(*(net.node("Gather", x, net.constant(end), axis=1) for end in (source, target)), axis=2)
            sent = net.mul(sent, net.act(net.linear(ends, 2 * width, 1), "Sigmoid"))
        into = np.zeros((count, 20), np.float32)
        into[target, np.arange(20)] = 1
        into /= np.maximum(into.sum(1, keepdims=True), 1)
        x, width = net.act(net.node("MatMul", net.constant(into), sent), "Tanh"), outer
    return net.mean(x, 1)


@family(dot=dict(), normed=dict(normed=True))
def two_towers(net, normed=False):
    """two vectors and how alike they are"""
    towers = []
    for classes, width in ((30, 10), (20, 6)):
        x = net.concat(net.embedding(net.input(classes=classes), classes, 8), net.input(width))
        y = net.dense(net.dense(x, 8 + width, 24, "Relu"), 24, 12)
        towers.append(net.node("LpNormalization", y, axis=-1, p=2) if normed else y)
    return net.node("ReduceSum", net.mul(*towers), net.ints(1), keepdims=0)


@family(crossed=dict(), factorised=dict(pairs=True))
def recommender(net, pairs=False):
    """embedded categories, numbers, and their products"""
    fields, width = 4, 6
    ids, numbers = net.input(fields, classes=25), net.input(5)
    embedded = net.embedding(ids, 25, width)
    flat = net.concat(net.reshape(embedded, 0, fields * width), numbers)
    whole = fields * width + 5
    deep = net.dense(net.dense(flat, whole, 20, "Relu"), 20, 1)
    if pairs:
        squared = net.node("Pow", net.node("ReduceSum", embedded, net.ints(1), keepdims=0), net.scalar(2))
        squares = net.node("ReduceSum", net.mul(embedded, embedded), net.ints(1), keepdims=0)
        second = net.node("ReduceSum", net.node("Sub", squared, squares), net.ints(1), keepdims=1)
        return net.act(net.add(deep, net.mul(second, net.scalar(0.5))), "Sigmoid")
    crossed = flat
    for _ in range(2):
        crossed = net.add(net.mul(flat, net.dense(crossed, whole, 1)), crossed)
    return net.act(net.add(deep, net.dense(crossed, whole, 1)), "Sigmoid")
