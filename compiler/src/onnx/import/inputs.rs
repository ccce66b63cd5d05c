//! The types of a model's inputs: declared extents, pinned names, whole shapes from the caller.

use std::collections::{BTreeMap, BTreeSet};

use super::ImportOptions;
use crate::diagnostics::{Problem, Report, Setting};
use crate::ir::{Dim, Shape, TensorType};
use crate::onnx::proto::{
    DimensionValue, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use crate::onnx::tensor::{MAX_RANK, dtype_from_onnx};
use crate::options::DimSize;
use crate::tir::transform::MOST_BUCKETS;

/// One declared extent of an input.
enum Declared {
    Const(i64),
    Named(String),
    /// Not named in the model; goes by the name of the input and the position.
    Unnamed(String),
}

impl Declared {
    fn name(&self) -> Option<&str> {
        match self {
            Declared::Const(_) => None,
            Declared::Named(name) | Declared::Unnamed(name) => Some(name),
        }
    }
}

/// The types of the inputs, in order; `None` for one that has a problem. What options say of dimensions
/// that no input has goes to `asked`, with the problem if nothing else has them.
pub(super) fn input_types(
    inputs: &[&ValueInfoProto],
    options: &ImportOptions,
    asked: &mut BTreeMap<String, (DimSize, Problem)>,
    report: &mut Report,
) -> Vec<Option<TensorType>> {
    let declared: Vec<Option<(Vec<Declared>, &TensorTypeProto)>> = inputs
        .iter()
        .map(|input| match declared(input, options.input_shapes.get(input.name())) {
            Ok(declared) => Some(declared),
            Err(problem) => {
                report.push(problem);
                None
            }
        })
        .collect();
    let sizes = pinned_sizes(inputs, &declared, options, report);
    check_names(inputs, &declared, options, asked, report);
    let names: BTreeSet<&str> = (declared.iter().flatten().flat_map(|(dims, _)| dims))
        .filter_map(Declared::name)
        .chain(options.dims.keys().map(String::as_str))
        .collect();
    let extent = |name: &str| {
        let one = |name: &str| sizes.get(name).map_or(Dim::symbol(name), |&size| Dim::from(size));
        match sum(name, |name| names.contains(name)).filter(|_| !sizes.contains_key(name)) {
            Some(terms) => terms.into_iter().fold(Dim::from(0i64), |sum, term| match term {
                Term::Number(number) => sum + number,
                Term::Name(name) => sum + one(name),
            }),
            None => one(name),
        }
    };
    inputs
        .iter()
        .zip(&declared)
        .map(|(input, declared)| {
            let (dims, tensor) = declared.as_ref()?;
            let dtype = match dtype_from_onnx(tensor.elem_type()) {
                Ok(dtype) => dtype,
                Err(error) => {
                    report.push(Problem::new(format!("input `{}`: {error}", input.name())));
                    return None;
                }
            };
            let shape: Shape = dims
                .iter()
                .map(|dim| match dim {
                    Declared::Const(value) => Dim::from(*value),
                    Declared::Named(name) | Declared::Unnamed(name) => extent(name),
                })
                .collect();
            let ty = TensorType::new(shape, dtype);
            if ty.shape.as_consts().is_some() && ty.bytes().is_none() {
                report.push(Problem::new(format!("input `{}` is too large: {ty}", input.name())));
                return None;
            }
            Some(ty)
        })
        .collect()
}

/// A summand of an extent.
enum Term<'a> {
    Number(i64),
    Name(&'a str),
}

/// The summands of a dimension's name such as `past_sequence_length + 1`, which exporters write, if
/// it has several and the others are names of dimensions.
fn sum<'a>(name: &'a str, is_name: impl Fn(&str) -> bool) -> Option<Vec<Term<'a>>> {
    let terms = name.split('+').map(|term| match (term.trim(), term.trim().parse()) {
        (_, Ok(number @ 0..)) => Some(Term::Number(number)),
        (term, _) => is_name(term).then_some(Term::Name(term)),
    });
    terms.collect::<Option<Vec<Term<'_>>>>().filter(|terms| terms.len() > 1)
}

/// The declared extents of an input, with the caller's shape in place of a missing one.
fn declared<'a>(
    input: &'a ValueInfoProto,
    pinned: Option<&Vec<u64>>,
) -> Result<(Vec<Declared>, &'a TensorTypeProto), Problem> {
    let name = input.name();
    let tensor = tensor_type(input.r#type.as_ref())
        .map_err(|what| Problem::new(format!("input `{name}` {what}")))?;
    let unnamed = |axis: usize| Declared::Unnamed(format!("{name}_{axis}"));
    // Exporters declare scalars and feed vectors, which ONNX Runtime takes; here the caller says so.
    let is_scalar = |shape: &&TensorShapeProto| shape.dim.is_empty() && pinned.is_some();
    let Some(shape) = tensor.shape.as_ref().filter(|shape| !is_scalar(shape)) else {
        // Not even the rank is declared, so any shape will do.
        return match pinned {
            Some(pinned) => Ok(((0..pinned.len()).map(unnamed).collect(), tensor)),
            None => Err(Problem::new(format!("input `{name}` has no declared shape"))
                .help(format!("give it one: {}", Setting::InputShape.of(name)))),
        };
    };
    if shape.dim.len() > MAX_RANK {
        return Err(Problem::new(format!(
            "input `{name}` has {} dimensions; the most is {MAX_RANK}",
            shape.dim.len()
        )));
    }
    let dims = shape.dim.iter().enumerate().map(|(axis, dim)| match &dim.value {
        Some(DimensionValue::Value(value)) if *value >= 0 => Declared::Const(*value),
        Some(DimensionValue::Param(param)) if !param.is_empty() => Declared::Named(param.clone()),
        // Some exporters write -1 for what they do not know.
        Some(DimensionValue::Value(_) | DimensionValue::Param(_)) | None => unnamed(axis),
    });
    Ok((dims.collect(), tensor))
}

/// Whether all extents of an input are numbers in the model.
pub(super) fn is_fixed(input: &&ValueInfoProto) -> bool {
    let Ok(TensorTypeProto { shape: Some(shape), .. }) = tensor_type(input.r#type.as_ref()) else {
        return false;
    };
    shape.dim.iter().all(|dim| match dim.value {
        Some(DimensionValue::Value(value)) => value >= 0,
        Some(DimensionValue::Param(_)) | None => false,
    })
}

/// The tensor type of a value, or what it is instead.
pub(super) fn tensor_type(ty: Option<&TypeProto>) -> Result<&TensorTypeProto, &'static str> {
    match ty.and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => Ok(tensor),
        Some(TypeValue::Sequence(_)) => Err("is a sequence; only tensors are supported"),
        Some(TypeValue::Map(_)) => Err("is a map; only tensors are supported"),
        Some(TypeValue::SparseTensor(_)) => {
            Err("is a sparse tensor; only dense ones are supported")
        }
        Some(TypeValue::Optional(_)) => Err("is an optional value; only tensors are supported"),
        None => Err("has no declared type"),
    }
}

/// The size of each dimension name that the caller fixed, by name or by a whole shape.
fn pinned_sizes(
    inputs: &[&ValueInfoProto],
    declared: &[Option<(Vec<Declared>, &TensorTypeProto)>],
    options: &ImportOptions,
    report: &mut Report,
) -> BTreeMap<String, i64> {
    let mut sizes = BTreeMap::new();
    for (name, size) in &options.dims {
        match size {
            DimSize::Fixed(fixed) => match i64::try_from(*fixed) {
                Ok(fixed) => {
                    sizes.insert(name.clone(), fixed);
                }
                Err(_) => report.push(Problem::new(format!("dimension `{name}` cannot be {size}"))),
            },
            DimSize::Buckets(sizes) => {
                let fits = |&size: &u64| size > 0 && i64::try_from(size).is_ok();
                if sizes.is_empty() || !sizes.iter().all(fits) {
                    let what = format!("dimension `{name}` cannot be each of [{size}]");
                    report.push(Problem::new(what).help("sizes are 1 or more, as in 32,128"));
                }
            }
            DimSize::RunTime { min, max } => {
                if *max == 0 || min > max || i64::try_from(*max).is_err() {
                    let what = format!("dimension `{name}` cannot be {size}");
                    report.push(Problem::new(what).help(
                        "the least size comes first, the greatest is 1 or more, as in 1..=32",
                    ));
                }
            }
        }
    }
    let buckets = options.dims.values().map(|size| size.buckets().len().max(1));
    let buckets = buckets.fold(1usize, usize::saturating_mul);
    if buckets > MOST_BUCKETS {
        let what =
            format!("sizes with versions of their own make {buckets} versions of each kernel");
        report.push(Problem::new(what).help(format!("at most {MOST_BUCKETS} can be")));
    }
    for (input, declared) in inputs.iter().zip(declared) {
        let Some(shape) = options.input_shapes.get(input.name()) else { continue };
        let Some((dims, _)) = declared else { continue };
        let mismatch = |why: String| {
            Problem::new(format!(
                "the shape {shape:?} was given for input `{}`, but {why}",
                input.name()
            ))
        };
        if shape.len() != dims.len() {
            report.push(mismatch(format!("it has {} dimensions", dims.len())));
            continue;
        }
        for (axis, (dim, &size)) in dims.iter().zip(shape).enumerate() {
            let Ok(size) = i64::try_from(size) else {
                report.push(mismatch(format!("no dimension can be {size}")));
                continue;
            };
            match dim {
                Declared::Const(value) if *value != size => {
                    report.push(mismatch(format!("dimension {axis} is {value} in the model")));
                }
                Declared::Const(_) => {}
                Declared::Named(name) | Declared::Unnamed(name)
                    if options.dims.get(name).is_some_and(|size| size.bounds().is_some()) =>
                {
                    report.push(mismatch(format!("each run has a size of its own for `{name}`")));
                }
                Declared::Named(name) | Declared::Unnamed(name) => {
                    let former = *sizes.entry(name.clone()).or_insert(size);
                    if former != size {
                        report.push(mismatch(format!("dimension `{name}` is pinned to {former}")));
                    }
                }
            }
        }
    }
    sizes
}

/// Finds options that name nothing in the model: a misspelling must not go unnoticed.
fn check_names(
    inputs: &[&ValueInfoProto],
    declared: &[Option<(Vec<Declared>, &TensorTypeProto)>],
    options: &ImportOptions,
    asked: &mut BTreeMap<String, (DimSize, Problem)>,
    report: &mut Report,
) {
    if declared.iter().any(Option::is_none) {
        // The names of an input with a problem are not known.
        return;
    }
    let of_inputs = declared.iter().flatten().flat_map(|(dims, _)| dims);
    let names: BTreeSet<&str> = of_inputs.filter_map(Declared::name).collect();
    let list = |names: Vec<&str>| match names.as_slice() {
        [] => "it has none".to_owned(),
        names => format!("it has `{}`", names.join("`, `")),
    };
    for (name, size) in options.dims.iter().filter(|(name, _)| !names.contains(name.as_str())) {
        let problem = Problem::new(format!(
            "dimension `{name}` is pinned, but the model has no such symbolic dimension; {}",
            list(names.iter().copied().collect())
        ));
        asked.insert(name.clone(), (size.clone(), problem));
    }
    let shapes = options.input_shapes.keys().map(|name| (name, "a shape"));
    let values = options.input_values.keys().map(|name| (name, "a value"));
    for (name, what) in shapes.chain(values) {
        if !inputs.iter().any(|input| input.name() == name) {
            report.push(Problem::new(format!(
                "{what} was given for input `{name}`, but the model has no such input; {}",
                list(inputs.iter().map(|input| input.name()).collect())
            )));
        }
    }
}
