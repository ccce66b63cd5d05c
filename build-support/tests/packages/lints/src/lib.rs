//! Bindings hold in every edition under the strictest lints that people use.
#![forbid(unsafe_code)]
#![deny(
    warnings,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    rust_2018_idioms,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason
)]

/// A model that the crate's users see.
pub mod odd {
    niello_runtime::include_model!("odd");
}

#[cfg(test)]
mod tests {
    /// A model that nobody uses.
    mod unused {
        niello_runtime::include_model!("odd");
    }

    use super::odd;

    #[test]
    fn every_tensor_arrives_under_its_name() {
        let mut model = odd::Model::new();
        let outputs = model.run(&odd::Inputs {
            tensor_12: &[1.5, 2.0],
            x_0_2: &[-5, i64::MAX - 8],
            x_0: &[true, false, true],
            input_1: &[0.25],
            r#type: &[7, 8],
            self_: &[0x3c00],
            empty: &[],
            a_b_div_x: &[0x21, 0x03],
        });
        assert_eq!(*outputs.tensor_12, [2, i64::MAX]);
        assert!((outputs.self_[0] - 3.75).abs() < 1e-12);
        assert!(outputs.crate_.is_empty());
        assert_eq!(*outputs.r#fn, [false, true, false]);
        assert_eq!(*outputs.tensor, [0x3c01]);
        assert_eq!(*outputs.x_0, [0x21, 0x03]);
    }

    #[test]
    fn constants_describe_the_model() {
        assert_eq!((odd::NAME, odd::WORKSPACE_BYTES, odd::WEIGHT_BYTES), ("odd", 1_234_560, 0));
        assert_eq!((odd::inputs::x_0_2::SHAPE, odd::inputs::x_0_2::LEN), ([2, 1], 2));
        assert_eq!(odd::inputs::input_1::LEN, 1);
        assert_eq!((odd::inputs::a_b_div_x::SHAPE, odd::inputs::a_b_div_x::LEN), ([3], 2));
        assert_eq!((odd::outputs::tensor::NAME, odd::outputs::tensor::DTYPE), ("", "bf16"));
        assert_eq!(odd::METADATA, [("producer", "by \"hand\"\n\u{202e}")]);
        assert_eq!(odd::MACS, 1234);
    }
}
