//! A process that runs one repository agent (`libtritonrepoagent_<name>.so`).
//!
//! The server sends one JSON object a line on descriptor 3, and gets one back for each: `{"id":…}` with `location` and
//! `remote`, or with `error`. When it closes the socket, all models end, the agent is finalized, and the process ends.
//!
//! | operation | members | meaning |
//! |---|---|---|
//! | `open` | `model` (a number), `location`, `remote`, `config`, `parameters` (`[[name, value]]`) | then action LOAD |
//! | `act` | `model`, `action` | an action, e.g. `LOAD_COMPLETE` |
//! | `close` | `model` | the end of the model: the actions that are due, then its finalize |

#![allow(unsafe_code)] // functions of a library

use crate::abi::Err;
use crate::abi::agent::{Agent, AgentAction, AgentModel, FILESYSTEM, REMOTE_FILESYSTEM};
use crate::abi::error::ServerError;
use crate::library::{Function, Opened, call};
use protocol::json::{Value, write_string};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tensor::{Error, Result};

type OfModel = unsafe extern "C" fn(*const Agent, *const AgentModel) -> Err;

/// The functions of an agent.
struct AgentLibrary {
    initialize: Option<Function>,
    finalize: Option<Function>,
    model_initialize: Option<OfModel>,
    model_finalize: Option<OfModel>,
    act: unsafe extern "C" fn(*const Agent, *const AgentModel, u32) -> Err,
}

impl AgentLibrary {
    fn open(path: &Path) -> Result<Self> {
        let library = Opened::new(path)?;
        // SAFETY: types of Triton's API.
        unsafe {
            Ok(Self {
                act: library.required(c"TRITONREPOAGENT_ModelAction")?,
                initialize: library.function(c"TRITONREPOAGENT_Initialize"),
                finalize: library.function(c"TRITONREPOAGENT_Finalize"),
                model_initialize: library.function(c"TRITONREPOAGENT_ModelInitialize"),
                model_finalize: library.function(c"TRITONREPOAGENT_ModelFinalize"),
            })
        }
    }
}

/// An agent that is initialized, and its models.
struct RunningAgent {
    library: AgentLibrary,
    agent: Box<Agent>,
    /// Boxed: the library holds their addresses.
    models: BTreeMap<u64, Box<AgentModel>>,
}

impl RunningAgent {
    fn new(path: &Path) -> Result<Self> {
        let library = AgentLibrary::open(path)?;
        let agent = Box::new(Agent::default());
        if let Err(error) = call(library.initialize, &*agent) {
            // As in Triton, also after a failure.
            let _ = call(library.finalize, &*agent);
            return Err(error);
        }
        Ok(Self { library, agent, models: BTreeMap::new() })
    }

    fn of_model(&self, function: Option<OfModel>, model: &AgentModel) -> Result<()> {
        let Some(function) = function else { return Ok(()) };
        // SAFETY: objects that live for the time of the call.
        unsafe { ServerError::take(function(&*self.agent, model)) }.map_or(Ok(()), Err)
    }

    fn act(&self, model: &AgentModel, action: AgentAction) -> Result<()> {
        model.acts(action);
        // SAFETY: objects that live for the time of the call.
        unsafe { ServerError::take((self.library.act)(&*self.agent, model, action as u32)) }.map_or(Ok(()), Err)
    }

    /// Ends a model, with the actions that its last one asks for.
    fn close(&self, model: &AgentModel) {
        let due: &[AgentAction] = match model.action() {
            Some(AgentAction::Load) => &[AgentAction::LoadFail],
            Some(AgentAction::LoadComplete) => &[AgentAction::Unload, AgentAction::UnloadComplete],
            Some(AgentAction::Unload) => &[AgentAction::UnloadComplete],
            _ => &[],
        };
        let ended = due.iter().map(|action| self.act(model, *action));
        let finalized = std::iter::once_with(|| self.of_model(self.library.model_finalize, model));
        for error in ended.chain(finalized).filter_map(Result::err) {
            eprintln!("a repository agent failed at the end of a model: {}", error.message());
        }
        let _ = model.release();
    }

    fn operate(&mut self, asked: Value<'_>) -> Result<(u32, String)> {
        let number = asked.member("model")?.as_u64()?;
        let known = || Error::internal(format!("the agent has no model {number}"));
        match &*asked.member("operation")?.as_string()? {
            "open" => {
                let mut parameters = Vec::new();
                for pair in asked.member("parameters")?.elements()? {
                    let mut texts = pair.elements()?.map(Value::as_string);
                    let mut next = || texts.next().unwrap_or_else(|| Ok(String::new()));
                    parameters.push((next()?, next()?));
                }
                let kind = if asked.member("remote")?.as_bool()? { REMOTE_FILESYSTEM } else { FILESYSTEM };
                let (location, config) = (asked.member("location")?.as_string()?, asked.member("config")?.as_string()?);
                let model = Box::new(AgentModel::new(kind, &location, config, &parameters));
                let loaded = self
                    .of_model(self.library.model_initialize, &model)
                    .and_then(|()| self.act(&model, AgentAction::Load));
                if let Err(error) = loaded {
                    self.close(&model);
                    return Err(error);
                }
                let at = model.location();
                self.models.insert(number, model);
                Ok(at)
            }
            "act" => {
                let action = asked.member("action")?.as_string()?;
                let action = AgentAction::from_name(&action);
                let action = action.ok_or_else(|| Error::internal("there is no such action"))?;
                let model = self.models.get(&number).ok_or_else(known)?;
                self.act(model, action)?;
                Ok(model.location())
            }
            "close" => {
                let model = self.models.remove(&number).ok_or_else(known)?;
                self.close(&model);
                Ok(model.location())
            }
            other => Err(Error::internal(format!("there is no operation '{other}'"))),
        }
    }
}

/// Serves the agent of a library until the server closes the socket.
///
/// # Errors
/// Those of the socket, and of lines that are no JSON objects.
pub(crate) fn serve(path: &Path, server: UnixStream) -> io::Result<()> {
    let mut running: Result<RunningAgent> = RunningAgent::new(path);
    let mut answers = server.try_clone()?;
    for line in BufReader::new(server).lines() {
        let line = line?;
        let asked = Value::parse(line.as_bytes()).map_err(|error| io::Error::other(error.message().to_owned()))?;
        let id = asked.member("id").and_then(Value::as_u64).unwrap_or(0);
        let result = match &mut running {
            Ok(agent) => agent.operate(asked),
            Err(error) => Err(error.clone()),
        };
        let mut answer = format!(r#"{{"id":{id}"#).into_bytes();
        match result {
            Ok((kind, location)) => {
                answer.extend_from_slice(format!(r#","remote":{},"location":"#, kind != FILESYSTEM).as_bytes());
                write_string(&mut answer, location.as_bytes());
            }
            Err(error) => {
                let code = error.code().constant();
                answer.extend_from_slice(format!(r#","error":{{"code":"{code}","message":"#).as_bytes());
                write_string(&mut answer, error.message().as_bytes());
                answer.push(b'}');
            }
        }
        answer.extend_from_slice(b"}\n");
        answers.write_all(&answer)?;
    }
    if let Ok(agent) = &mut running {
        let models = std::mem::take(&mut agent.models);
        models.into_values().for_each(|model| agent.close(&model));
        if let Err(error) = call(agent.library.finalize, &*agent.agent) {
            eprintln!("failed to finalize a repository agent: {}", error.message());
        }
    }
    Ok(())
}
