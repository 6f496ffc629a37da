//! Trace settings, and records of traces.

use super::NativeCore;
use crate::failure::{Result, thrown};
use crate::json::Json;
use crate::{objects as js, traces};
use backend::now_ns;
use napi::bindgen_prelude::BigInt;
use napi_derive::napi;
use options::TraceSetting;

#[napi]
impl NativeCore {
    /// Replaces the default trace setting (`model` empty) or that of a model; null makes the model use the default.
    /// Throws RESOURCE_EXHAUSTED for too many models.
    #[napi]
    pub fn set_trace_setting(
        &self,
        model: String,
        #[napi(ts_arg_type = "TraceSetting | null")] setting: Json<Option<TraceSetting>>,
    ) -> Result<()> {
        self.server.engine().tracer().set(&model, setting.0).map_err(|e| thrown(&e))
    }

    /// Number of requests the setting of a model may still sample; -1 = no limit.
    #[napi]
    pub fn trace_count_left(&self, model: String) -> i32 {
        self.server.engine().tracer().left(&model)
    }

    /// Takes at most `max` complete records, fewer if their tensors are large. `clockNs` is `process.hrtime.bigint()`.
    #[napi]
    pub fn take_traces(&self, max: u32, clock_ns: BigInt) -> js::TakenTraces {
        // Both clocks are the system's monotonic one, with different starts.
        let start = self.clock_start_ns.get_or_init(|| clock_ns.get_u64().1.saturating_sub(now_ns()));
        traces::take(self.server.engine().tracer(), max, *start)
    }

    /// Stops sampling; each setting ends with its last record.
    #[napi]
    pub fn close_traces(&self) {
        self.server.engine().tracer().close();
    }
}
