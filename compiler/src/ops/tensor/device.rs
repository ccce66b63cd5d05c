//! `on_device` and `device_copy`: the argument, with what is said of where it is computed.

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::Type;
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef};

/// Attributes of `on_device`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnDeviceAttrs {
    /// The device that computes the argument: positive, 1 for the processor, as in DLPack.
    pub device_type: u32,
}

/// Attributes of `device_copy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCopyAttrs {
    /// The device that computes the argument: positive.
    pub src_dev_type: u32,
    /// The device that reads the result: positive.
    pub dst_dev_type: u32,
}

/// The argument, which a certain device computes. `PlanDevices` drops the call.
pub static ON_DEVICE: OpDef =
    OpDef::new("on_device", "the argument, which a device computes", X, infer_on, eval, compute)
        .attributes::<OnDeviceAttrs>();

/// The argument, for another device: no kernel computes it with anything else.
pub static DEVICE_COPY: OpDef =
    OpDef::new("device_copy", "the argument, for another device", X, infer_copy, eval, compute)
        .attributes::<DeviceCopyAttrs>();

fn infer_on(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: OnDeviceAttrs = cx.attrs()?;
    ensure!(attrs.device_type > 0, "attribute `device_type` must be positive");
    Ok(cx.tensor(0)?.clone().into())
}

fn infer_copy(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: DeviceCopyAttrs = cx.attrs()?;
    ensure!(
        attrs.src_dev_type > 0 && attrs.dst_dev_type > 0,
        "attributes `src_dev_type` and `dst_dev_type` must be positive"
    );
    Ok(cx.tensor(0)?.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![cx.arg(0)?.clone()])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}
