//! Models of which code generators of other crates take parts.

use super::*;
use crate::codegen::object::check_undefined;
use crate::codegen::{ExternalCode, ExternalCodegen, ExternalFunction};
use crate::executor::{GraphExecutor, compare_kernels};
use crate::graph::interp::{Tolerance, Value, evaluate};

/// Products by loops in C, and a pattern of operators element by element.
struct Loops;

impl ExternalCodegen for Loops {
    fn name(&self) -> &'static str {
        "test_loops"
    }

    fn operators(&self) -> &'static [&'static str] {
        &["nn.dense"]
    }

    fn patterns(&self) -> &'static [(&'static str, &'static str)] {
        &[("test_loops.exp_negative", "exp(negative(*))")]
    }

    fn generate(&self, part: &ExternalFunction) -> Result<ExternalCode, String> {
        let symbol = &part.symbol;
        let elements: i64 = part.results[0].shape.iter().product();
        let text = match &part.params[..] {
            [x, w] if x.dtype == DType::F32 => {
                assert!(w.value.is_some());
                let (n, k) = (w.shape[0], w.shape[1]);
                format!(
                    "void {symbol}(const void *x, const void *w, void *y) {{
    for (long i = 0; i < {elements}; i++) {{
        float sum = 0;
        for (long j = 0; j < {k}; j++)
            sum += ((const float *)x)[i / {n} * {k} + j] * ((const float *)w)[i % {n} * {k} + j];
        ((float *)y)[i] = sum;
    }}
}}\n"
                )
            }
            // The first terms of the series serve small numbers.
            [_] => format!(
                "void {symbol}(const float *x, float *y) {{
    for (long i = 0; i < {elements}; i++)
        y[i] = 1 - x[i] + x[i] * x[i] / 2 - x[i] * x[i] * x[i] / 6;
}}\n"
            ),
            _ => return Err(format!("it has no product of {}", part.params[0].dtype)),
        };
        Ok(ExternalCode::symbol(symbol).source(text))
    }
}

crate::register_external_codegen!(Loops);

/// A function that whoever links the program provides.
struct Elsewhere;

impl ExternalCodegen for Elsewhere {
    fn name(&self) -> &'static str {
        "test_elsewhere"
    }

    fn operators(&self) -> &'static [&'static str] {
        &["nn.dense", "tanh"]
    }

    fn merges_neighbours(&self) -> bool {
        true
    }

    fn generate(&self, part: &ExternalFunction) -> Result<ExternalCode, String> {
        match part.results[0].shape[..] {
            [_, 5] => Ok(ExternalCode::symbol("5 columns")),
            _ => Ok(ExternalCode::symbol("test_elsewhere_product")),
        }
    }
}

crate::register_external_codegen!(Elsewhere);

/// A convolution whose value is read dense as well, two products and what is between them.
const NETWORK: &str = "def @main(%x: Tensor[(1, 16, 4, 4), float32], %w: Tensor[(16, 16, 3, 3), float32]) -> (Tensor[(1, 16, 4, 3), float32], Tensor[(1, 16, 4, 4), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1]);
  %1 = nn.conv2d(%0, %w, padding=[1, 1, 1, 1]);
  %3 = nn.dense(%0, const([[0.5, -0.25, 0.125, 1.0], [1.5, 0.25, -0.5, 0.0]], float32));
  %4 = tanh(%3);
  %5 = nn.dense(%4, const([[1.0, 0.5], [-1.0, 0.25], [0.0, 2.0]], float32));
  %6 = multiply(%5, const(0.03, float32));
  %7 = negative(%6);
  (exp(%7), %1)
}";

fn text(text: &str) -> (tempfile::TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.relay");
    std::fs::write(&path, text).unwrap();
    let model = Model::read(&path).unwrap();
    (folder, model)
}

fn with(names: &[&str], options: CompileOptions) -> CompileOptions {
    CompileOptions { external: names.iter().map(|&name| name.to_owned()).collect(), ..options }
}

fn ramp(shape: &[i64]) -> Constant {
    let value = |i: i64| (i * 37 % 101) as f32 / 400.0 - 0.125;
    let elements = shape.iter().product();
    Constant::from_f32(shape, &(0..elements).map(value).collect::<Vec<_>>()).unwrap()
}

/// The greatest difference of two lists of tensors.
fn difference(a: &[Constant], b: &[Constant]) -> f64 {
    let floats = |constants: &[Constant]| -> Vec<f64> {
        let tensors = constants.iter().map(|c| Tensor::from_constant(c).unwrap());
        tensors.flat_map(|tensor| tensor.floats().unwrap().to_vec()).collect()
    };
    let (a, b) = (floats(a), floats(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn parts_of_a_model_are_computed_by_another_code_generator() {
    let (_folder, model) = text(NETWORK);
    let inputs = [ramp(&[1, 16, 4, 4]), ramp(&[16, 16, 3, 3])];
    for &backend in Backend::ALL {
        let options = with(&["test_loops"], CompileOptions { backend, ..options() });
        let compilation = run(&model, &options).unwrap();
        let program = &compilation.program;
        assert_eq!(program.external.len(), 3);
        assert!(program.external.iter().all(|code| code.source.is_some()));
        assert!(compilation.model.external_symbols.is_empty());
        check_undefined(&compilation.model.objects, &[]).unwrap();
        let args = inputs.iter().map(|x| Value::from(Tensor::from_constant(x).unwrap()));
        let args: Vec<Value> = args.collect();
        let value = evaluate(&compilation.module, "main", &args).unwrap();
        let fields = value.as_tuple().unwrap().iter();
        let expected: Vec<Constant> =
            fields.map(|field| field.as_tensor().unwrap().to_constant().unwrap()).collect();
        for loaded in load(&compilation.model, &options) {
            let found = loaded.run(&inputs).unwrap();
            assert!(difference(&found, &expected) < 1e-4, "{backend}: {found:?} {expected:?}");
        }
        assert_ne!(compilation.model.symbol, run(&model, &self::options()).unwrap().model.symbol);
    }
}

/// The series is a wrong kernel for numbers that are not small, between others that are right.
#[test]
fn the_first_kernel_that_differs_from_the_interpreter_is_named() {
    let (_folder, model) = text(
        "def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
          %0 = tanh(%x);
          %1 = negative(%0);
          %2 = exp(%1);
          nn.softmax(%2)
        }",
    );
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, single_calls: true, ..options() };
        let options = with(&["test_loops"], options);
        let Compilation { model, module, program, plan, .. } = run(&model, &options).unwrap();
        for loaded in load(&model, &options) {
            let compare = |value: f32| {
                let input = [Constant::from_f32(&[2, 3], &[0.125, value, 0.0, -0.125, 0.0, 0.0])];
                let input = input.map(Result::unwrap);
                let mut run = GraphExecutor::new(&loaded, &program, &plan, &input).unwrap();
                let compared = compare_kernels(&mut run, &module, &input, Tolerance::near);
                assert!(compared.is_err() || run.finish().unwrap() == loaded.run(&input).unwrap());
                compared.map_err(|problem| problem.to_string())
            };
            assert_eq!(compare(0.25), Ok(3));
            let error = compare(2.0).unwrap_err();
            for part in [
                "(negative, exp) of Tensor[(2, 3), float32] -> Tensor[(2, 3), float32]: 1 of 6 \
                 elements differ, the first at [0, 1]: 0.35",
                "the largest error is 3.00",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

#[test]
fn a_run_kernel_by_kernel_needs_its_functions_and_one_size() {
    let x = [Constant::from_f32(&[2, 3], &[0.0; 6]).unwrap()];
    let error = |single_calls, size: crate::options::DimSize| {
        let dims = [("batch".to_owned(), size)].into();
        let options = CompileOptions { single_calls, dims, ..options() };
        let Compilation { model, program, plan, .. } = run(&dense(), &options).unwrap();
        let loaded = &load_one(&model, &options);
        GraphExecutor::new(loaded, &program, &plan, &x).unwrap_err().to_string()
    };
    assert!(error(false, 2.into()).contains("without functions for single calls"));
    assert!(error(true, (1..=4).into()).contains("fix the sizes of its dimensions"));
}

#[test]
fn a_function_that_the_program_links_is_no_part_of_the_objects() {
    let (_folder, model) = text(NETWORK);
    let compilation = run(&model, &with(&["test_elsewhere"], options())).unwrap();
    // Both products and what is between them.
    assert_eq!(compilation.program.external.len(), 1);
    assert_eq!(compilation.model.external_symbols, ["test_elsewhere_product"]);
    assert!(check_undefined(&compilation.model.objects, &[]).is_err());
    check_undefined(&compilation.model.objects, &["test_elsewhere_product"]).unwrap();
}

#[test]
fn what_is_wrong_with_a_code_generator_is_told() {
    let product = |dtype: &str, columns: usize| {
        format!(
            "def @main(%x: Tensor[(2, 3), {dtype}], %w: Tensor[({columns}, 3), {dtype}]) -> \
             Tensor[(2, {columns}), {dtype}] {{ nn.dense(%x, %w) }}"
        )
    };
    let error = |names: &[&str], network: &str| {
        let (_folder, model) = text(network);
        run(&model, &with(names, options())).unwrap_err().to_string()
    };
    let unknown = error(&["test_lops"], NETWORK);
    assert!(unknown.contains("no code generator `test_lops` is registered"), "{unknown}");
    assert!(unknown.contains("did you mean `test_loops`?"), "{unknown}");
    let refused = error(&["test_loops"], &product("float64", 4));
    let expected = "the code generator `test_loops` refuses `@test_loops_main_0`: it has no product \
                    of float64";
    assert!(refused.contains(expected), "{refused}");
    let bad = error(&["test_elsewhere"], &product("float32", 5));
    assert!(bad.contains("`5 columns`, which is no name in C"), "{bad}");
    let twice = "def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32], %v: Tensor[(6, 3), float32]) -> (Tensor[(2, 4), float32], Tensor[(2, 6), float32]) {
      (nn.dense(%x, %w), nn.dense(%x, %v))
    }";
    let twice = error(&["test_elsewhere"], twice);
    assert!(twice.contains("have the function `test_elsewhere_product`"), "{twice}");
}
