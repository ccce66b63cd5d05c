//! 3x3 convolutions with bias and ReLU by Winograd's algorithm: tensor expressions with the library's schedule. The
//! image is in blocks of channels already, as it is within a network; peers run the chain of the direct ones.

use niello::driver::BuildTarget;
use niello::ir::{BufferSpec, Constant, DType};
use niello::schedule::Schedule;
use niello::schedule::library::{WinogradTiles, winograd};
use niello::te;
use niello::te::topi::winograd::{Winograd, conv2d};
use niello::tir::PrimExpr;

use super::conv::{Conv, Net};
use super::values::dims;
use crate::check::Expected;
use crate::kernel::{Build, Built, Goal, Kernel, Result, Setup, said};
use crate::native;

/// Channels of a block of the layout.
const BLOCK: i64 = 16;

impl Conv {
    /// The convolution by that algorithm, counted in the operations of the direct one.
    pub(super) fn winograd(
        self,
        algorithm: Winograd,
        name: &str,
        goal: Goal,
        threads: &'static [usize],
    ) -> Kernel {
        let build = Build::Function(Box::new(move |setup| self.build_winograd(algorithm, setup)));
        Kernel { build, ..self.kernel(name, Net::Chain, goal, threads) }
    }

    fn build_winograd(self, algorithm: Winograd, setup: Setup) -> Result<Built> {
        let (image, [weights, bias], expected) = self.single();
        let Conv { extent, channels, filters, .. } = self;
        let n = algorithm.inputs() as usize;
        let transformed = algorithm.transform_weights(&weights, [filters, channels]);
        let constant = |extents: &[usize], values: &[f32]| {
            Constant::from_f32(&dims(extents), values).map_err(said)
        };
        let inputs = vec![
            constant(&[1, channels, extent, extent], &image)?,
            constant(&[n, n, channels, filters], &transformed)?,
            constant(&[filters], &bias)?,
        ];
        let [size, channels, filters, n] =
            [extent, channels, filters, n].map(|extent| extent as i64);

        let mut te = te::Builder::new("conv");
        // As far as the last tile reads.
        let after = 1 + (-size).rem_euclid(algorithm.outputs());
        let layout = BufferSpec::nchwc(&[1, channels, size, size], BLOCK, &[(1, after); 2]);
        let x = te.placeholder_in("X", layout, DType::F32);
        let u = te.constant("U", [n, n, channels, filters], DType::F32);
        let b = te.constant("bias", [filters], DType::F32);
        let relu = |sum: PrimExpr, [_, channel, _, _]: [te::Var; 4]| {
            (sum + b.at([channel])).max(te::f32(0.0))
        };
        let stages = conv2d(&mut te, algorithm, x, u, [1, 1], [size, size], relu);
        let layout = BufferSpec::nchwc(&[1, filters, size, size], BLOCK, &[(1, 1); 2]);
        te.set_layout(stages.output, layout);
        let mut s = Schedule::new(te.prim_func(&[x, u, b, stages.output]).map_err(said)?);
        let extents = [channels, filters, size, size];
        let cut =
            WinogradTiles::choose(algorithm, extents, &BuildTarget::native(setup.backend).machine);
        let loops = winograd(&mut s, algorithm, cut).map_err(said)?;
        if setup.threads > 1 {
            let across = (size + algorithm.outputs() - 1) / algorithm.outputs();
            let blocks = s.extent(loops.blocks).unwrap_or(1);
            // Blocks for all threads that differ in size become two loops, and one would have nothing to share.
            let shared = blocks >= 2 * setup.threads as i64 && across * across % blocks == 0;
            let chosen = if shared { vec![loops.blocks] } else { vec![loops.inputs, loops.panels] };
            for parallel in chosen {
                s.parallel(parallel).map_err(said)?;
            }
        }
        native::of_function(s.into_func(), setup, inputs, Expected::all(expected))
    }
}

#[cfg(test)]
mod tests {
    use niello::options::Backend;

    use super::*;

    #[test]
    fn one_and_two_threads_compute_the_convolution() {
        let conv =
            Conv { extent: 8, channels: 16, filters: 64, kernel: 3, stride: 1, depthwise: false };
        for threads in [1, 2] {
            let setup = Setup { backend: Backend::C, threads };
            let mut built = conv.build_winograd(Winograd::F4, setup).unwrap();
            let output = built.code.output(&built.inputs).unwrap();
            built.expected.error(&output).unwrap();
        }
    }
}
