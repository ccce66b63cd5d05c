//! Calls of functions that other code generators make: steps like those of kernels, with dense
//! tensors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Lowering, problem_at};
use crate::codegen::{
    ExternalCode, ExternalCodegen, ExternalFunction, ExternalTensor, external_codegen,
};
use crate::diagnostics::Problem;
use crate::executor::{Kernel, Step, Value, ValueId, ValueKind};
use crate::graph::{Expr, ExprId, Function};
use crate::ir::{BufferSpec, Constant, DType, GlobalVar, Span};
use crate::pass::panic_message;
use crate::te::held_constant;
use crate::tir::{EXTERNAL_SYMBOL_ATTR, PrimFunc, PrimFuncData};

/// What is wrong with a part of the graph for the code generator `compiler`, if nobody registered
/// it.
pub(super) fn unknown(what: &str, compiler: &str) -> Option<Problem> {
    let problem = external_codegen(compiler).err()?;
    let message = format!("{what} is for the code generator `{compiler}`, which is not known");
    let help = problem.help.unwrap_or(problem.message);
    Some(
        Problem::new(message).help(format!(
            "{help}; without the attribute `Compiler`, it is compiled as the rest is"
        )),
    )
}

/// What a function is handed: a value, or a constant.
type Given = Result<ValueId, Constant>;

impl Lowering<'_> {
    /// A call of a function for the code generator `compiler`.
    pub(super) fn external_call(
        &mut self,
        id: ExprId,
        global: &GlobalVar,
        function: &Function,
        compiler: &str,
        args: &[ExprId],
    ) -> Result<Vec<ValueId>, Problem> {
        let span = self.main.span(id).clone();
        let codegen = external_codegen(compiler)?;
        let mut given = self.given(args);
        for value in given.iter_mut().flatten() {
            *value = self.dense(*value);
        }
        let results = self.tensors_of(id)?;
        let values = given.iter().flatten();
        let of_args = values.map(|&value| !self.program.values[value].run_time.is_empty());
        let of_results = self.axes_of(id)?.into_iter().map(|axes| !axes.is_empty());
        if of_args.chain(of_results).any(|is_open| is_open) {
            let message = format!(
                "`{global}`, which is for the code generator `{compiler}`, has a size that is known \
                 at run time alone"
            );
            return Err(problem_at(message, &span).help("fix the dimension's size"));
        }
        let params = given.iter().map(|arg| self.tensor(arg)).collect();
        let tensor =
            |(shape, dtype): (Vec<i64>, DType)| ExternalTensor { dtype, shape, value: None };
        let results: Vec<ExternalTensor> = results.into_iter().map(tensor).collect();
        let part = ExternalFunction::new(compiler, function.clone(), params, results);
        let code = made_of(codegen, global, &part, &span)?;
        let func = signature(global.name(), compiler, &code.symbol, &part);
        self.add_external(code, &func).map_err(|message| problem_at(message, &span))?;
        let kernel = self.program.kernels.push(Kernel::new(vec![func; self.levels.len()]));
        let mut step_args = Vec::with_capacity(given.len() + part.results.len());
        for (arg, tensor) in given.into_iter().zip(&part.params) {
            step_args.push(match arg {
                Ok(value) => value,
                Err(constant) => self.constant(&constant, BufferSpec::dense(&tensor.shape)),
            });
        }
        let computed = part.results.iter().map(|tensor| {
            self.program.values.push(Value {
                name: global.name().to_owned(),
                dtype: tensor.dtype,
                spec: BufferSpec::dense(&tensor.shape),
                kind: ValueKind::Computed,
                run_time: Vec::new(),
            })
        });
        let values: Vec<ValueId> = computed.collect();
        step_args.extend(&values);
        self.program.steps.push(Step { kernel, args: step_args });
        Ok(values)
    }

    /// What arguments hand over, tuples flattened.
    fn given(&self, args: &[ExprId]) -> Vec<Given> {
        let fields = args.iter().flat_map(|&arg| match self.main.expr(arg) {
            Expr::Tuple(fields) => fields.to_vec(),
            _ => vec![arg],
        });
        let mut given = Vec::new();
        for field in fields {
            match self.main.expr(field) {
                Expr::Constant(constant) => given.push(Err(held_constant(constant))),
                _ => given.extend(self.values[field].iter().map(|&value| Ok(value))),
            }
        }
        given
    }

    fn tensor(&self, given: &Given) -> ExternalTensor {
        match given {
            Ok(value) => {
                let Value { dtype, spec, .. } = &self.program.values[*value];
                ExternalTensor { dtype: *dtype, shape: spec.shape().to_vec(), value: None }
            }
            Err(constant) => {
                let ty = constant.ty();
                let dims = ty.shape.as_consts().unwrap_or_default();
                let shape = dims.into_iter().map(|dim| i64::try_from(dim).unwrap_or(i64::MAX));
                let shape = shape.collect();
                ExternalTensor { dtype: ty.dtype, shape, value: Some(constant.clone()) }
            }
        }
    }

    /// Adds what a code generator made to the program, unless it is there.
    fn add_external(&mut self, code: ExternalCode, func: &PrimFunc) -> Result<(), String> {
        let symbol = &code.symbol;
        let known = self.program.external.iter().find(|known| known.symbol == *symbol);
        let Some(known) = known else {
            self.program.external.push(code);
            return Ok(());
        };
        let mut kernels = self.program.kernels.values().map(Kernel::signature);
        let former = kernels.find(|former| former.external_symbol() == Some(symbol));
        match *known == code && former.is_some_and(|former| former.structural_eq(func)) {
            true => Ok(()),
            false => Err(format!(
                "two parts of the model that differ have the function `{symbol}` of another code \
                 generator"
            )),
        }
    }
}

/// What a code generator makes of a part.
fn made_of(
    codegen: &dyn ExternalCodegen,
    global: &GlobalVar,
    part: &ExternalFunction,
    span: &Span,
) -> Result<ExternalCode, Problem> {
    let name = codegen.name();
    let code = catch_unwind(AssertUnwindSafe(|| codegen.generate(part))).map_err(|payload| {
        let message = panic_message(&*payload);
        problem_at(format!("the code generator `{name}` panicked at `{global}`: {message}"), span)
    })?;
    let code = code.map_err(|reason| {
        problem_at(format!("the code generator `{name}` refuses `{global}`: {reason}"), span)
    })?;
    let bad = std::iter::once(&code.symbol).chain(&code.needs).find(|symbol| !is_c_name(symbol));
    if let Some(bad) = bad {
        return Err(problem_at(
            format!(
                "the code generator `{name}` calls a function of `{global}` `{bad}`, which is no \
                 name in C"
            ),
            span,
        ));
    }
    Ok(code)
}

fn is_c_name(symbol: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    symbol.starts_with(is_letter) && symbol.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// The function as programs know it: its parameters, and no statements.
fn signature(name: &str, compiler: &str, symbol: &str, part: &ExternalFunction) -> PrimFunc {
    let mut func = PrimFuncData::new(name);
    for (number, ExternalTensor { dtype, shape, value }) in part.params.iter().enumerate() {
        let (name, spec) = (format!("param_{number}"), BufferSpec::dense(shape));
        match value {
            Some(_) => func.constant(&name, *dtype, spec),
            None => func.input(&name, *dtype, spec),
        };
    }
    for (number, ExternalTensor { dtype, shape, .. }) in part.results.iter().enumerate() {
        func.output(format!("result_{number}"), *dtype, BufferSpec::dense(shape));
    }
    func.attrs.insert(EXTERNAL_SYMBOL_ATTR.to_owned(), symbol.to_owned());
    func.origin.push(format!("made by the code generator `{compiler}`"));
    PrimFunc::new(func)
}
