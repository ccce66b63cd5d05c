//! Basic blocks: what more than one scope needs has a name in the innermost scope around them.

use crate::analysis::{BasicBlockNormalForm, Placement};
use crate::graph::visit::is_trivial;
use crate::graph::{Function, rearranged};
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, module_pass, transform_functions};

/// Binds what inner scopes use in the innermost scope around the uses.
///
/// What one branch alone uses moves into it; what is used in a loop or a closure stays outside.
/// Within a scope, expressions stay a graph. Nothing within a kernel is touched.
#[module_pass(opt_level = 1, sets = [BasicBlockNormalForm])]
pub fn to_basic_block_normal_form(module: IRModule, cx: &PassContext) -> Result<IRModule> {
    transform_functions(module, cx, &|function, _, cx| Ok(bind_across_scopes(function, cx)))
}

fn bind_across_scopes(function: Function, cx: &PassContext) -> Function {
    if function.attrs().flag("Primitive") {
        return function;
    }
    let place = Placement::of(&function);
    let live = function.live();
    let is_needed = |id| {
        place.is_used_within(id) && !place.is_named(&function, id) && !is_trivial(function.expr(id))
    };
    let missing = function.ids().filter(|&id| live[id] && is_needed(id)).count();
    if missing == 0 && place.is_kept(&function) {
        return function;
    }
    cx.count("bound expressions", missing as u64);
    let mut bound = 0u32;
    rearranged(
        &function,
        |id| place.scope(&function, id),
        |id| {
            is_needed(id).then(|| {
                bound += 1;
                format!("t{bound}")
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_module;
    use crate::pass::{IrProperty, Pass};
    use crate::transform::ToANormalForm;
    use crate::transform::tests::support::{Net, after, verifying};

    #[test]
    fn a_graph_of_one_scope_stays_the_same_handle() {
        let mut net = Net::default();
        let mut x = net.input("x", &[2]);
        for _ in 0..100_000 {
            x = net.op("nn.relu", &[x]);
        }
        let function = net.finish(x);
        assert!(after(&ToBasicBlockNormalForm, function.clone()).same(&function));
    }

    #[test]
    fn the_result_has_the_property_and_a_normal_form_has_it_already() {
        let module = parse_module(
            "def @main(%c: Tensor[(), bool], %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
               %s = exp(%x);
               %a = tanh(%s);
               if (%c) { add(%s, %a) } else { negative(%s) }
             }",
        )
        .unwrap();
        let holds = BasicBlockNormalForm::HOLDS.unwrap();
        let cx = verifying().build().unwrap();
        assert!(!holds(&module));
        let blocks = ToBasicBlockNormalForm.run(module.clone(), &cx).unwrap();
        assert!(holds(&blocks));
        assert!(ToBasicBlockNormalForm.run(blocks.clone(), &cx).unwrap().same(&blocks));
        assert!(holds(&ToANormalForm.run(module, &cx).unwrap()));
    }
}
