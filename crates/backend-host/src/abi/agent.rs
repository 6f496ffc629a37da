//! `TRITONREPOAGENT_*`: a repository agent, and the models that it sees.

use super::exports::{Lent, Out, exports, objects, was_null};
use super::message::Message;
use super::{c_text, check_config_version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ffi::{CString, OsStr, c_char, c_void};
use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use tensor::{Error, Result};

/// Version of the API of agents.
const VERSION: (u32, u32) = (0, 1);

/// `TRITONREPOAGENT_ARTIFACT_FILESYSTEM` and `…_REMOTE_FILESYSTEM`.
pub(crate) const FILESYSTEM: u32 = 0;
pub(crate) const REMOTE_FILESYSTEM: u32 = 1;

/// `TRITONREPOAGENT_ActionType`, by its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(u32)]
pub(crate) enum AgentAction {
    Load = 0,
    LoadComplete = 1,
    LoadFail = 2,
    Unload = 3,
    UnloadComplete = 4,
}

/// An agent, as its library sees it.
#[derive(Default)]
pub(crate) struct Agent {
    state: AtomicPtr<c_void>,
}

/// A model, as an agent sees it.
pub(crate) struct AgentModel {
    state: AtomicPtr<c_void>,
    config: String,
    parameters: Vec<(CString, CString)>,
    place: Mutex<AgentPlace>,
}

struct AgentPlace {
    kind: u32,
    /// All locations so far, the current one last: the library may still read an older one.
    locations: Vec<CString>,
    /// Directory for a changed copy of the model, deleted with this object.
    acquired: Option<CString>,
    action: Option<AgentAction>,
}

impl AgentModel {
    pub(crate) fn new(kind: u32, location: &str, config: String, parameters: &[(String, String)]) -> Self {
        let place = AgentPlace { kind, locations: vec![c_text(location)], acquired: None, action: None };
        Self {
            state: AtomicPtr::default(),
            config,
            parameters: parameters.iter().map(|(name, value)| (c_text(name), c_text(value))).collect(),
            place: Mutex::new(place),
        }
    }

    /// Kind and path of where the model is now.
    pub(crate) fn location(&self) -> (u32, String) {
        let place = self.place.lock();
        let location = place.locations.last().map(|location| location.to_string_lossy().into_owned());
        (place.kind, location.unwrap_or_default())
    }

    pub(crate) fn action(&self) -> Option<AgentAction> {
        self.place.lock().action
    }

    /// Notes the action that the library is told of next.
    pub(crate) fn acts(&self, action: AgentAction) {
        self.place.lock().action = Some(action);
    }

    fn acquire(&self) -> Result<*const c_char> {
        let mut place = self.place.lock();
        if place.acquired.is_none() {
            place.acquired = Some(new_directory()?);
        }
        Ok(place.acquired.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()))
    }

    /// Deletes the directory for a changed copy.
    pub(crate) fn release(&self) -> Result<()> {
        let acquired = self.place.lock().acquired.take();
        let acquired = acquired.ok_or_else(|| Error::unavailable("No mutable location to be deleted"))?;
        if let Err(error) = std::fs::remove_dir_all(Path::new(OsStr::from_bytes(acquired.as_bytes()))) {
            let acquired = acquired.to_string_lossy();
            super::log::error(&format!("Failed to delete previously acquired location '{acquired}': {error}"));
        }
        Ok(())
    }
}

/// A new directory with a name like those of Triton.
fn new_directory() -> Result<CString> {
    let temporary = std::env::temp_dir();
    let failed = |error: &dyn std::fmt::Display| {
        Error::internal(format!("Failed to create local temp folder: {}, {error}", temporary.display()))
    };
    loop {
        let path = temporary.join(format!("folder{:08x}", RandomState::new().build_hasher().finish() as u32));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return CString::new(path.into_os_string().into_vec()).map_err(|error| failed(&error)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&error)),
        }
    }
}

objects! {
    Agent: "agent";
    AgentModel: "agent model";
}

exports! {
    "agent" fn TRITONREPOAGENT_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }

    /// Where the model is now; the text belongs to the model.
    "agent" fn TRITONREPOAGENT_ModelRepositoryLocation(
        _agent: Lent<Agent>,
        model: &AgentModel,
        artifact_type: Out<u32>,
        location: Out<Lent<c_char>>,
    ) {
        let place = model.place.lock();
        let current = place.locations.last().filter(|location| !location.is_empty());
        let current = current.ok_or_else(|| Error::internal("Model repository location is not set"))?;
        artifact_type.put(place.kind);
        location.put(current.as_ptr());
    }

    /// A new directory for a changed copy of the model; the same one each time.
    "agent" fn TRITONREPOAGENT_ModelRepositoryLocationAcquire(
        _agent: Lent<Agent>,
        model: Option<&AgentModel>,
        artifact_type: u32,
        location: Out<Lent<c_char>>,
    ) {
        if artifact_type != FILESYSTEM {
            let text = "Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'";
            return Err(Error::invalid(text));
        }
        location.put(model.ok_or_else(|| was_null("agent model"))?.acquire()?);
    }

    /// Deletes that directory; Triton does not look at the location either.
    "agent" fn TRITONREPOAGENT_ModelRepositoryLocationRelease(
        _agent: Lent<Agent>,
        model: &AgentModel,
        _location: Lent<c_char>,
    ) => model.release()?;

    /// Replaces the location of the model, in action LOAD.
    "agent" fn TRITONREPOAGENT_ModelRepositoryUpdate(
        _agent: Lent<Agent>,
        model: &AgentModel,
        artifact_type: u32,
        location: CString,
    ) {
        let mut place = model.place.lock();
        if place.action != Some(AgentAction::Load) {
            let name = |now| format!("TRITONREPOAGENT_ACTION_{}", json!(now).as_str().unwrap_or_default());
            let now = place.action.map_or("not set".to_owned(), name);
            let text = "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is";
            return Err(Error::invalid(format!("{text} {now}")));
        }
        place.kind = artifact_type;
        place.locations.push(location);
    }

    /// The number of parameters of the agent in the model's configuration.
    "agent" fn TRITONREPOAGENT_ModelParameterCount(_agent: Lent<Agent>, model: &AgentModel, count: Out<u32>) =>
        count.put(model.parameters.len() as u32);

    "agent" fn TRITONREPOAGENT_ModelParameter(
        _agent: Lent<Agent>,
        model: &AgentModel,
        index: u32,
        parameter_name: Out<Lent<c_char>>,
        parameter_value: Out<Lent<c_char>>,
    ) {
        let parameter = model.parameters.get(index as usize);
        let (name, value) = parameter.ok_or_else(|| Error::invalid("index out of range for model parameters"))?;
        parameter_name.put(name.as_ptr());
        parameter_value.put(value.as_ptr());
    }

    /// The configuration of the model, as JSON.
    "agent" fn TRITONREPOAGENT_ModelConfig(
        _agent: Lent<Agent>,
        model: &AgentModel,
        config_version: u32,
        model_config: Out<*mut Message>,
    ) {
        check_config_version(config_version)?;
        model_config.give(Message::new(model.config.as_str()));
    }

    "agent" get TRITONREPOAGENT_ModelState(model: &AgentModel) -> *mut c_void = model.state.load(Relaxed);
    "agent" fn TRITONREPOAGENT_ModelSetState(model: &AgentModel, state: *mut c_void) =>
        model.state.store(state, Relaxed);

    "agent" get TRITONREPOAGENT_State(agent: &Agent) -> *mut c_void = agent.state.load(Relaxed);
    "agent" fn TRITONREPOAGENT_SetState(agent: &Agent, state: *mut c_void) => agent.state.store(state, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{failed, nothing, pass, text_at, to};
    use std::ptr::null;

    #[test]
    fn a_model_moves_to_a_directory_that_it_acquired_only_while_it_is_loaded() {
        let parameters = [("size".to_owned(), "3".to_owned())];
        let model = AgentModel::new(FILESYSTEM, "/models/m", "{}".to_owned(), &parameters);
        let agent: Lent<Agent> = null();
        let (of, mut kind, mut at, mut count) = (pass(&raw const model), 9, null(), 0);
        assert_eq!(failed(TRITONREPOAGENT_ModelRepositoryLocation(agent, of, to(&mut kind), to(&mut at))), None);
        assert_eq!((kind, text_at(at)), (FILESYSTEM, "/models/m".to_owned()));
        let update = |path| failed(TRITONREPOAGENT_ModelRepositoryUpdate(agent, of, FILESYSTEM, pass(path)));
        let early = update(at).expect("an error");
        assert!(early.message().ends_with("current action type is not set"), "{early:?}");
        model.acts(AgentAction::Load);
        let remote = TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, of, REMOTE_FILESYSTEM, to(&mut at));
        let remote = failed(remote).expect("an error");
        assert_eq!(remote.code(), tensor::Code::InvalidArg);
        assert!(remote.message().starts_with("Unexpected artifact type"), "{remote:?}");
        let (mut path, mut again) = (null(), null());
        TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, of, FILESYSTEM, to(&mut path));
        TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, of, FILESYSTEM, to(&mut again));
        assert_eq!(path, again);
        let directory = text_at(path);
        assert!(Path::new(&directory).is_dir());
        assert_eq!(update(path), None);
        assert_eq!(model.location(), (FILESYSTEM, directory.clone()));
        model.acts(AgentAction::LoadComplete);
        let late = update(at).expect("an error");
        assert!(late.message().ends_with("current action type is TRITONREPOAGENT_ACTION_LOAD_COMPLETE"), "{late:?}");
        assert_eq!(failed(TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, of, null())), None);
        assert!(!Path::new(&directory).exists());
        let none = failed(TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, of, null()));
        assert_eq!(none, Some(Error::unavailable("No mutable location to be deleted")));
        assert_eq!(failed(TRITONREPOAGENT_ModelParameterCount(agent, of, to(&mut count))), None);
        let beyond = TRITONREPOAGENT_ModelParameter(agent, of, count, nothing(), nothing());
        assert_eq!(failed(beyond), Some(Error::invalid("index out of range for model parameters")));
        let second = failed(TRITONREPOAGENT_ModelConfig(agent, of, 2, nothing())).expect("an error");
        assert!(second.message().contains("version 2 not supported"), "{second:?}");
    }
}
