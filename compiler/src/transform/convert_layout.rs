//! Operators in the layouts that a target wants.

use super::relayout::{parsed, relayout, with_layout};
use crate::diagnostics::suggest;
use crate::graph::{Call, Callee, ExprId, Function, FunctionBuilder};
use crate::ir::{Attrs, IRModule, Layout};
use crate::ops::{self, Op};
use crate::pass::{FunctionPass, PassBody, PassContext, PassError, Result, function_pass};
use crate::transform::{CanonicalizeOps, InferType};

crate::register_pass_config_option! {
    /// Operators with the layouts of their inputs, such as `["nn.conv2d: NHWC, HWIO"]`. The layout of
    /// the second input is that of such convolutions by default.
    pub DESIRED_LAYOUTS: Vec<String> = "relay.ConvertLayout.desired_layouts";
}

/// Puts the operators of `relay.ConvertLayout.desired_layouts` in the layouts said there.
///
/// What is computed of their results element by element follows, and so do pools,
/// `nn.batch_norm`, `nn.bias_add`, `nn.pad` and `concatenate`. Values are brought back by
/// `layout_transform` for all others, which pairs of opposite conversions need not.
#[function_pass(opt_level = 3, required = [InferType, CanonicalizeOps])]
pub fn convert_layout(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let mut desired = Vec::new();
    for entry in cx.get(&DESIRED_LAYOUTS).iter() {
        let (name, layouts) = entry.split_once(':').ok_or_else(|| {
            format!("`{entry}` must be an operator and layouts, as in `nn.conv2d: NHWC, HWIO`")
        })?;
        let layouts: Vec<&str> = layouts.split(',').map(str::trim).collect();
        desired.push(Desired::new(name.trim(), &layouts)?);
    }
    relayout(function, cx, &rule(&desired))
}

impl ConvertLayout {
    /// The pass for these operators and the layouts of their inputs:
    /// `[("nn.conv2d", &["NHWC", "HWIO"])]`. An entry may leave out layouts of later inputs.
    ///
    /// # Errors
    ///
    /// If an operator is not there or has no layouts, or a text is no layout.
    pub fn to(desired: &[(&str, &[&str])]) -> Result<FunctionPass> {
        let desired: Vec<Desired> = desired
            .iter()
            .map(|(name, layouts)| Desired::new(name, layouts))
            .collect::<Result<_>>()?;
        let body = move |function: Function, _: &IRModule, cx: &PassContext| {
            relayout(function, cx, &rule(&desired))
        };
        Ok(FunctionPass::new(ConvertLayout.info().clone(), body))
    }
}

/// The layouts of an operator's inputs.
struct Desired {
    op: Op,
    layouts: Vec<Layout>,
}

impl Desired {
    fn new(name: &str, layouts: &[&str]) -> Result<Desired> {
        let op = Op::get(name).ok_or_else(|| {
            let names = ops::all().iter().map(|def| def.name);
            let near = suggest(name, names).map(|near| format!("; did you mean `{near}`?"));
            format!("`{name}` is no operator{}", near.unwrap_or_default())
        })?;
        if layouts.len() > op.layouts.len() {
            return Err(PassError::new(format!(
                "`{name}` has layouts of {} inputs, but {} are desired: {}",
                op.layouts.len(),
                layouts.len(),
                layouts.join(", ")
            )));
        }
        let mut layouts = layouts.iter().map(|text| parsed(text)).collect::<Result<Vec<_>>>()?;
        if let [data] = layouts.as_slice()
            && op.layouts.len() == 2
        {
            layouts.push(parsed(&kernel_of(data))?);
        }
        Ok(Desired { op, layouts })
    }
}

/// The layout of the kernels that go with images in a layout: `HWIO` with `NHWC`, `OIHW16i16o` with
/// `NCHW16c`.
fn kernel_of(data: &Layout) -> String {
    let channels_last = data.dims().last() == Some(('C', None));
    let spatial = data.dims().map(|(axis, _)| axis).filter(|axis| "DHW".contains(*axis));
    let mut text: String = spatial.collect();
    text = if channels_last { format!("{text}IO") } else { format!("OI{text}") };
    for (axis, block) in data.dims() {
        if let ('C', Some(block)) = (axis, block) {
            text += &format!("{block}i{block}o");
        }
    }
    text
}

fn rule(
    desired: &[Desired],
) -> impl Fn(&mut FunctionBuilder, Op, &[Option<ExprId>], &Attrs) -> Result<Option<Call>> {
    move |_, op, args, attrs| {
        let Some(Desired { layouts, .. }) = desired.iter().find(|desired| desired.op == op) else {
            return Ok(None);
        };
        let new = op
            .layouts
            .iter()
            .zip(layouts)
            .fold(attrs.clone(), |attrs, (name, layout)| with_layout(&attrs, name, layout));
        let call = || Call { callee: Callee::Op(op), args: args.to_vec(), attrs: new.clone() };
        Ok((new != *attrs).then(call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interp::{Tensor, Value, evaluate};
    use crate::ir::DType;
    use crate::ops::nn::{BatchNormAttrs, ConvAttrs, MaxPoolAttrs, PadAttrs, PadMode};
    use crate::ops::tensor::ConcatenateAttrs;
    use crate::transform::tests::support::{Net, after, count, show, tensors};

    /// Operators that follow convolutions.
    fn network() -> Function {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3, 6, 5]);
        let (w, v) = (net.tensor(&[4, 3, 3, 3], -1.0), net.tensor(&[2, 4, 1, 1], 0.5));
        let attrs = ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) };
        let a = net.op_with("nn.conv2d", &[x, w], &attrs);
        let (bias, scale) = (net.tensor(&[4, 1, 1], 0.25), net.tensor(&[6], 0.5));
        let a = net.op("add", &[bias, a]);
        let a = net.op("nn.relu", &[a]);
        let b = net.op_with("nn.conv2d", &[a, v], &ConvAttrs::of_rank(2));
        let y = net.op_with("concatenate", &[a, b], &ConcatenateAttrs { axis: -3 });
        let attrs = BatchNormAttrs::new(1, 0.5);
        let y = net.op_with("nn.batch_norm", &[y, scale, scale, scale, scale], &attrs);
        let y = net.0.tuple_get(y, 0).unwrap();
        let pad_width = vec![[0, 0], [1, 0], [0, 1], [2, 0]];
        let attrs = PadAttrs { pad_width, mode: PadMode::Edge };
        let y = net.op_with("nn.pad", &[y], &attrs);
        let y = net.op_with("nn.max_pool2d", &[y], &MaxPoolAttrs::of_size(&[2, 3]));
        net.finish(y)
    }

    fn value(function: &Function) -> Value {
        let values = (0..180).map(|i| (f64::from(i) * 0.37).sin()).collect();
        let x = Tensor::from_floats(DType::F32, &[2, 3, 6, 5], values).unwrap();
        evaluate(&IRModule::from_function(function.clone()), "main", &[x.into()]).unwrap()
    }

    #[test]
    fn a_network_goes_to_another_layout_and_back() {
        let before = network();
        let there = after(&ConvertLayout::to(&[("nn.conv2d", &["NHWC"])]).unwrap(), before.clone());
        // The image, the kernels and the summand for each channel, and the result.
        assert_eq!(count(&there, "layout_transform"), 5, "{}", show(&there));
        let back = [("nn.conv2d", &["NCHW", "OIHW"] as &[&str])];
        let again = after(&ConvertLayout::to(&back).unwrap(), there.clone());
        assert_eq!(count(&again, "layout_transform"), 0, "{}", show(&again));
        let expected = value(&before);
        for function in [there, again] {
            for (a, b) in tensors(&expected).iter().zip(tensors(&value(&function))) {
                let pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
                assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-5), "{}", show(&function));
            }
        }
    }

    #[test]
    fn what_is_in_the_layout_already_keeps_its_handle() {
        let function = network();
        let pass = ConvertLayout::to(&[("nn.conv2d", &["NCHW"]), ("nn.avg_pool2d", &["NHWC"])]);
        assert!(after(&pass.unwrap(), function.clone()).same(&function));
    }

    #[test]
    fn wishes_that_nothing_can_fulfil_are_errors() {
        let error = |name, layouts| match ConvertLayout::to(&[(name, layouts)]) {
            Ok(_) => panic!("{name} with {layouts:?} is accepted"),
            Err(error) => error.to_string(),
        };
        let unknown = error("nn.conv2", &["NHWC"]);
        assert!(unknown.contains("`nn.conv2` is no operator; did you mean `nn.conv"), "{unknown}");
        let many = error("nn.relu", &["NHWC"]);
        assert!(
            many.contains("`nn.relu` has layouts of 0 inputs, but 1 are desired: NHWC"),
            "{many}"
        );
        let no_layout = error("nn.conv2d", &["NHWC4"]);
        assert!(no_layout.contains("`NHWC4` is no layout"), "{no_layout}");
    }
}
