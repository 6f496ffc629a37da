//! Versions of models: opened, published, changed, retired, described.

use crate::core::NativeCore;
use crate::failure::{Result, thrown};
use crate::json::Json;
use crate::settle::Settled;
use crate::{convert, objects as js};
use bytes::Bytes;
use engine::VersionState;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use options::OpenSpec;

#[napi]
impl NativeCore {
    /// Opens a version with one of our backends. `config` is copied into `spec`.
    #[napi]
    pub fn open_model(
        &self,
        #[napi(ts_arg_type = "Ticket<Opened>")] ticket: u32,
        backend: String,
        #[napi(ts_arg_type = "OpenSpec")] spec: Json<OpenSpec>,
        config: Buffer,
    ) -> Result<()> {
        let spec = OpenSpec { config: Bytes::copy_from_slice(&config), ..spec.0 };
        let engine = self.server.engine().clone();
        let open = move || engine.open(&backend, spec).map(|o| Settled::Opened(convert::opened(o)));
        self.settler()?.run_load(ticket, open);
        Ok(())
    }

    /// Finishes the initialisation of the backend and makes the version READY, replacing one of the same number.
    #[napi]
    pub fn publish_model(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        handle: u32,
        spec: js::PublishSpec,
    ) -> Result<()> {
        let (engine, spec) = (self.server.engine().clone(), convert::publish_spec(spec));
        self.settler()?.run_load(ticket, move || engine.publish(handle, spec).map(|()| Settled::Nothing));
        Ok(())
    }

    #[napi]
    pub fn discard_model(&self, handle: u32) {
        self.server.engine().discard(handle);
    }

    /// Changes the instances of a serving version to those of this configuration without a reload; `config` and
    /// `configJson` as in `PublishSpec`. False if only a reload can do that. Rejects with INVALID_ARG for too many
    /// instances, or with the error of a new one.
    #[napi]
    pub fn update_model(
        &self,
        #[napi(ts_arg_type = "Ticket<boolean>")] ticket: u32,
        name: String,
        version: i64,
        config: Buffer,
        config_json: String,
    ) -> Result<()> {
        let (engine, config) = (self.server.engine().clone(), Bytes::copy_from_slice(&config));
        self.settler()?.run_load(ticket, move || engine.update(&name, version, config, config_json).map(Settled::Flag));
        Ok(())
    }

    /// Adds a model or a version, or changes the state of one that does not serve. Only `publishModel` sets READY.
    #[napi]
    pub fn set_version_state(
        &self,
        name: String,
        version: i64,
        #[napi(ts_arg_type = "VersionState")] state: String,
        reason: String,
    ) {
        if let Some(state) = VersionState::from_name(&state) {
            self.server.engine().set_version_state(&name, version, state, &reason);
        }
    }

    /// Marks a model without any version as known or not; strict readiness fails while there is a known one.
    #[napi]
    pub fn set_model_known(&self, name: String, known: bool) {
        self.server.engine().set_model_known(&name, known);
    }

    /// Sets UNLOADING at once and resolves when the last request has ended; then UNLOADED with `reason`, unless the
    /// version has a newer state.
    #[napi]
    pub fn retire_model(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        name: String,
        version: i64,
        reason: String,
    ) -> Result<()> {
        let settler = self.settler()?;
        let wait = self.server.retire(name, version, reason);
        settler.run_load(ticket, move || {
            wait();
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// All versions that were ever attempted, of one model or of all; those of one model ascending.
    #[napi]
    pub fn versions(&self, model: Option<String>) -> Vec<js::VersionRow> {
        self.server.engine().versions(model.as_deref()).into_iter().map(Into::into).collect()
    }

    /// The body of the corresponding HTTP response, JSON text.
    #[napi]
    pub fn server_metadata(&self) -> String {
        let m = self.server.engine().server_metadata();
        text(&protocol::http::server_metadata_json(&m.name, &m.version, &m.extensions))
    }

    #[napi]
    pub fn model_metadata(&self, name: String, version: String) -> Result<String> {
        let metadata = frontend::Metadata::find(self.server.engine(), &name, &version).map_err(|e| thrown(&e))?;
        Ok(text(&metadata.json()))
    }

    #[napi]
    pub fn model_config(&self, name: String, version: String) -> Result<String> {
        let model = self.server.engine().model(&name, &version).map_err(|e| thrown(&e))?;
        Ok(text(&model.identity.config_json()))
    }

    #[napi]
    pub fn model_statistics(&self, name: String, version: String) -> Result<String> {
        self.server.engine().statistics(&name, &version).map(|s| engine::statistics_json(&s)).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn model_ready(&self, name: String, version: String) -> Result<bool> {
        self.server.engine().is_model_ready(&name, &version).map_err(|e| thrown(&e))
    }
}

fn text(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}
