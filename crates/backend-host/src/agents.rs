//! A process that runs one repository agent (`libtritonrepoagent_<name>.so`).
//!
//! The server sends one JSON object a line on descriptor 3, and gets one back for each: `{"id":…}` with `location`
//! and `remote`, or with `error`. When it closes the socket, all models end, the agent is finalized, and the process
//! ends.
//!
//! | operation | members | meaning |
//! |---|---|---|
//! | `open` | `model` (a number), `location`, `remote`, `config`, `parameters` (`[[name, value]]`) | then action LOAD |
//! | `act` | `model`, `action` | an action, e.g. `LOAD_COMPLETE` |
//! | `close` | `model` | the end of the model: the actions that are due, then its finalize |

use crate::abi::agent::{Agent, AgentAction, AgentModel, FILESYSTEM, REMOTE_FILESYSTEM};
use crate::json::{self, JsonError};
use crate::library::{Opened, entry_points};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tensor::{Error, Result};

entry_points! {
    /// The functions of an agent.
    struct AgentLibrary {
        Optional TRITONREPOAGENT_Initialize initialize(agent: &Agent);
        Optional TRITONREPOAGENT_Finalize finalize(agent: &Agent);
        Optional TRITONREPOAGENT_ModelInitialize model_initialize(agent: &Agent, model: &AgentModel);
        Optional TRITONREPOAGENT_ModelFinalize model_finalize(agent: &Agent, model: &AgentModel);
        Required TRITONREPOAGENT_ModelAction act(agent: &Agent, model: &AgentModel, action: u32);
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
        let library = AgentLibrary::of(&Opened::new(path)?)?;
        let agent = Box::new(Agent::default());
        if let Err(error) = library.initialize(&agent) {
            // As in Triton, also after a failure.
            let _ = library.finalize(&agent);
            return Err(error);
        }
        Ok(Self { library, agent, models: BTreeMap::new() })
    }

    fn act(&self, model: &AgentModel, action: AgentAction) -> Result<()> {
        model.acts(action);
        self.library.act(&self.agent, model, action as u32)
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
        let finalized = std::iter::once_with(|| self.library.model_finalize(&self.agent, model));
        for error in ended.chain(finalized).filter_map(Result::err) {
            eprintln!("a repository agent failed at the end of a model: {}", error.message());
        }
        let _ = model.release();
    }

    /// Returns where the model is then.
    fn operate(&mut self, number: u64, operation: Operation) -> Result<(u32, String)> {
        let known = || Error::internal(format!("the agent has no model {number}"));
        match operation {
            Operation::Open { location, remote, config, parameters } => {
                let kind = if remote { REMOTE_FILESYSTEM } else { FILESYSTEM };
                let model = Box::new(AgentModel::new(kind, &location, config, &parameters));
                let initialized = self.library.model_initialize(&self.agent, &model);
                let loaded = initialized.and_then(|()| self.act(&model, AgentAction::Load));
                if let Err(error) = loaded {
                    self.close(&model);
                    return Err(error);
                }
                let at = model.location();
                self.models.insert(number, model);
                Ok(at)
            }
            Operation::Act { action } => {
                let model = self.models.get(&number).ok_or_else(known)?;
                self.act(model, action)?;
                Ok(model.location())
            }
            Operation::Close => {
                let model = self.models.remove(&number).ok_or_else(known)?;
                self.close(&model);
                Ok(model.location())
            }
        }
    }
}

/// A line of the server.
#[derive(Deserialize)]
struct AgentQuestion {
    id: u64,
    model: u64,
    #[serde(flatten)]
    operation: Operation,
}

#[derive(Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Operation {
    Open { location: String, remote: bool, config: String, parameters: Vec<(String, String)> },
    Act { action: AgentAction },
    Close,
}

/// Serves the agent of a library until the server closes the socket.
///
/// # Errors
/// The socket fails, or a line cannot be read as a JSON object.
pub(crate) fn serve(path: &Path, server: UnixStream) -> io::Result<()> {
    let mut running: Result<RunningAgent> = RunningAgent::new(path);
    let mut answers = server.try_clone()?;
    for line in BufReader::new(server).lines() {
        let question: AgentQuestion =
            json::read(&line?).map_err(|error| io::Error::other(error.message().to_owned()))?;
        let result = match &mut running {
            Ok(agent) => agent.operate(question.model, question.operation),
            Err(error) => Err(error.clone()),
        };
        let id = question.id;
        let answer = match result {
            Ok((kind, location)) => json!({ "id": id, "remote": kind != FILESYSTEM, "location": location }),
            Err(error) => json!({ "id": id, "error": JsonError::from(&error) }),
        };
        answers.write_all(format!("{answer}\n").as_bytes())?;
    }
    if let Ok(agent) = &mut running {
        let models = std::mem::take(&mut agent.models);
        models.into_values().for_each(|model| agent.close(&model));
        if let Err(error) = agent.library.finalize(&agent.agent) {
            eprintln!("failed to finalize a repository agent: {}", error.message());
        }
    }
    Ok(())
}
