//! Packed functions called through the dynamic linker with structures of DLPack.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::{PACKED_PRODUCT, WINDOWS, WITH_SCRATCH, filled, target};
use crate::codegen::c::TempFolder;
use crate::driver::{BuildTarget, InterfaceApi, NdArray, SourceKind, build};
use crate::executor::dynamic::DynamicLibrary;
use crate::ir::DType;
use crate::options::Backend;
use crate::tir::parse;

/// `DLTensor` of dlpack.h.
#[repr(C)]
#[derive(Clone)]
struct DlTensor {
    data: *mut c_void,
    device: (c_int, c_int),
    ndim: c_int,
    dtype: DlDataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
#[derive(Clone)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
union TvmValue {
    v_int64: i64,
    v_handle: *const DlTensor,
    v_str: *const c_char,
}

type PackedFunction = unsafe extern "C" fn(
    args: *const TvmValue,
    type_codes: *const c_int,
    num_args: c_int,
    ret_value: *mut TvmValue,
    ret_tcode: *mut c_int,
    resource: *mut c_void,
) -> c_int;

const CPU: c_int = 1;
const FLOAT: u8 = 2;
const INT: c_int = 0;
const TENSOR: c_int = 7;
const STRING: c_int = 11;

fn tensor(array: &mut NdArray, shape: &'static [i64]) -> DlTensor {
    let code = if array.dtype().is_float() { FLOAT } else { 0 };
    DlTensor {
        data: array.as_mut_ptr().cast(),
        device: (CPU, 0),
        ndim: shape.len() as c_int,
        dtype: DlDataType { code, bits: array.dtype().bits() as u8, lanes: 1 },
        shape: shape.as_ptr(),
        strides: ptr::null(),
        byte_offset: 0,
    }
}

impl NdArray {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.view_mut().bytes.as_mut_ptr()
    }
}

/// A packed function of a library.
struct Packed {
    function: PackedFunction,
    _library: DynamicLibrary,
}

impl Packed {
    fn new(text: &str, kind: Backend) -> Packed {
        let func = parse(text).unwrap();
        let target = BuildTarget { interface_api: InterfaceApi::Packed, ..target(kind) };
        let module = build([func.clone()], &target).unwrap();
        let folder = TempFolder::new().unwrap();
        let path = folder.path().join("module.so");
        module.export_library(&path).unwrap();
        let library = DynamicLibrary::open(&path).unwrap();
        let symbol = library.symbol(&func.name).unwrap();
        // SAFETY: the module was built with packed functions, which have this signature.
        let function = unsafe { std::mem::transmute::<*mut c_void, PackedFunction>(symbol) };
        Packed { function, _library: library }
    }

    /// Calls the function; if it refuses, returns its message.
    fn call(&self, tensors: &[DlTensor], dims: &[i64]) -> Result<(), String> {
        let handle = |tensor: &DlTensor| (TvmValue { v_handle: tensor }, TENSOR);
        let dim = |&dim: &i64| (TvmValue { v_int64: dim }, INT);
        self.call_raw(&tensors.iter().map(handle).chain(dims.iter().map(dim)).collect::<Vec<_>>())
    }

    fn call_raw(&self, args: &[(TvmValue, c_int)]) -> Result<(), String> {
        let (values, codes): (Vec<_>, Vec<_>) = args.iter().copied().unzip();
        let mut value = TvmValue { v_int64: 0 };
        let mut tcode = -1;
        // SAFETY: the arrays have as many elements as the count says; tensors describe memory that
        // they own.
        let status = unsafe {
            let (count, resource) = (args.len() as c_int, ptr::null_mut());
            (self.function)(
                values.as_ptr(),
                codes.as_ptr(),
                count,
                &raw mut value,
                &raw mut tcode,
                resource,
            )
        };
        if status == 0 {
            assert_eq!(tcode, -1, "only a refusal has a result");
            return Ok(());
        }
        assert_eq!((status, tcode), (-1, STRING));
        // SAFETY: the type code says that the value is a string, which is in the library.
        Err(unsafe { CStr::from_ptr(value.v_str) }.to_str().unwrap().to_owned())
    }
}

#[test]
fn packed_functions_equal_their_kernels() {
    for &kind in Backend::ALL {
        let windows = Packed::new(
            &WINDOWS.replace("{halo=0:1:1}", "").replace("serial(n)", "serial(1, n)"),
            kind,
        );
        let mut x = filled(DType::F32, &[40], 1);
        let mut y = NdArray::zeros(DType::F32, &[40]).unwrap();
        windows.call(&[tensor(&mut x, &[40]), tensor(&mut y, &[40])], &[38]).unwrap();
        let (x, y) = (x.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
        for i in 1..39 {
            assert_eq!(y[i], x[i - 1] + x[i] + x[i + 1], "{kind}");
        }
        assert_eq!((y[0], y[39]), (0.0, 0.0));

        let twice = Packed::new(WITH_SCRATCH, kind);
        let mut x = filled(DType::I32, &[1024], 2);
        let mut y = NdArray::zeros(DType::I32, &[1024]).unwrap();
        for _ in 0..2 {
            twice.call(&[tensor(&mut x, &[1024]), tensor(&mut y, &[1024])], &[]).unwrap();
        }
        let last = x.as_slice::<i32>().unwrap()[1023];
        assert_eq!(y.as_slice::<i32>().unwrap()[0], last.wrapping_mul(2), "{kind}");
    }
}

/// The tensor of a layout that is not dense has the physical shape.
#[test]
fn tensors_have_the_physical_shape() {
    for &kind in Backend::ALL {
        let product = Packed::new(PACKED_PRODUCT, kind);
        let mut a = filled(DType::F32, &[6, 5], 1);
        let mut b = NdArray::zeros(DType::F32, &[3, 5, 8]).unwrap();
        b.as_mut_slice::<f32>().unwrap().fill(1.0);
        let mut c = NdArray::zeros(DType::F32, &[2, 6, 16]).unwrap();
        let tensors =
            [tensor(&mut a, &[6, 5]), tensor(&mut b, &[3, 5, 8]), tensor(&mut c, &[2, 6, 16])];
        product.call(&tensors, &[]).unwrap();
        let a = a.as_slice::<f32>().unwrap();
        let sum = a[..5].iter().fold(0.0, |sum, value| sum + value);
        let c = c.as_slice::<f32>().unwrap();
        assert_eq!((c[0], c[6 * 16 + 3], c[6 * 16 + 4]), (sum, sum, 0.0), "{kind}");

        let logical = [
            tensors[0].clone(),
            tensor(&mut filled(DType::F32, &[5, 20], 1), &[5, 20]),
            tensors[2].clone(),
        ];
        let error = product.call(&logical, &[]).unwrap_err();
        assert_eq!(error, "product: argument 1 (b): ndim must be 3", "{kind}");
    }
}

/// A change that makes a tensor wrong.
type Change<'a> = &'a dyn Fn(&mut DlTensor);

#[test]
fn wrong_tensors_are_refused() {
    for &kind in Backend::ALL {
        let windows = Packed::new(WINDOWS, kind);
        let mut x = NdArray::zeros(DType::F32, &[42]).unwrap();
        let mut y = NdArray::zeros(DType::F32, &[40]).unwrap();
        let (x, y) = (tensor(&mut x, &[42]), tensor(&mut y, &[40]));
        let with = |change: Change<'_>| {
            let mut changed = x.clone();
            change(&mut changed);
            windows.call(&[changed, y.clone()], &[40])
        };
        let dense: &'static [i64] = &[1];
        assert_eq!(with(&|x| x.strides = dense.as_ptr()), Ok(()), "{kind}");
        let strided: &'static [i64] = &[2];
        let short: &'static [i64] = &[40];
        let changes: [(Change<'_>, &str); 11] = [
            (&|x| x.ndim = 2, "ndim must be 1"),
            (&|x| x.dtype.code = 0, "dtype must be float32"),
            (&|x| x.dtype.bits = 64, "dtype must be float32"),
            (&|x| x.dtype.lanes = 4, "dtype must have one lane"),
            (&|x| x.device.0 = 2, "the tensor must be in the memory of the CPU"),
            (&|x| x.byte_offset = 4, "byte_offset must be 0"),
            (&|x| x.shape = ptr::null(), "shape is null"),
            (&|x| x.shape = short.as_ptr(), "shape[0] must be 42"),
            (&|x| x.strides = strided.as_ptr(), "strides[0] must be 1"),
            (&|x| x.data = ptr::null_mut(), "data is null"),
            (&|x| x.dtype = DlDataType { code: 1, bits: 32, lanes: 1 }, "dtype must be float32"),
        ];
        for (change, message) in changes {
            let expected = format!("windows: argument 0 (x): {message}");
            assert_eq!(with(change), Err(expected), "{kind}");
        }

        let error = windows.call(std::slice::from_ref(&x), &[40]).unwrap_err();
        assert_eq!(error, "windows: 3 arguments are needed", "{kind}");
        let handle = |tensor: *const DlTensor, code| (TvmValue { v_handle: tensor }, code);
        let n = (TvmValue { v_int64: 40 }, INT);
        let error = windows.call_raw(&[handle(&raw const x, 2), handle(&raw const y, TENSOR), n]);
        assert_eq!(error, Err("windows: argument 0 (x): a DLTensor is needed".to_owned()));
        let error =
            windows.call_raw(&[handle(ptr::null(), TENSOR), handle(&raw const y, TENSOR), n]);
        assert_eq!(error, Err("windows: argument 0 (x): the DLTensor is null".to_owned()));
        let float = (TvmValue { v_int64: 40 }, 2);
        let error = windows.call_raw(&[handle(&raw const x, 3), handle(&raw const y, 13), float]);
        assert_eq!(error, Err("windows: argument 2 (n): an integer is needed".to_owned()));
    }
}

#[test]
fn the_text_has_the_packed_function_only_if_asked_for() {
    for &kind in Backend::ALL {
        let source = if kind == Backend::C { SourceKind::C } else { SourceKind::LlvmIr };
        let plain = build([parse(WINDOWS).unwrap()], &target(kind)).unwrap();
        assert!(!plain.source(source).unwrap().contains("num_args"));
        let target = BuildTarget { interface_api: InterfaceApi::Packed, ..target(kind) };
        let packed = build([parse(WINDOWS).unwrap()], &target).unwrap();
        let text = packed.source(source).unwrap();
        assert!(text.contains("num_args") && text.contains("windows_compute"), "{text}");
        // A call from Rust is unaffected.
        let x = filled(DType::F32, &[40], 1);
        let mut y = NdArray::zeros(DType::F32, &[40]).unwrap();
        packed.function("windows").unwrap().call((&x, &mut y, 40i64)).unwrap();
        let x = x.as_slice::<f32>().unwrap();
        assert_eq!(y.as_slice::<f32>().unwrap()[0], x[0] + x[1], "{kind}");
    }
}

/// Only one call of a kernel with scratch memory runs at a time: others are refused, and no result
/// is wrong.
#[test]
fn calls_that_share_scratch_memory_do_not_overlap() {
    for &kind in Backend::ALL {
        let twice = Packed::new(WITH_SCRATCH, kind);
        let work = &|seed| {
            let mut x = filled(DType::I32, &[1024], seed);
            let mut y = NdArray::zeros(DType::I32, &[1024]).unwrap();
            for _ in 0..500 {
                match twice.call(&[tensor(&mut x, &[1024]), tensor(&mut y, &[1024])], &[]) {
                    Ok(()) => {
                        let reversed = x.as_slice::<i32>().unwrap().iter().rev();
                        let expected = reversed.map(|x| x.wrapping_mul(2));
                        assert!(expected.eq(y.to_vec::<i32>().unwrap()), "{kind}");
                    }
                    Err(message) => assert!(message.contains("another call runs"), "{message}"),
                }
            }
        };
        std::thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || work(seed));
            }
        });
        let mut x = filled(DType::I32, &[1024], 3);
        let mut y = x.clone();
        twice.call(&[tensor(&mut x, &[1024]), tensor(&mut y, &[1024])], &[]).unwrap();
    }
}

/// `c = a + b` with symbolic extents, with a tensor twice as long and a dimension as an argument.
const SYMBOLIC: &str = "
prim_func @sum(a: input float32[m, n], b: input float32[floordiv(m * 2, 2), n], c: output float32[m, n], d: output float32[(n + h) * 2 - n], m: dim, n: dim, h: dim) {
  for i in serial(m) {
    for j in serial(n) {
      c[i, j] = a[i, j] + b[i, j]
    }
  }
  d[0] = cast<float32>(h)
}";

#[test]
fn dimensions_are_read_from_shapes() {
    for &kind in Backend::ALL {
        let sum = Packed::new(SYMBOLIC, kind);
        let mut a = filled(DType::F32, &[2, 3], 1);
        let mut b = filled(DType::F32, &[2, 3], 2);
        let mut c = NdArray::zeros(DType::F32, &[2, 3]).unwrap();
        let mut d = NdArray::zeros(DType::F32, &[5]).unwrap();
        let tensors = [
            tensor(&mut a, &[2, 3]),
            tensor(&mut b, &[2, 3]),
            tensor(&mut c, &[2, 3]),
            tensor(&mut d, &[5]),
        ];
        sum.call(&tensors, &[1]).unwrap();
        let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(c.to_vec::<f32>().unwrap(), expected, "{kind}");
        assert_eq!(d.to_vec::<f32>().unwrap()[0], 1.0, "{kind}");

        let with = |place: usize, change: Change<'_>, h: i64| {
            let mut changed = tensors.clone();
            change(&mut changed[place]);
            sum.call(&changed, &[h]).unwrap_err()
        };
        const SHAPES: [&[i64]; 4] = [&[3, 3], &[2, 4], &[-2, 3], &[1 << 62, 3]];
        const STRIDES: [&[i64]; 1] = [&[4, 1]];
        let m = "(m is shape[0] of argument 0)";
        let n = "(n is shape[1] of argument 0)";
        for (place, shape, message) in [
            (1, 0, format!("shape[0] must be floordiv(m * 2, 2) {m}")),
            (2, 0, format!("shape[0] must be m {m}")),
            (1, 1, format!("shape[1] must be n {n}")),
            (0, 2, "shape[0] must be at least 0".to_owned()),
            // Twice that size exceeds 64 bits.
            (0, 3, String::new()),
        ] {
            let error = with(place, &|x| x.shape = SHAPES[shape].as_ptr(), 1);
            let names = ["a", "b", "c", "d"];
            let expected = match message.is_empty() {
                true => format!("sum: argument 1 (b): shape[0] must be floordiv(m * 2, 2) {m}"),
                false => format!("sum: argument {place} ({}): {message}", names[place]),
            };
            assert_eq!(error, expected, "{kind}");
        }
        let error = with(0, &|x| x.strides = STRIDES[0].as_ptr(), 1);
        assert_eq!(error, "sum: argument 0 (a): strides[0] must be that of a dense tensor");
        let error = with(0, &|x| x.data = ptr::null_mut(), 1);
        assert_eq!(error, "sum: argument 0 (a): data is null", "{kind}");
        let error = with(0, &|_| {}, 2);
        assert_eq!(error, format!("sum: argument 3 (d): shape[0] must be (n + h) * 2 - n {n}"));
        let error = sum.call(&tensors, &[1, 2]).unwrap_err();
        assert_eq!(error, "sum: 5 arguments are needed", "{kind}");

        // An empty tensor needs no memory.
        let mut none = tensors.clone();
        for tensor in none.iter_mut().take(3) {
            tensor.shape = [0, 3].as_ptr();
            tensor.data = ptr::null_mut();
        }
        sum.call(&none, &[1]).unwrap();
    }
}

/// A sum whose init is with its first element.
const REDUCTION: &str = r#"
prim_func @total(x: input float32[n], y: output float32[1], n: dim) {
  for i in serial(n) {
    block "total"(vi: reduce(n) = i) {
      init { y[0] = 0.0 }
      y[0] = y[0] + x[vi]
    }
  }
}"#;

#[test]
fn a_reduction_of_nothing_is_refused() {
    for &kind in Backend::ALL {
        let total = Packed::new(REDUCTION, kind);
        let mut x = filled(DType::F32, &[3], 1);
        let mut y = NdArray::zeros(DType::F32, &[1]).unwrap();
        let mut tensors = [tensor(&mut x, &[3]), tensor(&mut y, &[1])];
        total.call(&tensors, &[]).unwrap();
        let x = x.to_vec::<f32>().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [x[0] + x[1] + x[2]], "{kind}");
        tensors[0].shape = [0].as_ptr();
        let error = total.call(&tensors, &[]).unwrap_err();
        assert_eq!(error, "total: the reduction over n needs an element", "{kind}");
    }
}
