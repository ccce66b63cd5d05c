//! Passes of loop functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fan_out::{Work, fan_out};
use super::{
    BoxError, Pass, PassBody, PassContext, PassError, PassErrorKind, PassInfo, PassKind, Result,
    RunToken,
};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::tir::{self, PrimFunc};

/// What the function of a prim func pass may return: a loop function, none to delete it, or a
/// `Result` of either.
#[diagnostic::on_unimplemented(
    message = "a prim func pass must return `PrimFunc`, an `Option` of it, or a `Result` of either, not `{Self}`",
    label = "not a loop function"
)]
pub trait IntoPrimFunc {
    /// The function, `None` to delete it, or the pass's error.
    ///
    /// # Errors
    ///
    /// If the pass returned an error.
    fn into_prim_func(self) -> Result<Option<PrimFunc>>;
}

impl IntoPrimFunc for PrimFunc {
    fn into_prim_func(self) -> Result<Option<PrimFunc>> {
        Ok(Some(self))
    }
}

impl IntoPrimFunc for Option<PrimFunc> {
    fn into_prim_func(self) -> Result<Option<PrimFunc>> {
        Ok(self)
    }
}

impl<F: Into<Option<PrimFunc>>, E: Into<BoxError>> IntoPrimFunc for Result<F, E> {
    fn into_prim_func(self) -> Result<Option<PrimFunc>> {
        self.map(Into::into).map_err(PassError::new)
    }
}

/// The work of a prim func pass.
type Body<'a> = dyn Fn(PrimFunc, &IRModule, &PassContext) -> Result<Option<PrimFunc>> + Sync + 'a;

/// Runs `body` on every loop function, and deletes those for which it returns `None`; otherwise
/// like [`transform_functions`](super::transform_functions).
///
/// # Errors
///
/// The first error of `body`.
pub fn transform_prim_funcs(
    mut module: IRModule,
    cx: &PassContext,
    body: &Body<'_>,
) -> Result<IRModule> {
    let before = module.clone();
    let work: Vec<Work<'_, PrimFunc>> = before
        .prim_funcs()
        // Loop functions do not know their size; a kernel takes some microseconds.
        .map(|(global, unit)| Work { global, unit, function: None, size: 256 })
        .collect();
    let mut deleted: Vec<GlobalVar> = Vec::new();
    let rewrite = |function: &PrimFunc, cx: &PassContext| body(function.clone(), &before, cx);
    fan_out(&work, cx, rewrite, |global, function| match function {
        Some(function) => {
            module.insert(global.clone(), Definition::Prim(function));
        }
        None => deleted.push(global.clone()),
    })?;
    module.retain(|global, _| !deleted.contains(global));
    Ok(module)
}

/// Runs a pass on one loop function; see [`Pass::run_on_prim_func`].
pub(super) fn run_on_prim_func<P: PassBody>(
    pass: &P,
    func: PrimFunc,
    cx: &PassContext,
) -> Result<PrimFunc> {
    let info = pass.info();
    let global = GlobalVar::new(&func.name);
    // Kept only for who compares, as passes change what is theirs alone in place.
    let before = (cx.verifies() || !info.is_niellos()).then(|| func.clone());
    let result = if info.kind() == PassKind::PrimFunc {
        let inner = cx.for_prim_func(info, &global);
        let body = AssertUnwindSafe(|| pass.on_prim_func(func, &IRModule::new(), &inner));
        let result =
            catch_unwind(body).unwrap_or_else(|payload| Err(PassError::from_panic(&*payload)));
        let mut records = inner.take_records();
        let result = records.settle(result).and_then(|func| {
            if let (Some(func), Some(before)) = (&func, &before)
                && !func.same(before)
                && let Err(errors) = tir::verify(func)
            {
                let messages: Vec<&str> = errors.iter().map(|e| e.message.as_str()).collect();
                return Err(PassErrorKind::Verify(messages.join("; ").into()).into());
            }
            Ok(func)
        });
        cx.absorb(records);
        result.map_err(|error| error.about(&global).within(info.name()))?
    } else {
        let mut module = IRModule::new();
        module.insert(global.clone(), Definition::Prim(func));
        let module = Pass::run(pass, module, cx)?;
        module.get(&global).and_then(Definition::as_prim).cloned()
    };
    let deleted = || PassError::new("the pass deletes the function, which has callers");
    result.ok_or_else(|| deleted().about(&global).within(info.name()))
}

/// The work of a prim func pass as a shared closure.
type SharedBody =
    dyn Fn(PrimFunc, &IRModule, &PassContext) -> Result<Option<PrimFunc>> + Send + Sync;

/// A prim func pass made from a closure.
pub struct PrimFuncPass {
    info: PassInfo,
    body: Box<SharedBody>,
}

impl PrimFuncPass {
    /// A pass of that name and level, which runs `body` on every loop function.
    pub fn new<R: IntoPrimFunc>(
        info: PassInfo,
        body: impl Fn(PrimFunc, &IRModule, &PassContext) -> R + Send + Sync + 'static,
    ) -> PrimFuncPass {
        PrimFuncPass {
            info: info.with_kind(PassKind::PrimFunc),
            body: Box::new(move |function, module, cx| body(function, module, cx).into_prim_func()),
        }
    }
}

impl PassBody for PrimFuncPass {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        transform_prim_funcs(module, cx, &*self.body)
    }

    fn on_prim_func(
        &self,
        func: PrimFunc,
        module: &IRModule,
        cx: &PassContext,
    ) -> Result<Option<PrimFunc>> {
        (self.body)(func, module, cx)
    }
}
