//! A-normal form: a name for every value.

use crate::analysis::{Anf, Placement};
use crate::graph::{Function, rearranged};
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, module_pass, transform_functions};

/// Binds every expression, in the order of evaluation.
///
/// Constants, fields of tuples and results are bound, too; variables and references to globals have
/// names already. An expression moves to the innermost scope around its uses, but not into a loop or
/// a closure. Nothing within a kernel is touched.
#[module_pass(opt_level = 1, sets = [Anf])]
pub fn to_a_normal_form(module: IRModule, cx: &PassContext) -> Result<IRModule> {
    transform_functions(module, cx, &|function, _, cx| Ok(bind_everything(function, cx)))
}

fn bind_everything(function: Function, cx: &PassContext) -> Function {
    if function.attrs().flag("Primitive") {
        return function;
    }
    let place = Placement::of(&function);
    let live = function.live();
    let missing = function.ids().filter(|&id| live[id] && !place.is_named(&function, id)).count();
    if missing == 0 && place.is_kept(&function) {
        return function;
    }
    cx.count("bound expressions", missing as u64);
    let mut bound = 0u32;
    rearranged(
        &function,
        |id| place.scope(&function, id),
        |id| {
            (!place.is_named(&function, id)).then(|| {
                bound += 1;
                format!("t{bound}")
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Expr, parse_module};
    use crate::pass::{IrProperty, Pass};
    use crate::transform::tests::support::{Net, after, verifying};

    #[test]
    fn chains_of_any_length_are_bound_in_order_and_once() {
        let mut net = Net::default();
        let mut x = net.input("x", &[2]);
        for _ in 0..100_000 {
            x = net.op("nn.relu", &[x]);
        }
        let function = after(&ToANormalForm, net.finish(x));
        let bindings = &function.scope(function.body()).bindings;
        assert_eq!(bindings.len(), 100_000);
        assert!(bindings.iter().zip(&bindings[1..]).all(|(a, b)| a.value < b.value));
        assert!(after(&ToANormalForm, function.clone()).same(&function));
    }

    #[test]
    fn the_result_has_the_property_and_kernels_are_left_alone() {
        let module = parse_module(
            "def @main(%c: Tensor[(), bool], %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
               %k = fn (%p: Tensor[(2), float32]) -> Tensor[(2), float32] {Primitive=1} {
                 tanh(exp(%p))
               };
               %s = exp(%x);
               if (%c) { %k(%s) } else { add(%s, multiply(%s, const(2, float32))) }
             }
             def @kernel(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {Primitive=1} {
               tanh(exp(%x))
             }
             def @elsewhere(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {Compiler=\"dsp\"} {
               tanh(exp(%x))
             }",
        )
        .unwrap();
        let holds = Anf::HOLDS.unwrap();
        assert!(!holds(&module));
        let bound = ToANormalForm.run(module.clone(), &verifying().build().unwrap()).unwrap();
        assert!(holds(&bound));
        for name in ["kernel", "elsewhere"] {
            assert!(bound.function(name).unwrap().same(module.function(name).unwrap()));
        }
        let main = bound.function("main").unwrap();
        let kernel = main.iter().find_map(|(_, data)| match &data.expr {
            Expr::Func(closure) => Some(closure.scope),
            _ => None,
        });
        assert!(main.scope(kernel.unwrap()).bindings.is_empty());
    }
}
