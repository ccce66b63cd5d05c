//! Random tensor expressions, and random schedules of them.

use niello::ir::DType;
use niello::schedule::{BlockRv, LoopRv, Schedule, ScheduleError};
use niello::te::{self, Builder, Tensor};
use niello::tir::{BufferScope, PrimExpr, PrimFunc};

use super::Choices;

/// Extents of axes: of one element, powers of two, and numbers that nothing divides.
const EXTENTS: [i64; 7] = [4, 1, 2, 3, 5, 6, 8];

/// Factors that loops are split by.
const FACTORS: [i64; 5] = [2, 1, 3, 4, 8];

/// A function of a few stages on matrices, each of which reads earlier ones, and its stages' names.
///
/// Whatever it computes of small integers is exact in any order.
pub fn random_function(choices: &mut Choices<'_>) -> (PrimFunc, Vec<String>) {
    let mut te = Builder::new("random");
    let shape = [choices.of(&EXTENTS), choices.of(&EXTENTS)];
    let x = te.placeholder("X", shape, DType::F32);
    let mut params = vec![x];
    let mut tensors = vec![x];
    let mut names = Vec::new();
    for number in 0..1 + choices.below(4) {
        let name = format!("T{number}");
        let source = choices.of(&tensors);
        let [rows, columns] = shape_of(&te, source);
        let made = match choices.below(8) {
            0 => te.compute(&name, [rows, columns], |[i, j]| source.at([i, j]) + te::f32(1.0)),
            1 => te.compute(&name, [rows, columns], |[i, j]| source.at([i, j]).max(te::f32(0.0))),
            2 => {
                let alike: Vec<Tensor> = tensors
                    .iter()
                    .copied()
                    .filter(|&other| shape_of(&te, other) == [rows, columns])
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
                te.compute(&name, [rows, 1], |[i, _]| te::sum(source.at([i, k]), [k]))
            }
            6 => {
                let k = te.reduce_axis("k", rows);
                te.compute(&name, [1, columns], |[_, j]| te::max(source.at([k, j]), [k]))
            }
            _ => {
                let out = choices.of(&EXTENTS);
                let weight = te.constant(&format!("W{number}"), [columns, out], DType::F32);
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
    // The last one, and perhaps one more, are outputs.
    params.push(tensors[tensors.len() - 1]);
    let other = choices.of(&tensors[1..]);
    if !params.contains(&other) && choices.below(3) == 2 {
        params.push(other);
    }
    let func = te.prim_func(&params).expect("every placeholder is a parameter");
    let needed = func.to_string();
    names.retain(|name| needed.contains(&format!("block \"{name}\"")));
    (func, names)
}

fn shape_of(te: &Builder, tensor: Tensor) -> [i64; 2] {
    let shape = te.shape(tensor);
    [shape[0], shape[1]]
}

/// Applies random primitives to random loops and blocks until the choices are used up. What a
/// primitive refuses is left out.
pub fn random_schedule(choices: &mut Choices<'_>, schedule: &mut Schedule, blocks: &[String]) {
    let mut blocks: Vec<BlockRv> =
        blocks.iter().map(|name| schedule.get_block(name).expect("a stage's block")).collect();
    for _ in 0..24 {
        if choices.used_up() {
            return;
        }
        // A refusal is one of the outcomes that are tested: nothing may have changed.
        let before = schedule.func();
        if let Ok(new) = random_step(choices, schedule, &blocks) {
            blocks.extend(new);
        } else {
            assert_eq!(schedule.func().to_string(), before.to_string());
        }
    }
}

/// One primitive; returns blocks that it made.
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
