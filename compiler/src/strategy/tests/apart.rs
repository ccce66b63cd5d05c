//! Functions of elements that lie apart.

use super::copies::{check_vectors, missed};
use super::families::ints;
use super::{Arg, Case, Net, check_all, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::ir::{Attrs, Constant, DType, Dim, TensorType};
use crate::ops::tensor::StridedSliceAttrs;

#[test]
fn functions_of_elements_that_lie_apart_are_computed_in_vectors() {
    // Every third element, in either order: chunks of several vectors, of one, and single elements.
    for (count, stride) in [(1000, 3), (1000, -3), (37, 5)] {
        let mut net = Net::new();
        let x = net.param(&[count]);
        let every = StridedSliceAttrs {
            begin: vec![if stride > 0 { 0 } else { count - 1 }],
            end: vec![if stride > 0 { count } else { -count - 1 }],
            strides: vec![stride],
            axes: vec![0],
        };
        let y = net.plain("sin", &[x]);
        let y = net.call("strided_slice", &[y], Attrs::from_struct(&every).unwrap());
        let y = net.plain("exp", &[y]);
        let kept = (count + stride.abs() - 1) / stride.abs();
        check_vectors(&net.finish(y), &[dense(&[count])], &[dense(&[kept])]);
    }
    // Rows that data say, functions with conditions or not, and factors that are in vectors.
    let shape = [3, 7, 41];
    for op in ["cos", "nn.mish"] {
        let mut net = Net::new();
        let (x, by) = (net.param(&shape), net.param(&[41]));
        let places = TensorType::new([3, 2, 41].map(Dim::from).into_iter().collect(), DType::I64);
        let at = net.b.param("at", places);
        let y = net.plain(op, &[x]);
        let y = net.call("gather", &[y, at], Attrs::new().with("axis", 1));
        let y = net.plain("multiply", &[y, by]);
        let function = net.finish(y);
        let args = [dense(&shape), dense(&[41]), dense(&[3, 2, 41])];
        assert_eq!(missed(&function, &args, &[dense(&[3, 2, 41])]), [""; 0], "{op}");
        let places: Vec<i128> = (0..3 * 2 * 41).map(|at| at * 5 % 7).collect();
        let places = ints(DType::I64, &[3, 2, 41], &places);
        let tensors = vec![sample(&[3, 7, 41], 1), sample(&[41], 2), places];
        let args = args.into_iter().map(Arg::Input).collect();
        let results = vec![dense(&[3, 2, 41])];
        let case = Case { name: format!("gather and {op}"), function, tensors, args, results };
        check_all(&[case], &runnable_levels());
    }
}

/// A function of a few elements is computed once for each, however many there are made of them.
#[test]
fn functions_of_elements_that_repeat_are_stored() {
    for (repeats, is_stored) in [(9, true), (2, false)] {
        let [few, many] = [1, repeats].map(|repeats| [1, repeats, 6, 20]);
        let mut net = Net::new();
        let (angle, x) = (net.param(&few), net.param(&many));
        let y = net.plain("cos", &[angle]);
        let y = net.plain("multiply", &[x, y]);
        let (function, args) = (net.finish(y), [dense(&few), dense(&many)].map(Arg::Input));
        let (results, tensors) = (
            vec![dense(&many)],
            vec![sample(&[1, 1, 6, 20], 1), sample(&[1, repeats as usize, 6, 20], 2)],
        );
        let name = format!("{repeats} times");
        let case = Case { name, function, tensors, args: args.to_vec(), results };
        let loops = case.schedule(&runnable_levels()).0.loops;
        assert_eq!(loops.iter().any(|loops| loops.op == "cos"), is_stored, "{loops:?}");
        check_all(&[case], &runnable_levels());
    }
    // Of a factor for each row, every row's is computed before its elements.
    let (rows, shape) = ([40, 1], [40, 60]);
    let mut net = Net::new();
    let (a, x) = (net.param(&rows), net.param(&shape));
    let y = net.plain("exp", &[a]);
    let y = net.plain("multiply", &[x, y]);
    check_vectors(&net.finish(y), &[dense(&rows), dense(&shape)], &[dense(&shape)]);
}

#[test]
fn values_with_names_are_read_where_the_names_are() {
    // A branch names what it uses twice; chains of those have as many names, and no more terms.
    for squares in [0, 14] {
        let shape = [4, 50];
        let mut net = Net::new();
        let x = net.param(&shape);
        let places = TensorType::new([40].map(Dim::from).into_iter().collect(), DType::I64);
        let at = net.b.param("at", places);
        let mut y = net.call("take", &[x, at], Attrs::new().with("axis", 1).with("mode", "wrap"));
        for _ in 0..squares {
            let square = net.plain("multiply", &[y, y]);
            y = net.plain("minimum", &[square, y]);
        }
        let e = net.plain("exp", &[y]);
        let product = net.plain("multiply", &[e, y]);
        let sum = net.plain("add", &[product, e]);
        let zero = net.b.constant(Constant::scalar(0.0, DType::F32).unwrap());
        let is_positive = net.plain("greater", &[y, zero]);
        let y = net.plain("where", &[is_positive, sum, y]);
        let function = net.finish(y);
        let places: Vec<i128> = (0..40).map(|at| at * 7 % 50).collect();
        let tensors = vec![sample(&[4, 50], 1), ints(DType::I64, &[40], &places)];
        let args = [dense(&shape), dense(&[40])].map(Arg::Input).to_vec();
        let results = vec![dense(&[4, 40])];
        let case = Case { name: format!("{squares} squares"), function, tensors, args, results };
        for version in case.schedule(&runnable_levels()).0.versions {
            let mut terms = 0;
            version.body.walk_exprs(&mut |_| terms += 1);
            assert!(terms < 2000, "{terms} terms of {squares} squares");
        }
        check_all(&[case], &runnable_levels());
    }
}
