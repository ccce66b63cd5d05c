//! `Distances`: how far rows are from each entry of a codebook, with a rule for its kernels.

use niello::graph::TypeError;
use niello::graph::interp::{Elements, Tensor};
use niello::ir::{DType, Shape, TensorType, Type};
use niello::onnx::{Node, NodeError, OnnxOp, Outputs};
use niello::ops::tensor::{TRANSPOSE, TransposeAttrs};
use niello::ops::{Compute, DTypes, EvalCx, EvalError, InferCx, Input, OpDef, OpPattern, Stages};
use niello::schedule::library::{MatmulTiles, matmul};
use niello::schedule::{Schedule, ScheduleError, ScheduleRule, Task};
use niello::te::{ComputeDag, StageId};
use niello::tir::{BinaryOp, Intrinsic, PrimExpr};

niello::register_onnx_op!(OnnxOp::new("audio", "Distances", &[1], (2, 2), distances));
niello::register_op!(DISTANCES);
niello::register_schedule_rule!(Tiles);

/// Rows `[n, d]` and entries `[m, d]`.
fn distances(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (rows, entries) = (node.input(0)?, node.input(1)?);
    // A step of the sums reads what is side by side then.
    let columns = node.call_with(&TRANSPOSE, &[entries], &TransposeAttrs { axes: vec![1, 0] })?;
    Ok(vec![node.call(&DISTANCES, &[rows, columns])?])
}

/// `sum(|rows[i, k] - columns[k, j]|, k)`.
static DISTANCES: OpDef = OpDef::new(
    "audio.distances",
    "sums of absolute differences of rows and columns",
    &[Input::required("rows"), Input::required("columns")],
    infer,
    eval,
    compute,
)
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let (rows, columns) = (cx.tensor_of(0, DTypes::Float)?, cx.tensor_of(1, DTypes::Float)?);
    let (x, y) = (&rows.shape[..], &columns.shape[..]);
    match (x, y) {
        ([n, d], [depth, m]) if d == depth && rows.dtype == columns.dtype => {
            Ok(TensorType::new(Shape::new([n.clone(), m.clone()]), rows.dtype).into())
        }
        _ => Err(TypeError::new(format!(
            "rows are {rows} and columns {columns}; they must be matrices of one type, and rows as \
             long as there are rows of columns"
        ))),
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (rows, columns) = (cx.floats(0)?, cx.floats(1)?);
    let m = cx.shape().last().copied().unwrap_or(1).max(1);
    let depth = columns.len() / m;
    let distance = |row: &[f64], j: usize| -> f64 {
        row.iter().enumerate().map(|(k, x)| (x - columns[k * m + j]).abs()).sum()
    };
    let each = rows.chunks(depth.max(1)).flat_map(|row| (0..m).map(move |j| distance(row, j)));
    cx.result(Elements::Float(each.collect()))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let (rows, columns) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let depth = cx.dag.shape(columns)[0];
    let sum =
        cx.dag.reduce(DISTANCES.name, &shape, dtype, BinaryOp::Add, &[depth], |dag, index, by| {
            let x = dag.at(rows, &[index[0].clone(), by[0].clone()]);
            let y = dag.at(columns, &[by[0].clone(), index[1].clone()]);
            PrimExpr::call(Intrinsic::Abs, x - y)
        });
    Ok(vec![sum])
}

/// The rule: register tiles, as for a product of matrices, of which only the terms differ.
struct Tiles;

impl ScheduleRule for Tiles {
    type Knobs = MatmulTiles;

    fn name(&self) -> &'static str {
        "tiles of distances"
    }

    fn anchor(&self, dag: &ComputeDag) -> Option<StageId> {
        dag.ids().find(|&stage| dag.stages[stage].op == DISTANCES.name)
    }

    fn knobs(&self, task: &Task<'_>, widest: Option<&MatmulTiles>) -> Vec<MatmulTiles> {
        // The codebook is packed, so it must be known.
        let [rows, columns] = task.dag.reads(task.anchor)[..] else { return Vec::new() };
        if !task.is_constant(columns) || task.dag.dtype(task.anchor) != DType::F32 {
            return Vec::new();
        }
        let (&[m, k], &[_, n]) = (task.dag.shape(rows), task.dag.shape(columns)) else {
            return Vec::new();
        };
        let tiles = MatmulTiles::candidates(m, k, n, task.machine).into_iter();
        tiles.map(|tiles| widest.map_or(tiles, |widest| tiles.within(widest.packed))).collect()
    }

    fn apply(
        &self,
        schedule: &mut Schedule,
        task: &Task<'_>,
        knobs: &MatmulTiles,
    ) -> Result<(), ScheduleError> {
        let (block, epilogue) = (task.block(schedule)?, task.epilogue(schedule)?);
        matmul(schedule, block, epilogue, *knobs).map(drop)
    }
}

#[cfg(test)]
mod tests;
