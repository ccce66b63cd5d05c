//! Tests of schedules: compiled kernels against the operators' reference evaluation.

mod apart;
mod attention;
mod bytes;

mod copies;
mod every_op;
mod expanded;
mod families;
mod groups;
mod halves;
mod in_place;
mod products;
mod rows;
mod sampling;
mod turn;
mod widths;
mod windows;
mod winograd;

use std::collections::BTreeMap;

use super::primitive::{Primitive, primitive};
use super::{CHANNEL_BLOCK, KernelParam, schedule};
use crate::arith::IntExpr;
use crate::codegen::testing::{LoadedKernel, runnable_levels};
use crate::executor::Kernel;
use crate::graph::interp::Tensor;
use crate::graph::{Callee, Expr, ExprId, Function, FunctionBuilder};
use crate::ir::{Attrs, BufferSpec, DType, Type};
use crate::ops::Op;
use crate::options::Backend;
use crate::target::Target;
use crate::tir::{self, ParamKind, PrimFunc};

/// Values that are different everywhere and exact in f32.
fn sample(shape: &[usize], seed: usize) -> Tensor {
    sample_of(DType::F32, shape, seed)
}

/// Floats from -2 to 2, integers of at most 7 bits, or conditions.
fn sample_of(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let len: usize = shape.iter().product();
    let mixed = (0..len).map(|i| (i.wrapping_mul(2654435761).wrapping_add(seed * 40503)) >> 7);
    match dtype.is_float() {
        true => {
            let values = mixed.map(|mixed| (mixed % 512) as f64 / 128.0 - 2.0).collect();
            Tensor::from_floats(dtype, shape, values).unwrap()
        }
        false => {
            let count = if dtype == DType::Bool { 2 } else { 128 };
            let values = mixed.map(|mixed| mixed as i128 % count).collect();
            Tensor::from_ints(dtype, shape, values).unwrap()
        }
    }
}

/// The results of a function of operator calls, by the operators' own evaluation.
fn reference(function: &Function, args: &[Tensor]) -> Vec<Tensor> {
    let mut values: Vec<Vec<Tensor>> = Vec::new();
    let mut params = args.iter();
    for id in function.ids() {
        let at = |id: ExprId| values[id.as_u32() as usize].clone();
        let value = match function.expr(id) {
            Expr::Var(_) => vec![params.next().unwrap().clone()],
            Expr::Constant(constant) => vec![Tensor::from_constant(constant).unwrap()],
            Expr::Tuple(fields) => fields.iter().map(|&f| at(f)[0].clone()).collect(),
            Expr::TupleGet { tuple, index } => vec![at(*tuple)[*index as usize].clone()],
            Expr::Call(call) => {
                let Callee::Op(op) = call.callee else { panic!("operators only") };
                let args: Vec<Option<Tensor>> =
                    call.args.iter().map(|arg| arg.map(|arg| at(arg)[0].clone())).collect();
                let args: Vec<Option<&Tensor>> = args.iter().map(Option::as_ref).collect();
                op.definition().evaluate(&call.attrs, &args).unwrap()
            }
            other => panic!("{other:?} in a kernel"),
        };
        values.push(value);
    }
    values[function.result().as_u32() as usize].clone()
}

fn blocked(shape: &[i64], halo: &[(i64, i64)]) -> BufferSpec {
    BufferSpec::nchwc(shape, CHANNEL_BLOCK, halo)
}

/// What a parameter is in a test.
#[derive(Clone)]
enum Arg {
    Input(BufferSpec),
    Constant,
}

/// A function to be compiled and compared with the reference.
struct Case {
    name: String,
    function: Function,
    /// What it is called with.
    tensors: Vec<Tensor>,
    args: Vec<Arg>,
    /// The layouts of the results.
    results: Vec<BufferSpec>,
}

/// Compiles the function for every CPU level of this machine, all together and one of them by
/// itself, and compares with the reference. Inputs and results that have no layout of their own are
/// dense.
fn check(function: &Function, args: &[Arg], results: &[BufferSpec]) {
    let levels = runnable_levels();
    let cases = [case(function, args, results)];
    check_all(&cases, &levels);
    // By itself, the widest packs weights as all together do; the next has panels of its own.
    if let [.., next, _] = &levels[..] {
        // By the backend that compiles sooner alone.
        check_by(&Backend::ALL[Backend::ALL.len() - 1..], &cases, std::slice::from_ref(next));
    }
}

/// A function with values for its parameters.
fn case(function: &Function, args: &[Arg], results: &[BufferSpec]) -> Case {
    let tensors: Vec<Tensor> = function
        .params()
        .iter()
        .enumerate()
        .map(|(i, &param)| {
            let ty = function.ty(param).as_tensor().unwrap();
            let dims = ty.shape.as_consts().unwrap();
            let dims: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
            sample_of(ty.dtype, &dims, i + 1)
        })
        .collect();
    Case {
        name: "kernel".to_owned(),
        function: function.clone(),
        tensors,
        args: args.to_vec(),
        results: results.to_vec(),
    }
}

/// A machine like this one that has no vectors, or none that code knows of.
fn without_vectors() -> Target {
    Target { features: Default::default(), ..Target::host() }
}

/// Schedules the functions for all targets together, compiles them into one library for each target
/// and compares with the reference. Returns what the code of the last target computed.
fn check_all(cases: &[Case], targets: &[Target]) -> Vec<Vec<Tensor>> {
    check_by(Backend::ALL, cases, targets)
}

/// The same by some backends. By way of C, whose compiler takes far longest, it is the last target where
/// there is another backend: the two must agree bit for bit.
fn check_by(backends: &[Backend], cases: &[Case], targets: &[Target]) -> Vec<Vec<Tensor>> {
    let kernels: Vec<_> = cases.iter().map(|case| case.schedule(targets)).collect();
    let mut found = Vec::new();
    for (level, target) in targets.iter().enumerate() {
        found.clear();
        let prepared: Vec<(PrimFunc, Vec<Vec<u8>>)> = cases
            .iter()
            .zip(&kernels)
            .map(|(case, (kernel, buffers))| {
                let lowered = tir::lower(kernel.versions[level].clone(), target)
                    .unwrap_or_else(|error| panic!("{}: {error}", case.name));
                (lowered, buffers.clone())
            })
            .collect();
        let lowered: Vec<&PrimFunc> = prepared.iter().map(|(func, _)| func).collect();
        // LLVM has no code for floats on an x86-64 without vectors.
        let has_llvm = target.vector_bits() > 0 && Backend::ALL.len() > 1;
        let is_last = level + 1 == targets.len();
        let takes_part = |backend: &&Backend| match backend {
            Backend::C => is_last || !has_llvm,
            #[cfg(feature = "llvm")]
            Backend::Llvm => has_llvm,
        };
        for &backend in backends.iter().filter(takes_part) {
            let loaded = LoadedKernel::all(&lowered, target, backend)
                .unwrap_or_else(|error| panic!("{backend}: {error}"));
            for (number, (case, kernel)) in cases.iter().zip(loaded).enumerate() {
                let mut buffers = prepared[number].1.clone();
                kernel.run(&mut buffers, &[]);
                let what = format!("{} for {:?} by {backend}", case.name, target.cpu);
                let results = case.compare(&buffers, &what);
                match found.get(number) {
                    None => found.push(results),
                    Some(first) => identical(first, &results, &what),
                }
                let pairs = &kernels[number].0.signature().inplace;
                for pairs in
                    pairs.iter().map(std::slice::from_ref).chain([&one_place_each(pairs)[..]])
                {
                    let mut buffers = prepared[number].1.clone();
                    kernel.run_in_place(&mut buffers, &[], pairs);
                    let what = format!("{what}, in place of {pairs:?}");
                    identical(&found[number], &case.compare(&buffers, &what), &what);
                }
            }
        }
    }
    found
}

/// For each output the last of the inputs whose place it may take.
fn one_place_each(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    pairs.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// Compares results bit for bit; which NaN an operation gives is the processor's choice.
fn identical(first: &[Tensor], other: &[Tensor], what: &str) {
    for (first, other) in first.iter().zip(other) {
        assert_eq!(first.ints(), other.ints(), "{what}");
        let floats = first.floats().into_iter().flatten().zip(other.floats().into_iter().flatten());
        for (i, (a, b)) in floats.enumerate() {
            let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same, "{what}: element {i} is {b:e}, and {a:e} by another backend");
        }
    }
}

impl Case {
    fn expected(&self) -> Vec<Tensor> {
        reference(&self.function, &self.tensors)
    }

    /// The kernel, and what is in its buffers before it runs: the same for all versions.
    fn schedule(&self, targets: &[Target]) -> (Kernel, Vec<Vec<u8>>) {
        let mut made = primitive("kernel", &self.function, &IntExpr::as_const, false)
            .unwrap_or_else(|problems| panic!("{}: {problems:?}", self.name));
        made.fold_tables(&|_, _| true);
        let Primitive { dag, params, constants, results: stages, .. } = made;
        let inner = constants
            .iter()
            .map(|&(stage, _)| (stage, ParamKind::Constant, BufferSpec::dense(dag.shape(stage))));
        let params: Vec<KernelParam> = params
            .iter()
            .zip(&self.args)
            .map(|(&stage, arg)| match arg {
                Arg::Input(spec) => (stage, ParamKind::Input, spec.clone()),
                Arg::Constant => (stage, ParamKind::Constant, BufferSpec::dense(dag.shape(stage))),
            })
            .chain(inner)
            .collect();
        let outputs: Vec<_> = stages.iter().copied().zip(self.results.iter().cloned()).collect();
        let kernel = schedule(dag, &params, &outputs, targets, &Default::default());
        let func = kernel.signature();
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        let expected = self.expected();
        let tables: Vec<Tensor> =
            constants.iter().map(|(_, table)| Tensor::from_constant(table).unwrap()).collect();
        let results = self.tensors.len() + tables.len();
        let all = self.tensors.iter().chain(&tables).chain(&expected);
        let all = all.zip(&func.params).enumerate();
        for (position, (tensor, param)) in all {
            let spec = &func.buffers[param.buffer].spec;
            let mut dense = tensor.to_bytes();
            if position >= results {
                // Garbage: what a kernel does not write must not be right by chance.
                dense.fill(0x7f);
            }
            buffers.push(spec.pack(&dense, tensor.dtype()).unwrap());
        }
        (kernel, buffers)
    }

    /// Everything is in vectors or has a rule of its own, for each target.
    #[track_caller]
    fn misses_nothing(&self, targets: &[Target]) {
        let loops = self.schedule(targets).0.loops;
        let missed: Vec<_> = loops.into_iter().filter_map(|loops| loops.missed).collect();
        assert!(missed.is_empty(), "{}: {missed:?}", self.name);
    }

    /// Checks the results and returns them.
    fn compare(&self, buffers: &[Vec<u8>], what: &str) -> Vec<Tensor> {
        let expected = self.expected();
        let first = buffers.len() - self.results.len();
        let results = buffers[first..].iter().zip(&self.results);
        (expected.iter().zip(results))
            .map(|(expected, (buffer, spec))| {
                let dense = spec.unpack(buffer, expected.dtype()).unwrap();
                let found = Tensor::from_bytes(expected.dtype(), expected.shape(), &dense).unwrap();
                close(&found, expected, what);
                halo_is_zero(buffer, spec, expected.dtype());
                found
            })
            .collect()
    }
}

fn close(found: &Tensor, expected: &Tensor, what: &str) {
    if let (Some(found), Some(expected)) = (found.ints(), expected.ints()) {
        assert_eq!(found, expected, "{what}");
        return;
    }
    let tolerance = match expected.dtype() {
        DType::F64 => 1e-11,
        // Two units in the last place: stored intermediate results are rounded as well.
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 1e-4,
    };
    let (found, expected) = (found.floats().unwrap(), expected.floats().unwrap());
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan());
        let near = (f - e).abs() <= tolerance + tolerance * e.abs();
        assert!(same || near, "{what}: element {i} is {f}, not {e}");
    }
}

/// A border is zeroed before the kernel runs, and the kernel must leave it alone.
fn halo_is_zero(buffer: &[u8], spec: &BufferSpec, dtype: DType) {
    if !spec.has_halo() {
        return;
    }
    let size = dtype.bytes().unwrap();
    let (shape, halo) = (spec.shape(), spec.halo());
    for y in -halo[2].before..shape[2] + halo[2].after {
        for x in -halo[3].before..shape[3] + halo[3].after {
            if (0..shape[2]).contains(&y) && (0..shape[3]).contains(&x) {
                continue;
            }
            let at = spec.element_offset(&[0, 0, y, x]) as usize * size;
            assert!(buffer[at..at + size].iter().all(|b| *b == 0), "the halo at {y}, {x}");
        }
    }
}

fn f32(shape: &[i64]) -> Type {
    Type::tensor(shape, DType::F32)
}

fn dense(shape: &[i64]) -> BufferSpec {
    BufferSpec::dense(shape)
}

struct Net {
    b: FunctionBuilder,
}

impl Net {
    fn new() -> Net {
        Net { b: FunctionBuilder::new() }
    }

    fn param(&mut self, shape: &[i64]) -> ExprId {
        self.b.param("x", f32(shape))
    }

    fn call(&mut self, op: &str, args: &[ExprId], attrs: Attrs) -> ExprId {
        let op = Op::get(op).unwrap_or_else(|| panic!("no operator {op}"));
        self.b.call(op, args, attrs).unwrap()
    }

    fn plain(&mut self, op: &str, args: &[ExprId]) -> ExprId {
        self.call(op, args, Attrs::new())
    }

    fn finish(self, result: ExprId) -> Function {
        self.b.finish(result)
    }
}

fn conv_attrs(stride: i64, padding: [i64; 4], dilation: i64, groups: i64) -> Attrs {
    Attrs::new()
        .with("strides", vec![stride; 2])
        .with("padding", padding.to_vec())
        .with("dilation", vec![dilation; 2])
        .with("groups", groups)
}

/// A convolution, bias and relu; weights constant.
fn conv(
    input: &[i64],
    weight: &[i64],
    attrs: Attrs,
    in_spec: BufferSpec,
    out_spec: impl Fn(&[i64]) -> BufferSpec,
) {
    let mut net = Net::new();
    let (x, w) = (net.param(input), net.param(weight));
    let bias = net.param(&[weight[0], 1, 1]);
    let y = net.call("nn.conv2d", &[x, w], attrs);
    let y = net.plain("add", &[y, bias]);
    let y = net.plain("nn.relu", &[y]);
    let function = net.finish(y);
    let shape: Vec<i64> = function
        .func_type()
        .ret
        .as_tensor()
        .unwrap()
        .shape
        .iter()
        .map(|d| d.as_const().unwrap())
        .collect();
    check(&function, &[Arg::Input(in_spec), Arg::Constant, Arg::Constant], &[out_spec(&shape)]);
}

#[test]
fn elementwise_chains_are_one_loop_over_any_layout() {
    let shape = [1, 20, 5, 7];
    for spec in [dense(&shape), blocked(&shape, &[]), blocked(&shape, &[(1, 1), (2, 0)])] {
        let mut net = Net::new();
        let (x, y) = (net.param(&shape), net.param(&shape));
        let sum = net.plain("add", &[x, y]);
        let z = net.plain("sigmoid", &[sum]);
        // Used twice: computed once.
        let z = net.plain("multiply", &[z, sum]);
        let function = net.finish(z);
        check(&function, &[Arg::Input(spec.clone()), Arg::Input(spec.clone())], &[spec]);
    }
}

#[test]
fn one_element_of_a_tensor_may_be_read_beside_the_whole() {
    let mut net = Net::new();
    let x = net.param(&[2, 3]);
    let attrs = Attrs::new()
        .with("axes", vec![0i64, 1])
        .with("begin", vec![0i64, 1])
        .with("end", vec![1i64, 2])
        .with("strides", vec![1i64, 1]);
    let element = net.call("strided_slice", &[x], attrs);
    let sum = net.plain("add", &[x, element]);
    let function = net.finish(sum);
    check(&function, &[Arg::Input(dense(&[2, 3]))], &[dense(&[2, 3])]);
    // The squeezed tensor has one axis fewer, and broadcasts again.
    let mut net = Net::new();
    let x = net.param(&[1, 1]);
    let squeezed = net.call("squeeze", &[x], Attrs::new().with("axis", vec![-1i64]));
    let sum = net.plain("add", &[squeezed, x]);
    let function = net.finish(sum);
    check(&function, &[Arg::Input(dense(&[1, 1]))], &[dense(&[1, 1])]);
}

#[test]
fn layouts_may_differ_between_arguments_and_results() {
    let shape = [2, 20, 3, 5];
    for (a, b, out) in [
        (dense(&shape), blocked(&shape, &[]), dense(&shape)),
        (dense(&shape), blocked(&shape, &[(1, 1), (1, 1)]), blocked(&shape, &[])),
    ] {
        let mut net = Net::new();
        let (x, y) = (net.param(&shape), net.param(&shape));
        let z = net.plain("maximum", &[x, y]);
        let function = net.finish(z);
        check(&function, &[Arg::Input(a), Arg::Input(b)], &[out]);
    }
}

#[test]
fn direct_convolution_of_planes() {
    // Few input channels: broadcast from planes, through a bordered copy.
    conv(
        &[1, 3, 11, 13],
        &[40, 3, 3, 3],
        conv_attrs(2, [1, 1, 1, 1], 1, 1),
        dense(&[1, 3, 11, 13]),
        |shape| blocked(shape, &[(1, 1), (1, 1)]),
    );
    conv(
        &[1, 1, 8, 8],
        &[8, 1, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 1),
        dense(&[1, 1, 8, 8]),
        |shape| blocked(shape, &[]),
    );
}

#[test]
fn direct_convolution_of_blocks() {
    // 24 channels in and 40 out fill no whole number of blocks.
    conv(
        &[1, 24, 9, 15],
        &[40, 24, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 1),
        blocked(&[1, 24, 9, 15], &[(1, 1), (1, 1)]),
        |shape| blocked(shape, &[(2, 1), (0, 1)]),
    );
    // A dense result, odd padding, dilation.
    conv(
        &[1, 16, 10, 10],
        &[20, 16, 3, 2],
        conv_attrs(1, [2, 0, 0, 1], 2, 1),
        blocked(&[1, 16, 10, 10], &[(2, 0), (0, 1)]),
        dense,
    );
    // No border where one is needed: a copy in scratch.
    conv(
        &[2, 32, 7, 7],
        &[64, 32, 3, 3],
        conv_attrs(2, [1, 1, 1, 1], 1, 1),
        dense(&[2, 32, 7, 7]),
        |shape| blocked(shape, &[]),
    );
}

#[test]
fn pointwise_convolution_with_large_weights_goes_panel_by_panel() {
    conv(
        &[1, 384, 4, 4],
        &[400, 384, 1, 1],
        conv_attrs(1, [0; 4], 1, 1),
        blocked(&[1, 384, 4, 4], &[]),
        |shape| blocked(shape, &[]),
    );
}

#[test]
fn a_residual_is_added_in_the_tile() {
    let shape = [1, 16, 5, 5];
    let mut net = Net::new();
    let (x, w, residual) = (net.param(&shape), net.param(&[16, 16, 3, 3]), net.param(&shape));
    let y = net.call("nn.conv2d", &[x, w], conv_attrs(1, [1; 4], 1, 1));
    let y = net.plain("add", &[y, residual]);
    let function = net.finish(y);
    let haloed = blocked(&shape, &[(1, 1), (1, 1)]);
    let plain = blocked(&shape, &[]);
    check(&function, &[Arg::Input(haloed), Arg::Constant, Arg::Input(plain.clone())], &[plain]);
}

#[test]
fn pools_and_reductions() {
    let shape = [1, 20, 7, 7];
    let pool = |pads: [i64; 4], ceil: bool| {
        Attrs::new()
            .with("pool_size", vec![3i64, 3])
            .with("strides", vec![2i64, 2])
            .with("padding", pads.to_vec())
            .with("dilation", vec![1i64, 1])
            .with("ceil_mode", ceil)
    };
    for (op, attrs) in [
        ("nn.max_pool2d", pool([1, 1, 1, 1], false)),
        ("nn.max_pool2d", pool([0, 0, 0, 0], true)),
        ("nn.avg_pool2d", pool([1, 1, 1, 1], false).with("count_include_pad", false)),
        ("nn.avg_pool2d", pool([1, 1, 0, 0], true).with("count_include_pad", true)),
        ("nn.global_avg_pool2d", Attrs::new()),
        ("nn.global_max_pool2d", Attrs::new()),
    ] {
        for input in [dense(&shape), blocked(&shape, &[]), blocked(&shape, &[(1, 1), (1, 1)])] {
            let mut net = Net::new();
            let x = net.param(&shape);
            let y = net.call(op, &[x], attrs.clone());
            let y = net.plain("nn.relu", &[y]);
            let function = net.finish(y);
            let out: Vec<i64> = function
                .func_type()
                .ret
                .as_tensor()
                .unwrap()
                .shape
                .iter()
                .map(|d| d.as_const().unwrap())
                .collect();
            let result = if input.is_dense() { dense(&out) } else { blocked(&out, &[]) };
            check(&function, &[Arg::Input(input)], &[result]);
        }
    }
    for (op, axis, keepdims) in
        [("sum", vec![1i64], false), ("mean", vec![2, 3], true), ("max", vec![], false)]
    {
        let mut net = Net::new();
        let x = net.param(&shape);
        let attrs = Attrs::new().with("axis", axis).with("keepdims", keepdims);
        let y = net.call(op, &[x], attrs);
        let function = net.finish(y);
        let out: Vec<i64> = function
            .func_type()
            .ret
            .as_tensor()
            .unwrap()
            .shape
            .iter()
            .map(|d| d.as_const().unwrap())
            .collect();
        check(&function, &[Arg::Input(blocked(&shape, &[]))], &[dense(&out)]);
    }
}

#[test]
fn softmax_along_each_axis() {
    for (op, axis) in [("nn.softmax", -1i64), ("nn.softmax", 1), ("nn.log_softmax", 0)] {
        let shape = [3, 20, 9];
        let mut net = Net::new();
        let x = net.param(&shape);
        let y = net.call(op, &[x], Attrs::new().with("axis", axis));
        let function = net.finish(y);
        check(&function, &[Arg::Input(dense(&shape))], &[dense(&shape)]);
    }
}

#[test]
fn concatenation_with_and_without_whole_blocks() {
    for (a, b) in [(16, 32), (20, 12)] {
        let (left, right, out) = ([1, a, 3, 4], [1, b, 3, 4], [1, a + b, 3, 4]);
        let mut net = Net::new();
        let (x, y) = (net.param(&left), net.param(&right));
        let y = net.plain("nn.relu", &[y]);
        let z = net.call("concatenate", &[x, y], Attrs::new().with("axis", 1i64));
        let z = net.plain("negative", &[z]);
        let function = net.finish(z);
        let inputs =
            [Arg::Input(blocked(&left, &[])), Arg::Input(blocked(&right, &[(1, 1), (1, 1)]))];
        check(&function, &inputs, &[blocked(&out, &[(1, 1), (1, 1)])]);
    }
}

#[test]
fn elements_are_moved() {
    let mut net = Net::new();
    let x = net.param(&[2, 6, 4]);
    let y = net.call("transpose", &[x], Attrs::new().with("axes", vec![2i64, 0, 1]));
    let y = net.call("reshape", &[y], Attrs::new().with("newshape", vec![8i64, 3, 2]));
    let parts =
        net.call("split", &[y], Attrs::new().with("axis", 0i64).with("sections", vec![3i64, 5]));
    let function = net.finish(parts);
    check(&function, &[Arg::Input(dense(&[2, 6, 4]))], &[dense(&[3, 3, 2]), dense(&[5, 3, 2])]);
    // From blocks to a row.
    let mut net = Net::new();
    let x = net.param(&[1, 20, 2, 3]);
    let y = net.call("reshape", &[x], Attrs::new().with("newshape", vec![1i64, 120]));
    let function = net.finish(y);
    check(
        &function,
        &[Arg::Input(blocked(&[1, 20, 2, 3], &[(1, 1), (1, 1)]))],
        &[dense(&[1, 120])],
    );
}

#[test]
fn outputs_may_repeat_arguments_and_each_other() {
    let mut net = Net::new();
    let x = net.param(&[5]);
    let y = net.plain("nn.relu", &[x]);
    let all = net.b.tuple(&[y, x, y]);
    let function = net.finish(all);
    let five = dense(&[5]);
    check(&function, &[Arg::Input(five.clone())], &[five.clone(), five.clone(), five]);
}

#[test]
fn long_chains_are_cut_before_they_nest_too_deep() {
    let mut net = Net::new();
    let mut x = net.param(&[40]);
    for _ in 0..300 {
        x = net.plain("nn.relu", &[x]);
        x = net.plain("negative", &[x]);
    }
    let function = net.finish(x);
    check(&function, &[Arg::Input(dense(&[40]))], &[dense(&[40])]);
}
