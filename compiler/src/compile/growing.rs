//! States that each run makes longer, as a decoder does its cache.
//!
//! Of such a state the input has a size that each run has of its own, and the output is the input
//! with more behind it. The module gets an input with room for the greatest output instead, and an
//! `append` for the `concatenate`: as elements keep their places, that stores what is new, and what is
//! there stays where it is. How many elements of the state a run reads, its caller says by the size.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::diagnostics::{Problem, Report};
use crate::executor::RunTimeSizes;
use crate::graph::{Call, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, Definition, Dim, GlobalVar, Shape, TensorType, Type};
use crate::onnx::{Imported, ModelPort};
use crate::ops::tensor::{
    APPEND, AppendAttrs, CONCATENATE, ConcatenateAttrs, FULL, FullAttrs, SHAPE_OF, TRANSPOSE,
    TransposeAttrs,
};
use crate::ops::{Op, OpDef};
use crate::pass::PassError;

/// What is kept from run to run.
#[derive(Debug, Default)]
pub(super) struct States {
    /// The names of inputs, and of the outputs that they are in the next run.
    pub(super) pairs: Vec<(String, String)>,
    /// The size along which each of the inputs that grow does so.
    pub(super) growing: BTreeMap<String, String>,
}

/// An input that grows.
struct Growth {
    param: ExprId,
    /// The `concatenate` that makes the output.
    longer: ExprId,
    /// The axis along which the state grows, as it is kept.
    axis: usize,
    /// The extent of the output.
    length: Dim,
    /// The type of the input with room for the output, as it is kept.
    ty: TensorType,
    /// The order of axes in which it is kept, if it is another one.
    order: Option<Vec<usize>>,
}

impl States {
    /// What is to be kept, of which a `*` in both names stands for any text; gives the states of a
    /// module that grow room to do so.
    ///
    /// # Errors
    ///
    /// A `*` in one of the names alone, or for which there are no tensors; an output that is longer
    /// than the input, but not the input with something behind it, or an input that is read otherwise.
    pub(super) fn of(
        states: &[(String, String)],
        imported: &mut Imported,
        sizes: &RunTimeSizes,
    ) -> Result<States, Report> {
        let mut report = Report::new();
        let mut found = States::default();
        for (input, output) in states {
            match expanded(input, output, &imported.inputs) {
                Ok(pairs) => found.pairs.extend(pairs),
                Err(what) => report.push(problem(input, output, &what)),
            }
        }
        let Some(main) = imported.module.function("main").cloned() else {
            return report.into_result(found);
        };
        let mut growths = Vec::new();
        for (input, output) in &found.pairs {
            let at = |ports: &[ModelPort], name: &str| ports.iter().position(|p| p.name == name);
            let from = at(&imported.inputs, input);
            let (Some(from), Some(to)) = (from, at(&imported.outputs, output)) else { continue };
            let Some((axis, size)) = grows(&imported.inputs[from].ty, &imported.outputs[to].ty)
            else {
                continue;
            };
            match growth(&main, [from, to], axis, sizes) {
                Ok(growth) => {
                    imported.inputs[from].ty = growth.ty.clone();
                    let mut longer = growth.ty.shape.to_vec();
                    longer[growth.axis] = growth.length.clone();
                    imported.outputs[to].ty = TensorType::new(Shape::new(longer), growth.ty.dtype);
                    growths.push(growth);
                    found.growing.insert(input.clone(), size);
                }
                Err(what) => report.push(problem(input, output, &what)),
            }
        }
        if !growths.is_empty() && report.is_empty() {
            let main = with_room(&main, &growths).map_err(Report::from)?;
            imported.module.insert(GlobalVar::new("main"), Definition::Graph(main));
        }
        report.into_result(found)
    }
}

fn problem(input: &str, output: &str, what: &str) -> Problem {
    Problem::new(format!("state `{input}={output}`: {what}"))
}

/// The pairs of names that a pair with a `*` in both stands for.
fn expanded(
    input: &str,
    output: &str,
    inputs: &[ModelPort],
) -> Result<Vec<(String, String)>, String> {
    let ((before, after), (start, end)) = match (input.split_once('*'), output.split_once('*')) {
        (Some(input), Some(output)) => (input, output),
        (None, None) => return Ok(vec![(input.to_owned(), output.to_owned())]),
        _ => return Err("a `*` has to be in both names".to_owned()),
    };
    let pairs: Vec<(String, String)> = (inputs.iter())
        .filter_map(|port| {
            let text = port.name.strip_prefix(before)?.strip_suffix(after)?;
            Some((port.name.clone(), format!("{start}{text}{end}")))
        })
        .collect();
    if pairs.is_empty() {
        let names: Vec<String> = inputs.iter().map(|port| format!("`{}`", port.name)).collect();
        return Err(format!("no input has such a name; they are {}", names.join(", ")));
    }
    Ok(pairs)
}

/// The axis along which an output is longer than the input, and the input's size there.
fn grows(input: &TensorType, output: &TensorType) -> Option<(usize, String)> {
    let differ = |axis: &usize| input.shape[*axis] != output.shape[*axis];
    let mut axes = (0..input.shape.rank().min(output.shape.rank())).filter(differ);
    let axis = axes.next().filter(|_| axes.next().is_none())?;
    Some((axis, input.shape[axis].as_symbol()?.name().to_owned()))
}

/// How the state of an input and an output, of which the positions are given, grows along an axis.
fn growth(
    main: &Function,
    [from, to]: [usize; 2],
    axis: usize,
    sizes: &RunTimeSizes,
) -> Result<Growth, String> {
    let param = main.params()[from];
    let longer = match main.expr(main.result()) {
        Expr::Tuple(fields) => fields[to],
        _ => main.result(),
    };
    let is_behind = call_of(main, longer, &CONCATENATE).is_some_and(|call| {
        let attrs = call.attrs.parse::<ConcatenateAttrs>();
        let along =
            attrs.ok().and_then(|attrs| main.ty(longer).as_tensor()?.shape.axis(attrs.axis));
        call.args.first() == Some(&Some(param)) && along == Some(axis)
    });
    if !is_behind {
        return Err("the output is not the input with something behind it, by `Concat`".to_owned());
    }
    let live = main.live();
    let is_known = |id: ExprId| id == longer || call_of(main, id, &SHAPE_OF).is_some();
    let other = main.ids().find(|&id| {
        live[id] && !is_known(id) && main.expr(id).operands().any(|operand| operand == param)
    });
    if let Some(other) = other {
        let what = "it grows, so it can be read with what is behind it alone";
        return Err(format!("{what}, but {} reads it without", main.span(other)));
    }
    let (Some(is), Some(longer_ty)) = (main.ty(param).as_tensor(), main.ty(longer).as_tensor())
    else {
        return Err("it is no tensor".to_owned());
    };
    let length = &longer_ty.shape[axis];
    let room = sizes.greatest(length).ok_or_else(|| {
        let size = &is.shape[axis];
        format!("the greatest size of {length} is not known; give bounds, as in {size}=0..=127")
    })?;
    let mut dims = is.shape.to_vec();
    dims[axis] = Dim::from(room);
    let growth =
        Growth { param, longer, axis, length: length.clone(), ty: is.clone(), order: None };
    let Some(order) = read_as(main, longer, &live) else {
        return Ok(Growth { ty: TensorType::new(Shape::new(dims), is.dtype), ..growth });
    };
    let dims = order.iter().map(|&axis| dims[axis].clone());
    let ty = TensorType::new(dims.collect(), is.dtype);
    let axis = order.iter().position(|&of| of == axis).unwrap_or(axis);
    Ok(Growth { axis, ty, order: Some(order), ..growth })
}

/// The order of axes in which an output is read, if all that read it transpose it to one: it is kept
/// so, as nothing else sees it, no other output either.
fn read_as(
    main: &Function,
    output: ExprId,
    live: &SecondaryMap<ExprId, bool>,
) -> Option<Vec<usize>> {
    let result = main.expr(main.result()).operands();
    if result.filter(|&of| of == output).count() > 1 {
        return None;
    }
    let reads = |id: &ExprId| {
        *id != main.result() && live[*id] && main.expr(*id).operands().any(|of| of == output)
    };
    let order = |id: ExprId| -> Option<Vec<usize>> {
        let axes = call_of(main, id, &TRANSPOSE)?.attrs.parse::<TransposeAttrs>().ok()?.axes;
        axes.into_iter().map(|axis| usize::try_from(axis).ok()).collect()
    };
    let mut orders = main.ids().filter(reads).map(order);
    let first = orders.next()??;
    orders.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

fn call_of<'a>(main: &'a Function, id: ExprId, def: &'static OpDef) -> Option<&'a Call> {
    let expr = main.expr(id);
    expr.as_call().filter(|_| expr.is_call_of(def))
}

/// The function with room in its parameters.
fn with_room(main: &Function, growths: &[Growth]) -> Result<Function, PassError> {
    let mut rewriter = Rewriter::new(main.clone());
    while let Some(id) = rewriter.next_expr()? {
        let new = if let Some(growth) = growths.iter().find(|growth| growth.param == id) {
            let name = main.var_name(id).unwrap_or_default();
            rewriter.builder().param(name, Type::Tensor(growth.ty.clone()))
        } else if let Some(growth) = growths.iter().find(|growth| growth.longer == id) {
            appended(&mut rewriter, growth)?
        } else if let Some(longer) = kept_transposed(main, id, growths) {
            rewriter.mapped(longer)
        } else if let Some(shape) = shape_of(&mut rewriter, id, growths)? {
            shape
        } else {
            continue;
        };
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}

/// The state that a call transposes to the order in which it is kept.
fn kept_transposed(main: &Function, id: ExprId, growths: &[Growth]) -> Option<ExprId> {
    let call = call_of(main, id, &TRANSPOSE)?;
    let mut kept = growths.iter().filter(|growth| growth.order.is_some());
    Some(kept.find(|growth| call.args[..] == [Some(growth.longer)])?.longer)
}

/// The `append` for the `concatenate` that makes a state longer.
fn appended(rewriter: &mut Rewriter, growth: &Growth) -> Result<ExprId, PassError> {
    let call = call_of(rewriter.old(), growth.longer, &CONCATENATE).cloned();
    let call = call.ok_or("what makes a state longer is a `concatenate`")?;
    let args: Vec<ExprId> = rewriter.args(&call).into_iter().flatten().collect();
    let added = match &args[1..] {
        &[added] => added,
        several => rewriter.builder().call(Op::new(&CONCATENATE), several, call.attrs)?,
    };
    let added = match &growth.order {
        Some(order) => {
            let axes = order.iter().map(|&axis| axis as i64).collect();
            let attrs = Attrs::from_struct(&TransposeAttrs { axes })?;
            rewriter.builder().call(Op::new(&TRANSPOSE), &[added], attrs)?
        }
        None => added,
    };
    let attrs = AppendAttrs { axis: growth.axis as i64, length: growth.length.clone() };
    let attrs = Attrs::from_struct(&attrs)?;
    Ok(rewriter.builder().call(Op::new(&APPEND), &[args[0], added], attrs)?)
}

/// The shape that a state has so far, for a call that asks for it: that of another tensor.
fn shape_of(
    rewriter: &mut Rewriter,
    id: ExprId,
    growths: &[Growth],
) -> Result<Option<ExprId>, PassError> {
    let old = rewriter.old();
    let Some(call) = call_of(old, id, &SHAPE_OF).cloned() else { return Ok(None) };
    let Some(growth) = growths.iter().find(|growth| call.args[..] == [Some(growth.param)]) else {
        return Ok(None);
    };
    let Some(ty) = old.ty(growth.param).as_tensor() else { return Ok(None) };
    let attrs = Attrs::from_struct(&FullAttrs { shape: ty.shape.to_vec() })?;
    let zero = Constant::from_f32(&[], &[0.0])?;
    let b = rewriter.builder();
    let zero = b.constant(zero);
    let alike = b.call(Op::new(&FULL), &[zero], attrs)?;
    Ok(Some(b.call(Op::new(&SHAPE_OF), &[alike], call.attrs)?))
}
