//! Activations that are written out.

use std::sync::LazyLock;

use crate::graph::{ExprId, Function, Pattern};
use crate::ir::Attrs;
use crate::ops::elementwise::{GELU, HARDSWISH};
use crate::ops::{Op, OpDef};

/// A pattern of `%x`, and the operator and attributes that give the same.
struct Form {
    pattern: Pattern,
    op: &'static OpDef,
    attrs: Attrs,
}

static FORMS: LazyLock<[Form; 3]> = LazyLock::new(|| {
    let form = |pattern: &str, op, attrs| Form {
        pattern: pattern.parse().expect("a test parses all of them"),
        op,
        attrs,
    };
    // Half of `%x` times one more than something.
    let half = |of: &str| {
        "multiply(multiply(%x, 0.5) | divide(%x, 2), SUM) \
         | multiply(multiply(%x, SUM), 0.5) | divide(multiply(%x, SUM), 2) \
         | multiply(%x, multiply(SUM, 0.5) | divide(SUM, 2))"
            .replace("SUM", &format!("add({of}, 1)"))
    };
    let erf = "erf(divide(%x, 1.4142135623730951) | multiply(%x, 0.7071067811865476))";
    let tanh = "tanh(multiply(add(%x, multiply(CUBE, 0.044715)), 0.7978845608028654))"
        .replace("CUBE", "power(%x, 3) | multiply(multiply(%x, %x), %x)");
    let swish = "divide(multiply(%x, RELU6), 6) | multiply(multiply(%x, RELU6), SIXTH) \
                 | multiply(%x, divide(RELU6, 6) | multiply(RELU6, SIXTH))"
        .replace("RELU6", "clip(add(%x, 3), min=0.0, max=6.0)")
        .replace("SIXTH", "0.16666666666666666");
    let gelu = |approximate: &str| Attrs::new().with("approximate", approximate);
    [
        form(&half(erf), &GELU, gelu("none")),
        form(&half(&tanh), &GELU, gelu("tanh")),
        form(&swish, &HARDSWISH, Attrs::new()),
    ]
});

/// The operator that a call stands for with others before it, its attributes and its operand. Only
/// `is_alone` calls may go.
pub(super) fn known(
    function: &Function,
    id: ExprId,
    is_alone: &dyn Fn(ExprId) -> bool,
) -> Option<(Op, Attrs, ExprId)> {
    let accepts = |call: ExprId| call == id || is_alone(call);
    FORMS.iter().find_map(|Form { pattern, op, attrs }| {
        let x = pattern.find_if(function, id, &accepts)?.get("x")?;
        Some((Op::new(op), attrs.clone(), x))
    })
}
