//! Operators in the layouts that a rule chooses for each call.

use super::relayout::{parsed, relayout, with_layout};
use crate::graph::{Call, Callee, ExprId, Function, FunctionBuilder};
use crate::ir::{Attrs, IRModule};
use crate::ops::Op;
use crate::ops::nn::CONV2D;
use crate::pass::{FunctionPass, PassBody, PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Channels in each block of the images and kernels of convolutions.
    pub CHANNEL_BLOCK: i64 = "relay.AlterOpLayout.channel_block", default = 16;
}

/// Puts convolutions in blocks of channels where these divide: images in `NCHW16c`.
///
/// What is computed of their results follows, as after `ConvertLayout`; `AlterOpLayout::by` takes
/// another rule. Strategies choose such layouts for kernels by themselves, so niello's own pipeline
/// is without this pass.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn alter_op_layout(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let block = cx.get(&CHANNEL_BLOCK);
    let data = parsed(&format!("NCHW{block}c"))?;
    let kernel = parsed(&format!("OIHW{block}i{block}o"))?;
    relayout(function, cx, &|_, op, args, attrs| {
        if !op.is(&CONV2D) || !op.is_plain(attrs) {
            return Ok(None);
        }
        let attrs = with_layout(attrs, op.layouts[0], &data);
        let attrs = with_layout(&attrs, op.layouts[1], &kernel);
        Ok(Some(Call { callee: Callee::Op(op), args: args.to_vec(), attrs }))
    })
}

impl AlterOpLayout {
    /// The pass with a rule of the caller's, which is given every call of an operator: the operator,
    /// the arguments and the attributes. It returns a call in its place, of the same result but for
    /// the layout, or leaves the call as it is. The arguments of the new call are in the layouts in which
    /// it was given them, whatever its attributes say.
    ///
    /// A code generator whose convolutions read channels last, but only by fours:
    ///
    /// ```
    /// use niello::graph::{Call, Callee, PrintOptions, parse_module, print_module};
    /// use niello::ops::nn::CONV2D;
    /// use niello::pass::{Pass, PassContext};
    /// use niello::transform::AlterOpLayout;
    ///
    /// let by_fours = AlterOpLayout::by(|b, op, args, attrs| {
    ///     let channels = args.first().copied().flatten().and_then(|x| {
    ///         b.ty(x).as_tensor()?.shape.get(1)?.as_const()
    ///     });
    ///     if !op.is(&CONV2D) || !op.is_plain(attrs) || channels.is_none_or(|c| c % 4 != 0) {
    ///         return Ok(None);
    ///     }
    ///     let attrs = attrs.clone().with("data_layout", "NHWC").with("kernel_layout", "HWIO");
    ///     Ok(Some(Call { callee: Callee::Op(op), args: args.to_vec(), attrs }))
    /// });
    /// let module = parse_module(
    ///     "def @main(%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(8, 4, 3, 3), float32])
    ///        -> Tensor[(1, 8, 4, 4), float32] {
    ///        nn.relu(nn.conv2d(%x, %w))
    ///      }",
    /// )?;
    /// let altered = by_fours.run(module, &PassContext::default())?;
    /// let text = print_module(&altered, &PrintOptions::default());
    /// assert!(text.contains("data_layout=\"NHWC\""));
    /// // The image and the kernel on the way in, and the result behind `nn.relu`.
    /// assert_eq!(text.matches("layout_transform(").count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by(
        rule: impl Fn(&mut FunctionBuilder, Op, &[Option<ExprId>], &Attrs) -> Result<Option<Call>>
        + Send
        + Sync
        + 'static,
    ) -> FunctionPass {
        let info = AlterOpLayout.info().clone();
        FunctionPass::new(info, move |function: Function, _: &IRModule, cx: &PassContext| {
            relayout(function, cx, &rule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::{ADD, RELU};
    use crate::ops::nn::ConvAttrs;
    use crate::pass::Pass;
    use crate::transform::calls::call;
    use crate::transform::tests::support::{Net, after, show, verifying};

    fn conv() -> Function {
        let mut net = Net::default();
        let (x, w) = (net.input("x", &[1, 4, 5, 5]), net.input("w", &[4, 4, 1, 1]));
        let y = net.op_with("nn.conv2d", &[x, w], &ConvAttrs::of_rank(2));
        net.finish(y)
    }

    #[test]
    fn a_rule_may_alter_operands_with_or_without_the_layout() {
        let doubled = |layouts: &'static [(&str, &str)]| {
            AlterOpLayout::by(move |b, op, args, attrs| match args {
                &[x, Some(w)] if op.is(&CONV2D) => {
                    let args = vec![x, Some(call(b, &ADD, &[w, w])?)];
                    let attrs = layouts.iter().fold(attrs.clone(), |a, (n, l)| a.with(n, *l));
                    Ok(Some(Call { callee: Callee::Op(op), args, attrs }))
                }
                _ => Ok(None),
            })
        };
        assert_eq!(show(&after(&doubled(&[]), conv())), "nn.conv2d(x, add(w, w))");
        assert_eq!(
            show(&after(&doubled(&[("data_layout", "NHWC"), ("kernel_layout", "HWIO")]), conv())),
            "layout_transform(nn.conv2d(layout_transform(x), layout_transform(add(w, w))))"
        );
    }

    #[test]
    fn a_rule_that_alters_nothing_leaves_the_handle() {
        let function = conv();
        let none = AlterOpLayout::by(|_, _, _, _| Ok(None));
        assert!(after(&none, function.clone()).same(&function));
    }

    #[test]
    fn a_call_of_another_type_is_an_error() {
        let wrong = AlterOpLayout::by(|_, _, args, _| {
            let (callee, args) = (Callee::Op(Op::new(&RELU)), args[1..].to_vec());
            Ok(Some(Call { callee, args, attrs: Attrs::new() }))
        });
        let cx = verifying().build().unwrap();
        let error = wrong.run(IRModule::from_function(conv()), &cx).unwrap_err().to_string();
        assert!(error.contains("`nn.conv2d` was altered to a call of type"), "{error}");
    }
}
