//! Prefetched addresses and their places in loops.

use super::super::tests::{check, matmul, refusal};
use super::super::{BufferAccess, Schedule};
use crate::ir::BufferSpec;
use crate::tir::{Analyzer, BufferScope, PrimExpr, Stmt};

/// The lines with prefetches.
fn prefetches(s: &Schedule) -> Vec<String> {
    let text = s.func().to_string();
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("prefetch"));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_next_panel_is_spread_over_all_steps() {
    let func = matmul(8, 64, 6);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let panels = BufferSpec::packed(&[6, 64], &[(1, 32), (0, 1), (1, 1)]);
    s.transform_layout(c, BufferAccess::Read(1), &panels).unwrap();
    let loops = s.get_loops(c).unwrap();
    let i = s.split(loops[0], [None, Some(4)]).unwrap();
    let j = s.split(loops[1], [None, Some(32)]).unwrap();
    s.reorder(&[j[0], i[0], loops[2], i[1], j[1]]).unwrap();
    // A panel has 192 elements, and there are 12 steps: one line each.
    s.prefetch_next(c, BufferAccess::Read(1), j[0], loops[2], 2).unwrap();
    assert_eq!(prefetches(&s).len(), 1);
    // 8 steps later: two lines of the same panel.
    s.prefetch(c, BufferAccess::Read(1), loops[2], 8, 3).unwrap();
    assert_eq!(prefetches(&s).len(), 3);
    check(&func, &s);
    // The prefetched elements in the order of memory, from the beginning of the next panel.
    let mut places = Vec::new();
    let spec = BufferSpec::packed(&[6, 64], &[(1, 32), (0, 1), (1, 1)]);
    s.func().body.walk(&mut |stmt| {
        if let Stmt::Prefetch { indices, locality: 2, .. } = stmt {
            for step in 0..12 {
                let (tile, k) = (step / 6, step % 6);
                let at = |index: &PrimExpr| {
                    let vars = s.func().vars.clone();
                    let value = |name: &str| match name {
                        "i_0" => tile,
                        "k" => k,
                        _ => 0,
                    };
                    let values = vars.iter().map(|(var, decl)| (var, value(&decl.name).into()));
                    let index = index.clone().substitute(&values.collect());
                    Analyzer::new().simplify(&index).as_int().unwrap()
                };
                places.push(spec.element_offset(&[at(&indices[0]), at(&indices[1])]));
            }
        }
    });
    assert_eq!(places, (12..24).map(|line| line * 16).collect::<Vec<i64>>());
}

#[test]
fn prefetches_of_registers_or_of_too_many_lines_are_refused() {
    let mut s = Schedule::new(matmul(8, 1024, 6));
    let c = s.get_block("C").unwrap();
    let loops = s.get_loops(c).unwrap();
    let mut refused = |access, loop_| refusal(s.prefetch(c, access, loop_, 1, 3));
    assert_eq!(
        refused(BufferAccess::Read(1), loops[0]),
        "an iteration of loop `i` reads 384 lines of `B`, more than 16; prefetch in a loop \
         inside, or use prefetch_next"
    );
    assert_eq!(
        refusal(s.prefetch_next(c, BufferAccess::Read(1), loops[2], loops[0], 2)),
        "loop `i` is not in loop `k`"
    );
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    assert_eq!(
        refusal(s.prefetch(c, BufferAccess::Write(0), loops[2], 1, 3)),
        "`C` is in registers"
    );
    s.vectorize(loops[1]).unwrap();
    assert_eq!(
        refusal(s.prefetch(c, BufferAccess::Read(1), loops[1], 1, 3)),
        "loop `j` is vectorized: its iterations run at the same time"
    );
    assert_eq!(
        refusal(s.prefetch(c, BufferAccess::Read(0), loops[0], 1, 4)),
        "the result would be invalid: there is no prefetch locality 4"
    );
}
