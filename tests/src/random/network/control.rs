//! Choices and loops.

use niello::graph::{ExprId, ScopeId, ScopeKind};
use niello::ir::{DType, Dim, Type};
use niello::ops::tensor::{FullAttrs, ReshapeAttrs, ScatterNdAttrs, ScatterReduction};

use super::{Generator, Known, MAX_ELEMENTS, Value};

/// Scopes within one another.
const MAX_DEPTH: usize = 2;

/// Most steps of a loop: inputs of integers are less.
const MAX_COUNT: i64 = 9;

impl Generator<'_> {
    /// One of two values of a type, by a condition.
    pub(super) fn choice(&mut self) -> Option<Value> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        let is_flag = |value: &Value| value.dtype == DType::Bool && value.shape.is_empty();
        let condition = match self.pick(|value| is_flag(value) && value.is_exact()) {
            Some(value) => value,
            None => self.input(DType::Bool, &[]),
        };
        let (yes, then_scope) = self.branch(|generator| generator.pick(|_| true))?;
        let (no, else_scope) =
            self.branch(|generator| Some(generator.same_type(yes.dtype, &yes.shape)))?;
        self.used.extend([condition.id, yes.id, no.id]);
        let choice = self.builder.if_else(condition.id, then_scope, else_scope);
        self.keep(choice.expect("both branches have one type"), yes.known.union(no.known))
    }

    /// Some calls in a scope of their own, and its result.
    fn branch(
        &mut self,
        result: impl FnOnce(&mut Self) -> Option<Value>,
    ) -> Option<(Value, ScopeId)> {
        let outside = self.values.len();
        self.depth += 1;
        self.builder.open_scope(ScopeKind::Branch);
        for _ in 0..self.choices.below(4) {
            self.step();
        }
        let result = result(self);
        self.values.truncate(outside);
        self.depth -= 1;
        // There is always a value: the part's first input.
        let result = result?;
        Some((result.clone(), self.builder.close_scope(result.id)))
    }

    /// A loop of some steps, each of which takes the mean of its state and a tensor, and stores it to a
    /// row of another one. The state after the last step.
    pub(super) fn repetition(&mut self) -> Option<Value> {
        let fits = |value: &Value| value.is_float() && value.len() * MAX_COUNT <= MAX_ELEMENTS;
        let state = self.pick(fits)?;
        let other = self.same_type(state.dtype, &state.shape);
        let count = match self.depth {
            0 => self.input(DType::I64, &[]),
            _ => self.scalar(DType::I64, 2.0),
        };
        let (zero, one) = (self.scalar(DType::I64, 0.0), self.scalar(DType::I64, 1.0));
        let half = self.scalar(state.dtype, 0.5);
        let dims = |first: i64| [&[first], &state.shape[..]].concat();
        let extents = |first: i64| dims(first).into_iter().map(Dim::from).collect::<Vec<Dim>>();
        let all = self.scalar(state.dtype, 0.0);
        let rows = self.call("full", &[Some(&all)], FullAttrs { shape: extents(MAX_COUNT) });
        self.used.extend([state.id, other.id, count.id]);

        let types = [
            ("i", DType::I64, Vec::new()),
            ("s", state.dtype, state.shape.clone()),
            ("rows", state.dtype, dims(MAX_COUNT)),
        ];
        let params = |generator: &mut Self| {
            let param = |(name, dtype, shape): &(&str, DType, Vec<i64>)| Value {
                id: generator.builder.param(name, Type::tensor(shape, *dtype)),
                dtype: *dtype,
                shape: shape.clone(),
                known: Known::any(DType::I64),
            };
            types.iter().map(param).collect::<Vec<Value>>()
        };
        self.builder.open_scope(ScopeKind::Loop);
        let [i, _, _] = &params(self)[..] else { return None };
        let goes_on = self.call("less", &[Some(i), Some(&count)], ());
        let cond = self.builder.close_scope(goes_on);

        self.builder.open_scope(ScopeKind::Loop);
        let [i, s, all] = &params(self)[..] else { return None };
        let made = |id: ExprId, like: &Value| Value { id, ..like.clone() };
        let sum = self.call("add", &[Some(s), Some(&other)], ());
        let mean = self.call("multiply", &[Some(&made(sum, s)), Some(&half)], ());
        let mean = made(mean, s);
        let at =
            self.call("reshape", &[Some(i)], ReshapeAttrs { newshape: vec![Dim::from(1i64); 2] });
        let row = self.call("reshape", &[Some(&mean)], ReshapeAttrs { newshape: extents(1) });
        let (at, row) = (made(at, i), made(row, s));
        let args = [Some(all), Some(&at), Some(&row)];
        let stored =
            self.call("scatter_nd", &args, ScatterNdAttrs { reduction: ScatterReduction::Update });
        let next = self.call("add", &[Some(i), Some(&one)], ());
        let result = self.builder.tuple(&[next, mean.id, stored]);
        let body = self.builder.close_scope(result);

        let last = self.builder.while_loop(&[zero.id, state.id, rows], cond, body);
        let last = last.expect("a step leaves the state's types");
        let both = state.known.union(other.known);
        let error = state.known.error.max(2.0 * (other.known.error + 2.0 * both.bound()));
        // Rows that no step stores are zero.
        let known = Known { lo: both.lo.min(0.0), hi: both.hi.max(0.0), ..both }.rounded(error);
        let [state, rows] = [1, 2].map(|field| self.builder.tuple_get(last, field));
        self.keep(rows.expect("the loop has a third value"), known);
        self.keep(state.expect("the loop has a second value"), known)
    }
}
