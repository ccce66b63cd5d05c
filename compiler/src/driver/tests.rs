//! Tests of built functions: both kinds of target against the interpreter, and refusals.

mod calls;
mod end_to_end;
mod packed;
mod refused;
mod sources;
mod symbolic;

use super::accesses::are_proved;
use super::{Arg, BuildTarget, Function, InterfaceApi, Module, NdArray, SourceKind, build};
use crate::codegen::testing::{compare, runnable_levels};
use crate::ir::DType;
use crate::options::{Backend, Denormals};
use crate::tir::{ParamKind, PrimFunc, interpret, parse};

/// A matrix product whose right operand is in panels, with an output in blocks of channels.
const PACKED_PRODUCT: &str = "
prim_func @product(a: input float32[6, 5], b: const float32[5, 20]{dims=1:8 0:1 1:1}, c: output float32[6, 20]{dims=1:16 0:1 1:1}) {
  for i in parallel(6) {
    for j in serial(20) {
      allocate acc: local float32[1]
      acc[0] = 0.0
      for k in serial(5) {
        acc[0] = fma(a[i, k], b[k, j], acc[0])
      }
      c[i, j] = acc[0]
    }
  }
}";

/// Sums of windows of three, with a border of zeros, of a part of a row.
const WINDOWS: &str = "
prim_func @windows(x: input float32[40]{halo=0:1:1}, y: output float32[40], n: dim) {
  for i in serial(n) {
    y[i] = x[i - 1] + x[i] + x[i + 1]
  }
}";

/// A function whose scratch memory is too large for the stack.
const WITH_SCRATCH: &str = "
prim_func @twice(x: input int32[1024], y: output int32[1024]) {
  allocate t: local int32[1024]
  for i in vectorized(1024) {
    t[i] = x[i] + x[i]
  }
  for i in serial(1024) {
    y[i] = t[1023 - i]
  }
}";

/// An elementwise function in a type that no processor computes in.
const HALVES: &str = "
prim_func @halves(x: input float16[24], y: output float16[24]) {
  for i in vectorized(24) {
    y[i] = exp(x[i]) * float16(0.5)
  }
}";

fn target(kind: Backend) -> BuildTarget {
    BuildTarget { kind, machine: runnable_levels().remove(0), interface_api: InterfaceApi::C }
}

/// Both kinds of target at every CPU level that this machine has.
fn targets() -> Vec<BuildTarget> {
    let of_kind = |&kind: &Backend| {
        let of = move |machine| BuildTarget { kind, machine, interface_api: InterfaceApi::C };
        runnable_levels().into_iter().map(of)
    };
    Backend::ALL.iter().flat_map(of_kind).collect()
}

/// An array of a parameter's shape, of numbers between −2 and 2 or of any bytes.
fn filled(dtype: DType, shape: &[i64], seed: u32) -> NdArray {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    let mut array = NdArray::zeros(dtype, shape).unwrap();
    match dtype {
        DType::F32 => array.as_mut_slice::<f32>().unwrap().fill_with(next),
        DType::F64 => array.as_mut_slice::<f64>().unwrap().fill_with(|| next().into()),
        DType::F16 => {
            array.as_mut_slice().unwrap().fill_with(|| half::f16::from_f32(next()));
        }
        DType::Bool => array.as_mut_slice().unwrap().fill_with(|| next() > 0.0),
        _ => {
            let bytes = (0..array.bytes().len()).map(|_| (next() * 64.0) as i8 as u8);
            array = NdArray::from_bytes(dtype, shape, &bytes.collect::<Vec<_>>()).unwrap();
        }
    }
    array
}

/// Arguments for a function: inputs are random, outputs are not zero.
fn arrays(function: &Function) -> Vec<NdArray> {
    let parameters = function.parameters().iter().enumerate();
    parameters.map(|(i, p)| filled(p.dtype, p.spec.shape(), i as u32)).collect()
}

fn args<'a>(function: &Function, arrays: &'a mut [NdArray], dims: &[i64]) -> Vec<Arg<'a>> {
    let kinds = function.parameters().iter().map(|parameter| parameter.kind);
    let buffers = kinds.zip(arrays).map(|(kind, array)| match kind {
        ParamKind::Output => Arg::from(array),
        ParamKind::Input | ParamKind::Constant => Arg::from(&*array),
    });
    buffers.chain(dims.iter().map(|&dim| Arg::Int(dim))).collect()
}

/// The results of the interpreter for the lowered function, as the module prints it.
fn interpreted(
    module: &Module,
    function: &Function,
    arrays: &[NdArray],
    dims: &[i64],
) -> Vec<Vec<u8>> {
    let lowered = parse(&module.source(SourceKind::Tir).unwrap()).unwrap();
    let mut packed: Vec<Vec<u8>> = arrays
        .iter()
        .zip(function.parameters())
        .map(|(array, parameter)| parameter.spec.pack(array.bytes(), parameter.dtype).unwrap())
        .collect();
    interpret(&lowered, &mut packed, dims).unwrap();
    packed
        .iter()
        .zip(function.parameters())
        .map(|(bytes, parameter)| parameter.spec.unpack(bytes, parameter.dtype).unwrap())
        .collect()
}

/// Builds for every target, calls, and compares with the interpreter bit for bit.
fn check(func: &PrimFunc, dims: &[i64]) {
    for target in targets() {
        let module = build([func.clone()], &target).unwrap();
        let function = module.function(&func.name).unwrap();
        let mut arrays = arrays(&function);
        let expected = interpreted(&module, &function, &arrays, dims);
        // The function keeps its code.
        drop(module);
        function.call(args(&function, &mut arrays, dims)).unwrap();
        let found: Vec<_> = arrays.iter().map(|array| array.bytes().to_vec()).collect();
        compare(func, Denormals::Keep, &expected, &found, &target.to_string());
    }
}
