//! Versions of a function for some of its sizes.

use std::collections::BTreeMap;

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// The attribute that says for which sizes a function is to have versions: see [`SizeBuckets`].
pub const SIZE_BUCKETS_ATTR: &str = "tir.size_buckets";

/// Most versions of a function beside the one for all sizes.
pub const MOST_BUCKETS: usize = 16;

/// For which values of its dimensions a function is to have versions.
///
/// The text is `batch=1; seq=32,128`: a dimension, and its values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SizeBuckets(pub Vec<(String, Vec<u64>)>);

impl SizeBuckets {
    /// Those of a function; what is no such text says nothing.
    pub fn of(func: &PrimFuncData) -> SizeBuckets {
        let text = func.attrs.get(SIZE_BUCKETS_ATTR).map_or("", String::as_str);
        let buckets = |entry: &str| {
            let (name, sizes) = entry.split_once('=')?;
            let sizes: Result<Vec<u64>, _> = sizes.split(',').map(|s| s.trim().parse()).collect();
            Some((name.trim().to_owned(), sizes.ok()?))
        };
        SizeBuckets(text.split(';').filter_map(buckets).collect())
    }

    /// Notes them in a function, if there are any.
    pub fn annotate(&self, func: &mut PrimFuncData) {
        let text = |(name, sizes): &(String, Vec<u64>)| {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            format!("{name}={}", sizes.join(","))
        };
        let entries: Vec<String> = self.0.iter().map(text).collect();
        if !entries.is_empty() {
            func.attrs.insert(SIZE_BUCKETS_ATTR.to_owned(), entries.join("; "));
        }
    }

    /// Each choice of values for all the dimensions.
    fn choices(&self, func: &PrimFuncData) -> Vec<BTreeMap<VarId, i64>> {
        let mut choices = vec![BTreeMap::new()];
        for (name, sizes) in &self.0 {
            let Some(&dim) = func.dims.iter().find(|&&dim| func.vars[dim].name == *name) else {
                continue;
            };
            let with = |choice: &BTreeMap<VarId, i64>| {
                let sizes = sizes.iter().filter_map(|&size| i64::try_from(size).ok());
                let choice = choice.clone();
                sizes.map(move |size| choice.clone().into_iter().chain([(dim, size)]).collect())
            };
            choices = choices.iter().flat_map(with).collect();
        }
        choices.retain(|choice| !choice.is_empty());
        choices.truncate(MOST_BUCKETS);
        choices
    }
}

/// Gives functions that multiply and add versions for some sizes, which run where the sizes are these.
///
/// [`SIZE_BUCKETS_ATTR`] says which. In each, loops have constant bounds, and what depends on sizes is
/// decided: it is the code of a function that has these sizes alone, over the same memory. Other
/// sizes, and other functions, have the body for all.
#[prim_func_pass(opt_level = 0, name = "tir.SpecializeBuckets", crate = crate)]
pub fn specialize_buckets(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let choices = SizeBuckets::of(&func).choices(&func);
    let mut multiplies = false;
    func.body.walk_exprs(&mut |expr| {
        multiplies |= matches!(expr, PrimExpr::MulAdd { .. } | PrimExpr::DotAdd { .. });
    });
    if choices.is_empty() || !multiplies {
        return func;
    }
    let data = func.make_mut();
    let any = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = choices.into_iter().rev().fold(any.clone(), |others, choice| {
        let is_it = choice.iter().map(|(&dim, &size)| data.var_expr(dim).equal(size));
        let is_it = is_it.reduce(PrimExpr::and).unwrap_or_else(|| PrimExpr::bool(true));
        let values = choice.iter().map(|(&dim, &size)| (dim, PrimExpr::index(size))).collect();
        Stmt::if_then_else(is_it, data.copy_of(&any, &values), others)
    });
    func
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::parse;

    const ROWS: &str = "prim_func @f(x: input float32[64], y: output float32[64], b: dim, n: dim) {
        for i in serial(b * n) { y[i] = fma(x[i], x[i], 1.0) }
    }";

    fn run(text: &str, buckets: &[(&str, &[u64])]) -> PrimFunc {
        let mut func = parse(text).unwrap();
        let buckets = buckets.iter().map(|(name, sizes)| (name.to_string(), sizes.to_vec()));
        let buckets = SizeBuckets(buckets.collect());
        buckets.annotate(func.make_mut());
        assert_eq!(SizeBuckets::of(&func), buckets);
        SpecializeBuckets.run_on_prim_func(func, &PassContext::default()).unwrap()
    }

    fn loops(func: &PrimFunc) -> Vec<Option<i64>> {
        let mut extents = Vec::new();
        func.body.walk(&mut |stmt| {
            if let Stmt::For { extent, .. } = stmt {
                extents.push(extent.as_int());
            }
        });
        extents
    }

    #[test]
    fn each_choice_of_sizes_has_a_version_with_constant_loops() {
        let func = run(ROWS, &[("b", &[1, 2]), ("n", &[8, 16])]);
        assert_eq!(loops(&func), [Some(8), Some(16), Some(16), Some(32), None]);
        assert_eq!(loops(&run(ROWS, &[("n", &[8])])), [None, None]);
    }

    #[test]
    fn functions_that_multiply_nothing_and_unknown_dimensions_stay() {
        let copy = ROWS.replace("fma(x[i], x[i], 1.0)", "x[i]");
        assert_eq!(loops(&run(&copy, &[("b", &[1]), ("n", &[8])])), [None]);
        assert_eq!(loops(&run(ROWS, &[("m", &[8])])), [None]);
        assert_eq!(loops(&run(ROWS, &[])), [None]);
    }
}
