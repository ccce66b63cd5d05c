//! Random tensor expressions, and random schedules of them.

use niello::ir::DType;
use niello::schedule::{BlockRv, LoopRv, Schedule, ScheduleError};
use niello::te::{self, Builder, Tensor};
use niello::tir::{BufferScope, PrimExpr, PrimFunc};

use super::Choices;

/// Extents of axes: one element, powers of two, and others that no factor divides.
const EXTENTS: [i64; 7] = [4, 1, 2, 3, 5, 6, 8];

/// Factors of splits.
const FACTORS: [i64; 5] = [2, 1, 3, 4, 8];

/// Values of dimensions.
const SIZES: [i64; 5] = [4, 1, 3, 17, 35];

/// A function, and dimensions for calls of it.
pub struct RandomFunction {
    /// The function, not scheduled.
    pub func: PrimFunc,
    /// Names of its blocks.
    pub blocks: Vec<String>,
    /// Values of its dimensions, for each call.
    pub calls: Vec<Vec<i64>>,
}

/// Makes extents: constants, or dimensions of the function.
struct Extents {
    sizes: Vec<PrimExpr>,
    is_symbolic: bool,
}

impl Extents {
    fn next(&mut self, choices: &mut Choices<'_>, te: &mut Builder) -> PrimExpr {
        if !self.is_symbolic || choices.below(2) == 1 {
            return choices.of(&EXTENTS).into();
        }
        let number = choices.below(3);
        if number >= self.sizes.len() {
            let name = format!("n{}", self.sizes.len());
            self.sizes.push(te.size_var(&name).into());
        }
        let size = self.sizes[number.min(self.sizes.len() - 1)].clone();
        if choices.below(4) == 3 { size * 2 + 1 } else { size }
    }
}

/// A function of a few stages on matrices, each of which reads earlier ones.
///
/// All results for small integers are exact in any order.
pub fn random_function(choices: &mut Choices<'_>) -> RandomFunction {
    let mut te = Builder::new("random");
    let mut extents = Extents { sizes: Vec::new(), is_symbolic: choices.below(3) == 2 };
    let shape = [extents.next(choices, &mut te), extents.next(choices, &mut te)];
    let x = te.placeholder("X", shape, DType::F32);
    let mut params = vec![x];
    let mut tensors = vec![x];
    let mut names = Vec::new();
    for number in 0..1 + choices.below(4) {
        let name = format!("T{number}");
        let source = choices.of(&tensors);
        let [rows, columns] = shape_of(&te, source);
        let one = PrimExpr::index(1);
        let made = match choices.below(8) {
            0 => te.compute(&name, [rows, columns], |[i, j]| source.at([i, j]) + te::f32(1.0)),
            1 => te.compute(&name, [rows, columns], |[i, j]| source.at([i, j]).max(te::f32(0.0))),
            2 => {
                let alike: Vec<Tensor> = tensors
                    .iter()
                    .copied()
                    .filter(|&other| shape_of(&te, other) == [rows.clone(), columns.clone()])
                    .collect();
                let other = choices.of(&alike);
                te.compute(&name, [rows, columns], |[i, j]| source.at([i, j]) - other.at([i, j]))
            }
            3 => te.compute(&name, [columns, rows], |[i, j]| source.at([j, i])),
            4 => te.compute(&name, [rows, columns], |[i, j]| {
                let before = source.at([PrimExpr::from(i), j - 1]);
                PrimExpr::select(PrimExpr::from(j).greater(0), before, te::f32(0.0))
            }),
            5 => {
                let k = te.reduce_axis("k", columns);
                te.compute(&name, [rows, one], |[i, _]| te::sum(source.at([i, k]), [k]))
            }
            6 => {
                let k = te.reduce_axis("k", rows);
                te.compute(&name, [one, columns], |[_, j]| te::max(source.at([k, j]), [k]))
            }
            _ => {
                let out = extents.next(choices, &mut te);
                let (name_of, shape) = (format!("W{number}"), [columns.clone(), out.clone()]);
                let is_constant = shape.iter().all(|extent| extent.as_int().is_some());
                let weight = match is_constant {
                    true => te.constant(&name_of, shape, DType::F32),
                    false => te.placeholder(&name_of, shape, DType::F32),
                };
                params.push(weight);
                let k = te.reduce_axis("k", columns);
                te.compute(&name, [rows, out], |[i, j]| {
                    te::sum(source.at([i, k]) * weight.at([k, j]), [k])
                })
            }
        };
        names.push(name);
        tensors.push(made);
    }
    // The last tensor, and perhaps one more, are outputs. Symbolic tensors between blocks have no
    // memory, so most functions with such tensors have all of them as outputs.
    params.push(tensors[tensors.len() - 1]);
    let others = match extents.is_symbolic && choices.below(4) > 0 {
        true => tensors[1..].to_vec(),
        false => vec![choices.of(&tensors[1..])],
    };
    for other in others {
        if !params.contains(&other) && (extents.is_symbolic || choices.below(3) == 2) {
            params.push(other);
        }
    }
    let func = te.prim_func(&params).expect("every placeholder is a parameter");
    let needed = func.to_string();
    names.retain(|name| needed.contains(&format!("block \"{name}\"")));
    let calls = if func.dims.is_empty() { 1 } else { 2 };
    let calls = (0..calls).map(|_| func.dims.iter().map(|_| choices.of(&SIZES)).collect());
    RandomFunction { calls: calls.collect(), blocks: names, func }
}

fn shape_of(te: &Builder, tensor: Tensor) -> [PrimExpr; 2] {
    <[PrimExpr; 2]>::try_from(te.extents(tensor)).expect("a matrix")
}

/// Applies random primitives to random loops and blocks until the choices are used up, and ignores
/// refusals.
pub fn random_schedule(choices: &mut Choices<'_>, schedule: &mut Schedule, blocks: &[String]) {
    let mut blocks: Vec<BlockRv> =
        blocks.iter().map(|name| schedule.get_block(name).expect("a stage's block")).collect();
    for _ in 0..24 {
        if choices.used_up() {
            return;
        }
        // A refused primitive must leave the function unchanged.
        let before = schedule.func();
        if let Ok(new) = random_step(choices, schedule, &blocks) {
            blocks.extend(new);
        } else {
            assert_eq!(schedule.func().to_string(), before.to_string());
        }
    }
}

/// Applies one primitive; returns the blocks that it made.
fn random_step(
    choices: &mut Choices<'_>,
    s: &mut Schedule,
    blocks: &[BlockRv],
) -> Result<Vec<BlockRv>, ScheduleError> {
    let block = choices.of(blocks);
    let loops = s.get_loops(block)?;
    let pick = |choices: &mut Choices<'_>, loops: &[LoopRv]| match loops {
        [] => Err(ScheduleError { primitive: "pick", message: "there is no loop".to_owned() }),
        loops => Ok(choices.of(loops)),
    };
    match choices.below(16) {
        0 | 1 => drop(s.split(pick(choices, &loops)?, [None, Some(choices.of(&FACTORS))])?),
        2 => drop(s.split_even(pick(choices, &loops)?, choices.of(&FACTORS))?),
        3 => {
            let from = choices.below(loops.len().max(1));
            let to = (from + 2).min(loops.len());
            s.fuse(&loops[from.min(to)..to])?;
        }
        4 | 5 => {
            let mut order = loops.clone();
            for place in (1..order.len()).rev() {
                order.swap(place, choices.below(place + 1));
            }
            s.reorder(&order)?;
        }
        6 => s.vectorize(pick(choices, &loops)?)?,
        7 => s.unroll(pick(choices, &loops)?)?,
        8 => s.parallel(pick(choices, &loops)?)?,
        9 => s.compute_inline(block)?,
        10 => s.reverse_compute_inline(block)?,
        11 | 12 => {
            let other = choices.of(blocks);
            let loops = s.get_loops(other)?;
            let at = pick(choices, &loops)?;
            if choices.below(2) == 0 {
                s.compute_at(block, at)?;
            } else {
                s.reverse_compute_at(block, at)?;
            }
        }
        13 => return Ok(vec![s.cache_read(block, choices.below(2), BufferScope::Local)?]),
        // Registers would need every loop around them to be unrolled.
        14 => return Ok(vec![s.cache_write(block, 0, BufferScope::Local)?]),
        _ => return Ok(vec![s.decompose_reduction(block, pick(choices, &loops)?)?]),
    }
    Ok(Vec::new())
}
