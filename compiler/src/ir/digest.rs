//! BLAKE3 digests.
//!
//! Build scripts and everything in them are compiled without optimisation, where code of many small
//! functions, such as vector intrinsics are, is a hundred times slower; crates that hash with C
//! instead need a C compiler that works before niello can say what is wrong with it, and are built
//! again whenever `CC` changes. So the compression is straight-line integer code, and threads share
//! the chunks of large inputs.

use std::num::NonZero;
use std::thread;

use crate::parallel;

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// Leaves of the hash tree.
const CHUNK_BYTES: usize = 1024;

const BLOCK_BYTES: usize = 64;

/// Bytes from which on threads take a share each: hashing so many takes longer than starting one.
const SHARED_BYTES: usize = 1 << 18;

/// Domain flags of a compression.
const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;

/// The first 32 bits of the fractional parts of the square roots of the first primes, as in
/// SHA-256.
const IV: Words = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The value of a node of the tree.
type Words = [u32; 8];

/// The digest of `bytes`.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut state = Blake3::new();
    state.update(bytes);
    state.finalize()
}

/// Computes the digest of bytes that come piece by piece.
#[derive(Clone, Debug)]
pub struct Blake3 {
    /// The chunk that is being filled. A full one stays until more follows, as only then it is
    /// known not to be the root.
    chunk: Vec<u8>,
    /// Number of chunks before it.
    chunks: u64,
    /// Values of the complete subtrees of those chunks, the largest first.
    subtrees: Vec<Words>,
}

impl Blake3 {
    /// The state before any bytes.
    pub fn new() -> Blake3 {
        Blake3 { chunk: Vec::new(), chunks: 0, subtrees: Vec::new() }
    }

    /// Appends bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.chunk.len() == CHUNK_BYTES {
                let value = chunk_value(&self.chunk, self.chunks, 0);
                self.push(value);
                self.chunk.clear();
            }
            if self.chunk.is_empty() && bytes.len() > CHUNK_BYTES {
                let (whole, rest) = bytes.split_at((bytes.len() - 1) / CHUNK_BYTES * CHUNK_BYTES);
                for value in chunk_values(whole, self.chunks) {
                    self.push(value);
                }
                bytes = rest;
            }
            let room = CHUNK_BYTES - self.chunk.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.chunk.extend_from_slice(now);
            bytes = rest;
        }
    }

    /// The digest of all bytes so far.
    pub fn finalize(&self) -> Digest {
        let root = |is_root: bool| if is_root { ROOT } else { 0 };
        let mut value = chunk_value(&self.chunk, self.chunks, root(self.subtrees.is_empty()));
        for (depth, left) in self.subtrees.iter().enumerate().rev() {
            value = parent_value(left, &value, root(depth == 0));
        }
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(value) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }

    /// Appends a chunk by its value; subtrees of equal size become one.
    fn push(&mut self, mut value: Words) {
        self.chunks += 1;
        for _ in 0..self.chunks.trailing_zeros() {
            if let Some(left) = self.subtrees.pop() {
                value = parent_value(&left, &value, 0);
            }
        }
        self.subtrees.push(value);
    }
}

impl Default for Blake3 {
    fn default() -> Self {
        Blake3::new()
    }
}

/// Values of whole chunks, the first of which has the number `first`.
fn chunk_values(bytes: &[u8], first: u64) -> Vec<Words> {
    let values = |bytes: &[u8], first: u64| -> Vec<Words> {
        let numbered = bytes.chunks(CHUNK_BYTES).zip(first..);
        numbered.map(|(chunk, number)| chunk_value(chunk, number, 0)).collect()
    };
    let chunks = bytes.len().div_ceil(CHUNK_BYTES);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = chunks.div_ceil(threads.min(bytes.len() / SHARED_BYTES).max(1)).max(1);
    let shares = bytes.chunks(share * CHUNK_BYTES).zip((first..).step_by(share));
    let shares: Vec<_> = shares.collect();
    parallel::map(&shares, threads, |&(bytes, first)| values(bytes, first)).concat()
}

/// The value of a chunk of at most [`CHUNK_BYTES`], which may have none.
fn chunk_value(bytes: &[u8], number: u64, flags: u32) -> Words {
    let mut value = IV;
    let last = bytes.len().div_ceil(BLOCK_BYTES).max(1) - 1;
    for index in 0..=last {
        let from = &bytes[index * BLOCK_BYTES..];
        let len = from.len().min(BLOCK_BYTES);
        let mut block = [0; BLOCK_BYTES];
        block[..len].copy_from_slice(&from[..len]);
        let start = if index == 0 { CHUNK_START } else { 0 };
        let end = if index == last { CHUNK_END | flags } else { 0 };
        value = compress(&value, &words(&block), number, len as u32, start | end);
    }
    value
}

fn parent_value(left: &Words, right: &Words, flags: u32) -> Words {
    let mut block = [0; 16];
    block[..8].copy_from_slice(left);
    block[8..].copy_from_slice(right);
    compress(&IV, &block, 0, BLOCK_BYTES as u32, PARENT | flags)
}

/// The little-endian words of a block.
fn words(block: &[u8; BLOCK_BYTES]) -> [u32; 16] {
    let mut words = [0; 16];
    let mut at = 0;
    // Not an iterator, which would cost as much as the compression in a build without optimisation.
    while at < 16 {
        let b = 4 * at;
        words[at] = u32::from_le_bytes([block[b], block[b + 1], block[b + 2], block[b + 3]]);
        at += 1;
    }
    words
}

/// Mixes two words of the message into a column or a diagonal of the state.
macro_rules! mix {
    ($a:ident $b:ident $c:ident $d:ident, $x:ident $y:ident) => {
        $a = $a.wrapping_add($b).wrapping_add($x);
        $d = ($d ^ $a).rotate_right(16);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_right(12);
        $a = $a.wrapping_add($b).wrapping_add($y);
        $d = ($d ^ $a).rotate_right(8);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_right(7);
    };
}

/// The value of a block after `value`. The state is sixteen variables, not an array, and the order
/// of the message's words in each round is written out, for the sake of builds without
/// optimisation.
#[rustfmt::skip]
fn compress(value: &Words, block: &[u32; 16], number: u64, len: u32, flags: u32) -> Words {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *value;
    let [mut i, mut j, mut k, mut l, ..] = IV;
    let (mut m, mut n, mut o, mut p) = (number as u32, (number >> 32) as u32, len, flags);
    let [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf] = *block;
    macro_rules! round {
        ($s:ident $t:ident $u:ident $v:ident $w:ident $x:ident $y:ident $z:ident
         $ss:ident $tt:ident $uu:ident $vv:ident $ww:ident $xx:ident $yy:ident $zz:ident) => {
            mix!(a e i m, $s $t);
            mix!(b f j n, $u $v);
            mix!(c g k o, $w $x);
            mix!(d h l p, $y $z);
            mix!(a f k p, $ss $tt);
            mix!(b g l m, $uu $vv);
            mix!(c h i n, $ww $xx);
            mix!(d e j o, $yy $zz);
        };
    }
    round!(w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 wa wb wc wd we wf);
    round!(w2 w6 w3 wa w7 w0 w4 wd w1 wb wc w5 w9 we wf w8);
    round!(w3 w4 wa wc wd w2 w7 we w6 w5 w9 w0 wb wf w8 w1);
    round!(wa w7 wc w9 we w3 wd wf w4 w0 wb w2 w5 w8 w1 w6);
    round!(wc wd w9 wb wf wa we w8 w7 w2 w5 w3 w0 w1 w6 w4);
    round!(w9 we wb w5 w8 wc wf w1 wd w3 w0 wa w2 w6 w4 w7);
    round!(wb wf w5 w0 w1 w9 w8 w6 we wa w2 wc w3 w4 w7 wd);
    [a ^ i, b ^ j, c ^ k, d ^ l, e ^ m, f ^ n, g ^ o, h ^ p]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: &Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Digests by the reference implementation, of bytes that count to 250 again and again.
    #[test]
    fn digests_are_those_of_blake3() {
        let bytes: Vec<u8> = (0..5_000_003u32).map(|i| (i % 251) as u8).collect();
        for (len, expected) in [
            (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
            (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
            (64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"),
            (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
            (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
            (4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"),
            (5_000_003, "d461ac7c0dbdb77c084f8f530b67ce764b269443a8ed4c5c56ebd4a312bd2ebc"),
        ] {
            assert_eq!(hex(&digest(&bytes[..len])), expected, "{len} bytes");
        }
        // The digest of the digests of the first 0 to 9000 bytes.
        let mut all = Blake3::new();
        (0..=9000).for_each(|len| all.update(&digest(&bytes[..len])));
        let expected = "0e1aa74fad9ddfbf457c6ba0333b3978f27e91978cf19d52daadd5c60428dea4";
        assert_eq!(hex(&all.finalize()), expected);
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for step in [1, 63, 64, 1000, 1024, 1025, 3000] {
            let mut state = Blake3::default();
            bytes.chunks(step).for_each(|piece| state.update(piece));
            assert_eq!(state.finalize(), digest(&bytes), "pieces of {step}");
        }
    }
}
