//! Code generators for niello. By one, products with matrices of weights are computed by the C
//! function `own_product`, which whoever uses this crate links; the other one writes C for what is
//! computed on device 2.

use std::collections::BTreeMap;

use niello::codegen::{ExternalCode, ExternalCodegen, ExternalFunction};
use niello::graph::{Callee, Expr, ExprId};
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

/// A unit that computes chains of functions of one number, element by element: what the model puts
/// on device 2 with `on_device`.
pub struct VectorUnit;

niello::register_external_codegen!(VectorUnit);

impl ExternalCodegen for VectorUnit {
    fn name(&self) -> &'static str {
        "vector"
    }

    fn device_type(&self) -> Option<u32> {
        Some(2)
    }

    fn merges_neighbours(&self) -> bool {
        true
    }

    /// One loop, with a statement for each call.
    fn generate(&self, part: &ExternalFunction) -> Result<ExternalCode, String> {
        let ([x], [y]) = (&part.params[..], &part.results[..]) else {
            return Err("the unit reads one tensor and writes one".to_owned());
        };
        if x.dtype != DType::F32 || x.shape != y.shape {
            return Err(format!("the unit takes float32 and keeps shapes, not {}", x.dtype));
        }
        let function = &part.function;
        let mut names: BTreeMap<ExprId, String> = BTreeMap::new();
        let mut statements = String::new();
        for (id, data) in function.iter() {
            let name = match &data.expr {
                Expr::Var(_) => "x[i]".to_owned(),
                Expr::Call(call) => {
                    let value = format!("v{}", names.len());
                    let arg = call.args.first().copied().flatten().map(|arg| names[&arg].clone());
                    let arg = arg.unwrap_or_default();
                    let formula = match call.callee {
                        Callee::Op(op) => formula(op.name, &arg),
                        Callee::Expr(_) => None,
                    };
                    let formula = formula.ok_or_else(|| format!("the unit cannot {call:?}"))?;
                    statements += &format!("        float {value} = {formula};\n");
                    value
                }
                other => return Err(format!("the unit has calls alone, not {other:?}")),
            };
            names.insert(id, name);
        }
        let (symbol, result) = (&part.symbol, &names[&function.result()]);
        let elements: i64 = y.shape.iter().product();
        let source = format!(
            "void {symbol}(const float *x, float *y) {{
    for (long i = 0; i < {elements}; i++) {{
{statements}        y[i] = {result};
    }}
}}
"
        );
        Ok(ExternalCode::symbol(symbol).source(source))
    }
}

/// What an operator makes of a number, as C.
fn formula(op: &str, x: &str) -> Option<String> {
    Some(match op {
        "negative" => format!("-{x}"),
        "nn.relu" => format!("{x} > 0 ? {x} : 0"),
        "nn.softsign" => format!("{x} / (1 + ({x} < 0 ? -{x} : {x}))"),
        _ => return None,
    })
}
