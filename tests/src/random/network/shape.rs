//! Operators that move elements: reshapes, slices, gathers, pads and resizes.

use niello::ir::{DType, Dim};
use niello::ops::nn::{BatchToSpaceAttrs, PadAttrs, PadMode, SpaceToBatchAttrs};
use niello::ops::tensor::{
    AppendAttrs, BroadcastToAttrs, ConcatenateAttrs, CoordinateTransformation, DeviceCopyAttrs,
    ExpandDimsAttrs, LayoutTransformAttrs, NearestRounding, OnDeviceAttrs, OneHotAttrs,
    ReshapeAttrs, Resize2dAttrs, ResizeMethod, SplitAttrs, SqueezeAttrs, StridedSliceAttrs,
    TakeAttrs, TakeMode, TransposeAttrs,
};

use super::{Generator, Known, MAX_ELEMENTS, Value};

fn dims(extents: &[i64]) -> Vec<Dim> {
    extents.iter().copied().map(Dim::from).collect()
}

impl Generator<'_> {
    /// One operator that moves elements.
    pub(super) fn rearrangement(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.len() > 0)?;
        match self.choices.below(14) {
            0 => self.reshape(&x),
            1 => self.transpose(&x),
            2 => self.concatenate(&x),
            3 => self.slice(&x),
            4 => self.pad(&x),
            5 => self.split(&x),
            6 => self.take(&x),
            7 => self.resize(),
            8 => self.one_hot(),
            9 | 10 => self.along_axis(&x),
            11 => self.marked(&x),
            12 => self.blocks(&x),
            _ => self.broadcast_to(&x),
        }
    }

    /// The same elements, at the end of a kernel, or on the processor as everything else.
    fn marked(&mut self, x: &Value) -> Option<Value> {
        match self.choices.below(3) {
            0 => self.emit("annotation.stop_fusion", &[x], (), x.known),
            1 => self.emit("on_device", &[x], OnDeviceAttrs { device_type: 1 }, x.known),
            _ => {
                let attrs = DeviceCopyAttrs { src_dev_type: 1, dst_dev_type: 1 };
                self.emit("device_copy", &[x], attrs, x.known)
            }
        }
    }

    fn reshape(&mut self, x: &Value) -> Option<Value> {
        match self.choices.below(4) {
            0 => {
                // One axis becomes two, or all axes one.
                let mut shape = vec![x.len()];
                let divisor = self.choices.of(&[2, 3, 4]);
                if x.len() % divisor == 0 {
                    shape = vec![divisor, x.len() / divisor];
                }
                let attrs = ReshapeAttrs { newshape: dims(&shape) };
                self.emit("reshape", &[x], attrs, x.known)
            }
            1 => {
                // A matrix, as before the classifier of a network.
                let rows = x.shape.first().copied().unwrap_or(1);
                let attrs = ReshapeAttrs { newshape: dims(&[rows, x.len() / rows]) };
                self.emit("reshape", &[x], attrs, x.known)
            }
            2 => {
                let axis = self.choices.below(x.rank() + 1) as i64;
                self.emit("expand_dims", &[x], ExpandDimsAttrs { axis: vec![axis] }, x.known)
            }
            _ => {
                let axis = x.shape.iter().position(|&extent| extent == 1)? as i64;
                self.emit("squeeze", &[x], SqueezeAttrs { axis: vec![axis] }, x.known)
            }
        }
    }

    fn transpose(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 2 && self.choices.below(2) == 1 {
            let dst_layout = if x.shape[1] % 2 == 0 { "CN2c" } else { "CN" }.to_owned();
            let attrs = LayoutTransformAttrs { src_layout: "NC".to_owned(), dst_layout };
            return self.emit("layout_transform", &[x], attrs, x.known);
        }
        let mut axes: Vec<i64> = (0..x.rank() as i64).collect();
        for i in (1..axes.len()).rev() {
            axes.swap(i, self.choices.below(i + 1));
        }
        self.emit("transpose", &[x], TransposeAttrs { axes }, x.known)
    }

    /// Every other place along the second axis as a batch of its own, or the other way round.
    fn blocks(&mut self, x: &Value) -> Option<Value> {
        if x.rank() < 2 {
            return None;
        }
        if x.shape[0] % 2 == 0 {
            let crops = vec![[self.choices.below(2) as i64, 0]];
            let attrs = BatchToSpaceAttrs { block_shape: vec![2], crops };
            return self.emit("nn.batch_to_space_nd", &[x], attrs, x.known);
        }
        let attrs = SpaceToBatchAttrs { block_shape: vec![2], paddings: vec![[x.shape[1] % 2, 0]] };
        let zero = Known { lo: x.known.lo.min(0.0), hi: x.known.hi.max(0.0), ..x.known };
        self.emit("nn.space_to_batch_nd", &[x], attrs, zero)
    }

    fn concatenate(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 0 {
            return None;
        }
        let axis = self.choices.below(x.rank());
        let mut parts = vec![x.clone()];
        for _ in 0..=self.choices.below(2) {
            let part = match self.choices.below(2) {
                0 => self.pick(|value| {
                    value.dtype == x.dtype
                        && value.rank() == x.rank()
                        && (0..x.rank()).all(|i| i == axis || value.shape[i] == x.shape[i])
                })?,
                _ => {
                    let mut shape = x.shape.clone();
                    shape[axis] = self.choices.of(&[1, 2, 16]);
                    if shape.iter().product::<i64>() > MAX_ELEMENTS {
                        return None;
                    }
                    self.same_type(x.dtype, &shape)
                }
            };
            parts.push(part);
        }
        let known = parts.iter().fold(x.known, |known, part| known.union(part.known));
        let args: Vec<&Value> = parts.iter().collect();
        // Some take a part of what is there away, instead of becoming longer.
        let unused = parts[0].shape[axis] - parts[1].shape[axis];
        if parts.len() == 2 && unused >= 0 && unused % 3 == 0 {
            let length = Dim::from(parts[0].shape[axis] - unused / 3);
            return self.emit("append", &args, AppendAttrs { axis: axis as i64, length }, known);
        }
        self.emit("concatenate", &args, ConcatenateAttrs { axis: axis as i64 }, known)
    }

    fn slice(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 0 {
            return None;
        }
        let axis = self.choices.below(x.rank());
        let extent = x.shape[axis];
        let (begin, end, stride) = match self.choices.below(5) {
            0 => (0, (extent + 1) / 2, 1),
            1 => (extent / 2, i64::MAX, 1),
            2 => (0, i64::MAX, 2),
            3 => (-1, i64::MIN, -1),
            _ => (extent.min(1) - 1, extent.max(2) - 1, 1),
        };
        let attrs = StridedSliceAttrs {
            begin: vec![begin],
            end: vec![end],
            strides: vec![stride],
            axes: vec![axis as i64],
        };
        self.emit("strided_slice", &[x], attrs, x.known)
    }

    fn pad(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 0 {
            return None;
        }
        let modes = [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap];
        let mode = self.choices.of(&modes);
        let pad_width = (0..x.rank())
            .map(|axis| {
                // Batches and channels are padded only sometimes.
                let often = axis + 2 >= x.rank();
                [(); 2].map(|()| match self.choices.below(if often { 3 } else { 6 }) {
                    1 => 1,
                    2 if x.shape[axis] > 2 => 2,
                    5 if x.shape[axis] > 2 => -1,
                    _ => 0,
                })
            })
            .collect();
        let attrs = PadAttrs { pad_width, mode };
        let zero = Known { lo: x.known.lo.min(0.0), hi: x.known.hi.max(0.0), ..x.known };
        if mode == PadMode::Constant && self.choices.below(2) == 1 {
            let fill = self.range(x.dtype);
            let fill = self.constant(x.dtype, &[], fill);
            return self.emit("nn.pad", &[x, &fill], attrs, x.known.union(fill.known));
        }
        self.emit("nn.pad", &[x], attrs, zero)
    }

    fn split(&mut self, x: &Value) -> Option<Value> {
        let axis = (0..x.rank()).rev().find(|&axis| x.shape[axis] >= 2)?;
        let first = self.choices.of(&[x.shape[axis] / 2, 1]);
        let sections = vec![first, x.shape[axis] - first];
        let id = self.call("split", &[Some(x)], SplitAttrs { axis: axis as i64, sections });
        let fields = [0, 1].map(|index| {
            let field = self.builder.tuple_get(id, index).expect("there are two sections");
            self.keep(field, x.known)
        });
        fields.into_iter().flatten().next_back()
    }

    fn take(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 0 {
            return None;
        }
        let axis = self.choices.below(x.rank());
        let extent = x.shape[axis] as f64;
        let mode = self.choices.of(&[TakeMode::Fast, TakeMode::Clip, TakeMode::Wrap]);
        let dtype = self.choices.of(&[DType::I64, DType::I32]);
        let shape = self.choices.of(&[vec![3], vec![], vec![2, 2]]);
        let within = |value: &Value| value.known.lo >= -extent && value.known.hi < extent;
        let computed = self.pick(|value| value.dtype == dtype && value.rank() < 3 && within(value));
        let indices = match (computed, mode) {
            (Some(indices), _) => indices,
            (None, TakeMode::Clip | TakeMode::Wrap) => self.same_type(dtype, &shape),
            (None, TakeMode::Fast) => {
                self.constant(dtype, &shape, Known::exact(-extent, extent - 1.0, 0))
            }
        };
        let attrs = TakeAttrs { axis: axis as i64, mode };
        self.emit("take", &[x, &indices], attrs, x.known)
    }

    fn one_hot(&mut self) -> Option<Value> {
        let indices = self.integer();
        if indices.len() > 64 {
            return None;
        }
        let dtype = self.choices.of(&[DType::F32, DType::I32]);
        let [on, off] = [1.0, 0.0].map(|value| self.scalar(dtype, value));
        let axis = self.choices.of(&[-1, 0]);
        let attrs = OneHotAttrs { depth: 5.into(), axis };
        self.emit("one_hot", &[&indices, &on, &off], attrs, Known::exact(0.0, 1.0, 0))
    }

    fn broadcast_to(&mut self, x: &Value) -> Option<Value> {
        let mut shape = x.shape.clone();
        for extent in &mut shape {
            if *extent == 1 {
                *extent = self.choices.of(&[3, 1, 4]);
            }
        }
        if self.choices.below(2) == 1 && x.rank() < 5 {
            shape.insert(0, 2);
        }
        if shape.iter().product::<i64>() > MAX_ELEMENTS {
            return None;
        }
        self.emit("broadcast_to", &[x], BroadcastToAttrs { shape: dims(&shape) }, x.known)
    }

    fn resize(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.rank() == 4 && value.is_float() && value.len() > 0)?;
        let method = self.choices.of(&[
            ResizeMethod::NearestNeighbor,
            ResizeMethod::Linear,
            ResizeMethod::Cubic,
        ]);
        let factor = self.choices.of(&[(2, 1), (1, 2), (3, 2)]);
        let size = |extent: i64| (extent * factor.0 / factor.1).max(1);
        let coordinate_transformation_mode = self.choices.of(&[
            CoordinateTransformation::HalfPixel,
            CoordinateTransformation::Asymmetric,
            CoordinateTransformation::AlignCorners,
            CoordinateTransformation::PytorchHalfPixel,
            CoordinateTransformation::HalfPixelSymmetric,
            CoordinateTransformation::TfHalfPixelForNn,
        ]);
        let attrs = Resize2dAttrs {
            size: [Dim::from(size(x.shape[2])), Dim::from(size(x.shape[3]))],
            scale: None,
            method,
            coordinate_transformation_mode,
            rounding_method: self.choices.of(&[
                NearestRounding::RoundPreferFloor,
                NearestRounding::Floor,
                NearestRounding::Ceil,
                NearestRounding::RoundPreferCeil,
            ]),
            cubic_alpha: -0.75,
            cubic_exclude: self.choices.below(2) == 1,
            antialias: self.choices.below(3) == 1,
            roi: None,
            extrapolation_value: 0.0,
        };
        if size(x.shape[2]) * size(x.shape[3]) * x.shape[0] * x.shape[1] > MAX_ELEMENTS {
            return None;
        }
        let known = match method {
            ResizeMethod::NearestNeighbor => x.known,
            // Weights of cubic convolution are negative on both sides, and add up to one.
            ResizeMethod::Linear | ResizeMethod::Cubic => {
                let bound = 4.0 * x.known.bound();
                let known = Known { lo: -bound, hi: bound, ..x.known };
                known.rounded(4.0 * x.known.error + 16.0 * bound)
            }
        };
        self.emit("image.resize2d", &[&x], attrs, known)
    }
}
