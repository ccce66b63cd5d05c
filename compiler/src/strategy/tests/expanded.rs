//! Convolutions of single pixels with depthwise ones of what they make.

use super::{Arg, Net, blocked, case, check, conv_attrs, dense};
use crate::graph::Function;
use crate::ir::Attrs;
use crate::target::Target;

/// A convolution of single pixels, bias and relu; and a depthwise one of it with bias, and a residual.
fn expansion(
    image: &[i64; 4],
    channels: i64,
    kernel: [i64; 2],
    attrs: Attrs,
) -> (Function, Vec<i64>) {
    let mut net = Net::new();
    let (x, w) = (net.param(image), net.param(&[channels, image[1], 1, 1]));
    let bias = net.param(&[channels, 1, 1]);
    let depthwise = net.param(&[channels, 1, kernel[0], kernel[1]]);
    let y = net.call("nn.conv2d", &[x, w], conv_attrs(1, [0; 4], 1, 1));
    let y = net.plain("add", &[y, bias]);
    let y = net.plain("nn.relu", &[y]);
    let y = net.call("nn.conv2d", &[y, depthwise], attrs.with("groups", channels));
    let y = net.plain("add", &[y, bias]);
    let made: Vec<i64> =
        net.b.ty(y).as_tensor().unwrap().shape.iter().map(|dim| dim.as_const().unwrap()).collect();
    let residual = net.param(&made);
    let y = net.plain("multiply", &[y, residual]);
    (net.finish(y), made)
}

#[test]
fn depthwise_convolutions_go_by_bands_of_what_they_read() {
    for (image, channels, kernel, attrs, is_planar) in [
        // In bands on all machines, then on those with small caches, and in one.
        ([1, 8, 120, 40], 32, [3, 3], conv_attrs(1, [1; 4], 1, 1), false),
        ([1, 20, 61, 45], 16, [3, 3], conv_attrs(2, [1; 4], 1, 1), true),
        ([2, 16, 9, 10], 48, [3, 3], conv_attrs(1, [1; 4], 1, 1), false),
        // Borders of several lines, on one side, or none, and taps that are further apart.
        ([1, 8, 70, 50], 16, [3, 5], conv_attrs(2, [0, 1, 2, 3], 1, 1), false),
        ([1, 8, 80, 30], 16, [3, 3], conv_attrs(1, [2, 0, 3, 2], 2, 1), true),
        ([1, 8, 24, 20], 16, [2, 1], conv_attrs(3, [0; 4], 1, 1), false),
        // A line of the result reads all of the image, and more.
        ([1, 8, 2, 30], 32, [5, 3], conv_attrs(2, [2, 1, 2, 1], 1, 1), true),
    ] {
        let (function, made) = expansion(&image, channels, kernel, attrs);
        let (from, to) = match is_planar {
            true => (dense(&image), dense(&made)),
            false => (blocked(&image, &[]), blocked(&made, &[(1, 1), (0, 2)])),
        };
        let mut args = vec![Arg::Constant; 4];
        args[0] = Arg::Input(from);
        args.push(Arg::Input(to.clone()));
        check(&function, &args, std::slice::from_ref(&to));
        // The level with the largest caches, which this machine may not be.
        let wide =
            Target::from_triple("x86_64-unknown-linux-gnu").unwrap().with_cpu("x86-64-v4").unwrap();
        let loops = case(&function, &args, &[to]).schedule(&[wide]).0.loops;
        let last = loops.iter().find(|loops| loops.rule == "depthwise convolution").unwrap();
        let bands = last.knobs.strip_prefix("bands of ").unwrap().split(' ').next().unwrap();
        assert_eq!(bands.parse::<i64>().unwrap() < made[2], image[2] == 120, "{loops:?}");
        assert!(loops.iter().all(|loops| loops.missed.is_none()), "{loops:?}");
    }
}
