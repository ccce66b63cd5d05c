//! Queries for related blocks, and annotations.

use super::super::tests::{check, matmul, refusal};
use super::super::{BlockRv, Schedule};
use crate::tir::Stmt;

#[test]
fn producers_consumers_children_and_outputs_are_found() {
    let func = matmul(4, 8, 3);
    let mut s = Schedule::new(func.clone());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let same = |s: &Schedule, found: Vec<BlockRv>, block| {
        let names: Vec<String> = found.iter().map(|&rv| s.block_name(rv).unwrap()).collect();
        names == [s.block_name(block).unwrap()]
    };
    let consumers = s.get_consumers(c).unwrap();
    assert!(same(&s, consumers, d));
    let producers = s.get_producers(d).unwrap();
    assert!(same(&s, producers, c));
    let outputs = s.get_output_blocks().unwrap();
    assert!(same(&s, outputs, d));
    assert!(s.get_producers(c).unwrap().is_empty());
    let loops = s.get_loops(c).unwrap();
    s.reverse_compute_at(d, loops[0]).unwrap();
    assert_eq!(s.get_child_blocks(loops[0]).unwrap().len(), 2);
    assert!(s.get_child_blocks(c).unwrap().is_empty());
    check(&func, &s);
}

#[test]
fn annotations_are_added_and_removed() {
    let func = matmul(4, 8, 3);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let i = s.get_loops(c).unwrap()[0];
    s.annotate(c, "why", "hot").unwrap();
    s.annotate(i, "why", "outermost").unwrap();
    let has_note = |s: &Schedule| {
        let mut found = false;
        s.func().body.walk(&mut |stmt| {
            if let Stmt::BlockRealize(block) = stmt {
                found |= block.annotations.get("why").is_some_and(|note| note == "hot");
            }
        });
        found
    };
    assert!(has_note(&s));
    check(&func, &s);
    s.unannotate(c, "why").unwrap();
    assert!(!has_note(&s));
    assert_eq!(refusal(s.unannotate(c, "why")), "b0 has no annotation `why`");
}
