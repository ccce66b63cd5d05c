//! Convolutions in groups, of whole blocks, of parts of them, and of planes.

use super::{Arg, Net, blocked, case, check, conv, conv_attrs, dense};
use crate::codegen::testing::runnable_levels;

#[test]
fn grouped_and_depthwise_convolution() {
    conv(
        &[1, 36, 9, 9],
        &[36, 1, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 36),
        blocked(&[1, 36, 9, 9], &[(1, 1), (1, 1)]),
        |shape| blocked(shape, &[]),
    );
    conv(
        &[1, 32, 6, 6],
        &[32, 16, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 2),
        blocked(&[1, 32, 6, 6], &[(1, 1), (1, 1)]),
        |shape| blocked(shape, &[]),
    );
    // Groups that fit no block.
    conv(
        &[1, 12, 6, 6],
        &[8, 3, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 4),
        dense(&[1, 12, 6, 6]),
        dense,
    );
    // Groups of more than a panel that begin inside blocks, on both sides.
    conv(
        &[1, 36, 5, 5],
        &[120, 12, 1, 1],
        conv_attrs(1, [0; 4], 1, 3),
        blocked(&[1, 36, 5, 5], &[]),
        |shape| blocked(shape, &[(1, 1), (1, 1)]),
    );
    // Two output channels for each input channel; blocks in, a part of a block out.
    conv(
        &[2, 6, 7, 7],
        &[12, 1, 3, 3],
        conv_attrs(2, [1, 1, 1, 1], 1, 6),
        dense(&[2, 6, 7, 7]),
        |shape| blocked(shape, &[]),
    );
    conv(
        &[1, 32, 6, 6],
        &[20, 16, 3, 3],
        conv_attrs(1, [1, 1, 1, 1], 1, 2),
        blocked(&[1, 32, 6, 6], &[(1, 1), (1, 1)]),
        |shape| blocked(shape, &[]),
    );
}

#[test]
fn channels_of_narrow_groups_are_lanes() {
    // Groups of two, four and eight channels; lines that are shorter and longer than a tile, of several
    // images; taps that are further apart; a border on one side.
    for (image, [kh, kw], attrs, size) in [
        ([1, 32, 7, 33], [3, 3], conv_attrs(1, [1; 4], 1, 8), 4),
        ([2, 48, 5, 5], [3, 3], conv_attrs(1, [1; 4], 1, 6), 8),
        ([1, 16, 9, 21], [3, 3], conv_attrs(2, [1; 4], 1, 8), 2),
        ([1, 64, 12, 19], [2, 5], conv_attrs(1, [2, 0, 3, 4], 2, 8), 8),
        ([1, 16, 10, 40], [3, 7], conv_attrs(3, [0, 3, 1, 2], 1, 4), 4),
        ([1, 32, 6, 18], [1, 1], conv_attrs(1, [0; 4], 1, 4), 8),
    ] {
        let weight = [image[1], size, kh, kw];
        conv(&image, &weight, attrs.clone(), blocked(&image, &[(3, 3), (4, 4)]), |shape| {
            blocked(shape, &[(1, 1), (0, 2)])
        });
        conv(&image, &weight, attrs.clone(), dense(&image), |shape| blocked(shape, &[]));
        conv(&image, &weight, attrs.clone(), dense(&image), dense);
        conv(&image, &weight, attrs, blocked(&image, &[]), dense);
    }
}

#[test]
fn weights_of_narrow_groups_may_be_computed() {
    let image = [1, 32, 6, 20];
    let mut net = Net::new();
    let (x, w) = (net.param(&image), net.param(&[32, 4, 3, 3]));
    let w = net.plain("nn.relu", &[w]);
    let y = net.call("nn.conv2d", &[x, w], conv_attrs(2, [1; 4], 1, 8));
    let args = [blocked(&image, &[(1, 1), (1, 1)]), dense(&[32, 4, 3, 3])].map(Arg::Input);
    check(&net.finish(y), &args, &[blocked(&[1, 32, 3, 10], &[])]);
}

#[test]
fn groups_share_blocks_where_lanes_are_full() {
    let rule = |channels: i64, size: i64, row: i64| {
        let image = [1, channels, 4, row];
        let mut net = Net::new();
        let (x, w) = (net.param(&image), net.param(&[channels, size, 3, 3]));
        let y = net.call("nn.conv2d", &[x, w], conv_attrs(1, [1; 4], 1, channels / size));
        let function = net.finish(y);
        let args = [Arg::Input(blocked(&image, &[(1, 1), (1, 1)])), Arg::Constant];
        let results = [blocked(&image, &[])];
        check(&function, &args, &results);
        let loops = case(&function, &args, &results).schedule(&runnable_levels()).0.loops;
        loops.last().unwrap().rule.to_owned()
    };
    assert_eq!(rule(32, 8, 5), "convolution of narrow groups");
    assert_eq!(rule(16, 2, 5), "convolution of narrow groups");
    // Part of a block, groups that are none of a block, and whole blocks.
    assert_eq!(rule(24, 8, 5), "direct convolution of planes");
    assert_eq!(rule(48, 6, 5), "direct convolution of planes");
    assert_eq!(rule(32, 16, 5), "direct convolution");
}
