//! Whether a model that is measured computes what it should.

use std::path::{Path, PathBuf};

use super::Checked;
use crate::cli::case::{self, DataSet};
use crate::cli::output::Output;
use crate::compile::Model;
use crate::diagnostics::{Problem, Report, Setting, pin};
use crate::executor::RunTimeSizes;
use crate::graph::interp::{Elements, Tensor, TensorError, Tolerance, compare};
use crate::ir::{Constant, DType, Dim, IRModule, Shape, TensorType};
use crate::onnx::{self, DeclaredDim, DeclaredPort, ModelPort, TestValue};
use crate::ops::qnn::{QUANTIZE, REQUANTIZE};
use crate::options::CompileOptions;
use crate::samples::runner::{Runner, interpret, open_inputs};

/// Most multiply-accumulates that the interpreter is asked for.
///
/// It does some thousand million a second, and few people wait longer than that for a check. Larger
/// models have test data, or are not checked.
const MAX_INTERPRETED_MACS: u64 = 1_000_000_000;

/// Greatest shares of an output that differences may be, both as roots of sums of squares, where a model
/// quantises: from the model as imported, and from what passes made of it. A number that is rounded the
/// other way is a whole step off, and so is what follows from it; passes round less often.
const MAX_STEPS: [f64; 2] = [0.5, 0.05];

/// What a model is run on.
pub(in crate::cli) enum Data {
    /// Test data beside the model: inputs and outputs, of at least one set.
    Sets(Vec<(Vec<Constant>, Vec<Constant>)>),
    /// Random inputs, the same each time.
    Random(Vec<Constant>),
}

impl Data {
    /// The inputs that are measured.
    pub(in crate::cli) fn inputs(&self) -> &[Constant] {
        match self {
            Data::Sets(sets) => sets.first().map_or(&[], |(inputs, _)| inputs),
            Data::Random(inputs) => inputs,
        }
    }
}

/// The folder that a model is in.
fn folder(model: &Path) -> PathBuf {
    match model.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// Test data if there is some, else random inputs.
///
/// # Errors
///
/// Test data cannot be read, or the sizes of inputs are not known.
pub(in crate::cli) fn data(
    path: &Path,
    model: &Model,
    options: &CompileOptions,
) -> Result<Data, Report> {
    let folder = folder(path);
    if let Some(file) = model.as_onnx().filter(|_| case::has_data(&folder)) {
        let sets = case::data_sets(&folder, &file.proto).map_err(Problem::new)?;
        let sets: Result<Vec<_>, _> = sets.into_iter().map(tensors).collect();
        let mut sets = sets?;
        // Data of another size than the one that was asked for is of no use.
        let ports = onnx::summary(&file.proto).inputs;
        sets.retain(|(inputs, _)| fits(inputs, &ports, options));
        if !sets.is_empty() {
            let open = |(inputs, outputs)| Ok((open_inputs(model, options, inputs)?, outputs));
            return Ok(Data::Sets(sets.into_iter().map(open).collect::<Result<_, Report>>()?));
        }
    }
    random(model, options)
}

/// Whether no extent of the inputs is pinned to another size, and no input has a value of its own.
fn fits(inputs: &[Constant], ports: &[DeclaredPort], options: &CompileOptions) -> bool {
    let dims = &options.dims;
    inputs.iter().zip(ports).all(|(input, port)| {
        if let Some(value) = options.input_values.get(&port.name) {
            return value.fit(input.ty()).is_ok_and(|value| value == *input);
        }
        let extents = input.ty().shape.as_consts().unwrap_or_default();
        let declared = port.shape.iter().flatten().enumerate();
        declared.zip(&extents).all(|((axis, dim), &extent)| {
            let pinned = match dim {
                DeclaredDim::Value(_) => None,
                DeclaredDim::Symbol(name) => dims.get(name),
                DeclaredDim::Unknown => dims.get(&format!("{}_{axis}", port.name)),
            };
            pinned.is_none_or(|size| size.allows(extent))
        }) && options.input_shapes.get(&port.name).is_none_or(|shape| *shape == extents)
    })
}

fn tensors(set: DataSet) -> Result<(Vec<Constant>, Vec<Constant>), Problem> {
    let tensors = |values: Vec<TestValue>| -> Result<Vec<Constant>, Problem> {
        let tensor = |value: TestValue| {
            value.into_tensor().map_err(|what| {
                Problem::new(format!("the test data has {what}, which is not supported"))
            })
        };
        values.into_iter().map(tensor).collect()
    };
    Ok((tensors(set.inputs)?, tensors(set.outputs)?))
}

/// Random inputs of the model's types.
fn random(model: &Model, options: &CompileOptions) -> Result<Data, Report> {
    let mut report = Report::new();
    if let Some(file) = model.as_onnx() {
        let fixed = onnx::static_inputs(&file.proto).into_iter();
        for name in fixed.filter(|&name| !options.input_values.contains_key(name)) {
            report.push(
                Problem::new(format!(
                    "input `{name}` must be known while the model is compiled, so it cannot be random"
                ))
                .help(format!(
                    "fix it: {}; or put inputs and outputs into a folder test_data_set_0 beside the model",
                    Setting::InputValue.of(name)
                )),
            );
        }
    }
    if !report.is_empty() {
        return Err(report);
    }
    // The sizes of a text stay symbols: its types say what they are for the greatest.
    let imported = match model.as_onnx() {
        Some(_) => model.import(&options.at_greatest())?,
        None => model.import(options)?,
    };
    let sizes = RunTimeSizes::of(&options.dims);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut inputs = Vec::new();
    for ModelPort { name, ty } in &imported.inputs {
        let mut shape = Vec::with_capacity(ty.shape.rank());
        for dim in ty.shape.iter() {
            match sizes.greatest(dim) {
                Some(size) => shape.push(Dim::from(size)),
                None => {
                    let what = format!("input `{name}` is {ty}: the size of `{dim}` is not known");
                    let pin = pin([dim]).unwrap_or_default();
                    report.push(Problem::new(what).help(model.how_to_say_size(pin)));
                }
            }
        }
        let ty = TensorType::new(Shape::new(shape), ty.dtype);
        match random.tensor(&ty) {
            Ok(tensor) => inputs.push(tensor),
            Err(problem) if report.is_empty() => report.push(problem),
            Err(_) => {}
        }
    }
    report.into_result(Data::Random(inputs))
}

/// Compares what the model computes with what is expected, as far as that is known.
///
/// # Errors
///
/// It computes something else.
pub(super) fn check(
    path: &Path,
    model: &Model,
    runner: &Runner,
    data: &Data,
    options: &CompileOptions,
) -> Result<Checked, Report> {
    match data {
        Data::Sets(sets) => {
            let tolerance = case::tolerance(&folder(path)).map_err(Problem::new)?;
            // Sums that cancel each other are as far off as what they are of.
            let tolerance = |value: &Constant| {
                let Tolerance { rtol, atol } = tolerance.of(value.ty().dtype);
                Tolerance { rtol, atol: atol.max(Tolerance::near(value).atol) }
            };
            let first = data.inputs();
            for (number, (inputs, expected)) in sets.iter().enumerate() {
                // Sets of other shapes would need another compilation.
                if runner.serves(first, inputs) {
                    agree(&runner.run(inputs)?, expected, tolerance)
                        .map_err(|what| Problem::new(format!("test_data_set_{number}: {what}")))?;
                }
            }
            Ok(Checked::TestData)
        }
        Data::Random(inputs) => {
            let macs = runner.compilation().map_or(u64::MAX, |compilation| compilation.model.macs);
            if macs > MAX_INTERPRETED_MACS {
                return Ok(Checked::Unchecked);
            }
            // The model as imported: passes are checked as well.
            let imported = model.import(options)?;
            // What the interpreter cannot run is no fault of the compiled model.
            let expected = match interpret(&imported.module, inputs) {
                Ok(expected) => expected,
                Err(problem) => {
                    Output::error(&format!("note: the outputs are not checked: {problem}"));
                    return Ok(Checked::Unchecked);
                }
            };
            let through = |value: &Constant| match least_precise(&imported.module) {
                Some(dtype) => Tolerance::near_through(value, dtype),
                None => Tolerance::near(value),
            };
            let found = runner.run(inputs)?;
            if let Err(what) = agree(&found, &expected, through)
                && !(quantises(&imported.module)
                    && steps_away(&found, &expected, MAX_STEPS[0])
                    && computes_what_passes_made(runner, inputs, &found))
            {
                return Err(Problem::new(format!("against the interpreter: {what}")).into());
            }
            Ok(Checked::Interpreter)
        }
    }
}

/// Whether a module rounds numbers to steps.
fn quantises(module: &IRModule) -> bool {
    let mut values = module.functions().flat_map(|(_, function)| function.iter());
    values.any(|(_, value)| [&QUANTIZE, &REQUANTIZE].iter().any(|op| value.expr.is_call_of(op)))
}

/// Whether outputs differ from those of the module after graph passes by a few steps at most.
fn computes_what_passes_made(runner: &Runner, inputs: &[Constant], found: &[Constant]) -> bool {
    let expected = runner.compilation().map(|compilation| {
        interpret(&compilation.module, &runner.passed(inputs)).unwrap_or_default()
    });
    expected.is_some_and(|expected| steps_away(found, &expected, MAX_STEPS[1]))
}

/// Whether differences are no more than a share of the outputs.
fn steps_away(found: &[Constant], expected: &[Constant], share: f64) -> bool {
    let near = |(found, expected): (&Constant, &Constant)| {
        let (Some(found), Some(expected)) = (numbers(found), numbers(expected)) else {
            return false;
        };
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
        let off = norm(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
        found.len() == expected.len() && off <= share * share * norm(&mut expected.iter().copied())
    };
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

/// The elements of an output, of floats or of integers that are quantised ones: wider ones are places.
fn numbers(output: &Constant) -> Option<Vec<f64>> {
    let is_narrow = output.ty().dtype.bits() <= 16;
    match Tensor::from_constant(output).ok()?.elements() {
        Elements::Float(values) => Some(values.clone()),
        Elements::Int(values) => {
            is_narrow.then(|| values.iter().map(|&value| value as f64).collect())
        }
    }
}

/// A type of floats of 16 bits or fewer that a module computes, if it does.
fn least_precise(module: &IRModule) -> Option<DType> {
    let mut values = module.functions().flat_map(|(_, function)| function.iter());
    values.find_map(|(_, value)| {
        let dtype = value.ty.as_tensor()?.dtype;
        (dtype.is_float() && dtype.bits() <= 16).then_some(dtype)
    })
}

fn agree(
    found: &[Constant],
    expected: &[Constant],
    tolerance: impl Fn(&Constant) -> Tolerance,
) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} outputs, but {} are expected", found.len(), expected.len()));
    }
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        compare(found, expected, tolerance(expected))
            .map_err(|reason| format!("output {position}: {reason}"))?;
    }
    Ok(())
}

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A tensor of floats within -1 and 1; of integers that are 0 or 1, as these are often indices.
    fn tensor(&mut self, ty: &TensorType) -> Result<Constant, Problem> {
        let unknown = || Problem::new(format!("the size of {ty} is not known"));
        let shape = ty.shape.as_consts().ok_or_else(unknown)?;
        let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let shape = shape.map_err(|_| unknown())?;
        let elements = ty.num_elements().and_then(|n| usize::try_from(n).ok());
        let elements = elements.ok_or_else(unknown)?;
        let tensor = if ty.dtype.is_float() {
            let float = |_| (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            Tensor::from_floats(ty.dtype, &shape, (0..elements).map(float).collect())
        } else {
            let bit = |_| i128::from(self.next() >> 63);
            Tensor::from_ints(ty.dtype, &shape, (0..elements).map(bit).collect())
        };
        tensor
            .and_then(|tensor| tensor.to_constant().map_err(|_| TensorError::DType(ty.dtype)))
            .map_err(|_| Problem::new(format!("no random input of type {} can be made", ty.dtype)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::SharedBytes;
    use crate::target::Target;

    #[test]
    fn steps_are_a_share_of_the_outputs() {
        let of = |values: &[f32]| vec![Constant::from_f32(&[values.len() as i64], values).unwrap()];
        let expected = of(&[3.0, -4.0]);
        assert!(steps_away(&of(&[3.0, -3.8]), &expected, 0.05));
        assert!(!steps_away(&of(&[3.0, -3.7]), &expected, 0.05));
        assert!(!steps_away(&of(&[f32::NAN, -4.0]), &expected, 0.5));
        assert!(!steps_away(&of(&[3.0]), &expected, 0.5));
        assert!(!steps_away(&[], &expected, 0.5));
        assert!(steps_away(&of(&[0.0]), &of(&[0.0]), 0.05));

        let quantised = |values: &[u8]| {
            let ty = TensorType::from_consts(&[values.len() as i64], DType::U8);
            vec![Constant::new(ty, SharedBytes::new(values.to_vec())).unwrap()]
        };
        let expected = quantised(&[100, 120, 7]);
        assert!(steps_away(&quantised(&[100, 121, 7]), &expected, 0.05));
        assert!(!steps_away(&quantised(&[100, 150, 7]), &expected, 0.05));
        let place = |value| vec![Constant::from_i64(&[1], &[value]).unwrap()];
        assert!(!steps_away(&place(101), &place(100), 0.05));
    }

    #[test]
    fn random_inputs_are_in_range_and_the_same_each_time() {
        for dtype in DType::all().filter(|dtype| !dtype.is_storage_only()) {
            let ty = TensorType::from_consts(&[100], dtype);
            let tensor = Random(1).tensor(&ty).unwrap();
            assert_eq!(tensor, Random(1).tensor(&ty).unwrap());
            match Tensor::from_constant(&tensor).unwrap().elements() {
                Elements::Float(values) => {
                    assert!(values.iter().all(|value| value.abs() <= 1.0));
                    assert!(values.iter().any(|&value| value < -0.5));
                    assert!(values.iter().any(|&value| value > 0.5));
                }
                Elements::Int(values) => {
                    assert!(values.iter().all(|value| [0, 1].contains(value)));
                    assert!((20..80).contains(&values.iter().filter(|&&v| v == 1).count()));
                }
            }
        }
    }

    #[test]
    fn data_fits_unless_a_pinned_extent_is_another() {
        let symbol = DeclaredDim::Symbol("batch".to_owned());
        let port = DeclaredPort {
            name: "x".to_owned(),
            dtype: Some(DType::F32),
            shape: Some(vec![symbol, DeclaredDim::Unknown]),
            other: None,
        };
        let input = [Constant::from_f32(&[1, 2], &[0.0, 0.0]).unwrap()];
        let port = std::slice::from_ref(&port);
        let options = || CompileOptions::new(Target::host());
        let fits = |dims: &[(&str, u64)]| {
            let dims = dims
                .iter()
                .map(|&(name, size): &(&str, u64)| (name.to_owned(), size.into()))
                .collect();
            super::fits(&input, port, &CompileOptions { dims, ..options() })
        };
        assert!(fits(&[]) && fits(&[("batch", 1), ("x_1", 2)]));
        assert!(!fits(&[("batch", 2)]) && !fits(&[("x_1", 3)]));
        let fits = |shape: Vec<u64>, value: f32| {
            let input_shapes = [("x".to_owned(), shape)].into();
            let input_values = [("x".to_owned(), value.into())].into();
            let shaped = CompileOptions { input_shapes, ..options() };
            let valued = CompileOptions { input_values, ..options() };
            (super::fits(&input, port, &shaped), super::fits(&input, port, &valued))
        };
        assert_eq!(fits(vec![1, 2], 0.0), (true, true));
        assert_eq!(fits(vec![2, 2], 1.0), (false, false));
    }
}
