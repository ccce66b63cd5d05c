//! Convolutions, pools and matrix products.

use niello::ir::DType;
use niello::ops::OpDef;
use niello::ops::nn::{
    self, AvgPoolAttrs, AxisWindow, ConvAttrs, MatmulAttrs, MaxPoolAttrs, Window,
    WinogradConv2dAttrs,
};

use super::{Generator, Known, Value};

/// Whether `ApplyWinograd` may compute a convolution, in other steps and with larger errors.
fn may_be_winograd(x: &Value, window: &Window, outputs: i64, groups: i64) -> bool {
    let plain = |axis: &AxisWindow| (axis.taps, axis.stride, axis.dilation) == (3, 1, 1);
    let whole = |channels: i64| channels % 16 == 0;
    let narrow = x.dtype != DType::F64;
    let channels = whole(x.shape[1]) && whole(outputs) && groups == 1;
    narrow && channels && window.axes.len() == 2 && window.axes.iter().all(plain)
}

impl Generator<'_> {
    /// A convolution or a pool, mostly of images.
    pub(super) fn window(&mut self) -> Option<Value> {
        let rank = self.choices.of(&[2, 2, 2, 1, 3]);
        let fits = |value: &Value| value.is_float() && value.rank() == rank + 2 && value.len() > 0;
        let x = match self.pick(fits) {
            Some(x) => x,
            None => {
                let floats: Vec<_> =
                    self.dtypes.iter().copied().filter(|dtype| dtype.is_float()).collect();
                if floats.is_empty() {
                    return None;
                }
                let dtype = self.choices.of(&floats);
                let mut shape = vec![1, self.choices.of(&[4, 16, 3, 8, 17, 20])];
                let extents: &[i64] = if rank == 3 { &[3, 4, 2] } else { &[5, 8, 4, 9] };
                shape.extend((0..rank).map(|_| self.choices.of(extents)));
                self.input(dtype, &shape)
            }
        };
        match self.choices.below(5) {
            0 if rank == 2 => self.global_pool(&x),
            0 | 1 => self.max_pool(&x),
            2 => self.avg_pool(&x),
            3 if rank == 2 && self.choices.below(4) == 1 => self.winograd(&x),
            _ => self.conv(&x),
        }
    }

    /// A window with at least one place along the axis; `padded` up to less than its span.
    fn along(&mut self, extent: i64, sizes: &[i64], padded: bool) -> AxisWindow {
        let taps = self.choices.of(sizes).min(extent);
        let mut dilation = self.choices.of(&[1, 1, 1, 2]);
        if dilation * (taps - 1) + 1 > extent {
            dilation = 1;
        }
        let most = if padded { taps } else { 1 };
        let [before, after] = [(); 2].map(|()| self.choices.below(most as usize) as i64);
        AxisWindow { taps, stride: self.choices.of(&[1, 1, 2, 3]), before, after, dilation }
    }

    fn spatial_window(&mut self, x: &Value, sizes: &[i64]) -> Window {
        let padded = self.choices.below(2) == 1;
        let axes = x.shape[2..].iter().map(|&extent| self.along(extent, sizes, padded)).collect();
        Window { axes }
    }

    fn conv(&mut self, x: &Value) -> Option<Value> {
        let window = self.spatial_window(x, &[3, 1, 2, 5]);
        let channels = x.shape[1];
        let groups = match self.choices.below(5) {
            2 => channels,
            3 if channels % 2 == 0 => 2,
            // Of few channels each, which share blocks.
            4 if channels % 16 == 0 => channels / self.choices.of(&[4, 2, 8]),
            _ => 1,
        };
        let outputs = groups * self.choices.of(&[if groups == 1 { 16 } else { 1 }, 4, 2, 17]);
        let outputs = match groups {
            _ if groups > 2 && groups < channels => channels,
            _ if outputs > 40 => groups,
            _ => outputs,
        };
        let mut kernel = vec![outputs, channels / groups];
        kernel.extend(window.taps());
        let count: i64 = kernel[1..].iter().product();
        if count * outputs * x.len() / x.shape[1] > 1 << 19 {
            return None;
        }
        let weight = self.weight(x, &kernel, count);
        let bias = match self.choices.below(2) {
            0 => None,
            _ => {
                let bias = self.constant(x.dtype, &[outputs], Known::exact(-1.0, 1.0, -2));
                Some(bias)
            }
        };
        let sum = x.known.sum_of_products(weight.known, count as f64);
        let biased = Known { lo: sum.lo - 1.0, hi: sum.hi + 1.0, ..sum };
        let known = match &bias {
            Some(_) => Known { step: sum.step.map(|step| step.min(-2)), ..biased },
            None => sum,
        };
        let known = if may_be_winograd(x, &window, outputs, groups) {
            known.rounded(if x.dtype == DType::F32 { 16.0 * known.error } else { known.error })
        } else {
            known
        };
        let args = [Some(x), Some(&weight), bias.as_ref()];
        let op = of_rank(nn::conv, &window);
        let id = self.call(op, &args, ConvAttrs::new(&window, groups));
        self.keep(id, known)
    }

    /// A convolution whose weights are those of Winograd's algorithm.
    fn winograd(&mut self, x: &Value) -> Option<Value> {
        let tile_size = self.choices.of(&[2, 4]);
        // Sums of the magnitudes of a row of the matrices for inputs and for outputs, squared.
        let grown = if tile_size == 2 { (2 * 3) * (2 * 3) } else { (10 * 19) * (10 * 19) };
        let padding = [(); 4].map(|()| self.choices.below(3) as i64);
        let fits = |axis: usize| x.shape[axis + 2] + padding[axis] + padding[axis + 2] > 2;
        let outputs = self.choices.of(&[16, 4, 17]);
        if !fits(0) || !fits(1) {
            return None;
        }
        let count = grown * x.shape[1];
        let n = tile_size + 2;
        let weight = self.weight(x, &[n, n, x.shape[1], outputs], count);
        let known = x.known.sum_of_products(weight.known, count as f64);
        let attrs = WinogradConv2dAttrs { tile_size, padding };
        let name = "nn.contrib_conv2d_winograd_without_weight_transform";
        self.emit(name, &[x, &weight], attrs, known)
    }

    /// Factors so small that the sum of `count` products is about as large as the operand; mostly
    /// constants, as in models.
    fn weight(&mut self, x: &Value, shape: &[i64], count: i64) -> Value {
        let log = (count as f64).log2().floor() as i32;
        let bound = f64::from(-log).exp2();
        let known = Known::exact(-bound, bound, -log - 2);
        if self.choices.below(4) < 3 || self.depth > 0 {
            return self.constant(x.dtype, shape, known);
        }
        let id = self.builder.param(
            &format!("w{}_{}", self.number, self.inputs.len()),
            niello::ir::Type::tensor(shape, x.dtype),
        );
        let tensor = self.elements(x.dtype, shape, known);
        self.inputs.push(tensor);
        Value { id, dtype: x.dtype, shape: shape.to_vec(), known }
    }

    fn max_pool(&mut self, x: &Value) -> Option<Value> {
        let window = self.spatial_window(x, &[2, 3, 1]);
        let ceil_mode = self.choices.below(3) == 2;
        let attrs = MaxPoolAttrs::new(&window, ceil_mode);
        self.emit(of_rank(nn::max_pool, &window), &[x], attrs, x.known)
    }

    fn avg_pool(&mut self, x: &Value) -> Option<Value> {
        let window = self.spatial_window(x, &[2, 3, 1]);
        let (ceil_mode, count_include_pad) =
            (self.choices.below(3) == 2, self.choices.below(2) == 1);
        let count: i64 = window.taps().iter().product();
        let known = x.known;
        let error = known.error + (count as f64 + 4.0 + known.taps) * known.bound();
        let known = Known { lo: known.lo.min(0.0), hi: known.hi.max(0.0), ..known }.rounded(error);
        let attrs = AvgPoolAttrs::new(&window, ceil_mode, count_include_pad);
        self.emit(of_rank(nn::avg_pool, &window), &[x], attrs, known)
    }

    fn global_pool(&mut self, x: &Value) -> Option<Value> {
        if self.choices.below(2) == 1 {
            return self.emit("nn.global_max_pool2d", &[x], (), x.known);
        }
        let count = (x.shape[2] * x.shape[3]) as f64;
        let error = x.known.error + (count + 4.0 + x.known.taps) * x.known.bound();
        self.emit("nn.global_avg_pool2d", &[x], (), x.known.rounded(error))
    }

    /// A product of matrices.
    pub(super) fn product(&mut self) -> Option<Value> {
        let x = self.pick(|value| {
            value.is_float() && value.rank() > 0 && value.len() > 0 && value.len() <= 1024
        })?;
        let rank = x.rank();
        let inner = x.shape[rank - 1];
        let columns = self.choices.of(&[16, 5, 1, 33]);
        match self.choices.below(3) {
            0 if rank >= 2 => {
                let weight = self.weight(&x, &[columns, inner], inner);
                let known = x.known.sum_of_products(weight.known, inner as f64);
                self.emit("nn.dense", &[&x, &weight], (), known)
            }
            1 if rank >= 2 => {
                // A product with batches on both sides, either of them transposed.
                let transpose_a = self.choices.below(2) == 1;
                let transpose_b = self.choices.below(2) == 1;
                let inner = x.shape[if transpose_a { rank - 2 } else { rank - 1 }];
                let mut shape = x.shape[..rank - 2].to_vec();
                if self.choices.below(3) == 2 {
                    shape.iter_mut().for_each(|extent| *extent = 1);
                }
                let matrix = if transpose_b { [columns, inner] } else { [inner, columns] };
                shape.extend(matrix);
                let weight = self.weight(&x, &shape, inner);
                let known = x.known.sum_of_products(weight.known, inner as f64);
                let attrs = MatmulAttrs { transpose_a, transpose_b, ..MatmulAttrs::default() };
                self.emit("nn.matmul", &[&x, &weight], attrs, known)
            }
            _ => {
                let shape =
                    if self.choices.below(3) == 2 { vec![inner] } else { vec![inner, columns] };
                let weight = self.weight(&x, &shape, inner);
                let known = x.known.sum_of_products(weight.known, inner as f64);
                let attrs = MatmulAttrs::default();
                self.emit("nn.matmul", &[&x, &weight], attrs, known)
            }
        }
    }
}

/// The name of the operator for as many axes as the window has.
fn of_rank(op: fn(usize) -> Option<&'static OpDef>, window: &Window) -> &'static str {
    op(window.axes.len()).expect("windows have one to three axes").name
}
