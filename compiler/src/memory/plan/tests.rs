//! Plans of handwritten programs, and plans of random ones compared with brute force.

use proptest::prelude::{any, prop_assert, proptest};
use proptest::test_runner::TestCaseError;

use super::*;
use crate::executor::testing::ProgramBuilder;
use crate::ir::{BufferSpec, Constant};
use crate::tir::Stmt;

/// Storage and plan, without scratch memory.
fn planned(program: &Program) -> (Storage, MemoryPlan) {
    let storage = Storage::of(program).unwrap();
    let plan = plan(program, &storage, &SecondaryMap::new()).unwrap();
    (storage, plan)
}

#[test]
fn a_computed_output_is_in_the_callers_memory_and_the_rest_in_the_arena() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[16]);
    let y = b.add(x, x);
    let z = b.add(y, x);
    b.output(z);
    let (storage, plan) = planned(&b.program);
    assert_eq!(plan.places[x], Place::Input(0));
    assert_eq!(plan.places[y], Place::Arena(0));
    assert_eq!(plan.places[z], Place::Output(0, 0));
    assert_eq!((plan.arena_bytes, storage.copies), (64, vec![]));
}

#[test]
fn outputs_that_no_step_writes_are_copied() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[4]);
    let w = b.constant("w", Constant::from_f32(&[2], &[1.0, 2.0]).unwrap());
    let y = b.add(x, x);
    let view = b.view(y, &[2, 2]);
    for output in [view, x, w, y, view] {
        b.output(output);
    }
    let (storage, plan) = planned(&b.program);
    assert_eq!(plan.places[y], Place::Output(0, 0), "the view is the first of them");
    assert_eq!(plan.places[view], Place::Output(0, 0));
    let copies: Vec<_> = storage.copies.iter().map(|c| (c.from, c.output, c.bytes)).collect();
    assert_eq!(copies, [(x, 1, 16), (w, 2, 8), (y, 3, 16), (view, 4, 16)]);
    assert_eq!(plan.arena_bytes, 0);
}

#[test]
fn a_result_takes_the_place_of_an_argument_that_dies() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[1000]);
    let a = b.add(x, x);
    let c = b.add(a, x);
    let view = b.view(c, &[10, 100]);
    let d = b.add(view, view);
    let e = b.add(d, d);
    b.output(e);
    let (_, plan) = planned(&b.program);
    assert_eq!(plan.arena_bytes, 4032, "one place for all");
    assert_eq!(plan.peak_live_bytes, 4032);
    assert_eq!(plan.places[d], plan.places[a]);
}

#[test]
fn a_place_is_not_taken_while_it_is_needed() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[16]);
    let a = b.add(x, x);
    let later = b.add(a, x);
    let view = b.view(a, &[16]);
    let sum = b.add(later, view);
    let out = b.add(sum, x);
    b.output(out);
    let (_, plan) = planned(&b.program);
    assert_ne!(plan.places[later], plan.places[a], "the view of a is read after it");
    assert_eq!(plan.arena_bytes, 128);
}

#[test]
fn a_place_is_not_taken_from_a_value_that_is_also_read_elsewhere_in_the_kernel() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[16]);
    let a = b.add(x, x);
    let c = b.add(a, a);
    // The kernel that adds a to itself reads its second argument in another order.
    let step = b.program.steps[1].clone();
    b.program.kernels[step.kernel].versions[0].make_mut().inplace = vec![(2, 0)];
    let out = b.add(c, x);
    b.output(out);
    let (_, plan) = planned(&b.program);
    assert_ne!(plan.places[c], plan.places[a]);
}

#[test]
fn a_place_is_not_taken_by_another_layout() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[1, 16, 2, 2]);
    let a = b.add(x, x);
    let blocked = BufferSpec::nchwc(&[1, 16, 2, 2], 16, &[]);
    let c = b.map("pack", &[a], blocked, |x| x[0].clone());
    let out = b.map("unpack", &[c], BufferSpec::dense(&[1, 16, 2, 2]), |x| x[0].clone());
    b.output(out);
    let (_, plan) = planned(&b.program);
    assert_ne!(plan.places[c], plan.places[a]);
}

#[test]
fn borders_are_zeroed_unless_the_place_has_zeros_already() {
    let mut b = ProgramBuilder::default();
    let shape = [1, 16, 4, 4];
    let padded = BufferSpec::nchwc(&shape, 16, &[(1, 1), (1, 1)]);
    let x = b.input("x", &shape);
    let a = b.map("pack", &[x], padded.clone(), |x| x[0].clone());
    let c = b.map("relu", &[a], padded, |x| x[0].clone());
    let lanes = b.map("narrow", &[c], BufferSpec::nchwc(&shape, 32, &[]), |x| x[0].clone());
    let out = b.map("unpack", &[lanes], BufferSpec::dense(&shape), |x| x[0].clone());
    b.output(out);
    let (storage, plan) = planned(&b.program);
    assert_eq!(plan.places[a], plan.places[c]);
    assert_eq!([a, c, lanes, out].map(|value| storage.zeroed[value]), [true, false, false, false]);
}

#[test]
fn scratch_memory_lies_between_live_values() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[1000]);
    let y = b.step("small", &[x], BufferSpec::dense(&[10]), &[], |_, _, _| Stmt::nop());
    let z = b.step("large", &[y], BufferSpec::dense(&[1000]), &[], |_, _, _| Stmt::nop());
    let out = b.step("last", &[z], BufferSpec::dense(&[1000]), &[], |_, _, _| Stmt::nop());
    b.output(out);
    let storage = Storage::of(&b.program).unwrap();
    let mut scratch = SecondaryMap::new();
    scratch[b.program.steps[0].kernel] = 4000;
    let plan = plan(&b.program, &storage, &scratch).unwrap();
    // The first step's scratch memory is in the later place of the large value.
    assert_eq!((plan.arena_bytes, plan.peak_live_bytes), (64 + 4032, 64 + 4032));
    let Place::Arena(small) = plan.places[y] else { panic!("not in the arena") };
    let offset = plan.scratch[0].unwrap();
    assert!(small + 64 <= offset || offset + 4032 <= small);
    assert_eq!(plan.scratch[1..], [None, None]);
}

#[test]
fn empty_values_take_nothing() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[0, 4]);
    let y = b.add(x, x);
    let z = b.add(y, y);
    b.output(z);
    b.output(x);
    let (storage, plan) = planned(&b.program);
    assert_eq!((plan.arena_bytes, storage.copies), (0, vec![]));
}

/// A random program: each step adds two earlier values, or views one.
fn random_program(choices: &[(u8, u8, u8)]) -> ProgramBuilder {
    let mut b = ProgramBuilder::default();
    let mut values = vec![b.input("x", &[32]), b.input("y", &[32])];
    for &(kind, first, second) in choices {
        // Recent values more often, so that others die.
        let recent = values.len().saturating_sub(5);
        let pick = |n: u8| values[recent + usize::from(n) % (values.len() - recent)];
        let (first, second) = (pick(first), pick(second));
        let value = match kind % 4 {
            0 => b.view(first, &[32]),
            _ => b.add(first, second),
        };
        values.push(value);
    }
    for &value in values.iter().rev().step_by(3).take(3) {
        b.output(value);
    }
    b
}

/// Runs the plan on memory that records, for each place, the last value written there.
fn check_by_running(program: &Program) -> Result<(), TestCaseError> {
    let (storage, plan) = planned(program);
    prop_assert!(plan.arena_bytes >= plan.peak_live_bytes);
    prop_assert!(
        plan.lower_bound_bytes <= plan.arena_bytes && plan.arena_bytes <= plan.token_bytes
    );
    let roots = program.roots();
    let mut owner: Vec<(Place, ValueId)> = Vec::new();
    let range = |value: ValueId| match plan.places[value] {
        Place::Arena(offset) => {
            let bytes = program.values[value].physical_bytes().unwrap();
            (0u8, offset, offset + bytes)
        }
        Place::Output(position, _) => (1, position as u64, position as u64 + 1),
        Place::Input(position) => (2, position as u64, position as u64 + 1),
        Place::Weights(_) | Place::Nowhere => (3, 0, 0),
    };
    let clash = |a: ValueId, b: ValueId| {
        let (a, b) = (range(a), range(b));
        a.0 == b.0 && a.1 < b.2 && b.1 < a.2
    };
    for step in &program.steps {
        let (inputs, output) = step.args.split_at(step.args.len() - 1);
        for &input in inputs {
            if program.values[roots[input]].kind == ValueKind::Computed {
                let held = owner.iter().any(|entry| entry.1 == roots[input]);
                prop_assert!(held, "{input} was overwritten");
            }
        }
        // A write destroys all overlapping values.
        owner.retain(|entry| !clash(entry.1, output[0]));
        owner.push((plan.places[output[0]], output[0]));
    }
    for (position, &output) in program.outputs.iter().enumerate() {
        let copied = storage.copies.iter().any(|copy| copy.output == position);
        prop_assert!(copied || plan.places[output] == Place::Output(position, 0));
        if program.values[roots[output]].kind == ValueKind::Computed {
            let held = owner.iter().any(|entry| entry.1 == roots[output]);
            prop_assert!(held, "output {output} was overwritten");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_value_is_overwritten_before_its_last_use(choices in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..60)) {
        let builder = random_program(&choices);
        builder.program.verify().unwrap();
        check_by_running(&builder.program)?;
    }
}
