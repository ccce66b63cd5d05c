//! Tests of the parser, and of printing parsed text.

use super::{ParseErrors, parse_function, parse_module, parse_module_with};
use crate::arith::{Interval, Symbol};
use crate::graph::tests::{nested, nested_closures, relu};
use crate::graph::{
    Expr, FunctionBuilder, PrintOptions, ScopeKind, Sidecar, print_module, print_with_sidecar,
};
use crate::ir::{
    Attrs, Constant, DType, Definition, GlobalVar, IRModule, OnnxSpan, SharedBytes, Span,
    TensorType, Type,
};

fn row() -> Type {
    Type::tensor(&[4], DType::F32)
}

/// Parses a text and asserts that it prints as the same text.
#[track_caller]
fn check(text: &str) -> IRModule {
    let module = parse_module(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(module.to_string(), text);
    module
}

fn errors(text: &str) -> ParseErrors {
    parse_module(text).map(|module| module.to_string()).unwrap_err()
}

/// The errors, written as `line:column: message; help`.
fn messages(text: &str) -> Vec<String> {
    let first_line =
        |error: &super::ParseError| error.to_string().lines().next().unwrap().to_owned();
    errors(text).0.iter().map(first_line).collect()
}

#[test]
fn every_kind_of_expression_reads_back() {
    let module = check(
        r#"#[producer="pytorch \"2\"", version=3]

extern def @custom.gelu(Tensor[(4), float32]) -> Tensor[(4), float32] {Compiler="dsp"};

def @main(%x: Tensor[(4), float32], %c: Tensor[(), bool], %"input.1": Tensor[(n, 2*n + 1), int64]) -> (Tensor[(4), float32], Tensor[(4), float32]) {
  %0 = nn.relu(%x);
  let %y = nn.relu(%0);
  let %alias = %y;
  %1 = (%0, const([1, 2.5, -0, inf], float32), %y);
  %2 = if (%c) {
    let %y_1 = nn.relu(%1.2);
    %y_1
  } else {
    %3 = if (const(true, bool)) {
      %0
    } else {
      splat(0.5, Tensor[(4), float32])
    };
    nn.relu(%3)
  };
  %4 = loop (%2, %c) while (%s: Tensor[(4), float32], %go: Tensor[(), bool]) {
    %go
  } do (%s: Tensor[(4), float32], %go: Tensor[(), bool]) {
    %5 = @other(%s);
    (%5, const(false, bool))
  };
  %6 = fn %again (%p: Tensor[(4), float32], %"6": Tensor[(), bool]) -> Tensor[(4), float32] {Primitive=true} {
    if (%"6") {
      %again(%p, const(false, bool))
    } else {
      @custom.gelu(%p)
    }
  };
  %7 = %6(%4.0, %4.1);
  (%7, %7)
}

def @other(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  %x
}
"#,
    );
    let main = module.function("main").unwrap();
    let calls = main.iter().filter(|(_, data)| matches!(data.expr, Expr::Call(_))).count();
    assert_eq!(calls, 8);
    assert_eq!(module.attrs().str("producer"), Some("pytorch \"2\""));
    assert_eq!(main.scope(main.body()).bindings.len(), 2);
    assert_eq!(main.span(main.result()), &Span::Text { line: 35, column: 3 });
}

#[test]
fn attributes_of_every_kind_read_back() {
    let module = check(
        r#"def @"odd name"(%x: (Tensor[(), float8_e4m3fn],)) -> (Tensor[(), float8_e4m3fn],) {"a b"=[], e=1e-30, i=-9223372036854775808, list=[[1, dim(n*floordiv(m, 2))], [true, "x\n"]], nan=nan, neg=-0.0, other=nan(0x7ff8000000000001)} {
  %x
}
"#,
    );
    let attrs = module.function("odd name").unwrap().attrs();
    assert_eq!(attrs.get("neg"), Some(&(-0.0f64).into()));
    assert_eq!(attrs.get("other"), Some(&f64::from_bits(0x7ff8_0000_0000_0001).into()));
    assert_eq!(attrs.get("i"), Some(&i64::MIN.into()));
}

#[test]
fn facts_about_symbols_read_back() {
    let text = |facts: &str| {
        format!(
            "def @main(%x: Tensor[(n, m), float32]) -> Tensor[(n, m), float32]{facts} {{Primitive=true}} {{\n  %x\n}}\n"
        )
    };
    for facts in [
        "",
        " where *",
        " where *, n >= 1",
        " where n >= 0, n <= 64, mod(m, 8) == 0",
        " where \"a{\" >= 0, \"a{\" <= 3",
        " where * >= 1, n >= 2, n <= 7",
        " where * >= 0, * <= 9, n >= 0, n <= 7",
        " where m == 2*n",
    ] {
        check(&text(facts));
    }
    let bounds = |facts: &str, symbol: &str| {
        let module = parse_module(&text(facts)).unwrap();
        module.function("main").unwrap().facts().symbol_bounds(&Symbol::new(symbol))
    };
    assert_eq!(bounds(" where n <= 64", "m"), Interval::NON_NEGATIVE);
    assert_eq!(bounds(" where n <= 64", "n"), Interval::new(0, 64));
    assert_eq!(bounds(" where *, n <= 64", "n"), Interval::at_most(64));
    for (facts, culprit) in [
        (" where n >= 3, n <= 2", "n <= 2"),
        (" where *, n >= 3, n <= 2", "n <= 2"),
        (" where", "{Primitive"),
        (" where n", " {Primitive"),
    ] {
        let text = text(facts);
        let column = text.find(culprit).unwrap() + 1;
        let wrong = messages(&text);
        assert!(wrong[0].starts_with(&format!("1:{column}: ")), "{facts}: {wrong:?}");
    }
}

#[test]
fn text_may_be_written_more_freely_than_it_is_printed() {
    let module = parse_module(
        "def @main(%x: Tensor[(4,), f32],) -> Tensor[(2 + 2), f32] { // params\n\
         ; a comment line\n\
         %a: Tensor[(4), float32] = nn.relu((nn.relu(%x), %x).0); /* dead */ %dead = nn.relu(%x);\n\
         (%a) }",
    )
    .unwrap();
    let expected = "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  %0 = nn.relu(%x);
  %1 = (%0, %x);
  %2 = nn.relu(%1.0);
  %3 = nn.relu(%x);
  %2
}
";
    assert_eq!(module.to_string(), expected);
    check(expected);
}

#[test]
fn attributes_with_defaults_may_be_left_out() {
    let short = "def @f(%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(3, 2, 3, 3), float32]) -> Tensor[(1, 3, 5, 5), float32] {
  nn.softmax(nn.conv2d(%x, %w, padding=[1, 1, 1, 1]))
}";
    let printed = parse_module(short).unwrap().to_string();
    for spelt_out in [
        "nn.conv2d(%x, %w, dilation=[1, 1], groups=1, padding=[1, 1, 1, 1], strides=[1, 1])",
        "axis=-1",
    ] {
        assert!(printed.contains(spelt_out), "{printed}");
    }
}

#[test]
fn functions_print_without_a_name() {
    let text = "fn (%x: Tensor[(4), float32]) -> Tensor[(4), float32] {\n  nn.relu(%x)\n}\n";
    assert_eq!(parse_function(text).unwrap().to_string(), text);
}

#[test]
fn names_that_are_visible_together_are_kept_apart() {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", row());
    let other = b.param("x", row());
    b.param("x_1", row());
    let y = b.call(relu(), &[other], Attrs::new()).unwrap();
    b.bind("x", y);
    b.bind("", x);
    let function = b.finish(y);
    let text = IRModule::from_function(function).to_string();
    assert!(
        text.contains("(%x: Tensor[(4), float32], %x_1: Tensor[(4), float32], %x_1_1: "),
        "{text}"
    );
    assert!(text.contains("let %x_2 = nn.relu(%x_1);\n  let %\"\" = %x;"), "{text}");
    check(&text);
}

#[test]
fn bindings_out_of_order_print_where_they_are_computed() {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", row());
    let early = b.call(relu(), &[x], Attrs::new()).unwrap();
    let constant = b.constant(Constant::from_f32(&[4], &[0.5; 4]).unwrap());
    let late = b.tuple(&[early, constant]);
    b.bind("late", late);
    b.bind("early", early);
    b.bind("constant", constant);
    let last = b.tuple(&[constant, early]);
    let function = b.finish(last);
    let text = check(&IRModule::from_function(function).to_string()).to_string();
    let body: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        body,
        [
            "%0 = nn.relu(%x);",
            "let %late = (%0, const([0.5, 0.5, 0.5, 0.5], float32));",
            "let %early = %0;",
            "let %constant = const([0.5, 0.5, 0.5, 0.5], float32);",
            "(%constant, %0)",
            "}",
        ]
    );
}

#[test]
fn a_scope_may_bind_a_constant_of_another_under_a_name_of_its_own() {
    let mut b = FunctionBuilder::new();
    let c = b.param("c", Type::tensor(&[], DType::Bool));
    let zero = b.constant(Constant::scalar(0.0, DType::F32).unwrap());
    b.open_scope(ScopeKind::Branch);
    b.bind("zero", zero);
    let then_scope = b.close_scope(zero);
    b.open_scope(ScopeKind::Branch);
    let else_scope = b.close_scope(zero);
    let choice = b.if_else(c, then_scope, else_scope).unwrap();
    let text = IRModule::from_function(b.finish(choice)).to_string();
    assert!(
        text.contains("    let %zero = const(0, float32);\n    %zero\n  } else {\n    const(0"),
        "{text}"
    );
    check(&text);
}

#[test]
fn types_and_spans_show_on_request() {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", row());
    let node = OnnxSpan { node: "a\nb".into(), op: "Relu".into(), opset: 13, source: None };
    b.set_span(Span::Onnx(node.into()));
    let y = b.call(relu(), &[x], Attrs::new()).unwrap();
    b.bind("y", y);
    let module = IRModule::from_function(b.finish(y));
    let options = PrintOptions { types: true, spans: true, ..PrintOptions::default() };
    let text = print_module(&module, &options);
    assert!(
        text.contains("let %y: Tensor[(4), float32] = nn.relu(%x);  // Relu `a\\nb` (opset 13)\n"),
        "{text}"
    );
    assert_eq!(parse_module(&text).unwrap().to_string(), module.to_string());
}

#[test]
fn large_constants_come_back_from_the_sidecar() {
    let mut b = FunctionBuilder::new();
    let values: Vec<f32> = (0..100).map(|v| v as f32).collect();
    let weights = b.constant(Constant::from_f32(&[100], &values).unwrap());
    let ty = TensorType::from_consts(&[2], DType::I8);
    let unknown = b.constant(Constant::opaque(ty, [7; 32]));
    let both = b.tuple(&[weights, unknown]);
    let module = IRModule::from_function(b.finish(both));
    let (text, sidecar) = print_with_sidecar(&module, &PrintOptions::default());
    assert_eq!(sidecar.len(), 1);
    let mut file = Vec::new();
    sidecar.write_to(&mut file).unwrap();
    let sidecar = Sidecar::read(&SharedBytes::new(file)).unwrap();

    let constants = |module: &IRModule| -> Vec<Constant> {
        let main = module.function("main").unwrap();
        main.iter().filter_map(|(_, data)| data.expr.as_constant().cloned()).collect()
    };
    let with = constants(&parse_module_with(&text, &sidecar).unwrap());
    assert_eq!(with[0].to_f64_vec(), Some((0..100).map(f64::from).collect()));
    assert!(with[1].is_opaque());
    let without = constants(&check(&text));
    assert!(without[0].is_opaque() && without[0] == with[0]);

    let wrong = text.replace("Tensor[(100), float32]", "Tensor[(50), float32]");
    let errors = parse_module_with(&wrong, &sidecar).unwrap_err().to_string();
    assert!(errors.contains("takes 200 bytes, but 400 were given"), "{errors}");
}

#[test]
fn errors_point_at_their_place_and_say_what_was_meant() {
    let error = errors(
        "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {\n  nn.rellu(%x)\n}\n",
    );
    assert_eq!(
        error.to_string(),
        "2:3: there is no operator `nn.rellu`; did you mean `nn.relu`?\n  |   nn.rellu(%x)\n  |   ^"
    );
    let wrap = |body: &str| {
        format!("def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {{\n{body}\n}}\n")
    };
    for (body, expected) in [
        ("nn.relu(%y)", "2:9: `%y` is not defined here"),
        ("let %long = %x; %lnog", "2:17: `%lnog` is not defined here; did you mean `long`?"),
        ("nn.relu(%x, %x)", "2:1: `nn.relu`: `nn.relu` takes at most 1 inputs, but 2 are given"),
        ("%x = nn.relu(%x); %x", "2:1: `%x` is defined already"),
        (
            "%y: Tensor[(5), float32] = %x; %y",
            "2:5: the value is declared as Tensor[(5), float32], but it is Tensor[(4), float32]",
        ),
        ("@mian(%x)", "2:1: the module does not define `@mian`; did you mean `main`?"),
        (
            "(%x, %x)",
            "1:40: the result is declared as Tensor[(4), float32], but it is (Tensor[(4), float32], Tensor[(4), float32])",
        ),
        ("%x.0", "2:1: Tensor[(4), float32] has no fields"),
        ("nn.relu(%x) }}", "2:14: expected `def`, `prim_func`, `extern def` or `#[…]`, found `}`"),
        ("const([1, 2", "3:1: expected `,` or `]`, found `}`"),
        ("const([1, [2]], float32)", "2:11: a list beside a number"),
        ("const([[1, 2], [3]], float32)", "2:18: a list of 1 beside one of 2"),
        ("const([1, x], float32)", "2:11: expected a number, found `x`"),
        ("const([1, 300], int8)", "2:11: `300` is not a int8"),
        ("splat(0, Tensor[(9999999999), float32])", "takes more than 2147483648 bytes"),
        ("const(Tensor[(4), float32], blake3:12)", "a digest must be 64 hexadecimal digits"),
        ("nn.relu(%x, axis=1, axis=2)", "2:21: attribute `axis` is given twice"),
        ("nn.relu(axis=1, %x)", "2:17: an argument after an attribute"),
        ("nn.relu(%x", "expected `,` or `)`"),
        ("if (%x) { %x } else { %x }", "2:1: a condition must be a boolean scalar"),
        ("if (%x) { %x }", "expected `else`"),
        ("%0 = nn.relu(%x)", "expected `;`"),
        ("\"text\"", "2:1: expected an expression, found a string"),
        ("?", "'?' is not a part of the language"),
        ("", "expected an expression, found `}`"),
    ] {
        let messages = messages(&wrap(body));
        assert!(messages[0].contains(expected), "{body}: {messages:#?}");
        assert_eq!(messages.len(), 1, "{body}: {messages:#?}");
    }
    for (text, expected) in [
        ("def @f() -> () {\n  ()\n", "1:16: this brace is not closed"),
        (
            "def @f(%x: Tensor[(n // 2), f32]) -> () { () }",
            "1:22: there is no comment here; write a quotient as `floordiv(a, b)`",
        ),
        (
            "def @f(%x: Tensor[(2), flaot32]) -> () { () }",
            "`flaot32` is not a data type; did you mean `float32`?",
        ),
        ("def @f() -> () { () } def @f() -> () { () }", "1:27: `@f` is defined already"),
        ("def @f() -> () { () } #[a=1]", "the module's attributes stand once"),
        ("extern def @f() -> ()", "expected `;`, found the end"),
        ("def f() -> () { () }", "1:5: expected the name of a definition, `@name`, found `f`"),
    ] {
        let messages = messages(text);
        assert!(messages[0].contains(expected), "{text}: {messages:#?}");
    }
}

#[test]
fn all_errors_are_reported_without_those_that_follow_from_them() {
    let messages = messages(
        "def @main(%x: Tensor[(4), float32], %c: Tensor[(), bool]) -> Tensor[(4), float32] {
  %0 = nn.rellu(%x);
  %1 = nn.relu(%0);
  let %2 = if (%1) {
    nn.relu(%nowhere)
  } else {
    %3 = nn.relu(%x, %x);
    %3
  };
  %4 = nn.relu(%x;
  %5 = nn.relu(%4);
  %2
}
def @second() -> Tensor[(2), float33] { () }
def @third() -> () { %0 }
",
    );
    let places: Vec<&str> =
        messages.iter().map(|message| message.split_once(": ").unwrap().0).collect();
    assert_eq!(places, ["2:8", "5:13", "7:10", "10:18", "14:30", "15:22"], "{messages:#?}");
}

#[test]
fn errors_are_limited_in_number_and_length() {
    let text = format!("def @f() -> () {{ {} () }}", "%a = b(); ".repeat(1000));
    let errors = errors(&text);
    assert_eq!(errors.0.len(), 32);
    assert!(errors.to_string().len() < 32 * 300);
}

#[test]
fn nesting_is_limited_where_parsing_recurses() {
    let deep = |open: &str, close: &str| open.repeat(100_000) + "1" + &close.repeat(100_000);
    for text in [
        format!("def @f() -> () {{ {} }}", deep("(", ")")),
        format!("def @f() -> () {{ {} }}", deep("nn.relu(", ")")),
        format!("def @f() -> () {{ const({}, f32) }}", deep("[", "]")),
        format!("def @f() -> {} {{ () }}", deep("(", ")")),
        format!("def @f() -> {} {{ () }}", deep("fn () -> Seq[", "]")),
        format!("def @f(%x: Tensor[({}), f32]) -> () {{ () }}", deep("(", ")")),
        format!("#[a={}]", deep("[", "]")),
    ] {
        assert!(errors(&text).to_string().contains("nests more than"), "{}", errors(&text));
    }
    // Each line doubles the type.
    let mut text = "def @f(%0: Tensor[(), bool]) -> () {\n".to_owned();
    for line in 1..100 {
        text += &format!("%{line} = (%{0}, %{0});\n", line - 1);
    }
    assert!(errors(&(text + "()\n}")).to_string().contains("over 65536 parts"));
}

#[test]
fn long_chains_print_and_read_back() {
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", row());
    for index in 0..100_000 {
        x = b.call(relu(), &[x], Attrs::new()).unwrap();
        if index % 2 == 0 {
            b.bind("x", x);
        }
    }
    let text = IRModule::from_function(b.finish(x)).to_string();
    assert_eq!(text.lines().count(), 100_002);
    check(&text);
    // On one line, so that counting columns must be linear, too.
    let one_line = text.replace('\n', " ");
    assert_eq!(parse_module(&one_line).unwrap().to_string(), text);
}

#[test]
fn scopes_nest_without_a_limit() {
    for function in [nested(20_000), nested_closures(20_000)] {
        let mut module = IRModule::new();
        module.insert(GlobalVar::new("deep"), Definition::Graph(function));
        check(&module.to_string());
    }
}
