"""Operators in float64 by numpy, where the package `onnx` has none, has them for `float32` alone, or is wrong.

They take the attributes that the generator writes.
"""

import numpy as np


def mean_variance_normalization(x, axes=(0, 2, 3)):
    centered = x - x.mean(tuple(axes), keepdims=True)
    return centered / (np.sqrt((centered * centered).mean(tuple(axes), keepdims=True)) + 1e-9)


def dequantize_linear(x, scale, zero=0, axis=1):
    def along(values):
        values = np.asarray(values)
        return values if values.ndim == 0 else values.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])

    return (x.astype(np.float64) - along(zero)) * along(scale)


def pad(x, pads, value=0, mode=b"constant"):
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    inside = tuple(slice(max(-b, 0), extent - max(-e, 0)) for b, e, extent in zip(begins, ends, x.shape))
    widths = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends)]
    mode = mode.decode()
    return np.pad(x[inside], widths, mode, **({"constant_values": value} if mode == "constant" else {}))


def conv_transpose(x, w, bias=None, *, strides, dilations, pads, group, output_padding=None):
    rank = x.ndim - 2
    count, spatial, kernel = x.shape[0], x.shape[2:], w.shape[2:]
    extra = output_padding or [0] * rank
    full = [
        (extent - 1) * s + (k - 1) * d + 1 + e
        for extent, s, k, d, e in zip(spatial, strides, kernel, dilations, extra, strict=True)
    ]
    x = x.reshape(count, group, -1, *spatial)
    w = w.reshape(group, x.shape[2], -1, *kernel)
    result = np.zeros((count, group, w.shape[2], *full))
    for offset in np.ndindex(kernel):
        places = tuple(
            slice(o * d, o * d + (extent - 1) * s + 1, s) for o, d, extent, s in zip(offset, dilations, spatial, strides)
        )
        result[(..., *places)] += np.einsum("ngc...,gcm->ngm...", x, w[(..., *offset)])
    inside = tuple(slice(pads[axis], extent - pads[axis + rank]) for axis, extent in enumerate(full))
    result = result.reshape(count, -1, *full)[(..., *inside)]
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def windows(x, fill, kernel_shape, strides=None, dilations=None, pads=None, auto_pad=None, ceil_mode=0):
    """The elements that each window reads, along a new last axis; outside of the tensor, `fill`."""
    rank = len(kernel_shape)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, list(pads or [0] * 2 * rank)
    kind = (auto_pad or b"NOTSET").decode()
    counts, widths = [], [(0, 0), (0, 0)]
    for axis, extent in enumerate(x.shape[2:]):
        covered, stride = (kernel_shape[axis] - 1) * dilations[axis] + 1, strides[axis]
        if kind.startswith("SAME"):
            count = -(-extent // stride)
            both = max((count - 1) * stride + covered - extent, 0)
            pads[axis] = both // 2 if kind == "SAME_UPPER" else both - both // 2
            pads[axis + rank] = both - pads[axis]
        else:
            room = extent + pads[axis] + pads[axis + rank] - covered
            count = (-(-room // stride) if ceil_mode else room // stride) + 1
            if ceil_mode and (count - 1) * stride >= extent + pads[axis]:
                count -= 1
        counts.append(count)
        widths.append((pads[axis], max(pads[axis + rank], (count - 1) * stride + covered - extent - pads[axis])))
    padded = np.pad(x, widths, constant_values=fill)
    elements = []
    for offset in np.ndindex(*kernel_shape):
        places = (
            slice(o * d, o * d + (count - 1) * s + 1, s) for o, d, count, s in zip(offset, dilations, counts, strides)
        )
        elements.append(padded[(..., *places)])
    return np.stack(elements, -1)


def max_pool(x, **window):
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return windows(x, least, **window).max(-1)


def average_pool(x, count_include_pad=0, **window):
    inside = np.ones(x.shape)
    if count_include_pad and window.get("auto_pad") not in (None, b"VALID"):
        return windows(x, 0, **window).mean(-1)
    if count_include_pad:
        # What `ceil_mode` adds behind the padding is not counted.
        rank = x.ndim - 2
        explicit = window.get("pads") or [0] * 2 * rank
        widths = [(0, 0), (0, 0), *((explicit[axis], explicit[axis + rank]) for axis in range(rank))]
        x, inside = np.pad(x, widths), np.ones(np.pad(x, widths).shape)
        window = {**window, "pads": None}
        if window.get("ceil_mode"):
            kept = pool_extents(x.shape[2:], explicit, window)
            sums, counts = windows(x, 0, **window).sum(-1), windows(inside, 0, **window).sum(-1)
            inner = (..., *(slice(0, count) for count in kept))
            return sums[inner] / counts[inner]
    return windows(x, 0, **window).sum(-1) / windows(inside, 0, **window).sum(-1)


def pool_extents(padded, pads, window):
    """Extents of a result by `ceil_mode`, where the last window may not begin in the padding behind the tensor."""
    rank = len(padded)
    strides, dilations = window.get("strides") or [1] * rank, window.get("dilations") or [1] * rank
    for axis, extent in enumerate(padded):
        covered = (window["kernel_shape"][axis] - 1) * dilations[axis] + 1
        count = -(-(extent - covered) // strides[axis]) + 1
        yield count - ((count - 1) * strides[axis] >= extent - pads[axis + rank])


def lp_pool(x, p=2, **window):
    return (np.abs(windows(x, 0, **window)) ** p).sum(-1) ** (1 / p)


def lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    before = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2))
    sums = sum(squares[:, offset : offset + x.shape[1]] for offset in range(size))
    return x / (bias + alpha / size * sums) ** beta


def batch_normalization(x, scale, bias, mean, variance, epsilon=1e-5):
    scale, bias, mean, variance = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias


def lp_normalization(x, axis=-1, p=2):
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, x / norm)


def log_softmax(x, axis=-1):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


OPERATORS = {
    "AveragePool": average_pool,
    "BatchNormalization": batch_normalization,
    "GlobalMaxPool": lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True),
    "LRN": lrn,
    "LogSoftmax": log_softmax,
    "LpNormalization": lp_normalization,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "Mean": lambda *operands: sum(operands) / len(operands),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "ConvTranspose": conv_transpose,
    "DequantizeLinear": dequantize_linear,
    "MeanVarianceNormalization": mean_variance_normalization,
    "Pad": pad,
}
