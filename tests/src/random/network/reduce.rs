//! Reductions, softmax and normalisations.

use niello::ir::{DType, Dim};
use niello::ops::nn::{
    BatchNormAttrs, BiasAddAttrs, DropoutAttrs, GroupNormAttrs, InstanceNormAttrs,
    L2NormalizeAttrs, LayerNormAttrs, LrnAttrs, RmsNormAttrs, SoftmaxAttrs,
};
use niello::ops::reduce::{ArgReduceAttrs, ReduceAttrs};
use niello::ops::tensor::{ArangeAttrs, FullAttrs, ShapeOfAttrs};

use super::{Generator, Known, Value};

impl Generator<'_> {
    /// A reduction over some axes, or along one.
    pub(super) fn reduction(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.dtype != DType::Bool && value.len() > 0)?;
        match self.choices.below(6) {
            0 if x.rank() > 0 && x.is_exact() => self.arg_reduction(&x),
            1 => self.shape_of(&x),
            _ => self.fold(&x),
        }
    }

    fn axes(&mut self, rank: usize) -> Vec<i64> {
        // No axes are all axes.
        let mut axes: Vec<i64> = Vec::new();
        for axis in 0..rank as i64 {
            if self.choices.below(2) == 0 {
                axes.push(if self.choices.below(3) == 2 { axis - rank as i64 } else { axis });
            }
        }
        axes
    }

    fn fold(&mut self, x: &Value) -> Option<Value> {
        let axis = self.axes(x.rank());
        let attrs = ReduceAttrs { axis, keepdims: self.choices.below(2) == 0 };
        let rank = x.rank() as i64;
        let count: i64 = match attrs.axis.is_empty() {
            true => x.len(),
            false => {
                attrs.axis.iter().map(|axis| x.shape[axis.rem_euclid(rank) as usize]).product()
            }
        };
        let count = count as f64;
        let known = x.known;
        let integer = !x.is_float();
        match self.choices.of(&["sum", "mean", "max", "min", "prod"]) {
            "sum" => {
                let sum = known.sum_of_products(Known::exact(1.0, 1.0, 0), count);
                match integer {
                    true => self.emit("sum", &[x], attrs, Known::wrapping(x.dtype, sum.lo, sum.hi)),
                    false => self.emit("sum", &[x], attrs, sum),
                }
            }
            "mean" if integer => self.emit("mean", &[x], attrs, known),
            "mean" => {
                let sum = known.sum_of_products(Known::exact(1.0, 1.0, 0), count);
                let error = sum.error.max(count * known.bound()) / count + 2.0 * known.bound();
                self.emit("mean", &[x], attrs, known.rounded(error))
            }
            "prod" if integer => self.emit("prod", &[x], attrs, Known::any(x.dtype)),
            "prod" => {
                // The product of more factors would be far away from one.
                if count > 6.0 {
                    return self.emit("max", &[x], attrs, known);
                }
                let x = self.within(x, 2.0)?;
                let bound = x.known.bound().powf(count);
                let slope = count * x.known.bound().powf(count - 1.0);
                let known = Known {
                    lo: -bound,
                    hi: bound,
                    step: x.known.step.map(|step| step * count as i32),
                    error: slope * x.known.error + count * bound,
                    ..x.known
                };
                self.emit("prod", &[&x], attrs, known)
            }
            op => self.emit(op, &[x], attrs, known),
        }
    }

    fn arg_reduction(&mut self, x: &Value) -> Option<Value> {
        let op = self.choices.of(&["argmax", "argmin"]);
        let axis = self.choices.below(x.rank());
        let attrs = ArgReduceAttrs {
            axis: axis as i64,
            keepdims: self.choices.below(2) == 0,
            select_last_index: self.choices.below(2) == 1,
        };
        self.emit(op, &[x], attrs, Known::exact(0.0, x.shape[axis] as f64, 0))
    }

    fn shape_of(&mut self, x: &Value) -> Option<Value> {
        let attrs = ShapeOfAttrs { dtype: self.choices.of(&[DType::I64, DType::I32]) };
        let known = Known::exact(0.0, super::MAX_ELEMENTS as f64, 0);
        match self.choices.below(4) {
            0 => self.emit("ndarray_size", &[x], attrs, known),
            1 => self.emit("shape_of", &[x], attrs, known),
            2 => {
                let length = self.choices.of(&[5, 1, 18]);
                let (start, step) = self.choices.of(&[(0, 1), (7, -2)]);
                let (dtype, length) = (attrs.dtype, Dim::from(length));
                let attrs = ArangeAttrs { start: start.into(), step, length, dtype };
                self.emit("arange", &[], attrs, Known::exact(-27.0, 17.0, 0))
            }
            _ => {
                let fill = self.range(x.dtype);
                let fill = self.constant(x.dtype, &[], fill);
                let shape = x.shape.iter().copied().map(Dim::from).collect();
                let attrs = FullAttrs { shape };
                self.emit("full", &[&fill], attrs, fill.known)
            }
        }
    }

    /// Softmax and normalisations by statistics.
    pub(super) fn normalisation(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.is_float() && value.rank() > 0 && value.len() > 0)?;
        let known = x.known;
        match self.choices.below(8) {
            0 => {
                let x = self.within(&x, 8.0)?;
                let axis = self.choices.below(x.rank());
                let extent = x.shape[axis] as f64;
                let attrs = SoftmaxAttrs { axis: axis as i64 };
                if self.choices.below(3) == 2 {
                    let error = 2.0 * x.known.error + extent + 32.0;
                    let known = Known { lo: -20.0, hi: 0.0, ..x.known }.rounded(error);
                    return self.emit("nn.log_softmax", &[&x], attrs, known);
                }
                let error = 2.0 * x.known.error + extent + 32.0;
                let known = Known { lo: 0.0, hi: 1.0, ..x.known }.rounded(error);
                self.emit("nn.softmax", &[&x], attrs, known)
            }
            1 => self.batch_norm(),
            2 => {
                let axis = self.choices.below(x.rank());
                let bias = self.range(x.dtype);
                let bias = self.constant(x.dtype, &[x.shape[axis]], bias);
                let mut sum = Known {
                    lo: known.lo + bias.known.lo,
                    hi: known.hi + bias.known.hi,
                    ..known.union(bias.known)
                };
                sum.error = known.error + sum.bound();
                self.emit("nn.bias_add", &[&x, &bias], BiasAddAttrs { axis: axis as i64 }, sum)
            }
            3 => {
                let x = self.within(&x, 4.0)?;
                let axis = self.choices.below(x.rank());
                let extent: i64 = x.shape[axis..].iter().product();
                let channels = [x.shape[x.rank() - 1]];
                let gamma = self.constant(x.dtype, &channels, Known::exact(-1.0, 1.0, -2));
                let beta = self.constant(x.dtype, &channels, Known::exact(-1.0, 1.0, -2));
                let attrs = LayerNormAttrs { axis: axis as i64, epsilon: 0.5 };
                // The factor is at most the root of two.
                let error = 8.0 * x.known.error + 4.0 * x.known.bound() * (extent as f64 + 16.0);
                let known = Known { lo: -17.0, hi: 17.0, ..x.known }.rounded(error);
                let args = [Some(&x), Some(&gamma), Some(&beta)];
                let args = &args[..1 + self.choices.below(3)];
                let id = self.call("nn.layer_norm", args, attrs);
                self.keep(id, known)
            }
            4 => self.root_mean_square(&x),
            5 if x.rank() >= 3 && x.shape[0] > 0 => self.group_norm(&x),
            6 if x.rank() >= 2 => {
                let x = self.within(&x, 4.0)?;
                let size = self.choices.of(&[3, 1, 5, 2]);
                let attrs = LrnAttrs { size, alpha: 0.25, beta: 0.75, bias: 1.0 };
                let error = 4.0 * x.known.error + 64.0 * x.known.bound();
                self.emit("nn.lrn", &[&x], attrs, x.known.rounded(error))
            }
            _ => {
                let id = self.call("nn.dropout", &[Some(&x)], DropoutAttrs { rate: 0.5 });
                let (field, known) = self.choices.of(&[(0, known), (1, Known::any(DType::Bool))]);
                let field = self.builder.tuple_get(id, field).expect("it has two results");
                self.keep(field, known)
            }
        }
    }

    /// Elements by the root of their mean square, or of the sum of their squares.
    fn root_mean_square(&mut self, x: &Value) -> Option<Value> {
        let x = self.within(x, 4.0)?;
        let axis = self.choices.below(x.rank());
        let extent: i64 = x.shape[axis..].iter().product();
        let error = 8.0 * x.known.error + 4.0 * x.known.bound() * (extent as f64 + 16.0);
        // At most four by the root of one half.
        let known = Known { lo: -6.0, hi: 6.0, ..x.known }.rounded(error);
        if self.choices.below(2) == 1 {
            let attrs = L2NormalizeAttrs { eps: 0.5, axis: vec![axis as i64] };
            return self.emit("nn.l2_normalize", &[&x], attrs, known);
        }
        let channels = [x.shape[x.rank() - 1]];
        let gamma = self.constant(x.dtype, &channels, Known::exact(-1.0, 1.0, -2));
        let attrs = RmsNormAttrs { axis: axis as i64, epsilon: 0.5 };
        let args = [Some(&x), Some(&gamma)];
        let args = &args[..1 + self.choices.below(2)];
        let id = self.call("nn.rms_norm", args, attrs);
        self.keep(id, known)
    }

    /// Normalisation of groups of channels, or of each.
    fn group_norm(&mut self, x: &Value) -> Option<Value> {
        let x = self.within(x, 4.0)?;
        let channels = x.shape[1];
        let gamma = self.constant(x.dtype, &[channels], Known::exact(-1.0, 1.0, -2));
        let beta = self.constant(x.dtype, &[channels], Known::exact(-1.0, 1.0, -2));
        let extent: i64 = x.shape[1..].iter().product();
        let error = 8.0 * x.known.error + 4.0 * x.known.bound() * (extent as f64 + 16.0);
        let known = Known { lo: -17.0, hi: 17.0, ..x.known }.rounded(error);
        let args = [Some(&x), Some(&gamma), Some(&beta)];
        let args = &args[..1 + self.choices.below(3)];
        let id = if self.choices.below(2) == 1 {
            let attrs = InstanceNormAttrs { axis: 1, epsilon: 0.5 };
            self.call("nn.instance_norm", args, attrs)
        } else {
            let num_groups = if channels % 2 == 0 { 2 } else { 1 };
            let attrs = GroupNormAttrs { num_groups, axis: 1, epsilon: 0.5 };
            self.call("nn.group_norm", args, attrs)
        };
        self.keep(id, known)
    }

    fn batch_norm(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.is_float() && value.rank() >= 2)?;
        let axis = self.choices.of(&[1, x.rank() - 1]);
        let channels = [x.shape[axis]];
        let [gamma, beta, mean] =
            [(); 3].map(|()| self.constant(x.dtype, &channels, Known::exact(-1.0, 1.0, -3)));
        let var = self.constant(x.dtype, &channels, Known::exact(0.5, 2.0, -3));
        let attrs = BatchNormAttrs::new(axis as i64, 1e-5);
        let args = [&x, &gamma, &beta, &mean, &var].map(Some);
        let id = self.call("nn.batch_norm", &args, attrs);
        let field = self.builder.tuple_get(id, 0).expect("it has three results");
        // The factor is at most the root of two.
        let bound = 1.5 * (x.known.bound() + 1.0) + 1.0;
        let error = 1.5 * x.known.error + (4.0 + x.known.taps) * bound;
        self.keep(field, Known { lo: -bound, hi: bound, ..x.known }.rounded(error))
    }
}
