//! Copies between dense tensors and their packed forms.

use std::ops::Range;

use super::BufferSpec;
use crate::ir::DType;

/// The loops that copy between a dense tensor and its packed form.
pub(super) struct CopyPlan {
    loops: Vec<CopyLoop>,
    /// Logical extents and halo before them.
    axes: Vec<(i64, i64)>,
    /// Element strides of the dense tensor.
    dense_strides: Vec<i64>,
    offset: i64,
    is_empty: bool,
}

struct CopyLoop {
    axis: usize,
    step: i64,
    extent: i64,
    stride: i64,
    /// Whether the index along the axis is complete after this loop.
    completes: bool,
    /// Whether a step writes the `stride` elements from its start and no others.
    is_compact: bool,
}

impl CopyLoop {
    /// The steps of the loop that write into a window, if the loop begins at `packed`: all, if the
    /// layout has strides of its own, by which steps may overlap.
    fn within(&self, packed: i64, window: &Range<i64>) -> Range<i64> {
        if !self.is_compact {
            return 0..self.extent;
        }
        let first = (window.start - packed).div_euclid(self.stride).max(0);
        let end = (window.end - packed + self.stride - 1).div_euclid(self.stride);
        first..end.min(self.extent)
    }
}

/// A run of elements: where it starts on both sides, its strides and length.
struct Run {
    dense: usize,
    packed: usize,
    dense_stride: usize,
    packed_stride: usize,
    len: usize,
}

impl CopyPlan {
    /// The spec must have passed [`BufferSpec::physical_len`].
    pub(super) fn new(spec: &BufferSpec) -> Self {
        let mut dense_strides = vec![1i64; spec.shape.len()];
        for axis in (1..spec.shape.len()).rev() {
            dense_strides[axis - 1] = dense_strides[axis].saturating_mul(spec.shape[axis]);
        }
        let strides = spec.strides();
        let loops = spec.dims.iter().zip(spec.physical_shape()).zip(strides);
        CopyPlan {
            loops: loops
                .map(|((dim, extent), stride)| CopyLoop {
                    axis: dim.axis,
                    step: dim.step,
                    extent,
                    stride,
                    completes: dim.step == 1,
                    is_compact: spec.strides.is_none(),
                })
                .collect(),
            axes: spec.shape.iter().zip(&spec.halo).map(|(&e, halo)| (e, halo.before)).collect(),
            dense_strides,
            offset: spec.offset,
            is_empty: spec.shape.contains(&0),
        }
    }

    /// Copies what lies in the window of the packed tensor that `packed` is, from element `start`
    /// on. Only layouts without strides of their own can be copied in windows that are not the
    /// whole.
    pub(super) fn pack(&self, dense: &[u8], packed: &mut [u8], dtype: DType, start: usize) {
        match dtype.bytes() {
            Some(1) => self.pack_elements::<1>(dense, packed, start),
            Some(2) => self.pack_elements::<2>(dense, packed, start),
            Some(4) => self.pack_elements::<4>(dense, packed, start),
            _ => self.pack_elements::<8>(dense, packed, start),
        }
    }

    pub(super) fn unpack(&self, packed: &[u8], dense: &mut [u8], dtype: DType) {
        match dtype.bytes() {
            Some(1) => self.unpack_elements::<1>(packed, dense),
            Some(2) => self.unpack_elements::<2>(packed, dense),
            Some(4) => self.unpack_elements::<4>(packed, dense),
            _ => self.unpack_elements::<8>(packed, dense),
        }
    }

    fn pack_elements<const N: usize>(&self, dense: &[u8], packed: &mut [u8], start: usize) {
        let (dense, packed) = (dense.as_chunks::<N>().0, packed.as_chunks_mut::<N>().0);
        self.for_each_run(start..start + packed.len(), &mut |run| {
            let to = run.packed - start;
            if run.dense_stride == 1 && run.packed_stride == 1 {
                packed[to..to + run.len].copy_from_slice(&dense[run.dense..run.dense + run.len]);
                return;
            }
            let (mut from, mut to, mut left) = (run.dense, to, run.len);
            while left > 0 {
                packed[to] = dense[from];
                from += run.dense_stride;
                to += run.packed_stride;
                left -= 1;
            }
        });
    }

    fn unpack_elements<const N: usize>(&self, packed: &[u8], dense: &mut [u8]) {
        let (dense, packed) = (dense.as_chunks_mut::<N>().0, packed.as_chunks::<N>().0);
        self.for_each_run(0..packed.len(), &mut |run| {
            if run.dense_stride == 1 && run.packed_stride == 1 {
                dense[run.dense..run.dense + run.len]
                    .copy_from_slice(&packed[run.packed..run.packed + run.len]);
                return;
            }
            let (mut from, mut to, mut left) = (run.packed, run.dense, run.len);
            while left > 0 {
                dense[to] = packed[from];
                from += run.packed_stride;
                to += run.dense_stride;
                left -= 1;
            }
        });
    }

    fn for_each_run(&self, window: Range<usize>, copy: &mut dyn FnMut(Run)) {
        if self.is_empty {
            return;
        }
        // Indices counted from the start of each halo.
        let mut index = vec![0i64; self.axes.len()];
        let window = window.start as i64..window.end as i64;
        self.descend(0, self.offset, &mut index, &window, copy);
    }

    /// One level for each physical dimension, so the depth is the rank of the layout.
    fn descend(
        &self,
        depth: usize,
        packed: i64,
        index: &mut [i64],
        window: &Range<i64>,
        copy: &mut dyn FnMut(Run),
    ) {
        let Some(this) = self.loops.get(depth) else {
            // A scalar.
            if !window.contains(&packed) {
                return;
            }
            copy(Run {
                dense: 0,
                packed: packed as usize,
                dense_stride: 1,
                packed_stride: 1,
                len: 1,
            });
            return;
        };
        let (extent, before) = self.axes[this.axis];
        let base = index[this.axis];
        if depth + 1 == self.loops.len() {
            // The innermost step is 1: the valid indices are one range.
            let within = this.within(packed, window);
            let first = (before - base).max(within.start);
            let end = (before + extent - base).min(within.end);
            if first >= end {
                return;
            }
            index[this.axis] = base + first;
            let dense: i64 = (0..index.len())
                .map(|axis| (index[axis] - self.axes[axis].1) * self.dense_strides[axis])
                .sum();
            index[this.axis] = base;
            copy(Run {
                dense: dense as usize,
                packed: (packed + first * this.stride) as usize,
                dense_stride: self.dense_strides[this.axis] as usize,
                packed_stride: this.stride as usize,
                len: (end - first) as usize,
            });
            return;
        }
        for k in this.within(packed, window) {
            let at = base + k * this.step;
            if at >= before + extent {
                break;
            }
            if this.completes && at < before {
                continue;
            }
            index[this.axis] = at;
            self.descend(depth + 1, packed + k * this.stride, index, window, copy);
        }
        index[this.axis] = base;
    }
}
