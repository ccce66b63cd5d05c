//! Random networks: graphs of the operators of typical models, with inputs.
//!
//! Attributes and shapes are valid and small. Values are kept in a range in which operators are
//! well-behaved, and operators that jump are only given values that every correct implementation
//! agrees on: see [`Known`].

mod control;
mod elementwise;
mod index;
mod integer;
mod known;
mod reduce;
mod shape;
mod window;

use std::collections::BTreeSet;

use niello::graph::interp::{Elements, Tensor, Tolerance};
use niello::graph::{ExprId, FunctionBuilder};
use niello::ir::{Attrs, Constant, DType, Definition, GlobalVar, IRModule, Type};
use niello::ops::Op;
use serde::Serialize;

pub use known::Known;

use super::Choices;

/// Calls in one part of a network.
const MAX_STEPS: usize = 14;

/// Elements of a tensor.
const MAX_ELEMENTS: i64 = 4096;

/// Values are scaled down when they may be greater than this.
const MAX_MAGNITUDE: f64 = 256.0;

/// A module, inputs for its `main`, and the tolerances of its outputs.
pub struct Network {
    /// The module; the result of `main` is a tuple.
    pub module: IRModule,
    /// One for each parameter of `main`.
    pub inputs: Vec<Tensor>,
    /// One for each field of the result.
    pub tolerances: Vec<Tolerance>,
    /// The operators that are called.
    pub operators: BTreeSet<&'static str>,
}

/// A network with one part for each list of choices. The parts share nothing, and each is the same
/// in any company.
pub fn random_network(parts: &[Vec<u32>], dtypes: &[DType]) -> Network {
    let mut builder = FunctionBuilder::new();
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    let mut operators = BTreeSet::new();
    for (number, part) in parts.iter().enumerate() {
        let mut generator = Generator {
            choices: Choices::new(part),
            builder,
            dtypes,
            number,
            inputs: Vec::new(),
            values: Vec::new(),
            used: BTreeSet::new(),
            operators,
            depth: 0,
            random: part.iter().fold(1, |seed, &choice| mixed(seed ^ u64::from(choice))),
        };
        generator.run();
        outputs.extend(generator.outputs());
        inputs.append(&mut generator.inputs);
        builder = generator.builder;
        operators = generator.operators;
    }
    let fields: Vec<ExprId> = outputs.iter().map(|value: &Value| value.id).collect();
    let result = builder.tuple(&fields);
    let mut module = IRModule::new();
    module.insert(GlobalVar::new("main"), Definition::Graph(builder.finish(result)));
    let tolerances =
        outputs.iter().map(|value| Tolerance::of(value.dtype, value.known.error)).collect();
    Network { module, inputs, tolerances, operators }
}

/// The next number of a pseudo-random sequence.
fn mixed(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// A tensor of the graph under construction.
#[derive(Clone, Debug)]
struct Value {
    id: ExprId,
    dtype: DType,
    shape: Vec<i64>,
    known: Known,
}

impl Value {
    fn rank(&self) -> usize {
        self.shape.len()
    }

    fn len(&self) -> i64 {
        self.shape.iter().product()
    }

    fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    /// Whether operators that jump may be applied to it.
    fn is_exact(&self) -> bool {
        self.known.is_exact()
    }
}

struct Generator<'a> {
    choices: Choices<'a>,
    builder: FunctionBuilder,
    /// Data types of inputs; one that occurs more often is likelier.
    dtypes: &'a [DType],
    /// Of the part.
    number: usize,
    inputs: Vec<Tensor>,
    values: Vec<Value>,
    /// The expressions that a call reads.
    used: BTreeSet<ExprId>,
    operators: BTreeSet<&'static str>,
    random: u64,
    /// Scopes around what is made now.
    depth: usize,
}

impl Generator<'_> {
    fn run(&mut self) {
        self.first();
        for _ in 0..1 + self.choices.below(MAX_STEPS) {
            if self.choices.used_up() {
                break;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let made = match self.choices.below(18) {
            0 | 1 => self.activation(),
            2 | 3 => self.arithmetic(),
            4 => self.exact_unary(),
            5 => self.comparison(),
            6 => self.integers(),
            7 => self.conversion(),
            8 | 9 => self.reduction(),
            10 => self.normalisation(),
            11 | 12 => self.window(),
            13 => self.product(),
            14 => self.choice(),
            15 => self.repetition(),
            _ => self.rearrangement(),
        };
        // Operators whose error is not known are left out.
        if made.is_none() {
            self.activation();
        }
    }

    /// The values that nothing reads, and sometimes another one, or one of them twice.
    fn outputs(&mut self) -> Vec<Value> {
        let mut outputs: Vec<Value> =
            self.values.iter().filter(|value| !self.used.contains(&value.id)).cloned().collect();
        for _ in 0..self.choices.below(3) {
            let index = self.choices.below(self.values.len());
            outputs.push(self.values[index].clone());
        }
        outputs
    }

    fn chance(&mut self, of: usize) -> bool {
        self.choices.below(of) == of - 1
    }

    /// The part's first input, mostly an image.
    fn first(&mut self) {
        let dtype = self.choices.of(self.dtypes);
        let shape = self.some_shape();
        self.input(dtype, &shape);
    }

    fn some_shape(&mut self) -> Vec<i64> {
        let rank = self.choices.of(&[4, 2, 3, 4, 1, 5, 0, 2]);
        let mut shape: Vec<i64> =
            (0..rank).map(|_| self.choices.of(&[3, 4, 5, 7, 1, 9, 2])).collect();
        if rank >= 3 {
            shape[0] = self.choices.of(&[1, 1, 2]);
            shape[1] = self.choices.of(&[4, 16, 3, 8, 17, 32]);
        } else if rank > 0 {
            shape[rank - 1] = self.choices.of(&[8, 16, 33, 5, 1, 64]);
        }
        while shape.iter().product::<i64>() > MAX_ELEMENTS {
            let longest = shape.iter_mut().max().expect("a scalar has one element");
            *longest = (*longest + 1) / 2;
        }
        shape
    }

    /// The range of the elements of an input or constant.
    fn range(&mut self, dtype: DType) -> Known {
        if dtype == DType::Bool {
            return Known::any(dtype);
        }
        if !dtype.is_float() {
            let lo = if dtype.is_signed_int() { -3.0 } else { 0.0 };
            return Known::exact(lo, 9.0, 0);
        }
        // Fine elements are exact themselves, but their products are not.
        let finest = if dtype == DType::F32 || dtype == DType::F64 { -20 } else { -4 };
        let step = self.choices.of(&[-2, -1, finest]);
        Known::exact(-2.0, 2.0, step)
    }

    /// A new input; within a scope, which has none, a constant.
    fn input(&mut self, dtype: DType, shape: &[i64]) -> Value {
        let known = self.range(dtype);
        if self.depth > 0 {
            let value = self.constant(dtype, shape, known);
            self.values.push(value.clone());
            return value;
        }
        let name = format!("x{}_{}", self.number, self.inputs.len());
        let id = self.builder.param(&name, Type::tensor(shape, dtype));
        let tensor = self.elements(dtype, shape, known);
        self.inputs.push(tensor);
        let value = Value { id, dtype, shape: shape.to_vec(), known };
        self.values.push(value.clone());
        value
    }

    fn constant(&mut self, dtype: DType, shape: &[i64], known: Known) -> Value {
        let tensor = self.elements(dtype, shape, known);
        self.constant_of(&tensor, known)
    }

    fn scalar(&mut self, dtype: DType, value: f64) -> Value {
        let known = Known::exact(value, value, -20);
        self.constant(dtype, &[], known)
    }

    fn constant_of(&mut self, tensor: &Tensor, known: Known) -> Value {
        let constant: Constant = tensor.to_constant().expect("the elements are of the type");
        let id = self.builder.constant(constant);
        let shape = tensor.shape().iter().map(|&extent| extent as i64).collect();
        Value { id, dtype: tensor.dtype(), shape, known }
    }

    /// Multiples of the step within the range.
    fn elements(&mut self, dtype: DType, shape: &[i64], known: Known) -> Tensor {
        let step = f64::from(known.step.expect("only exact elements are made up")).exp2();
        let places = ((known.hi - known.lo) / step) as u64 + 1;
        let len: i64 = shape.iter().product();
        let mut next = || {
            self.random = mixed(self.random);
            known.lo + step * ((self.random >> 33) % places) as f64
        };
        let values: Vec<f64> = (0..len).map(|_| next()).collect();
        let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
        let elements = match dtype.is_float() {
            true => Elements::Float(values),
            false => Elements::Int(values.into_iter().map(|value| value as i128).collect()),
        };
        Tensor::from_elements(dtype, &shape, elements).expect("as many elements as the shape has")
    }

    /// One of the values that fit, preferably a late one.
    fn pick(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let fitting: Vec<usize> =
            (0..self.values.len()).filter(|&index| fits(&self.values[index])).collect();
        if fitting.is_empty() {
            return None;
        }
        let back = self.choices.below(fitting.len());
        let back = back * back / fitting.len();
        Some(self.values[fitting[fitting.len() - 1 - back]].clone())
    }

    /// One of the values that fit, or a new input.
    fn pick_or_input(&mut self, dtype: DType, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(value) = self.pick(fits) {
            return value;
        }
        let shape = self.some_shape();
        self.input(dtype, &shape)
    }

    /// A value of the type and shape: an existing one, an input or a constant.
    fn same_type(&mut self, dtype: DType, shape: &[i64]) -> Value {
        let found = match self.choices.below(3) {
            0 => self.pick(|value| value.dtype == dtype && value.shape == shape),
            _ => None,
        };
        match found {
            Some(value) => value,
            None if self.chance(2) => self.input(dtype, shape),
            None => {
                let known = self.range(dtype);
                self.constant(dtype, shape, known)
            }
        }
    }

    /// A shape that broadcasts to the given one.
    fn broadcasting(&mut self, shape: &[i64]) -> Vec<i64> {
        let skipped = self.choices.below(shape.len() + 1);
        let mut shape = shape[skipped..].to_vec();
        for extent in &mut shape {
            if self.choices.below(4) == 3 {
                *extent = 1;
            }
        }
        shape
    }

    fn type_of(&self, id: ExprId) -> (DType, Vec<i64>) {
        let ty = self.builder.ty(id).as_tensor().expect("operators are called on tensors");
        let shape = ty.shape.as_consts().expect("all extents are numbers");
        (ty.dtype, shape.into_iter().map(|extent| extent as i64).collect())
    }

    fn call(&mut self, op: &'static str, args: &[Option<&Value>], attrs: impl Serialize) -> ExprId {
        let found = Op::get(op).unwrap_or_else(|| panic!("`{op}` is an operator"));
        let attrs = Attrs::from_struct(&attrs).expect("attributes are plain data");
        self.used.extend(args.iter().flatten().map(|value| value.id));
        self.operators.insert(op);
        let ids = args.iter().map(|arg| arg.map(|value| value.id)).collect();
        let call = self.builder.call_optional(found, ids, attrs.clone());
        call.unwrap_or_else(|error| panic!("`{op}` with {attrs:?} of {args:?}: {error}"))
    }

    /// A call whose result is a tensor with the range `known` if nothing wraps or is rounded; its
    /// error is for the case that something is.
    fn emit(
        &mut self,
        op: &'static str,
        args: &[&Value],
        attrs: impl Serialize,
        known: Known,
    ) -> Option<Value> {
        let args: Vec<Option<&Value>> = args.iter().copied().map(Some).collect();
        let id = self.call(op, &args, attrs);
        self.keep(id, known)
    }

    /// Adds an expression to the values, unless its error is so great that it would hide a fault.
    fn keep(&mut self, id: ExprId, known: Known) -> Option<Value> {
        let (dtype, shape) = self.type_of(id);
        let known = known.settle(dtype);
        let limit = match dtype {
            DType::F16 => 64.0,
            DType::BF16 => 16.0,
            _ => 4096.0,
        };
        let value = Value { id, dtype, shape, known };
        if known.error > limit || value.len() > MAX_ELEMENTS {
            return None;
        }
        self.values.push(value.clone());
        if value.is_float() && known.bound() > MAX_MAGNITUDE {
            return self.within(&value, 4.0);
        }
        Some(value)
    }

    /// The value, scaled by a power of two so that no magnitude is above `bound`.
    fn within(&mut self, value: &Value, bound: f64) -> Option<Value> {
        let known = value.known;
        if known.bound() <= bound {
            return Some(value.clone());
        }
        let power = (known.bound() / bound).log2().ceil() as i32;
        let factor = f64::from(-power).exp2();
        let by = self.constant_of(
            &Tensor::from_floats(value.dtype, &[], vec![factor]).expect("one element"),
            Known::exact(factor, factor, -power),
        );
        let known = Known {
            lo: known.lo * factor,
            hi: known.hi * factor,
            step: known.step.map(|step| step - power),
            error: known.error * factor,
            taps: known.taps,
        };
        self.emit("multiply", &[value, &by], (), known)
    }

    /// The value, or the sum of its magnitudes and `least` if some elements are less than `least`.
    fn at_least(&mut self, value: &Value, least: f64) -> Option<Value> {
        if value.known.lo >= least {
            return Some(value.clone());
        }
        let positive = if value.known.lo >= 0.0 {
            value.clone()
        } else {
            let known = Known { lo: 0.0, hi: value.known.bound(), ..value.known };
            self.emit("abs", &[value], (), known)?
        };
        let least_value = self.scalar(value.dtype, least);
        let known = Known {
            lo: least,
            hi: positive.known.hi + least,
            step: positive.known.step.map(|step| step.min(-2)),
            error: positive.known.error + positive.known.hi + least,
            ..positive.known
        };
        self.emit("add", &[&positive, &least_value], (), known)
    }
}
