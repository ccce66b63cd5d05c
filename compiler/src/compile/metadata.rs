//! What there is to know of a compiled model beside its code, as JSON.

use serde_json::{Value as Json, json};

use super::{Compilation, Passes};
use crate::diagnostics::Report;
use crate::executor::{TensorInfo, ValueKind};
use crate::memory::{MemoryPlan, Place};
use crate::options::CompileOptions;
use crate::transform::pipeline::pipeline;

impl Compilation {
    /// Name, symbol, target and devices of the model, its inputs and outputs, multiply-accumulates
    /// and bytes, where each value between kernels is, and the passes that ran, as one JSON object.
    /// `options` and `passes` are those of the compilation.
    ///
    /// # Errors
    ///
    /// An extension of the passes names no place.
    pub fn metadata(&self, options: &CompileOptions, passes: &Passes) -> Result<Json, Report> {
        let Compilation { model, program, plan, .. } = self;
        let MemoryPlan { peak_live_bytes, lower_bound_bytes, token_bytes, .. } = plan;
        let tensor = |info: &TensorInfo| json!({"name": info.name, "dtype": info.dtype, "shape": info.shape});
        let tensors = |infos: &[TensorInfo]| infos.iter().map(tensor).collect::<Vec<_>>();
        let planned = pipeline(&passes.all_extensions())?.plan(&passes.context)?;
        let names: Vec<&str> = planned.passes().map(|pass| pass.info().name()).collect();
        let steps = program.steps_of_use();
        let mut values = Vec::new();
        for (id, value) in &program.values {
            let place = match plan.places[id] {
                Place::Arena(offset) if !matches!(value.kind, ValueKind::View(_)) => offset,
                _ => continue,
            };
            let mut described = json!({
                "name": value.name,
                "dtype": value.dtype,
                "shape": value.spec.shape(),
                "offset": place,
                "bytes": value.physical_bytes().map_err(Report::from)?,
                "steps": steps[id],
            });
            if let Some((whole, _)) = program.lies_in(id) {
                described["within"] = json!(program.values[whole].name);
            }
            values.push(described);
        }
        let mut devices = vec![json!({"device": "cpu", "code_generator": options.backend.name()})];
        devices.extend(
            options.external.iter().map(|name| json!({"device": "cpu", "code_generator": name})),
        );
        let levels: Vec<&str> = model.levels.iter().map(|level| level.name()).collect();
        Ok(json!({
            "model": model.name,
            "symbol": model.symbol,
            "target": options.target.triple,
            "levels": levels,
            "devices": devices,
            "executor": options.executor.name(),
            "inputs": tensors(&model.inputs),
            "outputs": tensors(&model.outputs),
            "macs": model.macs,
            "memory": {
                "workspace_bytes": model.workspace_bytes,
                "peak_live_bytes": peak_live_bytes,
                "lower_bound_bytes": lower_bound_bytes,
                "token_bytes": token_bytes,
                "weight_bytes": model.weights.len(),
                "values": values,
            },
            "passes": names,
        }))
    }
}
