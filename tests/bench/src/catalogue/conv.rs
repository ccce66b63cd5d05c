//! Convolutions with bias and ReLU, many of them in a model.
//!
//! Engines block the channels of what they convolve. A model of one convolution would measure mostly how they get
//! there and back, so there are many, and what comes out is small.

use niello::ir::{Constant, DType};
use niello::onnx::{ModelAttr, ModelBuilder};

use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Case, Goal, Kernel, Limit, Result, Work};

/// Convolutions of a model.
pub(super) const REPEATS: usize = 8;

/// Depthwise ones of a model, which take no longer than a change of layout does.
const DEPTHWISE_REPEATS: usize = 64;

/// The connection of the convolutions of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Net {
    /// Each reads the result of the previous one; all have the same weights.
    Chain,
    /// All read the same image, each with weights of its own. Of each result, two by two windows in the corners of the
    /// four quarters go on.
    Fan,
}

/// A square image, a square filter, a border that keeps the extent (but for the stride).
#[derive(Clone, Copy)]
pub(super) struct Conv {
    pub(super) extent: usize,
    pub(super) channels: usize,
    pub(super) filters: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) depthwise: bool,
}

impl Conv {
    /// The kernel; depthwise convolutions are limited by memory.
    pub(super) fn kernel(
        self,
        name: &str,
        net: Net,
        goal: Goal,
        threads: &'static [usize],
    ) -> Kernel {
        let elements = self.channels * self.extent.pow(2) + self.weights() + self.result();
        let work =
            Work { flops: (2 * self.result() * self.terms()) as u64, bytes: 4 * elements as u64 };
        Kernel {
            name: name.to_owned(),
            work,
            sums: true,
            limit: if self.depthwise { Limit::Stream } else { Limit::Fma },
            goal,
            threads,
            case: Box::new(move || self.case(net)),
            build: Build::Model,
        }
    }

    /// Convolutions of a model.
    fn repeats(self) -> usize {
        if self.depthwise { DEPTHWISE_REPEATS } else { REPEATS }
    }

    /// Extent of the result.
    fn out(self) -> usize {
        self.extent.div_ceil(self.stride)
    }

    /// Elements of the result.
    pub(super) fn result(self) -> usize {
        self.filters * self.out().pow(2)
    }

    /// Channels that one filter reads.
    fn depth(self) -> usize {
        if self.depthwise { 1 } else { self.channels }
    }

    /// Products in one element of the result.
    pub(super) fn terms(self) -> usize {
        self.depth() * self.kernel.pow(2)
    }

    pub(super) fn weights(self) -> usize {
        self.filters * self.terms()
    }

    /// An image, weights and bias, and their convolution with a ReLU.
    pub(super) fn single(self) -> (Vec<f32>, [Vec<f32>; 2], Vec<f64>) {
        let mut random = Random::new(4);
        let image = random.normals(self.channels * self.extent.pow(2), 1.0);
        let layer = [self.filters(&mut random), random.normals(self.filters, 0.1)];
        let wide: Vec<f64> = image.iter().copied().map(f64::from).collect();
        let expected = self.reference(&wide, &layer);
        (image, layer, expected)
    }

    fn case(self, net: Net) -> Result<Case> {
        let mut random = Random::new(4);
        let image = random.normals(self.channels * self.extent.pow(2), 1.0);
        let different = if net == Net::Fan { self.repeats() } else { 1 };
        let layers: Vec<[Vec<f32>; 2]> = (0..different)
            .map(|_| [self.filters(&mut random), random.normals(self.filters, 0.1)])
            .collect();
        let shape = [1, self.channels, self.extent, self.extent];
        let input = Constant::from_f32(&dims(&shape), &image).map_err(|error| error.to_string())?;
        let image = image.into_iter().map(f64::from);
        let image: Vec<f64> =
            if self.is_inner() { image.map(|x| x.max(0.0)).collect() } else { image.collect() };
        let (model, expected) = match net {
            Net::Chain => {
                let mut values = image;
                for _ in 0..self.repeats() {
                    values = self.reference(&values, &layers[0]);
                }
                (self.chain(&layers[0])?, values)
            }
            Net::Fan => {
                let pooled = |layer| self.pooled(&self.reference(&image, layer));
                (self.fan(&layers)?, layers.iter().flat_map(pooled).collect())
            }
        };
        let expected = Expected::all(expected);
        let repeats = self.repeats() as u32;
        Ok(Case { model: model.to_bytes(), inputs: vec![input], expected, repeats })
    }

    /// Weights with which magnitudes stay about the same along a chain.
    fn filters(self, random: &mut Random) -> Vec<f32> {
        // He's deviation.
        let deviation = (2.0 / self.terms() as f32).sqrt();
        let mut weights = random.normals(self.weights(), deviation);
        if self.depthwise {
            // A long chain of one filter grows without bound unless that is a mean.
            for filter in weights.chunks_exact_mut(self.terms()) {
                let sum: f32 = filter.iter().map(|weight| weight.abs()).sum();
                filter.iter_mut().for_each(|weight| *weight = weight.abs() / sum);
            }
        }
        weights
    }

    /// Whether it has enough channels to stand within a network, where its image comes from another kernel.
    fn is_inner(self) -> bool {
        self.channels > 4
    }

    /// The input, and the operand of the convolutions.
    ///
    /// The image of an inner one passes a ReLU first: so each engine can bring it into its layout once. The first one
    /// of a network has to read what it gets.
    fn begin(self) -> (ModelBuilder, String) {
        let shape = [1, self.channels, self.extent, self.extent];
        let model = ModelBuilder::new(13).input("x", DType::F32, &dims(&shape));
        if self.is_inner() {
            (model.node("Relu", &["x"], &["image"], &[]), "image".to_owned())
        } else {
            (model, "x".to_owned())
        }
    }

    fn parameters(
        self,
        model: ModelBuilder,
        layer: usize,
        [weights, bias]: &[Vec<f32>; 2],
    ) -> Result<ModelBuilder> {
        let shape = [self.filters, self.depth(), self.kernel, self.kernel];
        let weights = Constant::from_f32(&dims(&shape), weights).map_err(|e| e.to_string())?;
        let bias = Constant::from_f32(&dims(&[self.filters]), bias).map_err(|e| e.to_string())?;
        let model = model.initializer(&format!("w{layer}"), &weights);
        Ok(model.initializer(&format!("b{layer}"), &bias))
    }

    /// Convolution and ReLU, from `input` to `y` with a number.
    fn nodes(self, model: ModelBuilder, input: &str, layer: usize, number: usize) -> ModelBuilder {
        let (weights, bias) = (format!("w{layer}"), format!("b{layer}"));
        let (sum, output) = (format!("c{number}"), format!("y{number}"));
        let pad = ((self.kernel - 1) / 2) as i64;
        let group = if self.depthwise { self.channels as i64 } else { 1 };
        let attrs: [(&str, ModelAttr); 3] = [
            ("pads", [pad; 4].into()),
            ("strides", [self.stride as i64; 2].into()),
            ("group", group.into()),
        ];
        model.node("Conv", &[input, &weights, &bias], &[&sum], &attrs).node(
            "Relu",
            &[&sum],
            &[&output],
            &[],
        )
    }

    fn chain(self, layer: &[Vec<f32>; 2]) -> Result<ModelBuilder> {
        let (model, mut input) = self.begin();
        let mut model = self.parameters(model, 0, layer)?;
        for number in 0..self.repeats() {
            model = self.nodes(model, &input, 0, number);
            input = format!("y{number}");
        }
        let shape = [1, self.filters, self.out(), self.out()];
        Ok(model.output(&input, DType::F32, &dims(&shape)))
    }

    fn fan(self, layers: &[[Vec<f32>; 2]]) -> Result<ModelBuilder> {
        let (mut model, image) = self.begin();
        let mut parts = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            model = self.parameters(model, number, layer)?;
            model = self.nodes(model, &image, number, number);
            let part = format!("p{number}");
            let step = (self.out() / 2) as i64;
            let attrs: [(&str, ModelAttr); 2] =
                [("kernel_shape", [2, 2].into()), ("strides", [step; 2].into())];
            model = model.node("MaxPool", &[&format!("y{number}")], &[&part], &attrs);
            parts.push(part);
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let model = model.node("Concat", &parts, &["y"], &[("axis", 1i64.into())]);
        Ok(model.output("y", DType::F32, &dims(&[1, self.filters * layers.len(), 2, 2])))
    }

    /// Convolution and ReLU in `f64`.
    fn reference(self, image: &[f64], layer: &[Vec<f32>; 2]) -> Vec<f64> {
        self.sums(image, layer).into_iter().map(|sum| sum.max(0.0)).collect()
    }

    /// The convolution in `f64`.
    pub(super) fn sums(self, image: &[f64], [weights, bias]: &[Vec<f32>; 2]) -> Vec<f64> {
        let (extent, out, kernel) = (self.extent, self.out(), self.kernel);
        let pad = (kernel - 1) / 2;
        // The image with its border, so that no tap needs a look at where it is.
        let bordered = extent + kernel;
        let mut planes = vec![0.0; self.channels * bordered * bordered];
        for (row, source) in image.chunks_exact(extent).enumerate() {
            let (channel, y) = (row / extent, row % extent);
            let start = (channel * bordered + y + pad) * bordered + pad;
            planes[start..start + extent].copy_from_slice(source);
        }
        let mut result = Vec::with_capacity(self.result());
        let mut row = vec![0.0; out];
        for (filter, weights) in weights.chunks_exact(self.terms()).enumerate() {
            let first = if self.depthwise { filter } else { 0 };
            for y in 0..out {
                row.fill(f64::from(bias[filter]));
                for (tap, &weight) in weights.iter().enumerate() {
                    let (channel, ky, kx) =
                        (tap / kernel.pow(2), tap / kernel % kernel, tap % kernel);
                    let line = (first + channel) * bordered + y * self.stride + ky;
                    let start = line * bordered + kx;
                    let weight = f64::from(weight);
                    if self.stride == 1 {
                        // Apart, as the compiler makes vectors of it.
                        for (sum, value) in row.iter_mut().zip(&planes[start..start + out]) {
                            *sum += weight * value;
                        }
                    } else {
                        let values = planes[start..].iter().step_by(self.stride);
                        for (sum, value) in row.iter_mut().zip(values) {
                            *sum += weight * value;
                        }
                    }
                }
                result.extend_from_slice(&row);
            }
        }
        result
    }

    /// The elements of a result that the pool at the end of a fan takes.
    fn pooled(self, result: &[f64]) -> Vec<f64> {
        let (out, step) = (self.out(), self.out() / 2);
        let mut values = Vec::with_capacity(4 * self.filters);
        for plane in result.chunks_exact(out * out) {
            for (y, x) in [(0, 0), (0, step), (step, 0), (step, step)] {
                let window = [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)];
                let most = window.into_iter().map(|(y, x)| plane[y * out + x]);
                values.push(most.fold(f64::NEG_INFINITY, f64::max));
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONV: Conv =
        Conv { extent: 4, channels: 1, filters: 1, kernel: 3, stride: 1, depthwise: false };

    #[test]
    fn the_reference_sums_what_is_inside_the_image() {
        let ones = [vec![1.0; 9], vec![0.5]];
        let result = CONV.reference(&[1.0; 16], &ones);
        assert_eq!(result[..5], [4.5, 6.5, 6.5, 4.5, 6.5]);
        let strided = Conv { stride: 2, ..CONV }.reference(&[1.0; 16], &ones);
        assert_eq!(strided, [4.5, 6.5, 6.5, 9.5]);
        let negative = CONV.reference(&[-1.0; 16], &ones);
        assert_eq!(negative, [0.0; 16]);
    }

    #[test]
    fn each_channel_of_a_depthwise_one_has_its_filter() {
        let conv = Conv { channels: 2, filters: 2, kernel: 1, depthwise: true, ..CONV };
        let image: Vec<f64> = [[1.0; 16], [2.0; 16]].concat();
        let result = conv.reference(&image, &[vec![3.0, 5.0], vec![0.0, 1.0]]);
        assert_eq!(result, [[3.0; 16], [11.0; 16]].concat());
        assert_eq!(conv.terms(), 1);
    }

    #[test]
    fn windows_are_taken_from_the_quarters() {
        let plane: Vec<f64> = (0..16).map(f64::from).collect();
        assert_eq!(CONV.pooled(&plane), [5.0, 7.0, 13.0, 15.0]);
    }
}
