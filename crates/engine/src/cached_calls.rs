//! Lookups in the response cache before a request is queued or run, and insertion of its response (S-37, S-44).
//!
//! A request that uses shared memory is not looked up: its contents may change after they were hashed, so a client
//! could store a wrong response for another one's request; and a response in a client's region cannot be kept. It runs
//! as if there were no cache, and counts as neither hit nor miss.
//!
//! A request waits for its lookup (`lookup`) if the cache asks another process, or if making the key takes long.

use crate::answer::{EngineResponse, Sink};
use crate::cached::{Cached, Keyed, LookupKey, Miss, Scoped, key, output_set};
use crate::call::{Caller, Started};
use crate::ensemble::Ensemble;
use crate::limits::CACHE_KEY_BYTES_MAX;
use crate::lookup::PendingLookup;
use crate::ticket::{Ticket, TicketState};
use crate::traced;
use crate::version::{ModelVersion, Work};
use backend::now_ns;
use cache::{CachedOutput, Entry, Insertion, Lookup};
use protocol::{Checked, InferRequest, InferResponse, OutputTensor};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tensor::{Data, Error, Result};

/// Stores a response on its way to the client.
struct InsertSink {
    version: Weak<ModelVersion>,
    miss: Miss,
    sink: Arc<dyn Sink>,
}

impl Sink for InsertSink {
    fn put(&self, answer: EngineResponse) {
        if let Some(Ok(response)) = &answer.response
            && let Some(version) = self.version.upgrade()
        {
            version.keep(&self.miss, response);
        }
        self.sink.put(answer);
    }
}

impl ModelVersion {
    /// Like [`call`](Self::call), for a checked request to a model with a response cache.
    pub(crate) fn call_cached(
        &self,
        cached: &Cached,
        request: Box<InferRequest>,
        checked: Checked,
        accepted: u64,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let key = match self.key(cached, &request, &checked, CACHE_KEY_BYTES_MAX) {
            Keyed::Never => return self.admit(request, checked, accepted, None, sink, caller),
            Keyed::Offload => {
                let looking = PendingLookup::new(self, request, checked, accepted, sink, caller)?;
                let (ticket, waiting) = (looking.ticket(), looking.waiting());
                self.shared.pool.submit(Work::of(|| waiting.run()));
                return Ok(Started::Queued(ticket));
            }
            Keyed::By(key) => key,
        };
        let outputs = output_set(&checked);
        // Taken if the cache responds later.
        let mut parts = Some((request, checked, sink));
        let mut waiting = None;
        let found = cached.cache.lookup(&key.digest, &outputs, &mut || {
            let looking = parts.take().map(|(r, c, sink)| PendingLookup::new(self, r, c, accepted, sink, caller));
            match looking {
                Some(Ok(mut looking)) => {
                    waiting = Some(Ok(looking.ticket()));
                    looking.set_key(key, outputs.clone());
                    looking.receiver()
                }
                refused => {
                    waiting = refused.map(|r| r.map(|l| l.ticket()));
                    Box::new(|_| ())
                }
            }
        });
        if let Some(waiting) = waiting {
            return waiting.map(Started::Queued);
        }
        let Some((mut request, checked, sink)) = parts else { return Err(self.defect()) };
        let end = now_ns();
        let entry = match found {
            Lookup::Hit(entry) if self.is_own(&entry) => entry,
            _ => {
                let miss = Miss { key, outputs, lookup_ns: end.saturating_sub(accepted) };
                return self.admit_missed(miss, request, checked, (accepted, None), sink, caller);
            }
        };
        let answer = self.hit(&entry, &mut request, &checked, (accepted, end));
        if self.scheduling.line.is_none() {
            return Ok(Started::Answered(answer));
        }
        self.answer_in_line(answer, sink(), caller)
    }

    /// The key of a request at this time, if it may have one and its inputs have at most `bytes_max` bytes.
    pub(crate) fn key(&self, cached: &Cached, request: &InferRequest, checked: &Checked, bytes_max: usize) -> Keyed {
        let has_parameters = !request.parameters.is_empty();
        match self.graph() {
            // The key has the inputs only, and a text model reads parameters, too.
            None if has_parameters && self.scheduling.texts.is_some() => Keyed::Never,
            None => key((&cached.scope, 0), request, checked, bytes_max),
            // The response of a step in a sequence also depends on earlier requests.
            Some(_) if request.sequence.id.is_some() => Keyed::Never,
            Some(ensemble) => match self.scope_of_models(cached, ensemble) {
                Some(scoped) if has_parameters && scoped.reads_parameters => Keyed::Never,
                Some(scoped) => key((&scoped.scope, scoped.epoch), request, checked, bytes_max),
                None => Keyed::Never,
            },
        }
    }

    /// The scope of an ensemble changes when one of the models that make its responses is loaded or unloaded, so
    /// responses of former models are not used. `None` if one of them does not serve.
    fn scope_of_models(&self, cached: &Cached, ensemble: &Ensemble) -> Option<Arc<Scoped>> {
        let known = cached.of_models.load_full();
        let table = ensemble.table()?;
        if let Some(known) = &known
            && known.epoch == table.epoch
        {
            return Some(known.clone());
        }
        let (made_by, reads_parameters) = ensemble.made_by(&table)?;
        let (scope, load) = match &known {
            Some(known) if known.made_by == made_by => (known.scope.clone(), known.load),
            _ => {
                let load = self.shared.loads.fetch_add(1, Ordering::Relaxed);
                (cached.scope_with(&self.signature.model, (self.identity.number, load), &made_by)?, load)
            }
        };
        let scoped = Arc::new(Scoped { scope, made_by, reads_parameters, epoch: table.epoch, load });
        let before = cached.of_models.swap(Some(scoped.clone()));
        if let Some(before) = before.filter(|before| before.load != load) {
            cached.forget(before.scope.clone());
        }
        Some(scoped)
    }

    /// True if an entry can be a response of this model: an external store may contain anything.
    pub(crate) fn is_own(&self, entry: &Entry) -> bool {
        entry
            .outputs()
            .iter()
            .all(|o| self.signature.outputs.get(usize::from(o.index)).is_some_and(|spec| spec.datatype == o.datatype))
    }

    /// Runs or queues a request whose response will be stored.
    pub(crate) fn admit_missed(
        &self,
        miss: Miss,
        request: Box<InferRequest>,
        checked: Checked,
        (accepted, place): (u64, Option<u64>),
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let mut miss = Some(miss);
        let keeping = || {
            let sink = sink();
            match miss.take() {
                Some(miss) => Arc::new(InsertSink { version: self.me.clone(), miss, sink }) as Arc<dyn Sink>,
                None => sink,
            }
        };
        let started = self.admit(request, checked, accepted, place, keeping, caller);
        // It ran at once, and the sink was not used.
        if let (Ok(Started::Answered(Ok(response))), Some(miss)) = (&started, &miss) {
            self.keep(miss, response);
        }
        started
    }

    /// Stores a response, and counts the miss before the client sees it.
    fn keep(&self, miss: &Miss, response: &InferResponse) {
        let Some(cached) = &self.cached else { return };
        let start = now_ns();
        let output = |o: &OutputTensor| {
            let data = match &o.data {
                Data::Bytes(data) => data.clone(),
                // Clients can write there.
                Data::Region(region) if region.is_shared() => return None,
                // On a device, on its way to the next step of an ensemble. If the device failed, that step reports it.
                Data::Region(_) => o.data.to_bytes().ok()?,
            };
            Some(CachedOutput { index: o.index, datatype: o.datatype, shape: o.shape.clone(), data })
        };
        let outputs = response.outputs.iter().map(output).collect::<Option<SmallVec<[CachedOutput; 2]>>>();
        if let Some(outputs) = outputs.filter(|_| self.is_made_by(&miss.key)) {
            // In Triton an output without bytes has no buffer, and its response is not stored.
            let inserted = match outputs.iter().any(|output| output.data.is_empty()) {
                true => Insertion::Refused(Error::internal("Response buffer from output was nullptr")),
                false => cached.cache.insert(&miss.key.digest, &miss.outputs, &outputs),
            };
            match inserted {
                Insertion::Stored => (),
                Insertion::Present => return,
                Insertion::Refused(why) => cached.log_failure(&miss.key.digest, &why, &response.model_name),
            }
        }
        let end = now_ns();
        self.statistics.missed(miss.lookup_ns + end.saturating_sub(start), end);
    }

    /// True if the response was made by the models of its key. An ensemble finds its models when it begins, and nested
    /// ones later, so a model may have been reloaded since. A shared cache would pass the response to other servers.
    fn is_made_by(&self, key: &LookupKey) -> bool {
        let Some(ensemble) = self.graph() else { return true };
        ensemble.table().is_some_and(|table| table.epoch == key.epoch)
    }

    /// Responds with an entry. The pair of times is when the request was accepted and when the response was found.
    pub(crate) fn hit(
        &self,
        entry: &Entry,
        request: &mut InferRequest,
        checked: &Checked,
        (accepted, now): (u64, u64),
    ) -> Result<Box<InferResponse>> {
        let answer = Ok(Box::new(self.response_of(entry, request, checked)));
        self.statistics.hit(accepted, now);
        if let Some(trace) = request.trace.take() {
            traced::answered(&trace, &answer, now);
        }
        answer
    }

    /// The response from an entry with all requested outputs. Response parameters are not stored, as in Triton.
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

    /// Delivers a cached response behind those of earlier requests.
    fn answer_in_line(
        &self,
        answer: Result<Box<InferResponse>>,
        sink: Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let ticket = TicketState::new(Some(self.me.clone()), caller.parent.map(|p| &p.state))?;
        ticket.settle();
        self.joined(1);
        let place = self.place_in_line().unwrap_or(0);
        self.deliver(sink, EngineResponse::only(answer).at(place));
        Ok(Started::Queued(Ticket::new(ticket)))
    }

    /// A response position for a request that did not reach [`admit`](Self::admit). `None` if order is not kept.
    pub(crate) fn place_in_line(&self) -> Option<u64> {
        let line = self.scheduling.line.as_ref()?;
        // Under the lock, as in `admit`, so that a position that is withdrawn is the newest.
        let _run = self.serving.dispatch.lock();
        Some(line.place())
    }
}
