//! From a scheduled loop function to one that a code generator accepts.

use super::PrimFunc;
use super::transform::{
    CompactBufferAllocation, FlattenBuffer, LowerBlocks, LowerIntrin, LowerMulAdd,
    PlanBufferAllocation, RemoveNoOp, Simplify, UnrollLoop, UnsupportedDtypeLegalize,
    VectorizeLoop,
};
use crate::pass::{Pass, PassContext, Result};
use crate::target::Target;

/// The passes, in order.
const PASSES: [&dyn Pass; 12] = [
    &PlanBufferAllocation,
    &LowerBlocks,
    &CompactBufferAllocation,
    &FlattenBuffer,
    &UnsupportedDtypeLegalize,
    &Simplify,
    &VectorizeLoop,
    &UnrollLoop,
    &Simplify,
    &LowerMulAdd,
    &LowerIntrin,
    &RemoveNoOp,
];

/// Lowers a function for one target under the [current](PassContext::current) context: see
/// [`lower_under`].
///
/// # Errors
///
/// As [`lower_under`].
pub fn lower(func: PrimFunc, target: &Target) -> Result<PrimFunc> {
    lower_under(func, &PassContext::inherit().target(target.clone()).build()?)
}

/// Lowers a function for the target of a context: one physical index for each access, explicit
/// vectors no wider than the target's, no unrolled loops left, and only data types and operations
/// that the target has.
///
/// # Errors
///
/// A pass does not support what is in the function; the error names both.
pub fn lower_under(func: PrimFunc, cx: &PassContext) -> Result<PrimFunc> {
    let mut passes = PASSES.into_iter().filter(|pass| cx.pass_enabled(pass.info()));
    passes.try_fold(func, |func, pass| pass.run_on_prim_func(func, cx))
}

#[cfg(test)]
mod tests {
    use crate::codegen::c::{generate, translation_unit};
    use crate::ir::{BufferSpec, DType};
    use crate::target::Target;
    use crate::tir::{
        ForKind, Intrinsic, MAX_DEPTH, PrimExpr, PrimFunc, PrimFuncData, interpret, lower, parse,
        verify,
    };

    /// A chain of `length` operators on every element of a row.
    fn chain(length: usize, step: impl Fn(PrimExpr) -> PrimExpr) -> PrimFunc {
        let mut func = PrimFuncData::new("chain");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[8]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[8]));
        func.body = func.for_("i", 8, ForKind::Vectorized, |f, i| {
            let value = (0..length).fold(f.load(x, [i.clone()]), |value, _| step(value));
            f.store(y, [i], value)
        });
        PrimFunc::new(func)
    }

    /// Unoptimised, as this runs in a user's build script, on the smallest usual stack.
    #[test]
    fn the_deepest_function_fits_a_small_stack() {
        let run = || {
            let target = Target::host();
            let deepest = chain(MAX_DEPTH - 5, |value| value + PrimExpr::f32(1.0));
            // Strategies inline up to 48 operators.
            let nested = chain(48, |value| PrimExpr::call(Intrinsic::Tanh, value));
            for func in [deepest, nested] {
                verify(&func).unwrap();
                let text = func.to_string();
                assert_eq!(parse(&text).unwrap().to_string(), text);
                let lowered = lower(func, &target).unwrap();
                verify(&lowered).unwrap();
                let mut args = [vec![0; 32], vec![0; 32]];
                interpret(&lowered, &mut args, &[]).unwrap();
                let kernel = generate(&lowered, "chain", &target).unwrap();
                assert!(translation_unit([&kernel], &[]).contains("void chain("));
                #[cfg(feature = "llvm")]
                {
                    use crate::codegen::llvm::{Kernel, Source, compile};
                    let kernels = vec![Kernel { func: lowered, symbol: "chain".to_owned() }];
                    let name = "chain".to_owned();
                    let source = Source { name, kernels, wrappers: vec![], entry: None, level: 0 };
                    compile(&[source], std::slice::from_ref(&target), 1, false).unwrap();
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
        thread.join().unwrap();
    }
}
