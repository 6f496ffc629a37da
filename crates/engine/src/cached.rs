//! The response cache as a version asks it (S-37, S-44): before a request is queued or run, and with its answer.
//!
//! A request that touches shared memory is not looked up. What is hashed has to be what the model gets, or a client could leave a wrong
//! answer for another one's request; and an answer in a client's region is not there to be kept. Nor is one looked up whose key would
//! hold a reactor. Both run as if there were no cache, and count as neither hit nor miss.

use crate::answer::{Answer, Delivery, Sink};
use crate::limits::CACHE_KEY_BYTES_MAX;
use crate::order::Line;
use crate::ticket::{Ticket, TicketState};
use crate::version::{Caller, ModelVersion, Started};
use backend::now_ns;
use cache::{Asked, Cache, Entry, Insertion, Key, Lookup, Output, Scope};
use protocol::{Checked, InferRequest, InferResponse, OutputTensor};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};
use tensor::{Data, Result};

/// The cache, and this load of the version in it.
pub(crate) struct Cached {
    cache: Arc<dyn Cache>,
    scope: Scope,
}

impl Cached {
    pub(crate) fn new(cache: Arc<dyn Cache>, scope: Scope) -> Self {
        Self { cache, scope }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // The last owner of a version may be a reactor, and this takes as long as the cache is large.
        memory::behind::drop_behind(Forget { cache: self.cache.clone(), scope: self.scope.clone() });
    }
}

/// Drops the answers of a load that is over.
struct Forget {
    cache: Arc<dyn Cache>,
    scope: Scope,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.cache.forget(&self.scope);
    }
}

/// A request whose answer was not there.
struct Miss {
    key: Key,
    asked: Asked,
    lookup_ns: u64,
}

/// Keeps an answer on its way to whoever asked.
struct Keeping {
    version: Weak<ModelVersion>,
    miss: Miss,
    sink: Arc<dyn Sink>,
}

impl Sink for Keeping {
    fn put(&self, answer: Answer) {
        if let Some(Ok(response)) = &answer.response
            && let Some(version) = self.version.upgrade()
        {
            version.keep(&self.miss, response);
        }
        self.sink.put(answer);
    }
}

impl ModelVersion {
    /// As [`call`](Self::call), for a checked request to a model that has the response cache.
    pub(crate) fn call_cached(
        &self,
        cached: &Cached,
        mut request: Box<InferRequest>,
        checked: Checked,
        accepted: u64,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let Some(key) = cached.key(&request, &checked) else {
            return self.admit(request, checked, accepted, sink, caller);
        };
        let asked = Asked::new(checked.outputs.iter().map(|o| o.0));
        let found = cached.cache.lookup(&key, &asked, &mut || Box::new(|_| ()));
        let end = now_ns();
        let entry = match found {
            Lookup::Hit(entry) => entry,
            // A cache that answers later runs the model meanwhile: none of today's does.
            Lookup::Miss | Lookup::Later => {
                let miss = Miss { key, asked, lookup_ns: end.saturating_sub(accepted) };
                return self.admit_missed(miss, request, checked, accepted, sink, caller);
            }
        };
        let response = Box::new(self.response_of(&entry, &mut request, &checked));
        self.statistics.hit(accepted, end);
        let Some(line) = &self.line else { return Ok(Started::Answered(Ok(response))) };
        self.answer_in_line(line, response, sink(), caller)
    }

    /// Lets a request run whose answer will be kept.
    fn admit_missed(
        &self,
        miss: Miss,
        request: Box<InferRequest>,
        checked: Checked,
        accepted: u64,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let mut miss = Some(miss);
        let keeping = || {
            let sink = sink();
            match miss.take() {
                Some(miss) => Arc::new(Keeping { version: self.me.clone(), miss, sink }) as Arc<dyn Sink>,
                None => sink,
            }
        };
        let started = self.admit(request, checked, accepted, keeping, caller);
        // It ran at once, and nobody was asked to take the answer.
        if let (Ok(Started::Answered(Ok(response))), Some(miss)) = (&started, &miss) {
            self.keep(miss, response);
        }
        started
    }

    /// Keeps an answer, and counts the miss before anybody sees it.
    fn keep(&self, miss: &Miss, response: &InferResponse) {
        let Some(cached) = &self.cached else { return };
        let start = now_ns();
        let output = |o: &OutputTensor| {
            let Data::Bytes(data) = &o.data else { return None };
            Some(Output { index: o.index, datatype: o.datatype, shape: o.shape.clone(), data: data.clone() })
        };
        if let Some(outputs) = response.outputs.iter().map(output).collect::<Option<SmallVec<[Output; 2]>>>() {
            match cached.cache.insert(&miss.key, &miss.asked, &outputs) {
                Insertion::Stored => (),
                Insertion::Present => return,
                Insertion::Refused(why) => {
                    log::debug!("an answer of model '{}' is not cached: {why}", response.model_name)
                }
            }
        }
        let end = now_ns();
        self.statistics.missed(miss.lookup_ns + end.saturating_sub(start), end);
    }

    /// The answer to a request, of an entry that has all it asks for. Response parameters are not kept, as in Triton.
    fn response_of(&self, entry: &Entry, request: &mut InferRequest, checked: &Checked) -> InferResponse {
        let output = |&(index, asked): &(u16, Option<u16>)| {
            let kept = entry.outputs().iter().find(|o| o.index == index)?;
            let form = asked.and_then(|at| request.outputs.get(usize::from(at))).map(|o| o.form);
            Some(OutputTensor {
                name: self.signature.outputs.get(usize::from(index))?.name.clone(),
                index,
                datatype: kept.datatype,
                shape: kept.shape.clone(),
                data: Data::Bytes(kept.data.clone()),
                form: form.unwrap_or(request.default_form),
            })
        };
        InferResponse {
            model_name: self.signature.model.clone(),
            model_version: self.signature.version.clone(),
            outputs: checked.outputs.iter().filter_map(output).collect(),
            id: std::mem::take(&mut request.id),
            parameters: Vec::new(),
        }
    }

    /// Hands out an answer that is there already behind those of requests that came before.
    fn answer_in_line(
        &self,
        line: &Line,
        response: Box<InferResponse>,
        sink: Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let ticket = TicketState::new(self.me.clone(), caller.parent.map(|p| &p.state))?;
        ticket.settle();
        self.joined(1);
        // As `admit` takes places: one that is taken back is the newest.
        let place = {
            let _run = self.run.lock();
            line.place()
        };
        self.deliver(place, Delivery { sink, answer: Answer::only(Ok(response)) });
        Ok(Started::Queued(Ticket { state: ticket }))
    }
}

impl Cached {
    /// The key of a request; `None` when it is not to be looked up.
    fn key(&self, request: &InferRequest, checked: &Checked) -> Option<Key> {
        if request.outputs.iter().any(|o| o.region.is_some()) {
            return None;
        }
        let mut bytes = 0usize;
        let mut inputs: SmallVec<[cache::Input<'_>; 4]> = SmallVec::new();
        debug_assert_eq!(checked.inputs.len(), request.inputs.len());
        for input in &request.inputs {
            let data = input.data.host()?;
            bytes = bytes.saturating_add(data.len());
            inputs.push(cache::Input {
                name: input.name.as_bytes(),
                datatype: input.datatype?,
                shape: &input.shape,
                data,
            });
        }
        (bytes <= CACHE_KEY_BYTES_MAX).then(|| self.scope.key(inputs.into_iter()))
    }
}
