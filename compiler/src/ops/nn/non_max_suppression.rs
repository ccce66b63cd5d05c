//! `vision.non_max_suppression`: the best boxes that overlap no better one (ONNX
//! `NonMaxSuppression`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, BufferSpec, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::heap::{Heap, complement, each, named, ordered};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, PrimExpr, Stmt, VarId};

/// Attributes of `vision.non_max_suppression`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonMaxSuppressionAttrs {
    /// Most boxes of an image and a class.
    pub max_output_boxes: i64,
    /// Boxes that overlap a better one by a greater share of the area of both are left out.
    pub iou_threshold: f64,
    /// Boxes whose score is not greater are left out; without it, none is for its score.
    pub score_threshold: Option<f64>,
    /// Whether boxes are `(x, y, width, height)` around a centre, else two opposite corners.
    pub center_point_box: bool,
}

/// For each image and class of `scores` `(images, classes, boxes)` the best of the `boxes`
/// `(images, boxes, 4)`, best first; of equals the first. Rows of image, class and box in `int64`,
/// and behind the last one rows of -1. Areas are computed in `float32`.
pub static NON_MAX_SUPPRESSION: OpDef = OpDef::new(
    "vision.non_max_suppression",
    "the best boxes that overlap no better one",
    &[Input::required("boxes"), Input::required("scores")],
    infer,
    eval,
    compute,
)
.attributes::<NonMaxSuppressionAttrs>()
.defaults(|| Attrs::new().with("center_point_box", false));

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: NonMaxSuppressionAttrs = cx.attrs()?;
    let boxes = cx.tensor_of_rank(0, DTypes::Float, 3, "(images, boxes, 4)")?;
    let scores = cx.tensor_of_rank(1, DTypes::Float, 3, "(images, classes, boxes)")?;
    at_least("max_output_boxes", attrs.max_output_boxes, 0)?;
    ensure!(
        boxes.dtype == DType::F32
            && scores.dtype == DType::F32
            && boxes.shape[2].as_const() == Some(4)
            && cx.same(&boxes.shape[0], &scores.shape[0])
            && cx.same(&boxes.shape[1], &scores.shape[2]),
        "boxes (images, boxes, 4) and scores (images, classes, boxes) of float32 are expected, but \
         they are {boxes} and {scores}"
    );
    let boxes = cx.facts.bounds_of(&scores.shape[2]).upper.unwrap_or(i64::MAX);
    let most = boxes.min(attrs.max_output_boxes);
    let rows = scores.shape[0].clone() * scores.shape[1].clone() * Dim::from(most);
    cx.result([rows, Dim::from(3i64)], DType::I64)
}

/// A box as the ends along both axes.
fn ends(corners: &[f64], centred: bool) -> [[f32; 2]; 2] {
    let &[a, b, c, d] = corners else { return [[0.0; 2]; 2] };
    let [a, b, c, d] = [a, b, c, d].map(|number| number as f32);
    if centred {
        return [[a - c / 2.0, a + c / 2.0], [b - d / 2.0, b + d / 2.0]];
    }
    [[a.min(c), a.max(c)], [b.min(d), b.max(d)]]
}

fn area([x, y]: [[f32; 2]; 2]) -> f32 {
    (x[1] - x[0]) * (y[1] - y[0])
}

/// Whether boxes overlap by more than a share of the area of both.
fn overlap(a: [[f32; 2]; 2], b: [[f32; 2]; 2], threshold: f32) -> bool {
    let common = [0, 1].map(|axis: usize| {
        let (from, to) = (a[axis][0].max(b[axis][0]), a[axis][1].min(b[axis][1]));
        (to - from).max(0.0)
    });
    let (common, a, b) = (common[0] * common[1], area(a), area(b));
    let overlap = if common > 0.0 && a > 0.0 && b > 0.0 { common / (a + b - common) } else { 0.0 };
    overlap > threshold
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: NonMaxSuppressionAttrs = cx.attrs()?;
    let (corners, points) = (cx.floats(0)?, cx.floats(1)?);
    let &[images, classes, count] = cx.arg(1)?.shape() else {
        return Err(EvalError::new("scores have three axes"));
    };
    let mut rows: Vec<i128> = Vec::new();
    for (image, class) in (0..images).flat_map(|image| (0..classes).map(move |c| (image, c))) {
        let points = &points[(image * classes + class) * count..][..count];
        let of = |index: usize| {
            ends(&corners[(image * count + index) * 4..][..4], attrs.center_point_box)
        };
        let is_enough = |&index: &usize| match attrs.score_threshold {
            Some(least) => points[index] as f32 > least as f32,
            None => true,
        };
        let mut left: Vec<usize> = (0..count).filter(is_enough).collect();
        for _ in 0..attrs.max_output_boxes {
            let better = |best: usize, next: usize| match points[next] > points[best] {
                true => next,
                false => best,
            };
            let Some(best) = left.iter().copied().reduce(better) else { break };
            rows.extend([image, class, best].map(|number| number as i128));
            let threshold = attrs.iou_threshold as f32;
            left.retain(|&other| other != best && !overlap(of(best), of(other), threshold));
        }
    }
    rows.resize(cx.len(), -1);
    cx.result(Elements::Int(rows))
}

/// The boxes that are left of an image and a class, and the rows that are found of all.
///
/// What is left is a heap with the best first: as many are taken from it as it needs until
/// enough are found, and each is compared with those that are found, [`LANES`] of them at a time.
struct Search {
    boxes: StageId,
    scores: StageId,
    result: BufferId,
    /// The complements of scores, with their boxes.
    heap: Heap,
    /// The ends along both axes and the areas of the boxes that are found of this image and class, in
    /// [`PARTS`] rows.
    kept: BufferId,
    /// In each lane 1 if a box overlaps one of those that are found, else 0.
    hits: BufferId,
    /// Numbers: see the constants.
    numbers: BufferId,
    /// Boxes of an image.
    count: i64,
    attrs: NonMaxSuppressionAttrs,
}

/// Numbers of a box that is found: its ends along one axis, along the other one, and its area.
const PARTS: i64 = 5;
const AREA: i64 = 4;

/// How many of the boxes that are found one is compared with at a time.
const LANES: i64 = 16;

/// How many rows are found.
const FOUND: i64 = 0;
/// How many of them are of this image and class.
const TAKEN: i64 = 1;
/// How many boxes are in the heap.
const LEFT: i64 = 2;
/// Whether a box overlaps none that is found: 1, else 0.
const KEEPS: i64 = 3;
/// How many levels the heap has at first.
const LEVELS: i64 = 4;

/// Most levels of a heap.
const MOST_LEVELS: i64 = 62;

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: NonMaxSuppressionAttrs = cx.attrs()?;
    let (boxes, scores) = (cx.arg(0)?, cx.arg(1)?);
    let &[images, classes, count] = cx.dag.shape(scores) else {
        return cx.unsupported("without three axes of scores");
    };
    let [(shape, _)] = cx.results else {
        return cx.unsupported("with several results");
    };
    let shape = shape.clone();
    let op = cx.op.name;
    let result = cx.dag.statement(op, &shape, DType::I64, &[boxes, scores], |dag, result| {
        let heap = Heap::new(dag, count, DType::I32, count);
        let spec = BufferSpec::dense(&[LEVELS + 1]);
        let numbers = dag.func.buffer("numbers", DType::I64, spec, BufferScope::Local);
        let most = count.min(attrs.max_output_boxes).max(1).unsigned_abs();
        let most = most.next_multiple_of(LANES.unsigned_abs()) as i64;
        let mut floats = |name: &str, shape: &[i64]| {
            dag.func.buffer(name, DType::F32, BufferSpec::dense(shape), BufferScope::Local)
        };
        let (kept, hits) = (floats("kept", &[PARTS, most]), floats("hits", &[LANES]));
        let search = Search { boxes, scores, result, heap, kept, hits, numbers, count, attrs };
        let [image, class] = ["image", "class"].map(|name| dag.func.index_var(name));
        let of = [image, class].map(|var| dag.func.var_expr(var));
        let steps = [search.candidates(dag, &of), search.heapify(dag), search.take(dag, &of)];
        let all = serial(image, images, serial(class, classes, Stmt::seq(steps)));
        let body = Stmt::seq([search.clear(dag, shape[0]), search.set(dag, FOUND, 0), all]);
        let buffers = [search.numbers, search.kept, search.hits];
        buffers
            .into_iter()
            .fold(search.heap.allocate(body), |body, buffer| Stmt::allocate(buffer, body))
    });
    Ok(vec![result])
}

fn serial(var: VarId, extent: impl Into<PrimExpr>, body: Stmt) -> Stmt {
    Stmt::for_loop(var, PrimExpr::index(0), extent.into(), ForKind::Serial, body)
}

impl Search {
    fn number(&self, dag: &ComputeDag, which: i64) -> PrimExpr {
        dag.func.load(self.numbers, [which])
    }

    fn set(&self, dag: &ComputeDag, which: i64, value: impl Into<PrimExpr>) -> Stmt {
        dag.func.store(self.numbers, [which], value.into())
    }

    /// A statement over the value that a number has before it.
    fn with_number(
        &self,
        dag: &mut ComputeDag,
        which: i64,
        body: impl FnOnce(&mut ComputeDag, PrimExpr) -> Stmt,
    ) -> Stmt {
        let value = self.number(dag, which);
        self.with(dag, value, body)
    }

    fn with(
        &self,
        dag: &mut ComputeDag,
        value: PrimExpr,
        body: impl FnOnce(&mut ComputeDag, PrimExpr) -> Stmt,
    ) -> Stmt {
        let var = dag.func.var("now", value.ty());
        let now = dag.func.var_expr(var);
        Stmt::let_(var, value, body(dag, now))
    }

    /// A place that is certain to be one.
    fn inside(&self, at: PrimExpr) -> PrimExpr {
        at.max(0).min(self.count - 1)
    }

    /// Rows of -1.
    fn clear(&self, dag: &mut ComputeDag, rows: i64) -> Stmt {
        let [row, column] = ["row", "column"].map(|name| dag.func.index_var(name));
        let at = [row, column].map(|var| dag.func.var_expr(var));
        let store = dag.func.store(self.result, at, PrimExpr::index(-1));
        serial(row, rows, serial(column, 3, store))
    }

    /// All boxes whose score is enough.
    fn candidates(&self, dag: &mut ComputeDag, [image, class]: &[PrimExpr; 2]) -> Stmt {
        let var = dag.func.index_var("i");
        let place = dag.func.var_expr(var);
        let score = dag.at(self.scores, &[image.clone(), class.clone(), place.clone()]);
        let at = self.number(dag, LEFT);
        let key = complement(ordered(dag, score.clone(), DType::I32)).cast(DType::I64);
        let pair = self.heap.pair(key, place);
        let keep = [self.heap.store(dag, &at, pair), self.set(dag, LEFT, at + 1)];
        let keep = match self.attrs.score_threshold {
            Some(least) => {
                let enough = score.greater(PrimExpr::float(least, DType::F32));
                Stmt::if_then(enough, Stmt::seq(keep))
            }
            None => Stmt::seq(keep),
        };
        Stmt::seq([self.set(dag, LEFT, 0), serial(var, self.count, keep)])
    }

    /// Makes a heap of what is left.
    fn heapify(&self, dag: &mut ComputeDag) -> Stmt {
        self.with_number(dag, LEFT, |dag, left| {
            let var = dag.func.index_var("level");
            let power = PrimExpr::binary(BinaryOp::Shl, 1.into(), dag.func.var_expr(var));
            let more = self.number(dag, LEVELS) + 1;
            let more = Stmt::if_then(power.less_equal(left.clone()), self.set(dag, LEVELS, more));
            let levels = serial(var, MOST_LEVELS, more);
            let order = self.heap.order(dag, &left, self.number(dag, LEVELS));
            Stmt::seq([self.set(dag, LEVELS, 0), levels, order])
        })
    }

    /// Moves the best boxes that overlap no better one to the rows.
    fn take(&self, dag: &mut ComputeDag, of: &[PrimExpr; 2]) -> Stmt {
        let take = self.with_number(dag, LEFT, |dag, left| {
            let var = dag.func.index_var("i");
            let is_enough = self.number(dag, TAKEN).less(self.attrs.max_output_boxes);
            serial(var, left, Stmt::if_then(is_enough, self.take_best(dag, of)))
        });
        Stmt::seq([self.set(dag, TAKEN, 0), take])
    }

    fn take_best(&self, dag: &mut ComputeDag, [image, class]: &[PrimExpr; 2]) -> Stmt {
        let top = PrimExpr::index(0);
        let best = self.heap.place(dag, &top);
        self.with(dag, best, |dag, best| {
            let last = self.number(dag, LEFT) - 1;
            let pair = self.heap.load(dag, &last);
            let (left, levels) = (self.number(dag, LEFT), self.number(dag, LEVELS));
            let pop = named(dag, pair, |dag, pair| {
                let shorter = self.set(dag, LEFT, last);
                Stmt::seq([shorter, self.heap.sift(dag, pair, top.clone(), &left, levels)])
            });
            let [x, y] = self.ends(dag, image, &self.inside(best.clone()));
            let keep = named(dag, [x, y].concat(), |dag, ends| {
                let area =
                    (ends[1].clone() - ends[0].clone()) * (ends[3].clone() - ends[2].clone());
                named(dag, vec![area], |dag, area| {
                    let parts = [ends, area].concat();
                    let keep = self.keep(dag, [image, class, &best], &parts);
                    let keeps = self.number(dag, KEEPS).greater(0);
                    Stmt::seq([self.compare(dag, &parts), Stmt::if_then(keeps, keep)])
                })
            });
            Stmt::seq([pop, keep])
        })
    }

    /// Sets [`KEEPS`] to whether a box overlaps none of those that are found.
    fn compare(&self, dag: &mut ComputeDag, parts: &[PrimExpr]) -> Stmt {
        let blocks = (self.number(dag, TAKEN) + (LANES - 1)).floordiv(LANES);
        let start = lanes(dag, |dag, lane| dag.func.store(self.hits, [lane], float(0.0)));
        let blocks = each(dag, "block", blocks, |dag, block| {
            lanes(dag, |dag, lane| {
                let place = block * LANES + lane.clone();
                let other: Vec<PrimExpr> = (0..PARTS)
                    .map(|part| dag.func.load(self.kept, [PrimExpr::index(part), place.clone()]))
                    .collect();
                let hit = dag.func.load(self.hits, [lane.clone()]);
                let hit = PrimExpr::select(self.overlap(parts, &other), float(1.0), hit);
                dag.func.store(self.hits, [lane], hit)
            })
        });
        let end = each(dag, "lane", LANES, |dag, lane| {
            let is_hit = dag.func.load(self.hits, [lane]).greater(float(0.0));
            Stmt::if_then(is_hit, self.set(dag, KEEPS, 0))
        });
        Stmt::seq([start, blocks, self.set(dag, KEEPS, 1), end])
    }

    /// Adds a box to those that are found, and a row to the result.
    fn keep(&self, dag: &mut ComputeDag, row: [&PrimExpr; 3], parts: &[PrimExpr]) -> Stmt {
        let (found, taken) = (self.number(dag, FOUND), self.number(dag, TAKEN));
        // Boxes without an area overlap none: so nothing does in lanes that have no box yet.
        let clear = lanes(dag, |dag, lane| {
            dag.func.store(self.kept, [PrimExpr::index(AREA), taken.clone() + lane], float(0.0))
        });
        let is_first = taken.clone().floormod(LANES).equal(0);
        let mut keep = vec![Stmt::if_then(is_first, clear)];
        keep.extend(parts.iter().zip(0..).map(|(part, at)| {
            dag.func.store(self.kept, [PrimExpr::index(at), taken.clone()], part.clone())
        }));
        keep.extend(row.into_iter().zip(0..).map(|(value, column)| {
            let at = [found.clone(), PrimExpr::index(column)];
            dag.func.store(self.result, at, value.clone())
        }));
        keep.push(self.set(dag, FOUND, found + 1));
        keep.push(self.set(dag, TAKEN, taken + 1));
        Stmt::seq(keep)
    }

    /// The ends of a box along both axes.
    fn ends(&self, dag: &ComputeDag, image: &PrimExpr, place: &PrimExpr) -> [[PrimExpr; 2]; 2] {
        let corner = |number: i64| {
            dag.at(self.boxes, &[image.clone(), place.clone(), PrimExpr::index(number)])
        };
        [0, 1].map(|axis| {
            let (one, other) = (corner(axis), corner(axis + 2));
            if self.attrs.center_point_box {
                let half = other / PrimExpr::float(2.0, DType::F32);
                [one.clone() - half.clone(), one + half]
            } else {
                [one.clone().min(other.clone()), one.max(other)]
            }
        })
    }

    /// Whether two boxes overlap by more than the threshold.
    fn overlap(&self, a: &[PrimExpr], b: &[PrimExpr]) -> PrimExpr {
        let [x, y] = [0, 2].map(|axis: usize| {
            let (to, from) = (a[axis + 1].clone().min(b[axis + 1].clone()), &a[axis]);
            (to - from.clone().max(b[axis].clone())).max(float(0.0))
        });
        let (common, a, b) = (x * y, &a[AREA as usize], &b[AREA as usize]);
        let is_there = |area: &PrimExpr| area.clone().greater(float(0.0));
        let overlaps = is_there(&common).and(is_there(a)).and(is_there(b));
        let share = common.clone() / (a.clone() + b.clone() - common);
        PrimExpr::select(overlaps, share, float(0.0)).greater(float(self.attrs.iou_threshold))
    }
}

fn float(value: f64) -> PrimExpr {
    PrimExpr::float(value, DType::F32)
}

/// A statement for each of [`LANES`] lanes, in vectors.
fn lanes(dag: &mut ComputeDag, body: impl FnOnce(&mut ComputeDag, PrimExpr) -> Stmt) -> Stmt {
    let var = dag.func.index_var("lane");
    let lane = dag.func.var_expr(var);
    let body = body(dag, lane);
    Stmt::for_loop(var, PrimExpr::index(0), LANES.into(), ForKind::Vectorized, body)
}
