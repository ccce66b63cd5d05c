//! Winograd's convolution, compared with direct sums.

use super::{run, specs, values};
use crate::driver::accesses::are_proved;
use crate::driver::{BuildTarget, NdArray};
use crate::ir::{BufferSpec, DType};
use crate::options::Backend;
use crate::schedule::Schedule;
use crate::schedule::library::{WinogradTiles, winograd};
use crate::target::Target;
use crate::te;
use crate::te::topi::winograd::{Winograd, conv2d};
use crate::tir::{PrimExpr, PrimFunc, lower};

/// A convolution with a ReLU of a square image.
fn convolution(algorithm: Winograd, [channels, out, size]: [i64; 3]) -> PrimFunc {
    let mut te = te::Builder::new("conv");
    let n = algorithm.inputs();
    let after = 1 + (-size).rem_euclid(algorithm.outputs());
    let layout = BufferSpec::nchwc(&[1, channels, size, size], 16, &[(1, after); 2]);
    let x = te.placeholder_in("X", layout, DType::F32);
    let u = te.constant("U", [n, n, channels, out], DType::F32);
    let relu = |sum: PrimExpr, _| sum.max(te::f32(0.0));
    let stages = conv2d(&mut te, algorithm, x, u, [1, 1], [size, size], relu);
    let layout = BufferSpec::nchwc(&[1, out, size, size], 16, &[(1, 1); 2]);
    te.set_layout(stages.output, layout);
    te.prim_func(&[x, u, stages.output]).unwrap()
}

#[test]
fn the_schedule_equals_its_plain_loops() {
    for (algorithm, size, prefetch) in
        [(Winograd::F2, 4, false), (Winograd::F4, 4, true), (Winograd::F2, 5, true)]
    {
        let func = convolution(algorithm, [16, 16, size]);
        let dense = specs(&func);
        let data = values(&dense);
        let expected = run(&func, &dense, &data);
        let mut s = Schedule::new(func);
        let cut = WinogradTiles { tiles: 2, rows: 2, panel: 8, packed: 16, lanes: 8, prefetch };
        winograd(&mut s, algorithm, cut).unwrap();
        // Blocks of tiles that leave the image are guarded by more than the analyser sees through.
        let is_whole = size % algorithm.outputs() == 0;
        assert!(!is_whole || are_proved(&s.func()).unwrap(), "{}", s.func());
        let scheduled = specs(&s.func());
        assert_eq!(run(&s.func(), &scheduled, &data), expected, "{}", s.func());
        let target = Target::host().with_cpu("x86-64-v3").unwrap();
        let lowered = lower(s.func(), &target).unwrap();
        assert_eq!(run(&lowered, &scheduled, &data), expected);
    }
}

/// Numbers between -1 and 1 without a pattern.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(next).collect()
}

/// The convolution in `f64`, tap by tap.
fn direct(x: &[f32], weights: &[f32], [channels, out, size]: [usize; 3]) -> Vec<f64> {
    let mut result = Vec::new();
    for filter in weights.chunks_exact(channels * 9).take(out) {
        for y in 0..size {
            for x_ in 0..size {
                let mut sum = 0.0;
                for (tap, weight) in filter.iter().enumerate() {
                    let (c, ky, kx) = (tap / 9, tap / 3 % 3, tap % 3);
                    let inside = 1..=size;
                    if inside.contains(&(y + ky)) && inside.contains(&(x_ + kx)) {
                        let place = (c * size + y + ky - 1) * size + x_ + kx - 1;
                        sum += f64::from(*weight) * f64::from(x[place]);
                    }
                }
                result.push(sum.max(0.0));
            }
        }
    }
    result
}

/// Sizes with and without partial tiles, with one and two register tiles, and with panels of one,
/// two and three vectors.
#[test]
fn both_backends_are_as_exact_as_documented() {
    // Largest difference as a share of the largest value.
    for (algorithm, most) in [(Winograd::F2, 1e-6), (Winograd::F4, 2e-5)] {
        for [channels, out, size] in [[32, 64, 12], [16, 48, 7], [16, 16, 9], [64, 32, 14]] {
            let x = numbers((channels * size * size) as usize, 1);
            let weights = numbers((out * channels * 9) as usize, 2);
            let extents = [channels, out, size].map(|extent| extent as usize);
            let expected = direct(&x, &weights, extents);
            let n = algorithm.inputs();
            let u = algorithm.transform_weights(&weights, [extents[1], extents[0]]);
            let x = NdArray::from_slice(&[1, channels, size, size], &x).unwrap();
            let u = NdArray::from_slice(&[n, n, channels, out], &u).unwrap();
            let mut outputs = Vec::new();
            for &backend in Backend::ALL {
                let target = BuildTarget::native(backend);
                let mut s = Schedule::new(convolution(algorithm, [channels, out, size]));
                let extents = [channels, out, size, size];
                let cut = WinogradTiles::choose(algorithm, extents, &target.machine);
                winograd(&mut s, algorithm, cut).unwrap();
                let module = crate::build([s.into_func()], &target).unwrap();
                let mut y = NdArray::zeros(DType::F32, &[1, out, size, size]).unwrap();
                module.function("conv").unwrap().call((&x, &u, &mut y)).unwrap();
                let scale = expected.iter().fold(0.0, |scale: f64, value| scale.max(*value));
                let differences = expected.iter().zip(y.as_slice::<f32>().unwrap());
                let error = differences
                    .map(|(expected, found)| (expected - f64::from(*found)).abs() / scale)
                    .fold(0.0, f64::max);
                assert!(error < most, "{algorithm:?} {extents:?} {backend}: {error:e}");
                outputs.push(y);
            }
            assert!(outputs.windows(2).all(|pair| pair[0].bytes() == pair[1].bytes()));
        }
    }
}

#[test]
fn channels_that_fill_no_vector_are_an_error() {
    let error = |channels, out| {
        let mut s = Schedule::new(convolution(Winograd::F2, [channels, out, 4]));
        let cut =
            WinogradTiles { tiles: 2, rows: 2, panel: 32, packed: 32, lanes: 16, prefetch: false };
        winograd(&mut s, Winograd::F2, cut).unwrap_err().to_string()
    };
    assert_eq!(
        error(24, 32),
        "winograd: the input has 24 channels, and a vector takes 16; pad the channels of the input \
         to a multiple"
    );
    assert_eq!(
        error(32, 48),
        "winograd: the output has 48 channels, and a panel takes 32; pad the channels of the \
         output to a multiple"
    );
}

#[test]
fn blocks_are_small_where_weights_stay_in_the_cache() {
    let target = Target::host().with_cpu("x86-64-v4").unwrap();
    let choose = |algorithm, extents| WinogradTiles::choose(algorithm, extents, &target);
    let small = choose(Winograd::F4, [64, 64, 56, 56]);
    assert_eq!((small.tiles, small.rows, small.panel, small.prefetch), (14, 14, 32, false));
    let large = choose(Winograd::F4, [128, 128, 28, 28]);
    assert!((25..49).contains(&large.tiles) && large.prefetch, "{large:?}");
    assert_eq!(choose(Winograd::F2, [256, 256, 14, 14]).tiles, 49);
    assert_eq!(choose(Winograd::F4, [16, 48, 8, 8]).panel, 48);
}

#[test]
fn blocks_are_large_where_weights_take_longer_to_read_than_they() {
    let target = Target { arch: "x86_64".to_owned(), ..Target::host() };
    let target = target.with_cpu("x86-64-v3").unwrap();
    let tiles = |extents| WinogradTiles::choose(Winograd::F4, extents, &target).tiles;
    // 16 and 9 tiles, which do not fit, for weights of 9 and of 38 MB.
    assert_eq!([tiles([256, 256, 14, 14]), tiles([512, 512, 12, 12])], [16, 9]);
    // Weights of 0.6 MB and a large image: reading it again would take longer.
    assert_eq!(tiles([64, 64, 224, 224]), 18);
}
