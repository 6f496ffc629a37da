//! Backends, and the models and instances of this process, by what LOAD says of them.

use crate::abi::backend::Backend;
use crate::abi::instance::Instance;
use crate::abi::model::Model;
use crate::json;
use crate::library::{BackendLibrary, Opened};
use crate::link::Link;
use crate::load::LoadContent;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Weak};
use tensor::{Error, Result};

/// Backends by library and name. A backend is loaded once, and stays until the process ends.
static BACKENDS: LazyLock<Mutex<Backends>> = LazyLock::new(Mutex::default);

type Backends = HashMap<(PathBuf, String), Arc<BackendCell>>;

/// A backend that is loaded by the first model that needs it, while others wait.
#[derive(Default)]
struct BackendCell(Mutex<Option<Arc<Backend>>>);

/// Loads of models by the text that the server names them with.
static LOADS: LazyLock<Mutex<HashMap<String, Weak<SharedLoad>>>> = LazyLock::new(Mutex::default);

type LoadJob = Box<dyn FnOnce() + Send>;

/// One load of one version of a model. Its code is called by one thread, as in Triton. The model is finalized when the
/// last connection that uses it ends.
pub(crate) struct SharedLoad {
    name: String,
    jobs: Sender<LoadJob>,
    model: Mutex<Option<Arc<Model>>>,
}

impl SharedLoad {
    /// The load that a connection belongs to.
    fn of(name: &str) -> Arc<Self> {
        let mut loads = LOADS.lock();
        if let Some(load) = loads.get(name).and_then(Weak::upgrade) {
            return load;
        }
        let (jobs, queue) = channel::<LoadJob>();
        // Ends with the load, whose sender it waits for.
        let thread = std::thread::Builder::new().name("loads".to_owned());
        let _ = thread.spawn(move || queue.into_iter().for_each(|job| job()));
        let load = Arc::new(Self { name: name.to_owned(), jobs, model: Mutex::default() });
        loads.insert(name.to_owned(), Arc::downgrade(&load));
        load
    }

    /// Runs a job on the thread of the load and waits for it.
    fn run<T: Send + 'static>(&self, link: &Arc<Link>, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (send, result) = channel();
        let link = Arc::clone(link);
        let job: LoadJob = Box::new(move || drop(send.send(link.run(job))));
        self.jobs
            .send(job)
            .ok()
            .and_then(|()| result.recv().ok())
            .unwrap_or_else(|| Err(Error::internal("the thread that loads the model ended")))
    }
}

impl Drop for SharedLoad {
    fn drop(&mut self) {
        let mut loads = LOADS.lock();
        if loads.get(&self.name).is_some_and(|load| load.strong_count() == 0) {
            loads.remove(&self.name);
        }
        drop(loads);
        if let Some(model) = self.model.get_mut().take() {
            finalize_model(&model);
        }
    }
}

fn finalize_model(model: &Model) {
    if let Err(error) = model.backend.library.model_finalize(model.into()) {
        eprintln!("failed to finalize model '{}': {}", model.name(), error.message());
    }
}

/// The purpose of a connection. Dropped when it ends.
pub(crate) enum Role {
    /// Keeps a model.
    Model(#[allow(dead_code)] Arc<SharedLoad>),
    /// Runs an instance.
    Instance(Arc<Instance>, Arc<SharedLoad>),
    /// Carries the requests of a program that embeds the server.
    Program,
}

impl Drop for Role {
    fn drop(&mut self) {
        if let Self::Instance(instance, load) = self {
            let (instance, link) = (Arc::clone(instance), Arc::clone(&instance.link));
            let finalize = move || {
                *instance.finalized.write() = true;
                instance.model.backend.library.instance_finalize((&*instance).into())
            };
            let finalized = load.run(&link, finalize);
            if let Err(error) = finalized {
                eprintln!("failed to finalize an instance: {}", error.message());
            }
        }
    }
}

/// Handles LOAD. Returns what the connection is for, and the members of READY.
///
/// # Errors
/// The library cannot be opened, or one of its functions returned an error.
pub(crate) fn load(text: &str, link: &Arc<Link>) -> Result<(Role, Value)> {
    let content: LoadContent = json::read(text)?;
    let load = SharedLoad::of(&content.load);
    let (of, own) = (Arc::clone(&load), Arc::clone(link));
    let (instance, ready) = load.run(link, move || {
        let model = model(&of, &content)?;
        if content.mode == "complete" {
            let (config, groups) = (model.config(), model.backend.groups());
            return Ok((None, json!({ "asks_ready": false, "config": config, "groups": groups })));
        }
        model.configured(content.config);
        let instance = Arc::new(Instance::new(Arc::clone(&model), own, content.instance));
        if let Err(error) = model.backend.library.instance_initialize((&*instance).into()) {
            // State may be unset in it, as in Triton.
            let _ = model.backend.library.instance_finalize((&*instance).into());
            return Err(error);
        }
        Ok((Some(instance), json!({ "asks_ready": model.backend.library.instance_ready.is_some() })))
    })?;
    Ok(match instance {
        Some(instance) => (Role::Instance(instance, load), ready),
        None => (Role::Model(load), ready),
    })
}

/// The model of a load, which the first connection makes.
fn model(load: &SharedLoad, content: &LoadContent) -> Result<Arc<Model>> {
    let mut held = load.model.lock();
    if let Some(model) = &*held {
        return Ok(Arc::clone(model));
    }
    let model = Arc::new(Model::new(backend(content)?, content)?);
    let initialized = model.backend.library.model_initialize((&*model).into());
    if let Err(error) = initialized.and_then(|()| model.open_strategy(&content.strategy)) {
        finalize_model(&model);
        return Err(error);
    }
    *held = Some(Arc::clone(&model));
    Ok(model)
}

fn backend(content: &LoadContent) -> Result<Arc<Backend>> {
    let path = PathBuf::from(&content.library);
    let cell = Arc::clone(BACKENDS.lock().entry((path.clone(), content.backend.clone())).or_default());
    let mut held = cell.0.lock();
    if let Some(backend) = &*held {
        return Ok(Arc::clone(backend));
    }
    // A batching library alone.
    if content.library == content.strategy {
        return Ok(Arc::clone(held.insert(Arc::new(Backend::new(BackendLibrary::default(), content)))));
    }
    let opened = Opened::new(&path)?;
    let initialized = BackendLibrary::of(&opened).and_then(|library| initialized(Backend::new(library, content)));
    if initialized.is_err() {
        // A corrected file is opened by the next load.
        opened.close();
    }
    let backend = initialized?;
    *held = Some(Arc::clone(&backend));
    Ok(backend)
}

fn initialized(backend: Backend) -> Result<Arc<Backend>> {
    let backend = Arc::new(backend);
    if let Err(error) = backend.library.initialize((&*backend).into()) {
        let _ = backend.library.finalize((&*backend).into());
        return Err(error);
    }
    backend.ask_attributes();
    Ok(backend)
}

/// Finalizes all backends, at the end of the process.
pub(crate) fn finalize() {
    let cells: Vec<_> = BACKENDS.lock().values().cloned().collect();
    for backend in cells.iter().filter_map(|cell| cell.0.lock().take()) {
        let _ = backend.library.finalize((&*backend).into());
    }
}
