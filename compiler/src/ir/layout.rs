//! Names of layouts, such as `NCHW16c`: the order of a tensor's axes, some of them in blocks.

use std::fmt;
use std::str::FromStr;

use super::{Dim, PhysicalDim};

/// An order of axes: a capital letter for each, and a number with a small letter for each block of
/// the axis of that letter.
///
/// In `NCHW16c`, channel `i` is at `i / 16` along the second dimension and at `i % 16` along the last.
/// An axis may have several blocks, of which those that come first are the larger steps: `I` in
/// `OIHW4i16o4i` has the steps 16, 4 and 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    dims: Vec<LayoutDim>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct LayoutDim {
    /// A capital letter.
    axis: char,
    /// The extent, if the dimension is a block.
    block: Option<i64>,
}

/// Why a text names no layout, or a tensor cannot go from one layout to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayoutError(String);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LayoutError {}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LayoutDim { axis, block } in &self.dims {
            match block {
                Some(extent) => write!(f, "{extent}{}", axis.to_ascii_lowercase())?,
                None => write!(f, "{axis}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Layout, LayoutError> {
        let error = |what: String| Err(LayoutError(format!("`{text}` is no layout: {what}")));
        let mut dims: Vec<LayoutDim> = Vec::new();
        let mut extent = String::new();
        for letter in text.chars() {
            let axis = letter.to_ascii_uppercase();
            let is_there = dims.iter().any(|dim| dim.axis == axis);
            if letter.is_ascii_digit() {
                extent.push(letter);
            } else if letter.is_ascii_uppercase() {
                if is_there {
                    return error(format!("axis `{axis}` occurs twice"));
                }
                if !extent.is_empty() {
                    return error(format!(
                        "a block of {extent} is of a small letter, not `{axis}`"
                    ));
                }
                dims.push(LayoutDim { axis, block: None });
            } else if letter.is_ascii_lowercase() {
                if !is_there {
                    return error(format!(
                        "`{letter}` is a block of axis `{axis}`, which must precede it"
                    ));
                }
                let Some(block) = extent.parse().ok().filter(|&block: &i64| block > 0) else {
                    return error(format!(
                        "`{letter}` needs a positive extent, as in `16{letter}`"
                    ));
                };
                extent.clear();
                dims.push(LayoutDim { axis, block: Some(block) });
            } else {
                return error(format!("`{letter}` is neither a letter nor a digit"));
            }
        }
        if dims.is_empty() || !extent.is_empty() {
            return error("it must end with the letter of an axis".to_owned());
        }
        let layout = Layout { dims };
        for LayoutDim { axis, .. } in &layout.dims {
            let blocks = layout.dims.iter().filter(|dim| dim.axis == *axis);
            if blocks.filter_map(|dim| dim.block).try_fold(1i64, i64::checked_mul).is_none() {
                return error(format!("the blocks of axis `{axis}` have more than 2^63 elements"));
            }
        }
        Ok(layout)
    }
}

impl Layout {
    /// Each dimension as a digit along an axis, the axes numbered by `axes`.
    fn digits(&self, axes: &[char]) -> Option<Vec<Digit>> {
        let mut steps = vec![1i64; axes.len()];
        let mut digits = Vec::with_capacity(self.dims.len());
        for LayoutDim { axis, block } in self.dims.iter().rev() {
            let axis = axes.iter().position(|other| other == axis)?;
            digits.push(Digit { dim: PhysicalDim { axis, step: steps[axis] }, block: *block });
            // The product of all blocks was found to be in range.
            steps[axis] *= block.unwrap_or(1);
        }
        digits.reverse();
        Some(digits)
    }

    fn axes(&self) -> Vec<char> {
        self.dims.iter().filter(|dim| dim.block.is_none()).map(|dim| dim.axis).collect()
    }

    /// The dimensions: each the letter of its axis and, if it is a block, the extent.
    pub(crate) fn dims(&self) -> impl ExactSizeIterator<Item = (char, Option<i64>)> {
        self.dims.iter().map(|dim| (dim.axis, dim.block))
    }

    /// The dimension that is an axis, if no other one is a block of it.
    pub(crate) fn whole(&self, axis: char) -> Option<usize> {
        let mut of_axis = self.dims().enumerate().filter(|(_, (letter, _))| *letter == axis);
        let (place, _) = of_axis.next()?;
        of_axis.next().is_none().then_some(place)
    }

    /// The layout without the dimensions for which `keep` is false, which must be blocks.
    pub(crate) fn filtered(&self, keep: impl Fn(char, Option<i64>) -> bool) -> Layout {
        let kept = self.dims.iter().filter(|dim| keep(dim.axis, dim.block));
        Layout { dims: kept.copied().collect() }
    }

    /// The layout that operators on images, volumes or their kernels have unless they are told
    /// another one: the axes of this one, whole, `N` and `C` or `O` and `I` before `D`, `H` and `W`.
    pub(crate) fn default(&self) -> Layout {
        let mut dims: Vec<LayoutDim> =
            self.dims.iter().filter(|dim| dim.block.is_none()).copied().collect();
        let order = |dim: &LayoutDim| "NCOIDHW".find(dim.axis).unwrap_or(usize::MAX);
        dims.sort_by_key(order);
        Layout { dims }
    }
}

/// One dimension of a tensor in a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digit {
    /// The axis, and how far its index moves by a step along the dimension.
    pub(crate) dim: PhysicalDim,
    /// The extent, if the layout says it.
    pub(crate) block: Option<i64>,
}

/// How a tensor in one layout becomes one in another: no element is lost, and none is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LayoutMap {
    from: Vec<Digit>,
    to: Vec<Digit>,
    names: (String, String),
}

impl LayoutMap {
    /// The map between two layouts.
    ///
    /// # Errors
    ///
    /// If one of them has an axis that the other one has not.
    pub(crate) fn new(from: &Layout, to: &Layout) -> Result<LayoutMap, LayoutError> {
        let axes = from.axes();
        match (from.digits(&axes), to.digits(&axes)) {
            (Some(digits), Some(others)) if to.axes().len() == axes.len() => Ok(LayoutMap {
                from: digits,
                to: others,
                names: (from.to_string(), to.to_string()),
            }),
            _ => Err(LayoutError(format!("`{from}` and `{to}` must have the same axes"))),
        }
    }

    /// The dimensions before and after.
    pub(crate) fn digits(&self) -> (&[Digit], &[Digit]) {
        (&self.from, &self.to)
    }

    /// The shape after, of a tensor of this shape.
    ///
    /// # Errors
    ///
    /// If the shape is not of the first layout, or the blocks of the second do not divide an axis.
    pub(crate) fn shape(&self, shape: &[Dim]) -> Result<Vec<Dim>, LayoutError> {
        let (from, to) = &self.names;
        if shape.len() != self.from.len() {
            return Err(LayoutError(format!(
                "`{from}` has {} dimensions, but the tensor has {}",
                self.from.len(),
                shape.len()
            )));
        }
        for (position, (digit, extent)) in self.from.iter().zip(shape).enumerate() {
            if let Some(block) = digit.block.filter(|&block| extent.as_const() != Some(block)) {
                return Err(LayoutError(format!(
                    "dimension {position} of a tensor in `{from}` must be {block}, but it is {extent}"
                )));
            }
        }
        let extent_after = |digit: &Digit| {
            if let Some(block) = digit.block {
                return Ok(Dim::from(block));
            }
            let whole = |other: &&(&Digit, &Dim)| {
                other.0.block.is_none() && other.0.dim.axis == digit.dim.axis
            };
            let pairs: Vec<(&Digit, &Dim)> = self.from.iter().zip(shape).collect();
            let Some((before, extent)) = pairs.iter().find(whole) else {
                return Err(LayoutError(format!("`{from}` and `{to}` must have the same axes")));
            };
            let (step, new_step) = (before.dim.step, digit.dim.step);
            if step % new_step == 0 {
                return Ok((*extent).clone() * Dim::from(step / new_step));
            }
            let all = extent.as_const().and_then(|extent| extent.checked_mul(step));
            match all.filter(|all| all % new_step == 0) {
                Some(all) => Ok(Dim::from(all / new_step)),
                None => Err(LayoutError(format!(
                    "the blocks of {new_step} elements in `{to}` do not divide an axis of {}",
                    (*extent).clone() * Dim::from(step)
                ))),
            }
        };
        self.to.iter().map(extent_after).collect()
    }

    /// The index before of the element at an index after.
    pub(crate) fn index_before(&self, index: &[usize]) -> Vec<usize> {
        let along = |axis: usize| -> usize {
            let parts = self.to.iter().zip(index).filter(|(digit, _)| digit.dim.axis == axis);
            parts.map(|(digit, &at)| at * digit.dim.step as usize).sum()
        };
        let before = |digit: &Digit| {
            let at = along(digit.dim.axis) / digit.dim.step as usize;
            digit.block.map_or(at, |block| at % block as usize)
        };
        self.from.iter().map(before).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(from: &str, to: &str) -> Result<LayoutMap, LayoutError> {
        LayoutMap::new(&from.parse()?, &to.parse()?)
    }

    fn shape(from: &str, to: &str, extents: &[i64]) -> Result<Vec<i64>, String> {
        let dims: Vec<Dim> = extents.iter().copied().map(Dim::from).collect();
        let after = map(from, to).and_then(|map| map.shape(&dims)).map_err(|e| e.to_string())?;
        Ok(after.iter().map(|dim| dim.as_const().unwrap()).collect())
    }

    #[test]
    fn layouts_print_as_they_are_written() {
        for text in ["N", "NCHW", "NHWC", "NCHW16c", "OIHW16i16o", "OIHW4i16o4i", "NCDHW8c"] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn texts_that_name_no_layout_are_errors() {
        for (text, expected) in [
            ("", "it must end with the letter of an axis"),
            ("NCHW16", "it must end with the letter of an axis"),
            ("NCNW", "axis `N` occurs twice"),
            ("NHW16c", "`c` is a block of axis `C`, which must precede it"),
            ("NCHWc", "`c` needs a positive extent, as in `16c`"),
            ("NCHW0c", "`c` needs a positive extent, as in `16c`"),
            ("NC16HW", "a block of 16 is of a small letter, not `H`"),
            ("NC-HW", "`-` is neither a letter nor a digit"),
            ("C4294967296c4294967296c", "the blocks of axis `C` have more than 2^63 elements"),
        ] {
            let found = text.parse::<Layout>().unwrap_err().to_string();
            assert_eq!(found, format!("`{text}` is no layout: {expected}"));
        }
    }

    #[test]
    fn shapes_follow_the_layout() {
        assert_eq!(shape("NCHW", "NCHW16c", &[1, 32, 7, 5]), Ok(vec![1, 2, 7, 5, 16]));
        assert_eq!(shape("NCHW16c", "NHWC", &[1, 2, 7, 5, 16]), Ok(vec![1, 7, 5, 32]));
        assert_eq!(shape("NC16c", "NC8c", &[1, 3, 16]), Ok(vec![1, 6, 8]));
        assert_eq!(shape("OI", "OI4i2o4i", &[6, 32]), Ok(vec![3, 2, 4, 2, 4]));
        let error = |from, to, extents| shape(from, to, extents).unwrap_err();
        assert_eq!(error("NC", "NCH", &[1, 2]), "`NC` and `NCH` must have the same axes");
        assert_eq!(error("NC", "N", &[1, 2]), "`NC` and `N` must have the same axes");
        assert_eq!(error("NC", "CN", &[1]), "`NC` has 2 dimensions, but the tensor has 1");
        assert_eq!(
            error("NC8c", "NC", &[1, 2, 4]),
            "dimension 2 of a tensor in `NC8c` must be 8, but it is 4"
        );
        assert_eq!(
            error("NC", "NC16c", &[1, 24]),
            "the blocks of 16 elements in `NC16c` do not divide an axis of 24"
        );
    }

    #[test]
    fn a_map_and_its_inverse_lead_back_to_every_element() {
        let layouts = ["NC", "CN", "NC4c", "CN12c", "NC2c3c2n", "CN3c2c"];
        for from in layouts {
            for to in layouts {
                let extents = shape("NC", to, &[4, 12]).unwrap();
                let (there, back) = (map(from, to).unwrap(), map(to, from).unwrap());
                let count: i64 = extents.iter().product();
                let mut seen = std::collections::BTreeSet::new();
                for place in 0..count as usize {
                    let mut rest = place;
                    let mut index = vec![0; extents.len()];
                    for (at, &extent) in index.iter_mut().zip(&extents).rev() {
                        (*at, rest) = (rest % extent as usize, rest / extent as usize);
                    }
                    let before = there.index_before(&index);
                    assert_eq!(back.index_before(&before), index, "{from} to {to}");
                    seen.insert(before);
                }
                assert_eq!(seen.len(), count as usize, "{from} to {to}");
            }
        }
    }
}
