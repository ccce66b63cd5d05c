//! Sharing of scratch memory.

mod lifetimes;

use std::collections::BTreeMap;

use crate::codegen::STACK_BUFFER_BYTES;
use crate::ir::{BufferSpec, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BufferId, BufferScope, PrimExpr, PrimFunc, PrimFuncData, Stmt};
use lifetimes::Lifetimes;

crate::register_pass_config_option! {
    /// Whether each scratch buffer keeps its own memory.
    pub DISABLE_STORAGE_REWRITE: bool = "tir.disable_storage_rewrite";
}

/// Lets scratch buffers share memory whose contents are not needed at the same time.
#[prim_func_pass(opt_level = 0, name = "tir.StorageRewrite", crate = crate)]
pub fn storage_rewrite(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    if cx.get(&DISABLE_STORAGE_REWRITE) {
        return func;
    }
    let before = peak(&func, &func.body);
    let mut shared = func.clone();
    share(shared.make_mut());
    // A small buffer that grew may exist longer than the large one whose memory it took.
    let after = peak(&shared, &shared.body);
    if after < before {
        cx.count("bytes of scratch memory before", before);
        cx.count("bytes of scratch memory after", after);
        func = shared;
    }
    func
}

/// Local buffers that share the memory of one, whose `Allocate` is around those of the others.
struct Slot {
    owner: BufferId,
    elements: i64,
    members: Vec<BufferId>,
}

/// Lets local buffers of one data type share memory if their contents are not needed at the same
/// time, or if one is computed from the other element by element.
///
/// A linear scan over the allocations, in the order of the text: each buffer takes the memory of
/// the enclosing one that is nearest in size, which grows if necessary. Small buffers, which are on
/// the stack, and large ones do not share.
/// stack, and large ones do not mix.
fn share(func: &mut PrimFuncData) {
    let lifetimes = Lifetimes::of(func);
    let mut slots: Vec<Slot> = Vec::new();
    for &buffer in lifetimes.buffers() {
        let decl = &func.buffers[buffer];
        let (Some(elements), true) = (decl.spec.num_elements(), decl.spec.is_dense()) else {
            continue;
        };
        let fits = |slot: &Slot| {
            let owner = &func.buffers[slot.owner];
            owner.dtype == decl.dtype
                && is_small(func, slot.owner) == is_small(func, buffer)
                && lifetimes.is_within(buffer, slot.owner)
                && slot.members.iter().all(|&member| {
                    lifetimes.are_apart(member, buffer, slot.owner)
                        || lifetimes.is_elementwise(member, buffer, slot.owner)
                })
        };
        let best = slots
            .iter_mut()
            .filter(|slot| fits(slot))
            .min_by_key(|slot| slot.elements.abs_diff(elements));
        match best {
            Some(slot) => {
                slot.elements = slot.elements.max(elements);
                slot.members.push(buffer);
            }
            None => slots.push(Slot { owner: buffer, elements, members: vec![buffer] }),
        }
    }
    let mut owners = BTreeMap::new();
    for slot in slots {
        if slot.members.len() > 1 {
            func.buffers[slot.owner].spec = BufferSpec::dense(&[slot.elements]);
            owners.extend(slot.members.into_iter().map(|member| (member, slot.owner)));
        }
    }
    let body = std::mem::replace(&mut func.body, Stmt::nop());
    func.body = replace(body, &owners);
}

fn is_small(func: &PrimFuncData, buffer: BufferId) -> bool {
    bytes(func, buffer) <= STACK_BUFFER_BYTES
}

fn bytes(func: &PrimFuncData, buffer: BufferId) -> u64 {
    let decl = &func.buffers[buffer];
    let elements = decl.spec.physical_len().ok().and_then(|len| u64::try_from(len).ok());
    elements.and_then(|elements| decl.dtype.bytes_for(elements)).unwrap_or(u64::MAX)
}

/// Replaces buffers by the owners of their memory.
fn replace(body: Stmt, owners: &BTreeMap<BufferId, BufferId>) -> Stmt {
    let owner = |buffer: BufferId| owners.get(&buffer).copied().unwrap_or(buffer);
    let body = body.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, indices } => {
                PrimExpr::Load { buffer: owner(buffer), dtype, indices }
            }
            other => other,
        })
    });
    body.rewrite(&mut |stmt| match stmt {
        Stmt::Allocate { buffer, body } if owner(buffer) != buffer => *body,
        Stmt::Store { buffer, indices, value } => {
            Stmt::Store { buffer: owner(buffer), indices, value }
        }
        Stmt::Prefetch { buffer, indices, offset, locality, write } => {
            Stmt::Prefetch { buffer: owner(buffer), indices, offset, locality, write }
        }
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        other => other,
    })
}

/// The maximum number of bytes of local buffers that exist at the same time.
fn peak(func: &PrimFuncData, stmt: &Stmt) -> u64 {
    let mut inside = 0;
    stmt.for_each_child(&mut |child| inside = peak(func, child).max(inside));
    match stmt {
        Stmt::Allocate { buffer, .. } if func.buffers[*buffer].scope == BufferScope::Local => {
            bytes(func, *buffer).saturating_add(inside)
        }
        _ => inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{parse, verify};

    /// The remaining local buffers with their extents, and the peaks before and after.
    fn left(body: &str) -> (Vec<String>, Vec<u64>) {
        let func =
            parse(&format!("prim_func @f(x: input float32[8], y: output float32[8]) {{{body}}}"));
        let cx = PassContext::default();
        let shared = StorageRewrite.run_on_prim_func(func.unwrap(), &cx).unwrap();
        verify(&shared).unwrap();
        let mut buffers = Vec::new();
        shared.body.walk(&mut |stmt| {
            if let Stmt::Allocate { buffer, .. } = stmt {
                let buffer = &shared.buffers[*buffer];
                buffers.push(format!("{}{:?}", buffer.name, buffer.shape()));
            }
        });
        (buffers, cx.statistics().values().copied().collect())
    }

    const THREE: &str = "
        allocate a: local float32[8] allocate b: local float32[4] allocate c: local float32[8]
        for i in serial(8) { a[i] = x[i] }
        for i in serial(4) { b[i] = a[i] + a[7 - i] }
        for i in serial(8) { c[i] = b[floormod(i, 4)] }
        for i in serial(8) { y[i] = c[i] }";

    #[test]
    fn buffers_no_longer_needed_give_their_memory_to_others() {
        assert_eq!(left(THREE), (vec!["a[8]".to_owned(), "b[4]".to_owned()], vec![48, 80]));
        let looped = format!("for k in serial(2) {{ {THREE} }}");
        assert_eq!(left(&looped).0, ["a[8]", "b[4]"]);
        // All buffers are needed in the next iteration.
        let carried =
            THREE.replace("for i in serial(8) { a", "for k in serial(2) { for i in serial(8) { a");
        assert_eq!(left(&format!("{carried} }}")).0, ["a[8]", "b[4]", "c[8]"]);
    }

    #[test]
    fn elementwise_results_take_the_place_of_their_operands() {
        let steps = |index: &str, of: &str| {
            format!(
                "allocate a: local float32[8] allocate b: local float32[8]
                 for i in serial(8) {{ a[i] = x[i] }}
                 {of} {{ b[{index}] = a[{index}] * 2.0 }}
                 for i in serial(8) {{ y[i] = b[i] }}"
            )
        };
        assert_eq!(left(&steps("i", "for i in serial(8)")).0, ["a[8]"]);
        let nest = "for i in serial(2) { for j in serial(4)";
        assert_eq!(left(&steps("i * 4 + j", nest).replacen("2.0 }", "2.0 } }", 1)).0, ["a[8]"]);
        // Some elements are computed twice.
        assert_eq!(
            left(&steps("i * 2 + j", nest).replacen("2.0 }", "2.0 } }", 1)).0,
            ["a[8]", "b[8]"]
        );
        // An element from another index.
        let reversed = steps("i", "for i in serial(8)").replace("a[i] * 2.0", "a[7 - i] * 2.0");
        assert_eq!(left(&reversed).0, ["a[8]", "b[8]"]);
    }

    #[test]
    fn buffers_of_other_workers_or_types_do_not_share_memory() {
        let typed = THREE.replace("b: local float32[4]", "b: local int32[4]");
        let typed = typed.replace("a[i] + a[7 - i]", "cast<int32>(a[i])");
        let typed = typed.replace("b[floormod(i, 4)]", "cast<float32>(b[floormod(i, 4)])");
        assert_eq!(left(&typed).0, ["a[8]", "b[4]"]);
        let parallel = "
            allocate a: local float32[8]
            for i in serial(8) { a[i] = x[i] }
            for i in serial(8) { y[i] = a[i] }
            for i in parallel(8) { allocate b: local float32[8] b[0] = x[i] y[i] = b[0] }";
        assert_eq!(left(parallel).0, ["a[8]", "b[8]"]);
        assert_eq!(left(&parallel.replace("parallel", "serial")).0, ["a[8]"]);
    }
}
