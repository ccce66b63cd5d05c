//! From a module of primitive functions to a program of kernels: layouts are assigned, and each
//! primitive function is scheduled once for each combination of layouts it is called with.

mod external;
mod layouts;
mod parts;
mod variables;

use cranelift_entity::{EntityRef, SecondaryMap};
use indexmap::IndexMap;

use super::moves::moves;
use super::primitive::{Primitive, problem_at, tensors_of};
use super::run_time::{self, Way};
use super::{KernelParam, ModelFacts, schedule};
use crate::analysis::{CPU, called, devices};
use crate::diagnostics::{Problem, Report};
use crate::executor::{
    Count, Kernel, KernelId, Program, RunTimeAxis, RunTimeSizes, Step, Value, ValueId, ValueKind,
};
use crate::graph::{Callee, Expr, ExprId, Function, ScopeId};
use crate::ir::{BufferSpec, Constant, DType, Dim, GlobalVar, IRModule, TensorType};
use crate::target::Target;
use crate::te::{ComputeDag, StageId, held_constant, is_packed, pack, packed_len, unpack};
use crate::tir::ParamKind;
use crate::tuned::Tuned;

pub use layouts::{BLOCKED_LAYOUT, DENSE_LAYOUT, LAYOUTS, can_be_blocked};
pub(crate) use variables::copy_value;

/// Lowers `main` of a module whose computations are all calls of primitive functions. Each kernel
/// gets a version for each of `levels`, narrowest first, made as was measured to be the fastest where
/// `tuned` knows it. What has one of `sizes` is made for the
/// greatest, outputs as well, until they are handed out (`Program::hand_out`).
///
/// # Errors
///
/// Everything in the module for which no code can be generated, with the nodes it came from.
pub fn program(
    module: &IRModule,
    levels: &[Target],
    sizes: &RunTimeSizes,
    tuned: &Tuned,
) -> Result<Program, Report> {
    let Some(main) = module.function("main") else {
        return Err(Report { problems: vec![Problem::new("the module has no function `main`")] });
    };
    let live = main.live();
    let mut problems = Vec::new();
    let mut primitives: IndexMap<GlobalVar, Primitive> = IndexMap::new();
    for (global, function) in module.functions() {
        if let Some(compiler) = function.attrs().str("Compiler") {
            problems.extend(external::unknown(&format!("`{global}`"), compiler));
        }
        if !function.attrs().flag("Primitive") {
            continue;
        }
        match run_time::limited(global.name(), function, sizes, false) {
            Ok(primitive) => {
                primitives.insert(global.clone(), primitive);
            }
            Err(found) => problems.extend(found),
        }
    }
    let mut members: SecondaryMap<ScopeId, Vec<ExprId>> = SecondaryMap::new();
    for (id, data) in main.iter().filter(|(id, _)| live[*id]) {
        members[data.scope].push(id);
        if let Expr::Func(closure) = &data.expr
            && let Some(compiler) = closure.attrs.str("Compiler")
        {
            problems.push(not_alone(compiler));
        }
    }
    problems.extend(variables::check_depth(main).err());
    if !problems.is_empty() {
        return Err(Report { problems });
    }
    let mut lowering = Lowering {
        module,
        main,
        primitives: &primitives,
        levels,
        facts: &ModelFacts { tuned: tuned.clone(), weight_bytes: weight_bytes(main) },
        program: Program { sizes: sizes.clone(), ..Program::default() },
        values: SecondaryMap::new(),
        constants: IndexMap::new(),
        kernels: IndexMap::new(),
        counted: IndexMap::new(),
        variants: IndexMap::new(),
        borders: layouts::borders(main, &primitives),
        members,
    };
    match lowering.run() {
        Ok(()) => {
            let of_main = lowering.values;
            let mut program = lowering.program;
            set_devices(&mut program, module, main, &of_main)
                .map_err(|problem| Report { problems: vec![problem] })?;
            Ok(Program { of_main, ..program })
        }
        Err(problem) => Err(Report { problems: vec![problem] }),
    }
}

/// Bytes of the constants of a function; one that occurs more than once counts once.
fn weight_bytes(main: &Function) -> i64 {
    let live = main.live();
    let constants = main.iter().filter(|(id, _)| live[*id]);
    let constants = constants.filter_map(|(_, data)| data.expr.as_constant());
    let distinct: IndexMap<_, u64> =
        constants.map(|constant| (constant.digest(), constant.ty().bytes().unwrap_or(0))).collect();
    distinct.values().fold(0i64, |sum, &bytes| sum.saturating_add_unsigned(bytes))
}

/// A copy of as much of a dense value as belongs to a run: callers have memory for no more.
fn run_time_copy(program: &mut Program, from: ValueId, way: Way, levels: &[Target]) -> ValueId {
    let Value { name, dtype, spec, kind: _, run_time } = program.values[from].clone();
    let name_of_copy = format!("copy_{}", program.kernels.len());
    let sizes = &program.sizes;
    let kernel = run_time::copy(&name_of_copy, &spec, dtype, &run_time, way, sizes, levels);
    let kernel = program.kernels.push(kernel);
    let kind = ValueKind::Computed;
    let to = program.values.push(Value { name, dtype, spec, kind, run_time });
    program.steps.push(Step { kernel, args: vec![from, to] });
    to
}

impl Program {
    /// Has callers get as much of each output as belongs to a run: the last steps copy it.
    pub(crate) fn hand_out(&mut self, levels: &[Target]) {
        for position in 0..self.outputs.len() {
            let output = self.outputs[position];
            if !self.values[output].run_time.is_empty() {
                self.outputs[position] = run_time_copy(self, output, Way::ToCaller, levels);
            }
        }
    }
}

/// Says which values are on other devices than the processor.
fn set_devices(
    program: &mut Program,
    module: &IRModule,
    main: &Function,
    of_main: &SecondaryMap<ExprId, Vec<ValueId>>,
) -> Result<(), Problem> {
    let devices = devices(module, main)?;
    let mut is_of_main: SecondaryMap<ValueId, bool> = SecondaryMap::new();
    for id in main.ids() {
        for &value in &of_main[id] {
            is_of_main[value] = true;
            program.devices[value] = Some(devices[id]).filter(|&device| device != CPU);
        }
    }
    // A copy in another layout is where its original is.
    for step in &program.steps {
        if let Some((&to, from)) = step.args.split_last()
            && !is_of_main[to]
        {
            program.devices[to] = from.iter().find_map(|&from| program.devices[from]);
        }
    }
    Ok(())
}

/// The problem of a closure that is for another code generator.
fn not_alone(compiler: &str) -> Problem {
    let what = "a closure in `@main`";
    external::unknown(what, compiler).unwrap_or_else(|| {
        Problem::new(format!("{what} is for the code generator `{compiler}`, and is no function"))
            .help("`PartitionGraph` makes functions of closures that use nothing from around them")
    })
}

/// A kernel is determined by the function, and the layout of each argument; `None` for constants.
type KernelKey = (GlobalVar, Vec<Option<BufferSpec>>, Vec<BufferSpec>);

struct Lowering<'a> {
    module: &'a IRModule,
    main: &'a Function,
    primitives: &'a IndexMap<GlobalVar, Primitive>,
    levels: &'a [Target],
    facts: &'a ModelFacts,
    program: Program,
    /// The values of each expression of `main`, tuples flattened.
    values: SecondaryMap<ExprId, Vec<ValueId>>,
    constants: IndexMap<(Constant, BufferSpec), ValueId>,
    kernels: IndexMap<KernelKey, KernelId>,
    /// What says what a size is that a run computes.
    counted: IndexMap<usize, Result<ValueId, Constant>>,
    /// How many kernels there are of each function.
    variants: IndexMap<GlobalVar, usize>,
    borders: SecondaryMap<ExprId, Vec<layouts::Border>>,
    /// What is alive in each scope of `main`, in order.
    members: SecondaryMap<ScopeId, Vec<ExprId>>,
}

impl Lowering<'_> {
    fn run(&mut self) -> Result<(), Problem> {
        self.program.outputs = self.scope(self.main.body())?;
        self.pack_outputs();
        Ok(())
    }

    /// The value, or a dense copy of one that convolutions read as well.
    fn dense(&mut self, from: ValueId) -> ValueId {
        if self.program.values[from].spec.is_dense() {
            return from;
        }
        self.convert(from, "layout_transform", |dag, x| {
            let (shape, dtype) = (dag.shape(x).to_vec(), dag.dtype(x));
            dag.compute("layout_transform", &shape, dtype, |dag, index| dag.at(x, index))
        })
    }

    /// The axes of each tensor of an expression that depend on sizes of the run.
    fn axes_of(&self, id: ExprId) -> Result<Vec<Vec<RunTimeAxis>>, Problem> {
        run_time::axes_of(self.main.ty(id), self.main.span(id), &self.program.sizes)
    }

    /// A dense value made of another by a kernel of its own.
    fn convert(
        &mut self,
        from: ValueId,
        what: &str,
        build: impl FnOnce(&mut ComputeDag, StageId) -> StageId,
    ) -> ValueId {
        let Value { name, dtype, spec, kind: _, run_time } = self.program.values[from].clone();
        let mut dag = ComputeDag::new(&format!("{what}_{}", self.program.kernels.len()));
        let x = dag.placeholder("x", spec.shape(), dtype);
        let y = build(&mut dag, x);
        let (dense, dtype) = (BufferSpec::dense(dag.shape(y)), dag.dtype(y));
        let params = [(x, ParamKind::Input, spec)];
        let kernel = schedule(dag, &params, &[(y, dense.clone())], self.levels, self.facts);
        let kernel = self.program.kernels.push(kernel);
        let kind = ValueKind::Computed;
        let to = self.program.values.push(Value { name, dtype, spec: dense, kind, run_time });
        self.program.steps.push(Step { kernel, args: vec![from, to] });
        to
    }

    /// Outputs whose elements are narrower than a byte leave the program packed.
    fn pack_outputs(&mut self) {
        let result = self.main.ty(self.main.result());
        let fields: Vec<DType> = match result.as_tuple() {
            Some(fields) => fields.iter().filter_map(|ty| Some(ty.as_tensor()?.dtype)).collect(),
            None => result.as_tensor().map(|ty| ty.dtype).into_iter().collect(),
        };
        for (position, dtype) in fields.into_iter().enumerate() {
            if is_packed(dtype)
                && let Some(&output) = self.program.outputs.get(position)
            {
                self.program.outputs[position] =
                    self.convert(output, "pack", |dag, held| pack(dag, held, dtype));
            }
        }
    }

    /// A value that the caller hands over; one of elements narrower than a byte is unpacked.
    fn input(
        &mut self,
        name: &str,
        ty: &TensorType,
        shape: &[i64],
        axes: Vec<RunTimeAxis>,
    ) -> Result<ValueId, Problem> {
        let dtype = ty.dtype;
        let is_open = !axes.is_empty();
        if is_open && is_packed(dtype) {
            return Err(Problem::new(format!(
                "input `{name}` is {ty}: tensors of several elements to a byte cannot have a size \
                 that is known at run time alone"
            )));
        }
        let (held_dtype, extents) = if is_packed(dtype) {
            (DType::U8, vec![packed_len(shape, dtype)])
        } else {
            (dtype, shape.to_vec())
        };
        let value = self.program.values.push(Value {
            name: name.to_owned(),
            dtype: held_dtype,
            spec: BufferSpec::dense(&extents),
            kind: ValueKind::Input(self.program.inputs.len()),
            run_time: axes,
        });
        self.program.inputs.push(value);
        Ok(if is_open {
            // Kernels are made for the greatest size, and may read what they do not need.
            run_time_copy(&mut self.program, value, Way::FromCaller, self.levels)
        } else if is_packed(dtype) {
            self.convert(value, "unpack", |dag, bytes| unpack(dag, bytes, shape, dtype))
        } else {
            value
        })
    }

    fn expr(&mut self, id: ExprId) -> Result<Vec<ValueId>, Problem> {
        let span = self.main.span(id);
        match self.main.expr(id) {
            Expr::Var(name) => {
                // Tuples of tensors, flattened, and nothing else get past this check.
                let shapes = self.tensors_of(id)?;
                let types = run_time::tensor_types(self.main.ty(id));
                let inputs = types.into_iter().zip(&shapes).zip(self.axes_of(id)?);
                inputs.map(|((ty, (shape, _)), axes)| self.input(name, ty, shape, axes)).collect()
            }
            // A constant's value is made where it is used, in the layout that is read there.
            Expr::Constant(_) | Expr::GlobalVar(_) => Ok(Vec::new()),
            Expr::Tuple(fields) => {
                Ok(fields.iter().flat_map(|field| self.values[*field].clone()).collect())
            }
            Expr::TupleGet { tuple, index } => {
                Ok(self.values[*tuple].get(*index as usize).copied().into_iter().collect())
            }
            Expr::Call(call) => {
                let Some(global) = called(self.main, call) else {
                    let what = match &call.callee {
                        Callee::Op(op) => format!("the operator `{op}` is in no kernel"),
                        Callee::Expr(_) => "a closure is called".to_owned(),
                    };
                    return Err(problem_at(
                        format!("no code can be generated: {what}; was `FuseOps` disabled?"),
                        span,
                    ));
                };
                let args: Vec<ExprId> = call.args.iter().flatten().copied().collect();
                self.call(id, &global.clone(), &args)
            }
            Expr::If(choice) => self.choice(id, choice),
            Expr::While(loops) => self.repetition(id, loops),
            Expr::Func(_) => Err(problem_at("no code can be generated for a closure", span)),
        }
    }

    /// The tensors of an expression, for the greatest sizes.
    fn tensors_of(&self, id: ExprId) -> Result<Vec<(Vec<i64>, DType)>, Problem> {
        let greatest = |dim: &Dim| self.program.sizes.greatest(dim);
        tensors_of(self.main.ty(id), self.main.span(id), &greatest)
    }

    fn constant(&mut self, constant: &Constant, spec: BufferSpec) -> ValueId {
        let constant = &held_constant(constant);
        let key = (constant.clone(), spec.clone());
        if let Some(&value) = self.constants.get(&key) {
            return value;
        }
        let value = self.program.values.push(Value {
            name: "const".to_owned(),
            dtype: constant.ty().dtype,
            spec,
            kind: ValueKind::Constant(constant.clone()),
            run_time: Vec::new(),
        });
        self.constants.insert(key, value);
        value
    }

    fn call(
        &mut self,
        id: ExprId,
        global: &GlobalVar,
        args: &[ExprId],
    ) -> Result<Vec<ValueId>, Problem> {
        let span = self.main.span(id);
        let Some(primitive) = self.primitives.get(global) else {
            if let Some(function) = self.module.function(global.name())
                && let Some(compiler) = function.attrs().str("Compiler")
            {
                return self.external_call(id, global, function, compiler, args);
            }
            return Err(problem_at(format!("`{global}` is not a primitive function"), span));
        };
        // Each argument is a value that exists, or a constant whose layout the kernel chooses.
        let mut given: Vec<Result<ValueId, Constant>> = Vec::new();
        for &arg in args {
            match self.main.expr(arg) {
                Expr::Constant(constant) => given.push(Err(constant.clone())),
                _ => given.extend(self.values[arg].iter().map(|&value| Ok(value))),
            }
        }
        if given.len() != primitive.params.len() {
            return Err(problem_at(format!("`{global}` is called with other arguments"), span));
        }
        let results = self.tensors_of(id)?;
        let axes = self.axes_of(id)?;
        let specs = self.specs(id, global, &results, &axes)?;
        if let Some((size, count)) = &primitive.truncation {
            let count = match count {
                Ok(param) => given[*param].clone(),
                Err(constant) => Err(constant.clone()),
            };
            self.count(size, count).map_err(|problem| problem_at(problem.message, span))?;
        }
        let is_view = primitive.reshape_only && given.len() == 1 || primitive.truncation.is_some();
        if let (true, [Ok(input), ..], [spec]) = (is_view, &given[..], &specs[..])
            && self.program.values[*input].spec.is_dense()
            && spec.is_dense()
        {
            let value = self.program.values.push(Value {
                name: global.name().to_owned(),
                dtype: results[0].1,
                spec: spec.clone(),
                kind: ValueKind::View(*input),
                run_time: axes.into_iter().next().unwrap_or_default(),
            });
            return Ok(vec![value]);
        }

        let arg_specs: Vec<Option<BufferSpec>> = given
            .iter()
            .map(|arg| arg.as_ref().ok().map(|&v| self.program.values[v].spec.clone()))
            .collect();
        // Constants of the function come between its parameters and its results.
        let of_args = given.iter().map(|arg| match arg {
            Ok(value) => self.program.values[*value].run_time.as_slice(),
            Err(_) => &[],
        });
        let inner = std::iter::repeat_n(&[][..], primitive.constants.len());
        let of_params = of_args.chain(inner).chain(axes.iter().map(Vec::as_slice)).enumerate();
        let of_kernel: Vec<(usize, RunTimeAxis)> = of_params
            .flat_map(|(at, axes)| axes.iter().map(move |axis| (at, axis.clone())))
            .collect();
        let kernel = self.kernel(global, primitive, arg_specs, &specs, &of_kernel)?;

        let func = self.program.kernels[kernel].signature().clone();
        let inner = primitive.constants.iter().map(|(_, constant)| Err(constant.clone()));
        let mut step_args = Vec::with_capacity(func.params.len());
        for (arg, param) in given.into_iter().chain(inner).zip(&func.params) {
            step_args.push(match arg {
                Ok(value) => value,
                Err(constant) => {
                    let spec = func.buffers[param.buffer].spec.clone();
                    self.constant(&constant, spec)
                }
            });
        }
        let mut values = Vec::with_capacity(results.len());
        for (((_, dtype), spec), run_time) in results.into_iter().zip(specs).zip(axes) {
            values.push(self.program.values.push(Value {
                name: global.name().to_owned(),
                dtype,
                spec,
                kind: ValueKind::Computed,
                run_time,
            }));
        }
        step_args.extend(&values);
        self.program.steps.push(Step { kernel, args: step_args });
        Ok(values)
    }

    /// Notes what a size is that a run computes.
    ///
    /// # Errors
    ///
    /// Something else says what it is as well.
    fn count(&mut self, name: &str, count: Result<ValueId, Constant>) -> Result<(), Problem> {
        let Some(size) = self.program.sizes.iter().position(|size| size.name == name) else {
            return Err(Problem::new(format!("the size `{name}` was not there at import")));
        };
        if let Some(known) = self.counted.insert(size, count.clone()) {
            let again = format!("the size `{name}` has two counts");
            return if known == count { Ok(()) } else { Err(Problem::new(again)) };
        }
        let value = count.unwrap_or_else(|constant| {
            let spec = BufferSpec::dense(&[]);
            self.constant(&constant, spec)
        });
        let mut root = value;
        while let Some((of, _)) = self.program.lies_in(root) {
            root = of;
        }
        // It is read when a step has computed it.
        let value = match self.program.values[root].kind {
            ValueKind::Computed | ValueKind::Variable => value,
            _ => self.convert(value, "count", |dag, x| {
                dag.compute("count", &[], DType::I64, |dag, _| dag.at(x, &[]))
            }),
        };
        self.program.counts.push(Count { size, value });
        Ok(())
    }

    fn kernel(
        &mut self,
        global: &GlobalVar,
        primitive: &Primitive,
        args: Vec<Option<BufferSpec>>,
        results: &[BufferSpec],
        axes: &[(usize, RunTimeAxis)],
    ) -> Result<KernelId, Problem> {
        let key = (global.clone(), args.clone(), results.to_vec());
        if let Some(&kernel) = self.kernels.get(&key) {
            return Ok(kernel);
        }
        // One function in several layouts is several kernels.
        let variants = self.variants.entry(global.clone()).or_default();
        *variants += 1;
        let suffix = if *variants > 1 { format!("_v{variants}") } else { String::new() };
        let mut kernel = self.scheduled(primitive, &suffix, &args, results, axes);
        if let (true, Some(function)) = (primitive.is_update, self.module.function(global.name())) {
            let own = run_time::limited(global.name(), function, &self.program.sizes, true);
            let own = own.map_err(|mut problems| problems.swap_remove(0))?;
            let suffix = format!("{suffix}_in_place");
            kernel.in_place = self.scheduled(&own, &suffix, &args, results, axes).versions;
        }
        let kernel = self.program.kernels.push(kernel);
        debug_assert_eq!(kernel.index() + 1, self.program.kernels.len());
        self.kernels.insert(key, kernel);
        Ok(kernel)
    }

    /// The kernel of a primitive.
    fn scheduled(
        &self,
        primitive: &Primitive,
        suffix: &str,
        args: &[Option<BufferSpec>],
        results: &[BufferSpec],
        axes: &[(usize, RunTimeAxis)],
    ) -> Kernel {
        let dense = |stage| BufferSpec::dense(primitive.dag.shape(stage));
        let mut params: Vec<KernelParam> = primitive
            .params
            .iter()
            .zip(args)
            .map(|(&stage, spec)| match spec {
                Some(spec) => (stage, ParamKind::Input, spec.clone()),
                None => (stage, ParamKind::Constant, dense(stage)),
            })
            .collect();
        for &(stage, _) in &primitive.constants {
            params.push((stage, ParamKind::Constant, dense(stage)));
        }
        let outputs: Vec<_> =
            primitive.results.iter().copied().zip(results.iter().cloned()).collect();
        let mut dag = primitive.dag.clone();
        dag.func.name.push_str(suffix);
        let stages: Vec<StageId> = params.iter().map(|&(stage, ..)| stage).collect();
        let mut kernel = schedule(dag, &params, &outputs, self.levels, self.facts);
        kernel.moves = moves(&primitive.dag, &stages, &primitive.results);
        self.program.sizes.limit(&mut kernel, axes);
        for version in &mut kernel.versions {
            version.make_mut().origin.clone_from(&primitive.origin);
        }
        kernel
    }
}
