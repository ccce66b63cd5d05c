//! Double buffering.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ir::{BufferSpec, DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::{
    Annotations, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId,
};

/// Annotations that request double buffering of a loop; their value has no meaning.
const ANNOTATIONS: [&str; 2] = ["double_buffer_scope", "pragma_double_buffer_scope"];

/// Options of the pass.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct InjectDoubleBufferConfig {
    /// Number of iterations to write out one after the other, so that the half of the buffer is a
    /// constant in each: 1 or an even number.
    pub split_loop: i64,
}

impl Default for InjectDoubleBufferConfig {
    fn default() -> Self {
        InjectDoubleBufferConfig { split_loop: 1 }
    }
}

crate::register_pass_config_option! {
    /// Options of double buffering.
    pub INJECT_DOUBLE_BUFFER: InjectDoubleBufferConfig = "tir.InjectDoubleBuffer";
}

/// Gives local buffers two halves, so that one is filled while the other one is read.
#[prim_func_pass(opt_level = 0, name = "tir.InjectDoubleBuffer", crate = crate)]
pub fn inject_double_buffer(
    mut func: PrimFunc,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<PrimFunc> {
    let mut any = false;
    func.body.walk(&mut |stmt| {
        any |= matches!(stmt, Stmt::For { annotations, .. } if asks(annotations));
    });
    if !any {
        return Ok(func);
    }
    let split = cx.get(&INJECT_DOUBLE_BUFFER).split_loop;
    if split != 1 && (split < 2 || split % 2 != 0) {
        return Err(format!("split_loop is {split}, but must be 1 or an even number").into());
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut problem = None;
    data.body = body.rewrite(&mut |stmt| match stmt {
        Stmt::For { var, min, extent, kind, mut annotations, body } if asks(&annotations) => {
            annotations.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
            let it = Loop { var, min, extent, kind, annotations };
            it.pipeline(data, &body, split).unwrap_or_else(|message| {
                let name = &data.vars[var].name;
                problem.get_or_insert(format!("the loop over `{name}` {message}"));
                Stmt::nop()
            })
        }
        other => other,
    });
    match problem {
        None => Ok(func),
        Some(message) => Err(message.into()),
    }
}

fn asks(annotations: &Annotations) -> bool {
    ANNOTATIONS.iter().any(|key| annotations.contains_key(*key))
}

/// A loop that fills local buffers in the first part of its body and reads them in the rest.
struct Loop {
    var: VarId,
    min: PrimExpr,
    extent: PrimExpr,
    kind: ForKind,
    annotations: Annotations,
}

/// A statement around the parts of a loop's body.
enum Around {
    Block(String),
    Let(VarId, PrimExpr),
}

/// The parts of a loop's body.
struct Parts {
    around: Vec<Around>,
    buffers: Vec<BufferId>,
    fill: Stmt,
    read: Stmt,
}

impl Loop {
    /// The loop with the first part of each iteration moved into the previous one.
    fn pipeline(self, data: &mut PrimFuncData, body: &Stmt, split: i64) -> Result<Stmt, String> {
        if self.kind != ForKind::Serial {
            return Err(format!("is {}; only serial loops are buffered twice", self.kind.name()));
        }
        let parts = Parts::of(data, body)?;
        let mut first_extents = BTreeMap::new();
        for &buffer in &parts.buffers {
            let decl = &mut data.buffers[buffer];
            let mut shape = decl.spec.shape().to_vec();
            let (true, Some(first)) = (decl.spec.is_dense(), shape.first_mut()) else {
                let name = &decl.name;
                return Err(format!(
                    "buffers `{name}`, which is not dense: run FlattenBuffer first"
                ));
            };
            first_extents.insert(buffer, *first);
            *first *= 2;
            decl.spec = BufferSpec::dense(&shape);
        }
        let mut copies = Copies { data, parts: &parts, var: self.var, first_extents };
        let Loop { var, min, extent, kind, annotations } = &self;
        let (index, end) = (copies.data.var_expr(*var), min.clone() + extent);
        let half = |at: PrimExpr| (at - min).floormod(2);
        let number = |value: i64| PrimExpr::int(value, min.dtype());
        let first = copies.fill(min.clone(), number(0));
        let first = match extent.as_int() {
            Some(1..) => first,
            Some(_) => return Ok(Stmt::nop()),
            None => Stmt::if_then(extent.clone().greater(0), first),
        };
        let mut stmts = vec![first];
        // No iteration follows the last one, so it is not among those that are written out.
        let done = match split {
            1 => number(0),
            split => (extent.clone() - 1).max(0).floordiv(split),
        };
        if split > 1 && done.as_int() != Some(0) {
            let name = format!("{}_outer", copies.data.vars[*var].name);
            let outer = copies.data.var(name, min.ty());
            let start = copies.data.var_expr(outer) * split + min;
            let iterations = (0..split).flat_map(|i| {
                let next = copies.fill(start.clone() + (i + 1), number((i + 1) % 2));
                [next, copies.read(start.clone() + i, number(i % 2))]
            });
            let body = Box::new(Stmt::seq(iterations.collect::<Vec<_>>()));
            let (min, extent) = (number(0), done.clone());
            let annotations = annotations.clone();
            stmts.push(Stmt::For { var: outer, min, extent, kind: *kind, annotations, body });
        }
        let done = done * split;
        let next = index.clone() + 1;
        let fill = copies.fill(next.clone(), half(next.clone()));
        let body = Stmt::seq([
            Stmt::if_then(next.less(end), fill),
            copies.read(index.clone(), half(index)),
        ]);
        stmts.push(Stmt::For {
            var: *var,
            min: min.clone() + done.clone(),
            extent: extent.clone() - done,
            kind: *kind,
            annotations: annotations.clone(),
            body: Box::new(body),
        });
        let body = Stmt::seq(stmts);
        Ok(parts.buffers.into_iter().rev().fold(body, |body, buffer| Stmt::allocate(buffer, body)))
    }
}

impl Parts {
    fn of(data: &PrimFuncData, body: &Stmt) -> Result<Self, String> {
        let (mut around, mut buffers) = (Vec::new(), Vec::new());
        let mut stmt = body;
        let stmts = loop {
            stmt = match stmt {
                Stmt::Block { name, body } => {
                    around.push(Around::Block(name.clone()));
                    body
                }
                Stmt::Let { var, value, body } => {
                    around.push(Around::Let(*var, value.clone()));
                    body
                }
                Stmt::Allocate { buffer, body }
                    if data.buffers[*buffer].scope == BufferScope::Local =>
                {
                    buffers.push(*buffer);
                    body
                }
                Stmt::Seq(stmts) => break stmts.as_slice(),
                Stmt::Allocate { .. }
                | Stmt::For { .. }
                | Stmt::BlockRealize(_)
                | Stmt::Store { .. }
                | Stmt::If { .. }
                | Stmt::Prefetch { .. }
                | Stmt::Assert { .. } => break std::slice::from_ref(stmt),
            };
        };
        let fills = |stmt: &Stmt| Uses::of(stmt).stored.iter().any(|id| buffers.contains(id));
        let count = stmts.iter().rposition(fills).map_or(0, |last| last + 1);
        if buffers.is_empty() || count == 0 || count == stmts.len() {
            return Err("has no local buffer that one part of its body fills and the rest of it \
                        reads"
                .to_owned());
        }
        let (fill, read) = stmts.split_at(count);
        let part = |stmts: &[Stmt]| Stmt::seq(stmts.iter().cloned());
        let parts = Parts { fill: part(fill), read: part(read), around, buffers };
        parts.check(data)?;
        Ok(parts)
    }

    /// The filling for the next iteration and the reading of this one must be independent.
    fn check(&self, data: &PrimFuncData) -> Result<(), String> {
        let (mut fill, mut read) = (Uses::of(&self.fill), Uses::of(&self.read));
        for around in &self.around {
            if let Around::Let(_, value) = around {
                fill.expr(value);
                read.expr(value);
            }
        }
        let own = |id: &&BufferId| !self.buffers.contains(id);
        let stored_before = fill.stored.iter().filter(own).find(|id| read.touches(data, **id));
        let stored_after = read.stored.iter().filter(own).find(|id| fill.touches(data, **id));
        match stored_before.or(stored_after) {
            None => Ok(()),
            Some(id) => Err(format!(
                "cannot be buffered twice: `{}` is stored to in one part of its body and used in \
                 the other",
                data.buffers[*id].name
            )),
        }
    }
}

/// The buffers that a statement uses.
#[derive(Default)]
struct Uses {
    stored: BTreeSet<BufferId>,
    loaded: BTreeSet<BufferId>,
}

impl Uses {
    fn of(stmt: &Stmt) -> Self {
        let mut uses = Uses::default();
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt {
                uses.stored.insert(*buffer);
            }
            stmt.for_each_expr(&mut |expr| uses.expr(expr));
        });
        uses
    }

    fn expr(&mut self, expr: &PrimExpr) {
        expr.walk(&mut |node| {
            if let PrimExpr::Load { buffer, .. } = node {
                self.loaded.insert(*buffer);
            }
        });
    }

    /// Whether a buffer, or one that may be the same memory, is used.
    fn touches(&self, data: &PrimFuncData, id: BufferId) -> bool {
        let uses = |id: &BufferId| self.stored.contains(id) || self.loaded.contains(id);
        uses(&id) || data.same_memory(id).any(|other| uses(&other))
    }
}

/// Copies the parts of the body for single iterations.
struct Copies<'a> {
    data: &'a mut PrimFuncData,
    parts: &'a Parts,
    var: VarId,
    /// First extents of the buffers before they were doubled.
    first_extents: BTreeMap<BufferId, i64>,
}

impl Copies<'_> {
    fn fill(&mut self, iteration: PrimExpr, half: PrimExpr) -> Stmt {
        let parts = self.parts;
        self.copy(&parts.fill, iteration, half)
    }

    fn read(&mut self, iteration: PrimExpr, half: PrimExpr) -> Stmt {
        let parts = self.parts;
        self.copy(&parts.read, iteration, half)
    }

    fn copy(&mut self, part: &Stmt, iteration: PrimExpr, half: PrimExpr) -> Stmt {
        let whole =
            self.parts.around.iter().rev().fold(part.clone(), |body, around| match around {
                Around::Block(name) => Stmt::block(name.clone(), body),
                Around::Let(var, value) => Stmt::let_(*var, value.clone(), body),
            });
        let copy = self.data.copy_of(&whole, &[(self.var, iteration)].into());
        let shift = |buffer: BufferId, indices: &mut Vec<PrimExpr>| {
            if let (Some(extent), Some(first)) =
                (self.first_extents.get(&buffer), indices.first_mut())
            {
                let taken = std::mem::replace(first, PrimExpr::index(0));
                *first = taken.cast(DType::I64) + half.clone().cast(DType::I64) * *extent;
            }
        };
        let copy = copy.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Load { buffer, dtype, mut indices } => {
                    shift(buffer, &mut indices);
                    PrimExpr::Load { buffer, dtype, indices }
                }
                other => other,
            })
        });
        copy.rewrite(&mut |mut stmt| {
            if let Stmt::Store { buffer, indices, .. } | Stmt::Prefetch { buffer, indices, .. } =
                &mut stmt
            {
                shift(*buffer, indices);
            }
            stmt
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{interpret, parse, verify};

    fn buffered(text: &str, split_loop: i64) -> Result<PrimFunc> {
        let config = InjectDoubleBufferConfig { split_loop };
        let cx = PassContext::builder().config(&INJECT_DOUBLE_BUFFER, config).build()?;
        InjectDoubleBuffer.run_on_prim_func(parse(text).unwrap(), &cx)
    }

    fn rows(extent: &str) -> String {
        format!(
            r#"prim_func @rows(x: input float32[7, 4], y: output float32[7, 4], n: dim) {{
  for i in serial({extent}) ["double_buffer_scope" = ""] {{
    let row = i + 0 * n
    allocate a: local float32[4]
    for j in serial(4) {{
      a[j] = x[row, j]
    }}
    for j in serial(4) {{
      y[i, j] = a[3 - j] + 1.0
    }}
  }}
}}
"#
        )
    }

    #[test]
    fn results_stay_and_the_buffer_doubles() {
        for extent in ["1", "2", "5", "n"] {
            let before = parse(&rows(extent)).unwrap();
            for split in [1, 2, 4] {
                let after = buffered(&rows(extent), split).unwrap();
                verify(&after).unwrap_or_else(|errors| panic!("{errors:?}\n{after}"));
                assert!(super::super::convert_ssa::is_ssa(&after), "{after}");
                let a = after.buffers.values().find(|buffer| buffer.name == "a").unwrap();
                assert_eq!(a.shape(), [8]);
                for n in 0..8 {
                    let x: Vec<u8> = (0..28).flat_map(|i| (i as f32).to_le_bytes()).collect();
                    let (mut expected, mut found) = ([x.clone(), vec![0; 112]], [x, vec![0; 112]]);
                    interpret(&before, &mut expected, &[n]).unwrap();
                    interpret(&after, &mut found, &[n]).unwrap_or_else(|e| panic!("{e}\n{after}"));
                    assert_eq!(expected, found, "{extent} iterations by {split}, n = {n}\n{after}");
                }
            }
        }
    }

    #[test]
    fn loops_that_cannot_be_double_buffered_are_refused_with_the_reason() {
        let error = |text: &str, split| buffered(text, split).unwrap_err().to_string();
        let text = rows("4");
        assert!(error(&text, 3).contains("must be 1 or an even number"));
        let parallel = text.replace("serial(4) [", "parallel(4) [");
        assert!(error(&parallel, 1).contains("the loop over `i` is parallel"));
        let carried = text.replace("x[row, j]", "y[row, j]");
        assert!(error(&carried, 1).contains("`y` is stored to in one part of its body"));
        let nothing =
            text.replace("a[j] = x[row, j]", "y[i, j] = 0.0").replace("a[3 - j]", "x[i, j]");
        assert!(error(&nothing, 1).contains("has no local buffer"));
        let blocked = text.replace("float32[4]\n", "float32[4]{halo=0:1:1}\n");
        assert!(error(&blocked, 1).contains("run FlattenBuffer first"));
    }
}
