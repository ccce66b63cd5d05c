//! Outputs that are stored where an input is.

use super::{Net, dense};
use crate::arith::IntExpr;
use crate::codegen::testing::runnable_levels;
use crate::graph::ExprId;
use crate::ir::{Attrs, BufferSpec};
use crate::strategy::primitive::primitive;
use crate::strategy::{KernelParam, schedule};
use crate::tir::ParamKind;

#[test]
fn only_where_each_element_is_read_before_it_is_written() {
    let of_several = |net: Net, result: ExprId, specs: &[BufferSpec]| {
        let function = net.finish(result);
        let p = primitive("kernel", &function, &IntExpr::as_const, false)
            .unwrap_or_else(|e| panic!("{e:?}"));
        let params: Vec<KernelParam> = p
            .params
            .iter()
            .zip(specs)
            .map(|(&stage, spec)| (stage, ParamKind::Input, spec.clone()))
            .collect();
        let target = runnable_levels().remove(0);
        let outs: Vec<_> =
            p.results.iter().copied().zip(specs[p.params.len()..].iter().cloned()).collect();
        schedule(p.dag, &params, &outs, &[target], &Default::default()).signature().inplace.clone()
    };
    let pairs = |net: Net, result: ExprId, specs: &[BufferSpec], out: BufferSpec| {
        of_several(net, result, &[specs, &[out]].concat())
    };
    let shape = [4, 4];
    let mut net = Net::new();
    let (x, y) = (net.param(&shape), net.param(&[4]));
    let z = net.plain("add", &[x, y]);
    // The row that is broadcast is read again for later rows.
    assert_eq!(pairs(net, z, &[dense(&shape), dense(&[4])], dense(&shape)), [(2, 0)]);
    let mut net = Net::new();
    let x = net.param(&shape);
    let z = net.call("transpose", &[x], Attrs::new().with("axes", vec![1i64, 0]));
    assert_eq!(pairs(net, z, &[dense(&shape)], dense(&shape)), []);
    let mut net = Net::new();
    let x = net.param(&shape);
    let z = net.call("nn.softmax", &[x], Attrs::new().with("axis", 0i64));
    // All is read before the first quotient is stored.
    assert_eq!(pairs(net, z, &[dense(&shape)], dense(&shape)), [(1, 0)]);
    // Along rows, if they are whole groups: else the last one reads again what others have read.
    for (length, expected) in [(4, &[(1, 0)][..]), (32, &[(1, 0)]), (20, &[])] {
        let shape = [4, length];
        let mut net = Net::new();
        let x = net.param(&shape);
        let z = net.call("nn.softmax", &[x], Attrs::new().with("axis", 1i64));
        assert_eq!(pairs(net, z, &[dense(&shape)], dense(&shape)), expected, "{length}");
    }
    // Several outputs have a place each, but what a later one reads stays until then.
    let two = |later: &str| {
        let mut net = Net::new();
        let [x, y, w] = [(); 3].map(|()| net.param(&shape));
        let first = net.plain("add", &[x, y]);
        let read = if later == "first" { first } else { x };
        let second = net.plain("multiply", &[read, w]);
        let both = net.b.tuple(&[first, second]);
        of_several(net, both, &[(); 5].map(|()| dense(&shape)))
    };
    assert_eq!(two("first"), [(3, 0), (4, 1), (4, 2)]);
    assert_eq!(two("x"), [(4, 0), (3, 1), (4, 2)]);
}
