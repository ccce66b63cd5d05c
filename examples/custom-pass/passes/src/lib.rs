//! Passes of one's own: a crate that depends on niello, and that a build script uses.
//!
//! A controller runs on a chip without a fast `tanh` and keeps its weights in 8 bits. What such a
//! chip would answer can be tried on any machine: [`TanhToClip`] replaces each `tanh` by a line with
//! two corners, [`RoundWeights`] moves each weight to the nearest of evenly spaced numbers.
//! [`CountCalls`] watches what they do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use niello::graph::{Call, Callee, Expr, Function, Rewriter};
use niello::ir::{Attrs, Constant, DType, IRModule, SharedBytes};
use niello::ops::Op;
use niello::ops::elementwise::{CLIP, ClipAttrs, TANH};
use niello::pass::{PassContext, PassInfo, Result, function_pass, pass_instrument};
use niello::register_pass_config_option;

register_pass_config_option! {
    /// Where the line that [`TanhToClip`] puts in the place of `tanh` ends, on both sides.
    pub TANH_LIMIT: f64 = "custom.TanhToClip.limit", default = 1.0;
}

/// Replaces tanh(x) by clip(x, -limit, limit).
#[function_pass(opt_level = 1)]
pub fn tanh_to_clip(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    let limit = cx.get(&TANH_LIMIT);
    let attrs = Attrs::from_struct(&ClipAttrs { min: Some(-limit), max: Some(limit) })?;
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let call = rewriter.old().expr(id).clone();
        let Some(&Some(x)) = call.as_call().and_then(|call| call.args.first()) else { continue };
        if call.is_call_of(&TANH) {
            let x = rewriter.mapped(x);
            let clip = rewriter.builder().call(Op::new(&CLIP), &[x], attrs.clone())?;
            rewriter.replace(clip);
            cx.count("replaced", 1);
        }
    }
    Ok(rewriter.finish()?)
}

/// Moves each float constant to the nearest multiple of a step.
///
/// The step is what is configured, so the pass is a struct, and is used by value.
#[derive(Clone, Copy, Debug)]
pub struct RoundWeights {
    step: f32,
}

impl RoundWeights {
    /// Multiples of `step`, which is positive.
    pub fn to_multiples_of(step: f32) -> RoundWeights {
        RoundWeights { step }
    }

    fn round(self, constant: &Constant) -> Option<Constant> {
        let ty = constant.ty();
        if ty.dtype != DType::F32 || ty.shape.rank() == 0 {
            return None;
        }
        let bytes: Vec<u8> = constant
            .to_f64_vec()?
            .into_iter()
            .map(|value| (value as f32 / self.step).round() * self.step)
            .flat_map(f32::to_le_bytes)
            .collect();
        Constant::new(ty.clone(), SharedBytes::new(bytes)).ok()
    }
}

/// Moves each float constant to the nearest multiple of a step.
#[function_pass(opt_level = 1)]
impl RoundWeights {
    fn transform_function(
        &self,
        function: Function,
        _module: &IRModule,
        _cx: &PassContext,
    ) -> Result<Function> {
        let mut rewriter = Rewriter::new(function);
        while let Some(id) = rewriter.next_expr()? {
            let Expr::Constant(constant) = rewriter.old().expr(id) else { continue };
            if let Some(rounded) = self.round(constant).filter(|rounded| rounded != constant) {
                rewriter.replace_with_constant(rounded);
            }
        }
        Ok(rewriter.finish()?)
    }
}

/// Counts the calls of each operator before and after each pass.
#[derive(Default)]
pub struct CountCalls {
    before: Mutex<Vec<BTreeMap<&'static str, usize>>>,
    report: Mutex<String>,
}

#[pass_instrument]
impl CountCalls {
    fn run_before_pass(&self, module: &IRModule, _info: &PassInfo) {
        // A pass may run others: the innermost ends first.
        self.before.lock().unwrap_or_else(PoisonError::into_inner).push(calls(module));
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (before, after) = (before.unwrap_or_default(), calls(module));
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
        for name in std::collections::BTreeSet::from_iter(names) {
            let count = |calls: &BTreeMap<&str, usize>| calls.get(name).copied().unwrap_or(0);
            let (old, new) = (count(&before), count(&after));
            if old != new {
                // Writing to a string cannot fail.
                let _ = writeln!(report, "{}: {name} {old} -> {new}", info.name());
            }
        }
    }
}

impl CountCalls {
    /// What has changed, a line for each pass and operator.
    pub fn report(&self) -> String {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How often each operator is called in a module.
fn calls(module: &IRModule) -> BTreeMap<&'static str, usize> {
    let mut calls = BTreeMap::new();
    for (_, function) in module.functions() {
        for id in function.ids() {
            if let Expr::Call(Call { callee: Callee::Op(op), .. }) = function.expr(id) {
                *calls.entry(op.definition().name).or_insert(0) += 1;
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use niello::graph::{PrintOptions, parse_module, print_module};
    use niello::pass::Pass;

    use super::*;

    fn after(pass: &impl Pass, text: &str, cx: &PassContext) -> String {
        let module = pass.run(parse_module(text).unwrap(), cx).unwrap();
        print_module(&module, &PrintOptions::default())
    }

    #[test]
    fn tanh_becomes_a_line_that_ends_where_the_option_says() {
        let text = "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { tanh(%x) }";
        let cx = PassContext::builder().config(&TANH_LIMIT, 0.5).verify_each(true).build().unwrap();
        let after = after(&TanhToClip, text, &cx);
        assert!(after.contains("clip(%x, max=0.5, min=-0.5)"), "{after}");
        assert!(!after.contains("tanh"), "{after}");
    }

    #[test]
    fn weights_move_to_multiples_and_stay_there() {
        let text = "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
            add(%x, const([0.3, -0.9], float32))
        }";
        let (pass, cx) = (RoundWeights::to_multiples_of(0.25), PassContext::default());
        let once = after(&pass, text, &cx);
        assert!(once.contains("const([0.25, -1], float32)"), "{once}");
        let module = parse_module(&once).unwrap();
        assert!(pass.run(module.clone(), &cx).unwrap().same(&module));
    }
}
