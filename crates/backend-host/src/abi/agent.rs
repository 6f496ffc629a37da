//! `TRITONREPOAGENT_*`: a repository agent, and the models that it sees.

#![allow(unsafe_code)] // pointers of a C API

use super::c_text;
use super::exports::{Out, exports, objects, was_null};
use super::message::Message;
use parking_lot::Mutex;
use std::ffi::{CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use tensor::{Error, Result};

/// Version of the API of agents.
const VERSION: (u32, u32) = (0, 1);

/// `TRITONREPOAGENT_ARTIFACT_FILESYSTEM` and `…_REMOTE_FILESYSTEM`.
pub(crate) const FILESYSTEM: u32 = 0;
pub(crate) const REMOTE_FILESYSTEM: u32 = 1;

/// `TRITONREPOAGENT_ActionType`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AgentAction {
    Load = 0,
    LoadComplete = 1,
    LoadFail = 2,
    Unload = 3,
    UnloadComplete = 4,
}

impl AgentAction {
    const ALL: [(Self, &str); 5] = [
        (Self::Load, "LOAD"),
        (Self::LoadComplete, "LOAD_COMPLETE"),
        (Self::LoadFail, "LOAD_FAIL"),
        (Self::Unload, "UNLOAD"),
        (Self::UnloadComplete, "UNLOAD_COMPLETE"),
    ];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.1 == name).map(|known| known.0)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|known| known.0 == self).map_or("", |known| known.1)
    }
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
            let text =
                format!("Failed to delete previously acquired location '{}': {error}", acquired.to_string_lossy());
            super::log::send(frames::generated::LogLevel::Error, file!(), line!(), &text);
        }
        Ok(())
    }
}

/// A new directory with a name like those of Triton.
fn new_directory() -> Result<CString> {
    let template: PathBuf = std::env::temp_dir().join("folderXXXXXX");
    let template = CString::new(template.as_os_str().as_bytes());
    let template = template.map_err(|_| Error::internal("the directory for temporary files has a NUL"))?;
    let path = template.into_raw();
    // SAFETY: a NUL-terminated path that may be changed, and keeps its length.
    let made = unsafe { libc::mkdtemp(path) };
    let why = std::io::Error::last_os_error();
    // SAFETY: from `into_raw`.
    let path = unsafe { CString::from_raw(path) };
    if made.is_null() {
        return Err(Error::internal(format!("Failed to create local temp folder: {}, {why}", path.to_string_lossy())));
    }
    Ok(path)
}

objects! {
    Agent: "agent";
    AgentModel: "agent model";
}

exports! {
    /// The version of the API of agents.
    fn TRITONREPOAGENT_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }

    /// Where the model is now; the text belongs to the model.
    fn TRITONREPOAGENT_ModelRepositoryLocation(
        _agent: *const Agent,
        model: &AgentModel,
        artifact_type: Out<u32>,
        location: Out<*const c_char>,
    ) {
        let place = model.place.lock();
        let current = place.locations.last().filter(|location| !location.is_empty());
        let current = current.ok_or_else(|| Error::internal("Model repository location is not set"))?;
        artifact_type.put(place.kind);
        location.put(current.as_ptr());
    }

    /// A new directory for a changed copy of the model; the same one each time.
    fn TRITONREPOAGENT_ModelRepositoryLocationAcquire(
        _agent: *const Agent,
        model: Option<&AgentModel>,
        artifact_type: u32,
        location: Out<*const c_char>,
    ) {
        if artifact_type != FILESYSTEM {
            let text = "Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'";
            return Err(Error::invalid(text));
        }
        location.put(model.ok_or_else(|| was_null("agent model"))?.acquire()?);
    }

    /// Deletes that directory; Triton does not look at the location either.
    fn TRITONREPOAGENT_ModelRepositoryLocationRelease(
        _agent: *const Agent,
        model: &AgentModel,
        _location: *const c_char,
    ) {
        model.release()
    }

    /// Replaces the location of the model, in action LOAD.
    fn TRITONREPOAGENT_ModelRepositoryUpdate(
        _agent: *const Agent,
        model: &AgentModel,
        artifact_type: u32,
        location: CString,
    ) {
        let mut place = model.place.lock();
        if place.action != Some(AgentAction::Load) {
            let now = place.action.map_or("not set".to_owned(), |now| format!("TRITONREPOAGENT_ACTION_{}", now.name()));
            let text = "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is";
            return Err(Error::invalid(format!("{text} {now}")));
        }
        place.kind = artifact_type;
        place.locations.push(location);
    }

    /// The number of parameters of the agent in the model's configuration.
    fn TRITONREPOAGENT_ModelParameterCount(_agent: *const Agent, model: &AgentModel, count: Out<u32>) {
        count.put(model.parameters.len() as u32);
    }

    /// A parameter; the texts belong to the model.
    fn TRITONREPOAGENT_ModelParameter(
        _agent: *const Agent,
        model: &AgentModel,
        index: u32,
        parameter_name: Out<*const c_char>,
        parameter_value: Out<*const c_char>,
    ) {
        let parameter = model.parameters.get(index as usize);
        let (name, value) = parameter.ok_or_else(|| Error::invalid("index out of range for model parameters"))?;
        parameter_name.put(name.as_ptr());
        parameter_value.put(value.as_ptr());
    }

    /// The configuration of the model, as JSON; the caller deletes the message.
    fn TRITONREPOAGENT_ModelConfig(
        _agent: *const Agent,
        model: &AgentModel,
        config_version: u32,
        model_config: Out<*mut Message>,
    ) {
        if config_version != 1 {
            return Err(Error::invalid(format!(
                "model configuration version {config_version} not supported, supported versions are: 1"
            )));
        }
        model_config.give(Message::new(model.config.as_str()));
    }

    /// The pointer that the agent keeps with a model.
    fn TRITONREPOAGENT_ModelState(model: &AgentModel, state: Out<*mut c_void>) {
        state.put(model.state.load(Relaxed));
    }

    /// Keeps a pointer with a model.
    fn TRITONREPOAGENT_ModelSetState(model: &AgentModel, state: *mut c_void) {
        model.state.store(state, Relaxed);
    }

    /// The pointer that the agent keeps.
    fn TRITONREPOAGENT_State(agent: &Agent, state: Out<*mut c_void>) {
        state.put(agent.state.load(Relaxed));
    }

    /// Keeps a pointer with the agent.
    fn TRITONREPOAGENT_SetState(agent: &Agent, state: *mut c_void) {
        agent.state.store(state, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Err;
    use crate::abi::error::ServerError;
    use std::ffi::CStr;
    use std::ptr::null;

    fn failed(error: Err) -> Option<String> {
        // SAFETY: made by the functions above.
        unsafe { ServerError::take(error) }.map(|error| format!("{}: {}", error.code().name(), error.message()))
    }

    #[test]
    fn a_model_moves_to_a_directory_that_it_acquired_only_while_it_is_loaded() {
        let parameters = [("size".to_owned(), "3".to_owned())];
        let model = AgentModel::new(FILESYSTEM, "/models/m", "{}".to_owned(), &parameters);
        let (agent, of) = (Agent::default(), &raw const model);
        let (mut kind, mut at, mut count) = (9, null(), 0);
        // SAFETY: objects that live.
        unsafe {
            assert_eq!(failed(TRITONREPOAGENT_ModelRepositoryLocation(&agent, of, &raw mut kind, &raw mut at)), None);
            assert_eq!((kind, CStr::from_ptr(at)), (FILESYSTEM, c"/models/m"));
            let update = |to| failed(TRITONREPOAGENT_ModelRepositoryUpdate(&agent, of, FILESYSTEM, to));
            assert!(update(at).is_some_and(|text| text.ends_with("current action type is not set")));
            model.acts(AgentAction::Load);
            let remote = TRITONREPOAGENT_ModelRepositoryLocationAcquire(&agent, of, REMOTE_FILESYSTEM, &raw mut at);
            assert!(failed(remote).is_some_and(|text| text.starts_with("Invalid argument: Unexpected artifact type")));
            let (mut to, mut again) = (null(), null());
            TRITONREPOAGENT_ModelRepositoryLocationAcquire(&agent, of, FILESYSTEM, &raw mut to);
            TRITONREPOAGENT_ModelRepositoryLocationAcquire(&agent, of, FILESYSTEM, &raw mut again);
            assert_eq!(to, again);
            let directory = CStr::from_ptr(to).to_string_lossy().into_owned();
            assert!(Path::new(&directory).is_dir());
            assert_eq!(update(to), None);
            assert_eq!(model.location(), (FILESYSTEM, directory.clone()));
            model.acts(AgentAction::LoadComplete);
            let late = update(at).expect("an error");
            assert!(late.ends_with("current action type is TRITONREPOAGENT_ACTION_LOAD_COMPLETE"), "{late}");
            assert_eq!(failed(TRITONREPOAGENT_ModelRepositoryLocationRelease(&agent, of, null())), None);
            assert!(!Path::new(&directory).exists());
            let none = failed(TRITONREPOAGENT_ModelRepositoryLocationRelease(&agent, of, null()));
            assert_eq!(none.as_deref(), Some("Unavailable: No mutable location to be deleted"));
            assert_eq!(failed(TRITONREPOAGENT_ModelParameterCount(&agent, of, &raw mut count)), None);
            let beyond = TRITONREPOAGENT_ModelParameter(&agent, of, count, &raw mut at, &raw mut at);
            assert_eq!(failed(beyond).as_deref(), Some("Invalid argument: index out of range for model parameters"));
            let second = TRITONREPOAGENT_ModelConfig(&agent, of, 2, std::ptr::null_mut());
            assert!(failed(second).is_some_and(|text| text.contains("version 2 not supported")));
        }
    }
}
