//! Graph normal form: no bindings.

use cranelift_entity::SecondaryMap;

use crate::analysis::{Anf, BasicBlockNormalForm, Pure, effects, kernel_scopes};
use crate::graph::{ExprId, Function, Rewriter};
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, function_pass};

/// Turns bindings into a graph: what is used is computed where its users need it.
///
/// Values that nothing uses go. Bindings of values whose computation has an effect stay, since they
/// fix the order of effects. Nothing within a kernel is touched.
#[function_pass(opt_level = 1, analyses = [Pure], clears = [Anf, BasicBlockNormalForm])]
pub fn to_graph_normal_form(
    function: Function,
    module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let effects = effects(&function, &cx.analysis::<Pure>(module));
    let kernels = kernel_scopes(&function);
    let mut seen: SecondaryMap<ExprId, bool> = SecondaryMap::new();
    let mut values = Vec::new();
    for (_, data) in function.scopes().filter(|(scope, _)| !kernels[*scope]) {
        for binding in &data.bindings {
            let value = binding.value;
            if !effects[value] && !std::mem::replace(&mut seen[value], true) {
                values.push(value);
            }
        }
    }
    cx.count("removed bindings", values.len() as u64);
    let mut rewriter = Rewriter::new(function);
    for value in values {
        rewriter.unbind(value);
    }
    Ok(rewriter.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{parse_module, structural_equal};
    use crate::pass::Pass;
    use crate::transform::ToANormalForm;
    use crate::transform::tests::support::{Net, after, verifying};

    #[test]
    fn a_graph_in_a_normal_form_becomes_the_graph_again() {
        let mut net = Net::default();
        let mut x = net.input("x", &[2]);
        for _ in 0..100_000 {
            let one = net.scalar(1.0);
            x = net.op("add", &[x, one]);
        }
        let graph = net.finish(x);
        let again = after(&ToGraphNormalForm, after(&ToANormalForm, graph.clone()));
        structural_equal(&graph, &again).unwrap();
        assert!(after(&ToGraphNormalForm, again.clone()).same(&again));
    }

    #[test]
    fn effects_keep_their_number_and_order() {
        let module = parse_module(
            "extern def @first(Tensor[(2), float32]) -> Tensor[(2), float32];
             extern def @second(Tensor[(2), float32]) -> Tensor[(2), float32];
             def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
               let %e = exp(%x);
               let %_ = @second(%e);
               let %a = @first(%x);
               let %unused = tanh(%a);
               negative(%a)
             }",
        )
        .unwrap();
        let after = ToGraphNormalForm.run(module, &verifying().build().unwrap()).unwrap();
        let main = after.function("main").unwrap();
        let names: Vec<&str> =
            main.scope(main.body()).bindings.iter().map(|binding| &*binding.name).collect();
        assert_eq!(names, ["_", "a"]);
    }
}
