//! Operators of integers: arithmetic that wraps, bits, shifts and quotients.

use niello::ir::DType;
use niello::ops::elementwise::ClipAttrs;

use super::{Generator, Known, Value};

impl Generator<'_> {
    /// A value of an integer type, or a new input.
    pub(super) fn integer(&mut self) -> Value {
        let dtypes: Vec<DType> =
            self.dtypes.iter().copied().filter(|dtype| dtype.is_int()).collect();
        let dtype = if dtypes.is_empty() { DType::I32 } else { self.choices.of(&dtypes) };
        self.pick_or_input(dtype, |value| value.dtype.is_int())
    }

    /// One operator of integers.
    pub(super) fn integers(&mut self) -> Option<Value> {
        let a = self.integer();
        let dtype = a.dtype;
        let any = Known::any(dtype);
        match self.choices.below(5) {
            0 => {
                let b = self.broadcasting(&a.shape.clone());
                let b = self.same_type(dtype, &b);
                let (x, y) = (a.known, b.known);
                match self.choices.of(&["add", "multiply", "subtract", "maximum", "minimum"]) {
                    "add" => {
                        let known = Known::wrapping(dtype, x.lo + y.lo, x.hi + y.hi);
                        self.emit("add", &[&a, &b], (), known)
                    }
                    "subtract" => {
                        let known = Known::wrapping(dtype, x.lo - y.hi, x.hi - y.lo);
                        self.emit("subtract", &[&a, &b], (), known)
                    }
                    "multiply" => {
                        let product = x.sum_of_products(y, 1.0);
                        let known = Known::wrapping(dtype, product.lo, product.hi);
                        self.emit("multiply", &[&a, &b], (), known)
                    }
                    op => self.emit(op, &[&a, &b], (), x.union(y)),
                }
            }
            1 => {
                // Without zero and minus one, by which the least value cannot be divided.
                let b = self.broadcasting(&a.shape.clone());
                let b = self.constant(dtype, &b, Known::exact(1.0, 7.0, 0));
                let op = self.choices.of(&["divide", "mod", "floor_mod"]);
                self.emit(op, &[&a, &b], (), any)
            }
            2 => {
                let amount = Known::exact(0.0, f64::from(dtype.bits() - 1), 0);
                let b = self.broadcasting(&a.shape.clone());
                let b = self.constant(dtype, &b, amount);
                let op = self.choices.of(&["left_shift", "right_shift"]);
                self.emit(op, &[&a, &b], (), any)
            }
            3 => {
                let b = self.broadcasting(&a.shape.clone());
                let b = self.same_type(dtype, &b);
                match self.choices.of(&["bitwise_and", "bitwise_or", "bitwise_xor", "not"]) {
                    "not" => self.emit("bitwise_not", &[&a], (), any),
                    op => self.emit(op, &[&a, &b], (), any),
                }
            }
            _ => match self.choices.below(3) {
                0 => {
                    let exponent = self.choices.of(&[2.0, 3.0, 1.0, 0.0]);
                    let exponent = self.scalar(dtype, exponent);
                    self.emit("power", &[&a, &exponent], (), any)
                }
                1 => {
                    let known = Known { lo: a.known.lo.max(0.0), ..a.known };
                    self.emit("nn.relu", &[&a], (), known)
                }
                _ => {
                    let attrs = ClipAttrs { min: Some(1.0), max: Some(5.0) };
                    self.emit("clip", &[&a], attrs, Known::exact(1.0, 5.0, 0))
                }
            },
        }
    }
}
