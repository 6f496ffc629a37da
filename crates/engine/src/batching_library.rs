//! The batching library (`batchstrategy.so`) of a model that is not a library's own: it decides which requests run
//! together.
//!
//! It runs in a process of its own, as a model with one instance, which is sent the batch that forms and answers each
//! request that joins it with a response and the others with errors. `batch_questions` asks it.

use backend::{Backend, Batch, BatchEntry, NoInstanceEvents, OpenSpec, RunControl};
use options::LibrarySpec;
use protocol::Signature;
use protocol::pb::inference::model_instance_group::Kind;
use protocol::pb::inference::{ModelConfig, ModelInstanceGroup};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tensor::Result;

/// How long the library may take to decide about one batch. Then its process is ended and started again.
const ANSWER_MS_MAX: &str = "5000";
/// Requests of one question; later ones wait for the next batch.
const REQUESTS_MAX: usize = 1024;
/// Bytes of an input whose contents are shown to the library. Of larger ones it sees name, datatype, shape and size.
pub(crate) const SHOWN_BYTES_MAX: usize = 4096;

/// A batching library with the state that it has for one version.
pub(crate) struct BatchingLibrary {
    model: Arc<dyn backend::Model>,
    /// Requests that one question may be about: a full batch, and the one behind it.
    pub(crate) requests_max: usize,
    /// A question was asked and not answered yet.
    pub(crate) is_asking: AtomicBool,
}

impl BatchingLibrary {
    /// Starts the process of the library, which initializes it for the model of `open`.
    ///
    /// # Errors
    /// The error of the library, or the reason why it cannot be opened.
    pub(crate) fn start(
        hosts: &dyn Backend,
        library: &LibrarySpec,
        open: &OpenSpec,
        config: &ModelConfig,
        json: &str,
        signature: &Signature,
    ) -> Result<Self> {
        let spec = OpenSpec {
            library: Some(library.clone()),
            batching: None,
            settings: vec![("execute-timeout-ms".into(), ANSWER_MS_MAX.into())],
            config_json: json.to_owned(),
            completes: false,
            code_directory: None,
            ..open.clone()
        };
        let mut opened = hosts.open(&spec)?;
        opened.configured(json);
        let alone = ModelInstanceGroup {
            name: format!("{} batching", open.model),
            kind: Kind::Cpu.into(),
            count: 1,
            ..Default::default()
        };
        let alone = ModelConfig { instance_group: vec![alone], ..config.clone() };
        let mut signature = Signature { decoupled: false, ..signature.clone() };
        // Questions have the shapes that the model sees.
        signature.inputs.iter_mut().for_each(|input| input.reshape = None);
        let model = opened.finish(&alone, Arc::new(signature))?;
        if let Some(remote) = model.remote() {
            remote.serve(Arc::new(NoInstanceEvents));
        }
        let rows_max = usize::try_from(config.max_batch_size).unwrap_or(0);
        Ok(Self { model, requests_max: (rows_max + 1).min(REQUESTS_MAX), is_asking: AtomicBool::new(false) })
    }

    /// Sends a question. Its responders are called at any time, on any thread.
    pub(crate) fn ask(&self, requests: &mut [BatchEntry]) {
        let ask = || self.model.execute(0, &mut Batch::new(requests), &RunControl::alone());
        _ = catch_unwind(AssertUnwindSafe(ask));
    }
}
