//! Checks what a pass has made, and in contexts that verify also what it claims, after its run.

use super::analysis::{Claim, PreservedAnalyses, Update};
use super::{PassContext, PassError, PassErrorKind, PassInfo, PassKind, Result};
use crate::graph::{structural_hash, verify_module};
use crate::ir::{Definition, Digest, GlobalVar, IRModule};

/// The analyses that a pass claims to preserve, by its declaration and while it ran.
pub(super) struct Claims<'a> {
    pub(super) info: &'a PassInfo,
    pub(super) said: Vec<(Option<GlobalVar>, Claim)>,
}

impl Claims<'_> {
    /// The analyses that the pass preserves for a function, or for the module.
    pub(super) fn about(&self, unit: Option<&GlobalVar>) -> PreservedAnalyses {
        let mut preserved = PreservedAnalyses::from(self.info.preserves());
        for (of, claim) in &self.said {
            // One function of a pass can abandon an analysis of the module, but not preserve it.
            let counts = match of {
                None => true,
                Some(of) => unit == Some(of) || (unit.is_none() && claim.is_abandonment()),
            };
            if counts {
                preserved.claim(claim);
            }
        }
        preserved
    }

    fn broken(&self, analysis: Option<&'static str>, function: Option<&GlobalVar>) -> PassError {
        PassErrorKind::NotPreserved {
            analysis,
            pass: self.info.name().to_owned(),
            function: function.cloned(),
        }
        .into()
    }
}

/// Verifies the module that a pass returned: that it is well formed, if the context verifies or the pass
/// is of another crate than niello, and what the pass claims, if the context verifies.
///
/// # Errors
///
/// If the module is malformed, it does not have a property that the pass sets, or it was changed
/// although the pass preserves everything.
pub(super) fn verify(
    cx: &PassContext,
    claims: &Claims<'_>,
    before: &IRModule,
    after: &IRModule,
) -> Result<()> {
    let is_list = claims.info.kind() == PassKind::Sequential;
    match cx.verifier() {
        _ if after.same(before) => {}
        Some(verifier) => verifier(after).map_err(PassErrorKind::Verify)?,
        // A mistake of others would come up far from it. Members of a list were verified.
        None if claims.info.is_niellos() || is_list => {}
        None => verify_module(after).map_err(|errors| PassErrorKind::Verify(errors.into()))?,
    }
    if !cx.verifies() {
        return Ok(());
    }
    for property in claims.info.sets() {
        if property.holds(after) == Some(false) {
            return Err(PassErrorKind::NotSet(property.name()).into());
        }
    }
    if after.same(before) {
        return Ok(());
    }
    let changed = |(global, new): &(&GlobalVar, &Definition)| {
        before.get(global).is_none_or(|old| !old.same(new) && digest(old) != digest(new))
    };
    for (global, _) in after.iter().filter(changed) {
        if before.get(global).is_some() && claims.about(Some(global)).keeps_all() {
            return Err(claims.broken(None, Some(global)));
        }
    }
    let globals = |module: &IRModule| module.iter().map(|(global, _)| global.clone()).collect();
    let (old, new): (Vec<GlobalVar>, Vec<GlobalVar>) = (globals(before), globals(after));
    if (old != new || before.attrs() != after.attrs()) && claims.about(None).keeps_all() {
        return Err(claims.broken(None, None));
    }
    Ok(())
}

/// The error for analyses that a pass preserved although their results have changed.
///
/// # Errors
///
/// If there are such analyses: the error of the first, with the others attached.
pub(super) fn carried_over(update: &Update, claims: &Claims<'_>) -> Result<()> {
    let mut wrong = update
        .false_claims
        .iter()
        .map(|wrong| claims.broken(Some(wrong.analysis), wrong.function.as_ref()));
    match wrong.next() {
        None => Ok(()),
        Some(first) => Err(first.followed_by(wrong)),
    }
}

fn digest(definition: &Definition) -> Option<Digest> {
    match definition {
        Definition::Graph(function) => Some(structural_hash(function)),
        Definition::Prim(function) => Some(function.structural_digest()),
        Definition::Extern(_) => None,
    }
}
