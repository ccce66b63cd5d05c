//! The kernels that are measured, and the goals of each.
//!
//! A new kernel is a line in [`kernels`]. One whose code niello makes of a tensor expression and a schedule has
//! [`Build::Function`](crate::kernel::Build::Function); its model is what the peers run.

mod bytes;
mod conv;
mod matmul;
mod rows;
mod values;
mod winograd;

use conv::{Conv, Net};
use matmul::Product;
use niello::te::topi::winograd::Winograd::{F2, F4};
use rows::Operator;

use crate::kernel::{Goal, Kernel};

/// Only on one thread, and on two as well.
const ONE: &[usize] = &[1];
const TWO: &[usize] = &[1, 2];

/// Every kernel, in the order of the report.
pub(crate) fn kernels() -> Vec<Kernel> {
    let product = |m, k, n| Product { m, k, n };
    let square = |extent, channels, filters, kernel, stride| Conv {
        extent,
        channels,
        filters,
        kernel,
        stride,
        depthwise: false,
    };
    let depthwise = |extent, channels| Conv {
        extent,
        channels,
        filters: channels,
        kernel: 3,
        stride: 1,
        depthwise: true,
    };
    let percent = Goal::Percent;
    let faster = Goal::OnnxRuntime;
    vec![
        product(1024, 1024, 1024).f32("matmul_1024", percent(90.0), TWO),
        product(1024, 1024, 1024).scheduled_f32("matmul_1024_te", percent(90.0), TWO),
        product(384, 384, 384).f32("matmul_384", percent(93.0), ONE),
        product(384, 384, 384).scheduled_f32("matmul_384_te", percent(93.0), ONE),
        product(128, 384, 1536).f32("matmul_128x384x1536", percent(93.0), ONE),
        product(128, 384, 1536).scheduled_f32("matmul_128x384x1536_te", percent(93.0), ONE),
        product(196, 1024, 256).f32("matmul_196x1024x256", percent(93.0), ONE),
        product(196, 1024, 256).scheduled_f32("matmul_196x1024x256_te", percent(93.0), ONE),
        product(49, 512, 2048).f32("matmul_49x512x2048", percent(93.0), ONE),
        product(49, 512, 2048).scheduled_f32("matmul_49x512x2048_te", percent(93.0), ONE),
        product(1, 4096, 4096).f32("matmul_1x4096x4096", percent(90.0), TWO),
        product(128, 384, 1536).int8("matmul_int8_128x384x1536", percent(85.0), ONE),
        product(128, 384, 1536).scheduled_int8("matmul_int8_128x384x1536_te", percent(85.0)),
        square(56, 64, 64, 3, 1).kernel("conv3x3_56x64", Net::Chain, percent(93.0), TWO),
        square(28, 128, 128, 3, 1).kernel("conv3x3_28x128", Net::Chain, percent(93.0), TWO),
        square(14, 256, 256, 3, 1).kernel("conv3x3_14x256", Net::Chain, percent(93.0), TWO),
        square(56, 64, 64, 3, 1).winograd(F4, "conv3x3_56x64_winograd", percent(230.0), TWO),
        square(28, 128, 128, 3, 1).winograd(F4, "conv3x3_28x128_winograd", percent(230.0), TWO),
        square(14, 256, 256, 3, 1).winograd(F2, "conv3x3_14x256_winograd", percent(180.0), TWO),
        square(56, 64, 64, 3, 1).int8("conv3x3_int8_56x64", percent(85.0)),
        square(28, 128, 128, 3, 1).int8("conv3x3_int8_28x128", percent(85.0)),
        square(14, 256, 256, 3, 1).int8("conv3x3_int8_14x256", percent(85.0)),
        square(56, 64, 256, 1, 1).kernel("conv1x1_56x64_256", Net::Fan, percent(90.0), TWO),
        square(14, 1024, 256, 1, 1).kernel("conv1x1_14x1024_256", Net::Fan, percent(90.0), ONE),
        square(56, 128, 128, 3, 2).kernel("conv3x3s2_56x128", Net::Fan, percent(90.0), ONE),
        square(28, 256, 256, 3, 2).kernel("conv3x3s2_28x256", Net::Fan, percent(90.0), ONE),
        square(224, 3, 64, 7, 2).kernel("conv7x7s2_224x3_64", Net::Fan, percent(70.0), ONE),
        square(224, 3, 32, 3, 2).kernel("conv3x3s2_224x3_32", Net::Fan, percent(70.0), ONE),
        depthwise(112, 32).kernel("depthwise3x3_112x32", Net::Chain, Goal::Bandwidth(25.0), ONE),
        depthwise(14, 576).kernel("depthwise3x3_14x576", Net::Chain, Goal::Bandwidth(50.0), ONE),
        Operator::Softmax.kernel("softmax_12x128x128", &[12, 128, 128], faster),
        Operator::Softmax.kernel("softmax_16x512x512", &[16, 512, 512], faster),
        Operator::LayerNorm.kernel("layer_norm_4096x1024", &[4096, 1024], faster),
        Operator::Gelu.kernel("gelu_4096x1024", &[4096, 1024], faster),
        Operator::Exp.kernel("exp_4096x1024", &[4096, 1024], faster),
        Operator::Tanh.kernel("tanh_4096x1024", &[4096, 1024], faster),
        Operator::Sigmoid.kernel("sigmoid_4096x1024", &[4096, 1024], faster),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A kernel that takes no time.
    pub(crate) fn tiny() -> Kernel {
        Product { m: 4, k: 8, n: 16 }.f32("tiny", Goal::Percent(0.0), TWO)
    }

    #[test]
    fn names_are_single_words_and_differ() {
        let names: Vec<String> = kernels().into_iter().map(|kernel| kernel.name).collect();
        assert!(names.iter().all(|name| !name.contains(char::is_whitespace)));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn every_kernel_does_something_on_one_thread_first() {
        for kernel in kernels() {
            assert!(kernel.work.flops > 0 && kernel.work.bytes > 0, "{}", kernel.name);
            assert_eq!(kernel.threads.first(), Some(&1), "{}", kernel.name);
        }
    }
}
