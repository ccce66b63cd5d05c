//! Properties over random expressions, checked against direct evaluation of the unsimplified tree.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;

use super::expr;
use crate::arith::{EvalError, Facts, IntExpr, Interval, Mismatch, Modular, Symbol};

const NAMES: [&str; 4] = ["a", "b", "c", "batch size"];

/// An expression as written, before simplification.
#[derive(Clone, Debug)]
enum Tree {
    Const(i64),
    Symbol(usize),
    Binary(Op, Box<Tree>, Box<Tree>),
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
}

impl Tree {
    fn expr(&self) -> IntExpr {
        match self {
            Tree::Const(value) => IntExpr::constant(*value),
            Tree::Symbol(index) => IntExpr::symbol(NAMES[*index]),
            Tree::Binary(op, a, b) => {
                let (a, b) = (a.expr(), b.expr());
                match op {
                    Op::Add => a + b,
                    Op::Sub => a - b,
                    Op::Mul => a * b,
                    Op::FloorDiv => a.floor_div(&b),
                    Op::CeilDiv => a.ceil_div(&b),
                    Op::Mod => a.modulo(&b),
                    Op::Min => a.minimum(&b),
                    Op::Max => a.maximum(&b),
                }
            }
        }
    }

    /// The value, or `None` where a divisor is zero or 128 bits are not enough.
    fn eval(&self, values: &[i64; 4]) -> Option<i128> {
        match self {
            Tree::Const(value) => Some((*value).into()),
            Tree::Symbol(index) => Some(values[*index].into()),
            Tree::Binary(op, a, b) => {
                let (a, b) = (a.eval(values)?, b.eval(values)?);
                let floor = |a: i128, b: i128| {
                    let remainder = a.checked_rem(b)?;
                    let quotient = a.checked_div(b)?;
                    Some(if remainder != 0 && (remainder < 0) != (b < 0) {
                        quotient - 1
                    } else {
                        quotient
                    })
                };
                match op {
                    Op::Add => a.checked_add(b),
                    Op::Sub => a.checked_sub(b),
                    Op::Mul => a.checked_mul(b),
                    Op::FloorDiv => floor(a, b),
                    Op::CeilDiv => floor(a.checked_neg()?, b)?.checked_neg(),
                    Op::Mod => a.checked_sub(b.checked_mul(floor(a, b)?)?),
                    Op::Min => Some(a.min(b)),
                    Op::Max => Some(a.max(b)),
                }
            }
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Add),
        2 => Just(Op::Sub),
        2 => Just(Op::Mul),
        2 => Just(Op::FloorDiv),
        1 => Just(Op::CeilDiv),
        2 => Just(Op::Mod),
        1 => Just(Op::Min),
        1 => Just(Op::Max),
    ]
}

fn tree(constants: impl Strategy<Value = i64> + 'static) -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        2 => constants.prop_map(Tree::Const),
        3 => (0..NAMES.len()).prop_map(Tree::Symbol),
    ];
    leaf.prop_recursive(5, 24, 2, |inner| {
        (op(), inner.clone(), inner).prop_map(|(op, a, b)| Tree::Binary(op, a.into(), b.into()))
    })
}

fn small_tree() -> impl Strategy<Value = Tree> {
    tree(-9i64..=12)
}

fn values() -> impl Strategy<Value = [i64; 4]> {
    proptest::array::uniform4(-7i64..=13)
}

fn lookup(values: &[i64; 4]) -> impl Fn(&Symbol) -> Option<i64> {
    let values: BTreeMap<Symbol, i64> =
        NAMES.iter().map(|name| Symbol::new(name)).zip(*values).collect();
    move |symbol| values.get(symbol).copied()
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn canonical_value_is_the_value_of_the_tree(tree in small_tree(), values in values()) {
        let canonical = tree.expr();
        if let Some(direct) = tree.eval(&values) && !canonical.is_poison() {
            prop_assert_eq!(canonical.eval(&lookup(&values)).map(i128::from), Ok(direct),
                "{}", canonical);
        }
    }

    #[test]
    fn extreme_constants_are_poison_or_exact(
        tree in tree(prop_oneof![
            any::<i64>(), Just(i64::MIN), Just(i64::MIN + 1), Just(i64::MAX), -3i64..=3,
        ]),
        values in values(),
    ) {
        let canonical = tree.expr();
        prop_assert_eq!(&expr(&canonical.to_string()), &canonical, "{}", canonical);
        if let Some(direct) = tree.eval(&values) && !canonical.is_poison() {
            let expected = i64::try_from(direct).map_err(|_| EvalError::Overflow);
            let found = canonical.eval(&lookup(&values));
            // Products that cancelled in the tree may exceed 128 bits in the sum, never the reverse.
            prop_assert!(found == expected || found == Err(EvalError::Overflow), "{}", canonical);
        }
    }

    #[test]
    fn printing_and_parsing_is_the_identity(tree in small_tree()) {
        let canonical = tree.expr();
        let text = canonical.to_string();
        prop_assert_eq!(&expr(&text), &canonical, "{}", text);
        let json = serde_json::to_string(&canonical).expect("serialises");
        prop_assert_eq!(serde_json::from_str::<IntExpr>(&json).expect("parses"), canonical);
    }

    #[test]
    fn operations_commute(a in small_tree(), b in small_tree()) {
        let (a, b) = (a.expr(), b.expr());
        prop_assert_eq!(&a + &b, &b + &a);
        prop_assert_eq!(&a * &b, &b * &a);
        prop_assert_eq!(a.minimum(&b), b.minimum(&a));
        prop_assert_eq!(a.maximum(&b), b.maximum(&a));
        prop_assert_eq!(&a - &b, -(&b - &a));
    }

    #[test]
    fn substitution_is_evaluation_of_the_replacement(
        tree in small_tree(), replacement in small_tree(), values in values(),
    ) {
        let b = Symbol::new("b");
        let replaced = tree.expr().substitute(&|it| (*it == b).then(|| replacement.expr()));
        let inner = replacement.eval(&values).and_then(|value| i64::try_from(value).ok());
        if let Some(inner) = inner && !replaced.is_poison() {
            let shifted = [values[0], inner, values[2], values[3]];
            if let Some(direct) = tree.eval(&shifted) {
                let found = replaced.eval(&lookup(&values));
                prop_assert_eq!(found.map(i128::from), Ok(direct), "{}", replaced);
            }
        }
    }
}

/// The kinds of facts about an expression, derived from its value and a number that weakens the
/// fact.
#[derive(Clone, Copy, Debug)]
enum Claim {
    Equal,
    AtMost,
    AtLeast,
    Congruent,
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![
        Just(Claim::Equal),
        Just(Claim::AtMost),
        Just(Claim::AtLeast),
        Just(Claim::Congruent),
    ]
}

/// Facts that are true for the values: each about the value of its tree.
fn true_facts(
    default: Interval,
    claims: &[(Claim, Tree, i64)],
    values: &[i64; 4],
) -> Result<Facts, String> {
    let mut facts = Facts::with_default(default);
    for (claim, tree, weight) in claims {
        let Some(value) = tree.eval(values).and_then(|value| i64::try_from(value).ok()) else {
            continue;
        };
        let expr = tree.expr();
        let result = match claim {
            Claim::Equal => facts.assume_eq(&expr, &value.into()),
            Claim::AtMost => facts.assume_le(&expr, &(value + weight).into()),
            Claim::AtLeast => facts.assume_le(&(value - weight).into(), &expr),
            Claim::Congruent => match expr.as_symbol() {
                Some(symbol) => facts.assume_congruent(symbol, Modular::new(*weight, value)),
                None => facts.assume_eq(
                    &expr.modulo(&(*weight).into()),
                    &IntExpr::constant(value).modulo(&(*weight).into()),
                ),
            },
        };
        match result {
            Ok(()) | Err(Mismatch::Poisoned { .. }) => {}
            Err(mismatch) => return Err(format!("{facts} |- {claim:?} {expr}: {mismatch}")),
        }
    }
    Ok(facts)
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn conclusions_hold_wherever_the_facts_do(
        claims in proptest::collection::vec((claim(), small_tree(), 1i64..9), 0..5),
        positive in any::<bool>(),
        values in values(),
        a in small_tree(),
        b in small_tree(),
    ) {
        let default = if positive { Interval::at_least(1) } else { Interval::ALL };
        let values = if positive { values.map(|value| value.abs() + 1) } else { values };
        let facts = match true_facts(default, &claims, &values) {
            Ok(facts) => facts,
            Err(message) => {
                prop_assert!(false, "{}", message);
                return Ok(());
            }
        };
        let (Some(x), Some(y)) = (a.eval(&values), b.eval(&values)) else { return Ok(()) };
        let (a, b) = (a.expr(), b.expr());
        let simplified = facts.simplify(&a);
        if !simplified.is_poison() {
            let found = simplified.eval(&lookup(&values)).map(i128::from);
            prop_assert_eq!(found, Ok(x), "{} |- {} -> {}", facts, a, simplified);
        }
        if let Ok(x) = i64::try_from(x) && !a.is_poison() {
            let bounds = facts.bounds_of(&a);
            prop_assert!(bounds.contains(x), "{} |- {} = {} in {}", facts, a, x, bounds);
            let set = facts.modular_of(&a);
            prop_assert!(set.contains(x), "{} |- {} = {} in {}", facts, a, x, set);
        }
        for (proof, truth, relation) in [
            (facts.prove_eq(&a, &b), x == y, "=="),
            (facts.prove_le(&a, &b), x <= y, "<="),
            (facts.prove_lt(&a, &b), x < y, "<"),
        ] {
            prop_assert!(proof.is_none_or(|it| it == truth),
                "{} |- {} {} {}: {:?}", facts, a, relation, b, proof);
        }
    }

    #[test]
    fn facts_print_and_parse(
        claims in proptest::collection::vec((claim(), small_tree(), 1i64..9), 0..4),
        values in values(),
    ) {
        if let Ok(facts) = true_facts(Interval::ALL, &claims, &values) {
            let text = facts.to_string();
            match text.parse::<Facts>() {
                Ok(parsed) => prop_assert_eq!(parsed.to_string(), text),
                Err(error) => prop_assert!(false, "{}: {}", text, error),
            }
        }
    }
}

/// Models can write any arithmetic on shapes; whatever it is, it must stay small and fast.
#[test]
fn hostile_growth_is_bounded() {
    let start = Instant::now();
    // Squaring: poisoned once it is too large, and so for good.
    let mut square = expr("a + b*c + 1");
    for _ in 0..1000 {
        square = &square * &square;
    }
    assert!(square.is_poison());

    // A pool of expressions close to the limits: poisoned ones are dropped.
    let known = "* >= 1, a <= b, c <= a + b, mod(d, 4) == 0, a*c - b*d == 0, c <= 1000";
    let facts: Facts = known.parse().expect("consistent");
    let mut pool: Vec<IntExpr> = ["a", "b + 1", "c", "d", "3", "-2", "7"].map(expr).to_vec();
    let mut state = 12345u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for _ in 0..400 {
        let (a, b) = (pool[random(pool.len())].clone(), pool[random(pool.len())].clone());
        let next = match random(8) {
            0 => &a + &b,
            1 => &a - &b,
            2 => &a * &b,
            3 => a.floor_div(&b),
            4 => a.ceil_div(&b),
            5 => a.modulo(&b),
            6 => a.minimum(&b),
            _ => a.maximum(&b),
        };
        if next.is_poison() || next.is_const() {
            continue;
        }
        assert_eq!(expr(&next.to_string()), next);
        let mut more = facts.clone();
        facts.bounds_of(&next);
        // The relation of such expressions does not matter, only that the comparison ends.
        let _ = more.assume_eq(&next, &b);
        let _ = more.assume_le(&next, &a);
        more.prove_eq(&next, &a);
        let index = random(32);
        if index < pool.len() { pool[index] = next } else { pool.push(next) }
    }
    // About three seconds unoptimised on a slow machine; exponential growth would take for ever.
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}

/// Recursion is as deep as expressions may nest, and no deeper.
#[test]
fn the_deepest_expression_fits_a_small_stack() {
    let deepest = || {
        let mut deepest = expr("n");
        loop {
            let next = (&deepest * 3 + 1).modulo(&expr("m")).maximum(&expr("k"));
            if next.is_poison() {
                return deepest;
            }
            deepest = next;
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        let deepest = deepest();
        assert!(deepest.to_string().matches("max").count() > 10);
        assert_eq!(expr(&deepest.to_string()), deepest);
        let mut facts: Facts = "* >= 1, mod(n, 4) == 0".parse().expect("consistent");
        facts.assume_eq(&deepest, &expr("j")).expect("consistent");
        facts.simplify(&(&deepest + 1));
        facts.prove_le(&expr("j"), &expr("n"));
    });
    thread.expect("thread starts").join().expect("no overflow of the stack");
}

/// Every chain of three operations with small numbers, at many values, as in index arithmetic.
#[test]
fn chains_of_divisions_keep_their_value() {
    let ops: Vec<(Op, i64)> = [(Op::Add, 1), (Op::Add, -5), (Op::Mul, 2), (Op::Mul, -3)]
        .into_iter()
        .chain([2, 3, 4, 6, -3].map(|divisor| (Op::FloorDiv, divisor)))
        .chain([2, 3, 4, 6, 8, -4].map(|divisor| (Op::Mod, divisor)))
        .chain([(Op::CeilDiv, 4), (Op::Min, 3), (Op::Max, -1)])
        .collect();
    let apply = |tree: &Tree, (op, operand): (Op, i64)| {
        Tree::Binary(op, tree.clone().into(), Tree::Const(operand).into())
    };
    let mut chains = vec![Tree::Symbol(0)];
    for _ in 0..3 {
        chains = chains.iter().flat_map(|it| ops.iter().map(|op| apply(it, *op))).collect();
    }
    for tree in &chains {
        let canonical = tree.expr();
        for value in -13..=25 {
            let values = [value, 0, 0, 0];
            let only = |it: &Symbol| (it.name() == NAMES[0]).then_some(value);
            let found = canonical.eval(&only).map(i128::from).ok();
            assert_eq!(found, tree.eval(&values), "{tree:?} -> {canonical} at {value}");
        }
    }
}
