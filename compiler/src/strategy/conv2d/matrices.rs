//! Convolutions of bytes whose sums are in registers that are matrices.
//!
//! A row of a register is up to 64 bytes of memory: the taps of a line, which lie side by side with all
//! channels of a block, or the channels of a single pixel. Of the latter a block has a quarter, so that
//! convolutions of single pixels copy four blocks into one first, where many columns read it.

use super::Conv;
use crate::ir::BufferSpec;
use crate::strategy::conv2d::around;
use crate::strategy::emit::Emitter;
use crate::strategy::tile::{MOST_MATRIX_ROWS, Sums};
use crate::strategy::tiling::Run;
use crate::strategy::turn::lanes_of;
use crate::target::CHANNEL_BLOCK;
use crate::tir::{MATRIX_BYTES, MATRIX_GRID, MATRIX_ROWS, Stmt};

/// Fewest output channels for which an image is copied into wider blocks.
const LEAST_COLUMNS_OF_COPY: i64 = 128;

impl Emitter {
    /// Where the sums of a convolution are, whose image has such blocks: in matrices if they are of bytes,
    /// whole blocks of channels, of more than one step, and of so many pixels that a register of rows is
    /// not mostly empty.
    pub(super) fn sums_of_conv(&self, conv: &Conv, block: Option<i64>) -> Sums {
        let has_blocks =
            block.is_some_and(|block| block >= CHANNEL_BLOCK && conv.in_channels % block == 0);
        match has_blocks && self.may_be_matrices(conv) {
            true => Sums::Matrices,
            false => Sums::Vectors,
        }
    }

    /// Whether the sums of a convolution of blocks of channels may be in matrices.
    fn may_be_matrices(&self, conv: &Conv) -> bool {
        let is_known = self.dag.limits(conv.inner).is_empty();
        let pixels = conv.output[0] * conv.output[1];
        // With a single step, to store and to load the sums takes as long as dot products do.
        let terms = conv.in_channels * conv.kernel[0] * conv.kernel[1];
        let is_large = pixels >= MATRIX_ROWS && terms > CHANNEL_BLOCK;
        self.machine.matrix && conv.ty.fours && is_known && is_large
    }

    /// The channels of the blocks of a copy of the image, of which a row of a matrix takes as many as it
    /// holds: if a convolution of single pixels has so many output channels that the copy is worth it.
    fn wide_block(&self, conv: &Conv) -> Option<i64> {
        let is_wide = |block: &i64| conv.in_channels % block == 0;
        // Of strided ones, not all of the copy is read.
        let least = LEAST_COLUMNS_OF_COPY * conv.strides[0] * conv.strides[1];
        let is_plain = (conv.kernel, conv.padding) == ([1; 2], [0; 2]);
        let may_be = is_plain
            && conv.out_channels >= least
            && conv.block() == Some(CHANNEL_BLOCK)
            && self.may_be_matrices(conv);
        let wide = (2..=MATRIX_BYTES / CHANNEL_BLOCK).rev().map(|blocks| blocks * CHANNEL_BLOCK);
        wide.filter(|_| may_be).find(is_wide)
    }

    /// A copy of the image of a convolution in blocks of so many channels, each of several of its own.
    fn joined_blocks(&mut self, conv: &mut Conv, wide: i64) -> Stmt {
        let shape = self.func.buffers[conv.data].shape().to_vec();
        let spec = BufferSpec::nchwc(&shape, wide, &[]);
        self.note(conv.inner, "copy of the image in wide blocks", String::new(), None, None);
        let copy = self.func.local("image", conv.ty.lhs, spec);
        self.scratch.push(copy);
        let [n, blocks, y, x] = [shape[0], shape[1] / wide, shape[2], shape[3]];
        let counters = [("n", n), ("c", blocks), ("y", y), ("x", x)];
        let counters = counters.map(|(name, extent)| (self.counter(name, extent), extent));
        let [n, block, y, x] = counters.each_ref().map(|((index, _), _)| index.clone());
        let parts = (0..wide / CHANNEL_BLOCK).map(|part| {
            let (lane, var) = self.counter("l", CHANNEL_BLOCK);
            let channel = block.clone() * wide + part * CHANNEL_BLOCK + lane;
            let at = [n.clone(), channel, y.clone(), x.clone()];
            let value = self.func.load(conv.data, at.clone());
            lanes_of(var, CHANNEL_BLOCK, self.func.store(copy, at, value))
        });
        let parts = Stmt::seq(parts.collect::<Vec<_>>());
        conv.data = copy;
        let loops = counters.into_iter().rev();
        loops.fold(parts, |body, ((_, var), extent)| around(var, extent, body))
    }

    /// The image of a convolution that reads it in blocks: itself, or a copy that suits it.
    pub(super) fn blocked_image(&mut self, conv: &mut Conv) -> Stmt {
        let wanted = conv.block();
        let image = self.image(conv, wanted);
        match self.wide_block(conv) {
            Some(wide) => Stmt::seq([image, self.joined_blocks(conv, wide)]),
            None => image,
        }
    }
}

impl Conv {
    /// Whether the pixels that one line of the result reads of such an image follow those of the line
    /// before as these follow one another.
    pub(super) fn has_adjacent_lines(&self, image: &BufferSpec) -> bool {
        let halo = image.halo()[3];
        (self.kernel, self.strides) == ([1; 2], [1; 2]) && (halo.before, halo.after) == (0, 0)
    }
}

/// Tiles that cover an image, with the pixels of each in two registers of rows: a line's, or as many of
/// one as of the next, or those of several lines if they are adjacent.
pub(super) fn matrix_runs([lines, pixels]: [i64; 2], are_adjacent: bool) -> Vec<[Run; 2]> {
    let of_line = |x: Run| {
        // A run that is part of a line ends before the next line begins.
        let most = match x.size {
            size if are_adjacent && size == pixels => MOST_MATRIX_ROWS / size,
            size if size > MATRIX_ROWS => 1,
            _ => MATRIX_GRID,
        };
        Run::cover(lines, most).into_iter().map(move |y| [y, x])
    };
    Run::cover(pixels, MOST_MATRIX_ROWS).into_iter().flat_map(of_line).collect()
}
