//! A code generator for niello: products with matrices of weights are computed by the C function
//! `own_product`, which whoever uses this crate links.

use niello::codegen::{ExternalCode, ExternalCodegen, ExternalFunction};
use niello::ir::DType;

/// Gives `nn.dense` to `own_product`.
pub struct OwnProducts;

niello::register_external_codegen!(OwnProducts);

impl ExternalCodegen for OwnProducts {
    fn name(&self) -> &'static str {
        "own"
    }

    fn operators(&self) -> &'static [&'static str] {
        &["nn.dense"]
    }

    /// A function of the part's own that calls the product with its sizes.
    fn generate(&self, part: &ExternalFunction) -> Result<ExternalCode, String> {
        let [x, weight] = &part.params[..] else {
            return Err(format!("a product takes two tensors, not {}", part.params.len()));
        };
        if x.dtype != DType::F32 {
            return Err(format!("own_product takes float32, not {}", x.dtype));
        }
        let [columns, depth] = weight.shape[..] else {
            return Err("the weights of a product are a matrix".to_owned());
        };
        let rows: i64 = x.shape.iter().rev().skip(1).product();
        let symbol = &part.symbol;
        let source = format!(
            "void own_product(const float *x, const float *weight, float *y, long rows, long columns,
                 long depth);

void {symbol}(const float *x, const float *weight, float *y) {{
    own_product(x, weight, y, {rows}, {columns}, {depth});
}}
"
        );
        Ok(ExternalCode::symbol(symbol).source(source).needs("own_product"))
    }
}
