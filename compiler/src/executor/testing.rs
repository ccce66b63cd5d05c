//! Programs made by hand, for the tests of memory planning and of executors.

use super::{Kernel, KernelId, Program, Step, Value, ValueId, ValueKind};
use crate::ir::{BufferSpec, Constant, DType};
use crate::tir::{BufferId, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Builds a program of `f32` values.
#[derive(Default)]
pub(crate) struct ProgramBuilder {
    pub(crate) program: Program,
}

impl ProgramBuilder {
    fn value(&mut self, name: &str, spec: BufferSpec, kind: ValueKind) -> ValueId {
        let (name, dtype) = (name.to_owned(), DType::F32);
        let value = Value { name, dtype, spec, kind, run_time: Vec::new() };
        self.program.values.push(value)
    }

    pub(crate) fn input(&mut self, name: &str, shape: &[i64]) -> ValueId {
        let kind = ValueKind::Input(self.program.inputs.len());
        let id = self.value(name, BufferSpec::dense(shape), kind);
        self.program.inputs.push(id);
        id
    }

    pub(crate) fn constant(&mut self, name: &str, constant: Constant) -> ValueId {
        let shape = constant.ty().shape.as_consts().unwrap();
        let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
        self.value(name, BufferSpec::dense(&shape), ValueKind::Constant(constant))
    }

    pub(crate) fn view(&mut self, of: ValueId, shape: &[i64]) -> ValueId {
        self.value("view", BufferSpec::dense(shape), ValueKind::View(of))
    }

    /// A part of another value's memory.
    pub(crate) fn within(&mut self, whole: ValueId, offset: u64, spec: BufferSpec) -> ValueId {
        self.value("part", spec, ValueKind::Within { whole, offset })
    }

    pub(crate) fn output(&mut self, value: ValueId) {
        self.program.outputs.push(value);
    }

    /// A step of a kernel of its own that computes one value with the given layout.
    pub(crate) fn step(
        &mut self,
        name: &str,
        inputs: &[ValueId],
        spec: BufferSpec,
        inplace: &[(usize, usize)],
        body: impl FnOnce(&mut PrimFuncData, &[BufferId], BufferId) -> Stmt,
    ) -> ValueId {
        let mut func = PrimFuncData::new(format!("{name}_{}", self.program.kernels.len()));
        let mut buffers = Vec::new();
        for (position, &input) in inputs.iter().enumerate() {
            let value = &self.program.values[input];
            let name = format!("x{position}");
            buffers.push(match value.kind {
                ValueKind::Constant(_) => func.constant(name, value.dtype, value.spec.clone()),
                _ => func.input(name, value.dtype, value.spec.clone()),
            });
        }
        let output = func.output("y", DType::F32, spec.clone());
        func.inplace = inplace.to_vec();
        func.body = body(&mut func, &buffers, output);
        let result = self.value(name, spec, ValueKind::Computed);
        let mut args = inputs.to_vec();
        args.push(result);
        self.call(Kernel::new(vec![PrimFunc::new(func)]), args);
        result
    }

    pub(crate) fn call(&mut self, kernel: Kernel, args: Vec<ValueId>) -> KernelId {
        let kernel = self.program.kernels.push(kernel);
        self.program.steps.push(Step { kernel, args });
        kernel
    }

    /// Element by element `combine` of values of the same shape; the result may take the place of
    /// any of them.
    pub(crate) fn map(
        &mut self,
        name: &str,
        inputs: &[ValueId],
        spec: BufferSpec,
        combine: impl Fn(&[PrimExpr]) -> PrimExpr,
    ) -> ValueId {
        let pairs: Vec<_> = (0..inputs.len()).map(|input| (inputs.len(), input)).collect();
        self.step(name, inputs, spec.clone(), &pairs, |func, inputs, output| {
            loops(func, spec.shape(), &mut Vec::new(), &mut |func, index| {
                let loads: Vec<_> =
                    inputs.iter().map(|&input| func.load(input, index.to_vec())).collect();
                func.store(output, index.to_vec(), combine(&loads))
            })
        })
    }

    pub(crate) fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let spec = BufferSpec::dense(self.program.values[a].spec.shape());
        self.map("add", &[a, b], spec, |x| x[0].clone() + x[1].clone())
    }
}

/// Serial loops over a shape.
pub(crate) fn loops(
    func: &mut PrimFuncData,
    shape: &[i64],
    index: &mut Vec<PrimExpr>,
    body: &mut dyn FnMut(&mut PrimFuncData, &[PrimExpr]) -> Stmt,
) -> Stmt {
    let Some(&extent) = shape.get(index.len()) else { return body(func, index) };
    func.serial(format!("i{}", index.len()), extent, |func, i| {
        index.push(i);
        let stmt = loops(func, shape, index, body);
        index.pop();
        stmt
    })
}
