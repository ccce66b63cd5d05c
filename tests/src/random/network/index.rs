//! Operators that select elements by index or order, or accumulate along an axis.

use niello::ir::DType;
use niello::ops::tensor::{CumulativeAttrs, GatherAttrs, GatherNdAttrs, TopkAttrs};

use super::{Generator, Known, Value};

impl Generator<'_> {
    /// One operator that finds elements along an axis, or adds them up.
    pub(super) fn along_axis(&mut self, x: &Value) -> Option<Value> {
        if x.rank() == 0 || x.dtype == DType::Bool {
            return None;
        }
        let axis = self.choices.below(x.rank());
        match self.choices.below(4) {
            0 => self.gather(x, axis),
            1 => {
                let rows = x.shape[0] as f64;
                let indices =
                    self.constant(DType::I64, &[3, 1], Known::exact(-rows, rows - 1.0, 0));
                let attrs = GatherNdAttrs { batch_dims: 0 };
                self.emit("gather_nd", &[x, &indices], attrs, x.known)
            }
            2 => self.running(x, axis),
            _ => self.topk(x, axis),
        }
    }

    fn gather(&mut self, x: &Value, axis: usize) -> Option<Value> {
        let extent = x.shape[axis] as f64;
        let mut shape = x.shape.clone();
        shape[axis] = self.choices.of(&[2, 5, 1]);
        let known = Known::exact(-extent, extent - 1.0, 0);
        let indices = self.constant(DType::I64, &shape, known);
        self.emit("gather", &[x, &indices], GatherAttrs { axis: axis as i64 }, x.known)
    }

    fn running(&mut self, x: &Value, axis: usize) -> Option<Value> {
        let attrs = CumulativeAttrs {
            axis: axis as i64,
            exclusive: self.choices.below(3) == 2,
            reverse: self.choices.below(3) == 2,
        };
        let count = x.shape[axis] as f64;
        if self.choices.below(3) < 2 {
            let mut sum = x.known.sum_of_products(Known::exact(1.0, 1.0, 0), count);
            sum = Known { lo: sum.lo.min(x.known.lo).min(0.0), hi: sum.hi.max(0.0), ..sum };
            let known = match x.is_float() {
                true => sum,
                false => Known::wrapping(x.dtype, sum.lo, sum.hi),
            };
            return self.emit("cumsum", &[x], attrs, known);
        }
        if !x.is_float() {
            return self.emit("cumprod", &[x], attrs, Known::any(x.dtype));
        }
        let x = self.within(x, 1.0)?;
        // An exclusive product begins with one.
        let step = x.known.step.map(|step| (step * count as i32).min(0));
        let error = count * (x.known.error + count);
        let known = Known { lo: -1.0, hi: 1.0, step, error, ..x.known };
        self.emit("cumprod", &[&x], attrs, known)
    }

    fn topk(&mut self, x: &Value, axis: usize) -> Option<Value> {
        if !x.is_exact() {
            return None;
        }
        let attrs = TopkAttrs {
            k: self.choices.of(&[1, 3]).min(x.shape[axis]).into(),
            axis: axis as i64,
            largest: self.choices.below(2) == 0,
        };
        let id = self.call("topk", &[Some(x)], attrs);
        let places = Known::exact(0.0, x.shape[axis] as f64, 0);
        let fields = [(0, x.known), (1, places)].map(|(index, known)| {
            let field = self.builder.tuple_get(id, index).expect("it has two results");
            self.keep(field, known)
        });
        fields.into_iter().flatten().next_back()
    }
}
