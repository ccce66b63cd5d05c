//! Whether a function runs with denormal numbers flushed to zero.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::PrimFunc;

crate::register_pass_config_option! {
    /// Whether denormal numbers count as zeros while a function runs, on targets that can do that.
    ///
    /// The code that calls the function sets the processor's mode and restores it.
    pub FLUSH_DENORMALS: bool = "tir.flush_denormals", default = false;
}

/// The attribute of functions that run with denormal numbers flushed to zero, where it is `true`.
pub const FLUSH_DENORMALS_ATTR: &str = "tir.flush_denormals";

/// Notes in the function that denormal numbers are flushed to zero, if the context says so.
#[prim_func_pass(opt_level = 0, name = "tir.AnnotateDenormals", crate = crate)]
pub fn annotate_denormals(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let flushes = cx.get(&FLUSH_DENORMALS) && cx.target().can_flush_denormals();
    if flushes && !func.flushes_denormals() {
        func.make_mut().attrs.insert(FLUSH_DENORMALS_ATTR.to_owned(), "true".to_owned());
    }
    func
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::target::Target;
    use crate::tir::PrimFuncData;

    #[test]
    fn targets_without_the_mode_keep_denormal_numbers() {
        for (arch, feature, flushes) in
            [("x86_64", "sse2", true), ("aarch64", "neon", true), ("riscv64", "v", false)]
        {
            let mut target = Target::host();
            (target.arch, target.cpu) = (arch.to_owned(), None);
            target.features = [feature.to_owned()].into();
            let cx = PassContext::builder().target(target).config(&FLUSH_DENORMALS, true);
            let func = PrimFunc::new(PrimFuncData::new("f"));
            let func = AnnotateDenormals.run_on_prim_func(func, &cx.build().unwrap()).unwrap();
            assert_eq!(func.flushes_denormals(), flushes, "{arch}");
        }
    }
}
