//! Dot products of bytes by `tensorize`.

use super::super::tests::{check, matmul, refusal};
use super::super::{BlockRv, BufferAccess, LoopRv, Schedule, TensorIntrin};
use crate::ir::{BufferSpec, DType};
use crate::target::Target;
use crate::te;
use crate::tir::{BufferScope, PrimExpr, PrimFunc, Stmt, lower};

pub(crate) fn matmul_u8i8(m: i64, k: i64, n: i64) -> PrimFunc {
    let mut te = te::Builder::new("matmul_u8i8");
    let a = te.placeholder("A", [m, k], DType::U8);
    let b = te.constant("B", [k, n], DType::I8);
    let r = te.reduce_axis("k", k);
    let c = te.compute("C", [m, n], |[i, j]| {
        te::sum(a.at([i, r]).cast(DType::I32) * b.at([r, j]).cast(DType::I32), [r])
    });
    let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]));
    te.prim_func(&[a, b, d]).unwrap()
}

/// Loops `j` and `k` of 16 and 4 iterations in place, and the init moved out.
fn nest(func: &PrimFunc) -> (Schedule, BlockRv, [LoopRv; 2]) {
    let mut s = Schedule::new(func.clone());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let [i, j, k] = s.get_loops(c).unwrap()[..] else { panic!("three loops") };
    let [i0, i1] = s.split(i, [None, Some(3)]).unwrap();
    let [j0, j1, j2] = s.split(j, [None, Some(2), Some(16)]).unwrap();
    let [k0, k1] = s.split(k, [None, Some(4)]).unwrap();
    s.reorder(&[j0, i0, k0, i1, j1, j2, k1]).unwrap();
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    s.reverse_compute_at(d, i0).unwrap();
    let [.., row, column] = s.get_loops(d).unwrap()[..] else { panic!("more than two loops") };
    let [vector, lane] = s.split(column, [None, Some(16)]).unwrap();
    for rv in [i1, j1, row, vector] {
        s.unroll(rv).unwrap();
    }
    s.vectorize(lane).unwrap();
    let init = s.decompose_reduction(c, k0).unwrap();
    let lane = *s.get_loops(init).unwrap().last().unwrap();
    s.vectorize(lane).unwrap();
    (s, c, [j2, k1])
}

fn loads(func: &PrimFunc) -> Vec<(String, Vec<PrimExpr>)> {
    let mut found = Vec::new();
    func.body.walk_exprs(&mut |expr| {
        if let PrimExpr::Load { buffer, indices, .. } = expr {
            found.push((func.buffers[*buffer].name.clone(), indices.clone()));
        }
    });
    found
}

#[test]
fn a_dot_product_adds_four_products_at_once() {
    let func = matmul_u8i8(6, 8, 64);
    let (mut s, c, [j2, _]) = nest(&func);
    let fours = BufferSpec::packed(&[8, 64], &[(1, 32), (0, 4), (1, 1), (0, 1)]);
    s.transform_layout(c, BufferAccess::Read(1), &fours).unwrap();
    s.tensorize(j2, &TensorIntrin::get("dot_u8i8i32_16").unwrap()).unwrap();
    check(&func, &s);
    let with_dot = Target::host().with_cpu("x86-64-v4").unwrap();
    let mut target = with_dot.clone();
    target.features.insert("avx512vnni".to_owned());
    let lowered = lower(s.func(), &target).unwrap();
    let mut dots = 0;
    lowered
        .body
        .walk_exprs(&mut |expr| dots += usize::from(matches!(expr, PrimExpr::DotAdd { .. })));
    assert_eq!(dots, 6);
    // A load reads 64 consecutive bytes of the matrix.
    let whole = loads(&lowered).into_iter().filter(|(name, _)| name == "B");
    for (_, indices) in whole {
        assert!(
            matches!(&indices[..], [PrimExpr::Ramp { stride, lanes: 64, .. }] if stride.is_const(1)),
            "{indices:?}\n{lowered}"
        );
    }
}

#[test]
fn dot_products_need_no_packed_layout() {
    let func = matmul_u8i8(6, 8, 64);
    let (mut s, c, _) = nest(&func);
    s.tensorize(c, &TensorIntrin::get("dot_u8i8i32_16").unwrap()).unwrap();
    check(&func, &s);
}

#[test]
fn loops_that_are_no_dot_product_are_refused() {
    let dot = TensorIntrin::get("dot_u8i8i32_16").unwrap();
    let (mut s, c, [j2, k1]) = nest(&matmul_u8i8(6, 8, 64));
    assert_eq!(
        refusal(s.tensorize(k1, &dot)),
        "`dot_u8i8i32_16` is loops of [16, 4] iterations, and `k_1` begins loops of [4]; split \
         and reorder them"
    );
    s.reorder(&[k1, j2]).unwrap();
    let eight = TensorIntrin::get("dot_u8i8i32_8").unwrap();
    assert_eq!(
        refusal(s.tensorize(c, &eight)),
        "`dot_u8i8i32_8` is loops of [8, 4] iterations, and `k_1` begins loops of [4, 16]; split \
         and reorder them"
    );

    let mut s = Schedule::new(matmul_u8i8(1, 4, 16));
    let c = s.get_block("C").unwrap();
    assert_eq!(
        refusal(s.tensorize(c, &dot)),
        "block `C` has an init; use decompose_reduction before"
    );
    let loops = s.get_loops(c).unwrap();
    assert_eq!(
        refusal(s.tensorize(loops[0], &dot)),
        "`dot_u8i8i32_16` is loops of [16, 4] iterations, and `i` begins loops of [1, 16, 4]; \
         split and reorder them"
    );

    let mut s = Schedule::new(matmul(1, 16, 4));
    let c = s.get_block("C").unwrap();
    let loops = s.get_loops(c).unwrap();
    s.decompose_reduction(c, loops[1]).unwrap();
    assert_eq!(
        refusal(s.tensorize(c, &dot)),
        "`dot_u8i8i32_16`: `C` is float32, and the intrinsic has int32"
    );

    let (mut s, c, _) = nest(&matmul_u8i8(6, 6, 64));
    assert_eq!(
        refusal(s.tensorize(c, &dot)),
        "block `C` runs under a condition on these loops; choose factors that divide the extents, \
         or use pad_einsum before"
    );
}

#[test]
fn an_intrinsic_has_one_block_and_the_same_parameters() {
    let dot = |lanes| TensorIntrin::dot_u8i8i32(lanes).unwrap();
    let (eight, four) = (dot(8), dot(4));
    let wrong = TensorIntrin::new("dot", eight.desc.clone(), four.implementation.clone());
    assert_eq!(
        wrong.unwrap_err(),
        "intrinsic `dot`: the implementation has other parameters than the description"
    );
    let mut empty = eight.desc.clone();
    empty.make_mut().body = Stmt::nop();
    let wrong = TensorIntrin::new("dot", empty, eight.implementation.clone());
    assert_eq!(
        wrong.unwrap_err(),
        "intrinsic `dot`: the description is not loops around one block with one store"
    );
    assert!(TensorIntrin::get("dot").is_none() && TensorIntrin::dot_u8i8i32(5).is_none());
}
