//! Physical layout of tensors in memory: blocking, permutation, halo, padding lanes, strides,
//! views.

mod copy;

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

use self::copy::CopyPlan;
use crate::ir::DType;

/// Alignment in bytes of the first element of a buffer that is not a view.
pub const BUFFER_ALIGNMENT: usize = 64;

/// One physical dimension: a digit of the index along one logical axis.
///
/// The index along a logical axis, counted from the start of its halo, is written in mixed radix
/// over the physical dimensions of that axis; `step` is the weight of this digit. NCHW16c has
/// `(axis 1, step 16)` outside and `(axis 1, step 1)` innermost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PhysicalDim {
    /// The logical axis.
    pub axis: usize,
    /// How far the logical index moves when this dimension's index grows by one.
    pub step: i64,
}

/// Rows of zeros around a logical axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Halo {
    /// Elements before index 0.
    pub before: i64,
    /// Elements after the last index.
    pub after: i64,
}

/// The physical layout of a logical, row-major tensor.
///
/// Logical index `i` along axis `a` becomes `i + halo[a].before`, which the physical dimensions of
/// that axis split into digits. Where the steps of an axis do not divide its extent, the last block
/// has *padding lanes*. Halo and padding lanes read as zero; loads may touch them, stores may write
/// nothing but zero there.
///
/// Packed weights are such layouts as well: OIHW as `[O/32][I/16][KH][KW][16][32]` is
/// `packed(shape, &[(0, 32), (1, 16), (2, 1), (3, 1), (1, 1), (0, 1)])`.
///
/// Text form: `[1, 64, 56, 56]` when dense, else with a braced list of what differs, such as
/// `[1, 20, 8, 8]{dims=0:1 1:16 2:1 3:1 1:1, halo=2:1:1 3:1:1}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferSpec {
    shape: Vec<i64>,
    /// Outermost first.
    dims: Vec<PhysicalDim>,
    halo: Vec<Halo>,
    /// Distances in elements, one for each physical dimension; `None` when compact.
    strides: Option<Vec<i64>>,
    offset: i64,
}

/// What is wrong with a layout, or with data that should have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferSpecError(pub String);

impl fmt::Display for BufferSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BufferSpecError {}

impl BufferSpec {
    /// Row-major without gaps.
    pub fn dense(shape: &[i64]) -> Self {
        Self::packed(shape, &(0..shape.len()).map(|axis| (axis, 1)).collect::<Vec<_>>())
    }

    /// Channels (axis 1) in blocks of `lanes`, the lane innermost; `halo` has the zero border
    /// (before, after) of each axis from 2 on, or is empty.
    pub fn nchwc(shape: &[i64], lanes: i64, halo: &[(i64, i64)]) -> Self {
        let mut dims: Vec<_> =
            (0..shape.len()).map(|axis| (axis, if axis == 1 { lanes } else { 1 })).collect();
        dims.push((1, 1));
        let mut spec = Self::packed(shape, &dims);
        for (axis, &(before, after)) in halo.iter().enumerate() {
            spec = spec.with_halo(axis + 2, before, after);
        }
        spec
    }

    /// The physical dimensions, outermost first, each as (logical axis, step).
    ///
    /// Nothing is checked here: [`check`](Self::check) says what is wrong.
    pub fn packed(shape: &[i64], dims: &[(usize, i64)]) -> Self {
        BufferSpec {
            shape: shape.to_vec(),
            dims: dims.iter().map(|&(axis, step)| PhysicalDim { axis, step }).collect(),
            halo: vec![Halo::default(); shape.len()],
            strides: None,
            offset: 0,
        }
    }

    /// With a zero border around `axis`; an axis that does not exist is ignored.
    pub fn with_halo(mut self, axis: usize, before: i64, after: i64) -> Self {
        if let Some(halo) = self.halo.get_mut(axis) {
            *halo = Halo { before, after };
        }
        self
    }

    /// With explicit distances in elements, one for each physical dimension.
    pub fn with_strides(mut self, strides: &[i64]) -> Self {
        self.strides = (strides != self.compact_strides()).then(|| strides.to_vec());
        self
    }

    /// With the first element `offset` elements after the buffer's start.
    pub fn with_offset(mut self, offset: i64) -> Self {
        self.offset = offset;
        self
    }

    /// Logical extents.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Physical dimensions, outermost first.
    pub fn dims(&self) -> &[PhysicalDim] {
        &self.dims
    }

    /// Zero border of each logical axis.
    pub fn halo(&self) -> &[Halo] {
        &self.halo
    }

    /// Elements before the first one, for views.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Distances in elements, one for each physical dimension.
    pub fn strides(&self) -> Vec<i64> {
        self.strides.clone().unwrap_or_else(|| self.compact_strides())
    }

    /// Blocked axes as (axis, lanes of the innermost block).
    pub fn blocking(&self) -> Vec<(usize, i64)> {
        let mut blocks = Vec::new();
        for (index, dim) in self.dims.iter().enumerate() {
            let outer = self.dims[..index].iter().rev().find(|other| other.axis == dim.axis);
            if dim.step == 1
                && let Some(outer) = outer
            {
                blocks.push((dim.axis, outer.step));
            }
        }
        blocks
    }

    /// Extents of the physical dimensions.
    pub fn physical_shape(&self) -> Vec<i64> {
        let mut inside: Vec<Option<i64>> = vec![None; self.shape.len()];
        let mut extents = Vec::with_capacity(self.dims.len());
        for dim in &self.dims {
            let step = dim.step.max(1);
            let range = match inside.get(dim.axis) {
                Some(Some(outer_step)) => *outer_step,
                Some(None) => self.padded_range(dim.axis),
                None => 0,
            };
            extents.push(if range <= 0 { 0 } else { (range - 1) / step + 1 });
            if let Some(inside) = inside.get_mut(dim.axis) {
                *inside = Some(step);
            }
        }
        extents
    }

    /// Elements from the start of the buffer to the last one that belongs to it, offset included;
    /// an error if that exceeds `i64` or the layout is malformed.
    pub fn physical_len(&self) -> Result<i64, BufferSpecError> {
        self.check()?;
        let extents = self.physical_shape();
        if extents.contains(&0) {
            return Ok(self.offset);
        }
        let too_large = || BufferSpecError(format!("layout {self} has more than 2^63 elements"));
        // Compact strides saturate, so the product of the extents is what shows an overflow.
        if self.strides.is_none() {
            extents
                .iter()
                .try_fold(1i64, |product, &extent| product.checked_mul(extent))
                .ok_or_else(too_large)?;
        }
        let mut len = self.offset.checked_add(1).ok_or_else(too_large)?;
        for (extent, stride) in extents.iter().zip(self.strides()) {
            len = (extent - 1)
                .checked_mul(stride)
                .and_then(|span| len.checked_add(span))
                .ok_or_else(too_large)?;
        }
        Ok(len)
    }

    /// Number of logical elements, or `None` beyond `i64`.
    pub fn num_elements(&self) -> Option<i64> {
        self.shape.iter().try_fold(1i64, |product, &extent| product.checked_mul(extent))
    }

    /// Whether this is row-major without gaps, halo or offset, and of constant extents: a negative
    /// one stands for what is not known.
    pub fn is_dense(&self) -> bool {
        self.strides.is_none()
            && self.shape.iter().all(|&extent| extent >= 0)
            && self.offset == 0
            && !self.has_halo()
            && self.dims.len() == self.shape.len()
            && self.dims.iter().enumerate().all(|(axis, dim)| dim.axis == axis && dim.step == 1)
    }

    /// Whether some axis has a zero border.
    pub fn has_halo(&self) -> bool {
        self.halo.iter().any(|halo| *halo != Halo::default())
    }

    /// Whether some block is wider than what is left of its axis.
    pub fn has_padding_lanes(&self) -> bool {
        (0..self.shape.len()).any(|axis| {
            let outermost = self.dims.iter().find(|dim| dim.axis == axis);
            outermost.is_some_and(|dim| self.padded_range(axis) % dim.step.max(1) != 0)
        })
    }

    /// A part of the tensor along an axis whose elements lie one after the other, and how many elements
    /// before it there are: its layout, which is this one with another extent. `None` if other
    /// elements lie between them, or if it does not begin and end with a block.
    ///
    /// Borders of the other axes and padding lanes of the last block belong to the part.
    pub fn part(&self, axis: usize, range: Range<i64>) -> Option<(BufferSpec, i64)> {
        let Range { start, end } = range;
        let extent = *self.shape.get(axis)?;
        let outermost = self.dims.iter().position(|dim| dim.axis == axis)?;
        let step = self.dims[outermost].step;
        let is_plain =
            self.strides.is_none() && self.offset == 0 && self.halo[axis] == Halo::default();
        let is_whole = self.physical_shape()[..outermost].iter().all(|&extent| extent == 1);
        let has_blocks = start % step == 0 && (end % step == 0 || end == extent);
        if !is_plain || !is_whole || !has_blocks || start < 0 || start >= end || end > extent {
            return None;
        }
        let mut part = self.clone();
        part.shape[axis] = end - start;
        Some((part, start / step * self.compact_strides()[outermost]))
    }

    /// Position, in elements, of a logical index; halo positions have indices outside the shape.
    pub fn element_offset(&self, index: &[i64]) -> i64 {
        let mut inside: Vec<Option<i64>> = vec![None; self.shape.len()];
        let mut position = self.offset;
        for (dim, stride) in self.dims.iter().zip(self.strides()) {
            let shifted = index[dim.axis] + self.halo[dim.axis].before;
            let rest = inside[dim.axis].map_or(shifted, |outer| shifted.rem_euclid(outer));
            position += rest.div_euclid(dim.step) * stride;
            inside[dim.axis] = Some(dim.step);
        }
        position
    }

    /// Whether a logical index names an element, its halo or its padding lanes.
    pub fn is_addressable(&self, index: &[i64]) -> bool {
        index.len() == self.shape.len()
            && index.iter().enumerate().all(|(axis, i)| self.addressable_range(axis).contains(i))
    }

    /// Logical indices along an axis that name elements, the halo or padding lanes.
    pub fn addressable_range(&self, axis: usize) -> Range<i64> {
        let outermost = self.dims.iter().find(|dim| dim.axis == axis);
        let step = outermost.map_or(1, |dim| dim.step.max(1));
        let before = self.halo.get(axis).map_or(0, |halo| halo.before);
        let padded = self.padded_range(axis).saturating_add(step - 1) / step * step;
        before.saturating_neg()..padded.saturating_sub(before)
    }

    /// Whether the layout is well formed; the message says what is not.
    pub fn check(&self) -> Result<(), BufferSpecError> {
        let error = |what: String| Err(BufferSpecError(format!("layout {self}: {what}")));
        if let Some(axis) = self.shape.iter().position(|&extent| extent < 0) {
            return error(format!("the extent of axis {axis} is negative"));
        }
        if self.halo.len() != self.shape.len() {
            return error(format!("{} halos for {} axes", self.halo.len(), self.shape.len()));
        }
        if self.halo.iter().any(|halo| halo.before < 0 || halo.after < 0) || self.offset < 0 {
            return error("a halo or the offset is negative".into());
        }
        if let Some(dim) = self.dims.iter().find(|dim| dim.axis >= self.shape.len()) {
            return error(format!("there is no axis {}", dim.axis));
        }
        for (axis, &extent) in self.shape.iter().enumerate() {
            let steps: Vec<i64> =
                self.dims.iter().filter(|dim| dim.axis == axis).map(|dim| dim.step).collect();
            let divides = steps.windows(2).all(|pair| pair[1] >= 1 && pair[0] % pair[1] == 0);
            if steps.last() != Some(&1) || steps[0] < 1 || !divides {
                return error(format!(
                    "the steps of axis {axis} are {steps:?}; each must divide the one before and \
                     the last must be 1"
                ));
            }
            let halo = self.halo[axis];
            let range = extent.checked_add(halo.before).and_then(|sum| sum.checked_add(halo.after));
            if range.and_then(|range| range.checked_add(steps[0])).is_none() {
                return error(format!("the range of axis {axis} exceeds 2^63"));
            }
        }
        match &self.strides {
            Some(strides) if strides.len() != self.dims.len() => error(format!(
                "{} strides for {} physical dimensions",
                strides.len(),
                self.dims.len()
            )),
            Some(strides) if strides.iter().any(|&stride| stride < 0) => {
                error("a stride is negative".into())
            }
            _ => Ok(()),
        }
    }

    /// Copies a dense row-major tensor of `dtype` into this layout; everything else is zero.
    ///
    /// The result has [`physical_len`](Self::physical_len) elements. Rows that are contiguous on
    /// both sides are copied as a whole, so that packing is fast in unoptimised builds too.
    pub fn pack(&self, dense: &[u8], dtype: DType) -> Result<Vec<u8>, BufferSpecError> {
        let (dense_bytes, packed_bytes) = self.byte_sizes(dtype)?;
        self.check_size("the dense tensor", dense.len(), dense_bytes, dtype)?;
        let mut packed = vec![0; packed_bytes];
        CopyPlan::new(self).pack(dense, &mut packed, dtype, 0);
        Ok(packed)
    }

    /// As [`pack`](Self::pack), in parts of at most `most` bytes, each handed over before the next
    /// is made. Layouts with strides of their own are one part.
    ///
    /// # Errors
    ///
    /// Those of `sink`; an error of the layout is [`io::ErrorKind::InvalidInput`].
    pub fn pack_in_parts(
        &self,
        dense: &[u8],
        dtype: DType,
        most: usize,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let (dense_bytes, packed_bytes) = self.byte_sizes(dtype).map_err(invalid)?;
        self.check_size("the dense tensor", dense.len(), dense_bytes, dtype).map_err(invalid)?;
        let width = dtype.bytes().unwrap_or(1);
        let most = match &self.strides {
            Some(_) => packed_bytes,
            None => (most / width).max(1) * width,
        };
        let plan = CopyPlan::new(self);
        let mut part = vec![0; most.min(packed_bytes)];
        let mut start = 0;
        while start < packed_bytes {
            part.truncate(packed_bytes - start);
            part.fill(0);
            plan.pack(dense, &mut part, dtype, start / width);
            sink(&part)?;
            start += part.len();
        }
        Ok(())
    }

    /// Bytes of the tensor in this layout.
    ///
    /// # Errors
    ///
    /// The layout is malformed, or too large, or elements of the type share bytes.
    pub fn packed_bytes(&self, dtype: DType) -> Result<usize, BufferSpecError> {
        self.byte_sizes(dtype).map(|(_, packed)| packed)
    }

    /// The inverse of [`pack`](Self::pack): the logical elements, dense and row-major.
    pub fn unpack(&self, packed: &[u8], dtype: DType) -> Result<Vec<u8>, BufferSpecError> {
        let (dense_bytes, packed_bytes) = self.byte_sizes(dtype)?;
        self.check_size("the packed tensor", packed.len(), packed_bytes, dtype)?;
        let mut dense = vec![0; dense_bytes];
        CopyPlan::new(self).unpack(packed, &mut dense, dtype);
        Ok(dense)
    }

    /// Bytes of the dense and of the physical tensor.
    fn byte_sizes(&self, dtype: DType) -> Result<(usize, usize), BufferSpecError> {
        let Some(width) = dtype.bytes() else {
            return Err(BufferSpecError(format!(
                "layout {self}: elements of {dtype} share bytes and cannot be repacked one by one"
            )));
        };
        let bytes = |elements: Option<i64>| {
            elements.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(width))
        };
        let len = self.physical_len()?;
        match (bytes(self.num_elements()), bytes(Some(len))) {
            (Some(dense), Some(packed)) => Ok((dense, packed)),
            _ => {
                Err(BufferSpecError(format!("layout {self} of {dtype} exceeds the address space")))
            }
        }
    }

    fn check_size(
        &self,
        what: &str,
        found: usize,
        expected: usize,
        dtype: DType,
    ) -> Result<(), BufferSpecError> {
        if found == expected {
            return Ok(());
        }
        Err(BufferSpecError(format!(
            "layout {self}: {what} has {found} bytes, {expected} are needed for {dtype}"
        )))
    }

    /// Extent of an axis with its halo, without padding lanes.
    fn padded_range(&self, axis: usize) -> i64 {
        let halo = self.halo.get(axis).copied().unwrap_or_default();
        let extent = self.shape.get(axis).copied().unwrap_or(0);
        extent.saturating_add(halo.before).saturating_add(halo.after)
    }

    fn compact_strides(&self) -> Vec<i64> {
        let mut stride = 1i64;
        let mut strides: Vec<i64> = self
            .physical_shape()
            .iter()
            .rev()
            .map(|&extent| {
                let this = stride;
                stride = stride.saturating_mul(extent.max(1));
                this
            })
            .collect();
        strides.reverse();
        strides
    }
}

impl fmt::Display for BufferSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape)?;
        if self.is_dense() {
            return Ok(());
        }
        let mut fields = Vec::new();
        let in_order = self.dims.iter().enumerate().all(|(i, d)| d.axis == i && d.step == 1);
        if !in_order || self.dims.len() != self.shape.len() {
            let dims: Vec<_> =
                self.dims.iter().map(|dim| format!("{}:{}", dim.axis, dim.step)).collect();
            fields.push(format!("dims={}", dims.join(" ")));
        }
        if self.has_halo() {
            let halo = self.halo.iter().enumerate().filter(|(_, halo)| **halo != Halo::default());
            let halo: Vec<_> =
                halo.map(|(axis, halo)| format!("{axis}:{}:{}", halo.before, halo.after)).collect();
            fields.push(format!("halo={}", halo.join(" ")));
        }
        if let Some(strides) = &self.strides {
            let strides: Vec<_> = strides.iter().map(i64::to_string).collect();
            fields.push(format!("strides={}", strides.join(" ")));
        }
        if self.offset != 0 {
            fields.push(format!("offset={}", self.offset));
        }
        write!(f, "{{{}}}", fields.join(", "))
    }
}

impl FromStr for BufferSpec {
    type Err = BufferSpecError;

    fn from_str(text: &str) -> Result<Self, BufferSpecError> {
        let error = |what: &str| BufferSpecError(format!("layout `{text}`: {what}"));
        let number = |word: &str| {
            word.trim().parse::<i64>().map_err(|_| error(&format!("`{word}` is not a number")))
        };
        let axis_of = |word: &str| {
            word.trim().parse::<usize>().map_err(|_| error(&format!("`{word}` is not an axis")))
        };
        let (shape, fields) = match text.trim().split_once('{') {
            Some((shape, rest)) => {
                let rest = rest.strip_suffix('}').ok_or_else(|| error("`}` is missing"))?;
                (shape.trim(), rest)
            }
            None => (text.trim(), ""),
        };
        let shape = shape
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(|| error("a shape in brackets is expected"))?;
        let shape = match shape.trim() {
            "" => Vec::new(),
            list => list.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
        };
        let mut spec = Self::dense(&shape);
        let mut strides = None;
        for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let (key, value) = field.split_once('=').ok_or_else(|| error("`=` is missing"))?;
            let words = value.split_whitespace();
            match key {
                "dims" => {
                    spec.dims = words
                        .map(|word| {
                            let (axis, step) =
                                word.split_once(':').ok_or_else(|| error("`:` is missing"))?;
                            Ok(PhysicalDim { axis: axis_of(axis)?, step: number(step)? })
                        })
                        .collect::<Result<_, BufferSpecError>>()?;
                }
                "halo" => {
                    for word in words {
                        let parts: Vec<_> = word.split(':').collect();
                        let [axis, before, after] = parts[..] else {
                            return Err(error("a halo is axis:before:after"));
                        };
                        let axis = axis_of(axis)?;
                        if axis >= shape.len() {
                            return Err(error(&format!("there is no axis {axis}")));
                        }
                        spec = spec.with_halo(axis, number(before)?, number(after)?);
                    }
                }
                "strides" => strides = Some(words.map(number).collect::<Result<Vec<_>, _>>()?),
                "offset" => spec.offset = number(value)?,
                _ => return Err(error(&format!("unknown field `{key}`"))),
            }
        }
        if let Some(strides) = strides {
            spec = spec.with_strides(&strides);
        }
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests;
