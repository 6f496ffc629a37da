//! Records of past inferences, without their data: the slowest of the last minutes, and the last that failed.
//!
//! A request pays one comparison: most are faster than the slowest ones that are kept. Each minute keeps a few of its
//! own slowest, so that a quiet minute can be explained after a bad one. Failures of one kind displace one another
//! first, so that a flood of one kind leaves the others.

use super::facts::{Facts, RequestName, kept_id};
use super::line::{RequestLine, fault_code};
use crate::limits::{
    WHY_BEGUN_EARLY_PER_MINUTE, WHY_FAILED_MAX, WHY_LISTED_MAX, WHY_MINUTE_MIN, WHY_MINUTES, WHY_SLOWEST_MAX,
};
use crate::origin::Caller;
use backend::now_ns;
use parking_lot::Mutex;
use std::cmp::{Ordering as Order, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MINUTE_NS: u64 = 60_000_000_000;

/// Records of past inferences of a server.
#[derive(Debug, Default)]
pub struct Kept {
    /// Requests that take at least this long, in ns, are kept; until `minute_ends`, when it has to be found again.
    threshold: AtomicU64,
    minute_ends: AtomicU64,
    /// Requests of this minute whose record still begins with their head, so that it has all phases.
    early: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The slowest requests, by the minute in which they ended, oldest first.
    minutes: VecDeque<(u64, BinaryHeap<Reverse<Arc<KeptRequest>>>)>,
    /// Number of requests in `minutes`.
    slowest: usize,
    /// Failed requests by the name of their code, oldest first. There are about seventeen codes.
    failed: Vec<(&'static str, VecDeque<Arc<KeptRequest>>)>,
    /// Number of requests in `failed`.
    failures: usize,
}

/// A request that ended. Its line is written when somebody asks.
pub struct KeptRequest {
    total_ns: u64,
    ended: u64,
    /// Cause of the batch, or the name of the error's code.
    cause: &'static str,
    name: RequestName,
    caller: Caller,
    facts: Facts,
}

impl KeptRequest {
    fn line(&self) -> RequestLine<'_> {
        RequestLine::of(&self.name, self.caller, &self.facts)
    }

    /// Whether the request was for this model; true for an empty name.
    fn is_of(&self, model: &str) -> bool {
        model.is_empty() || self.line().model() == model.as_bytes()
    }

    fn is_covered(&self, covers: &impl Fn(&str) -> bool) -> bool {
        covers(&String::from_utf8_lossy(self.line().model()))
    }
}

impl fmt::Debug for KeptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRequest").field("total_ns", &self.total_ns).field("cause", &self.cause).finish()
    }
}

impl PartialEq for KeptRequest {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeptRequest {}

impl PartialOrd for KeptRequest {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for KeptRequest {
    fn cmp(&self, other: &Self) -> Order {
        (self.total_ns, self.ended).cmp(&(other.total_ns, other.ended))
    }
}

impl Kept {
    /// Whether the record of a request whose head was read now begins at once, though nothing asks for it.
    #[inline]
    pub fn begins_early(&self, now: u64) -> bool {
        (self.early.load(Ordering::Relaxed) > 0 || now >= self.minute_ends.load(Ordering::Relaxed))
            && self.take_early(now)
    }

    #[cold]
    fn take_early(&self, now: u64) -> bool {
        if now >= self.minute_ends.load(Ordering::Relaxed) {
            self.state.lock().turn(self, now);
        }
        self.early.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether a request that took `total_ns` until now belongs to the slowest.
    #[inline]
    pub fn wants(&self, total_ns: u64, now: u64) -> bool {
        total_ns >= self.threshold.load(Ordering::Relaxed) || now >= self.minute_ends.load(Ordering::Relaxed)
    }

    /// Whether an inference that ended is kept: it failed, or is one of the slowest.
    #[inline]
    pub(super) fn takes(&self, facts: &Facts) -> bool {
        let ended = facts.ended();
        facts.is_failed() || self.wants(ended.saturating_sub(facts.times.begun), ended)
    }

    /// Keeps an inference that it [`takes`](Self::takes).
    pub(super) fn keep(&self, name: RequestName, caller: Caller, facts: Facts) {
        let ended = facts.ended();
        let is_failed = facts.is_failed();
        let cause = match facts.measured.as_ref() {
            _ if is_failed => fault_code(&facts),
            Some(measured) => measured.phases().cause.get().copied().unwrap_or("no_batch"),
            None => "no_batch",
        };
        let total_ns = ended.saturating_sub(facts.times.begun);
        let (name, facts) = (name.kept(), facts.kept());
        let request = Arc::new(KeptRequest { total_ns, ended, cause, name, caller, facts });
        let mut state = self.state.lock();
        if is_failed {
            state.keep_failed(request);
        } else {
            state.turn(self, ended);
            state.keep_slow(request);
            self.threshold.store(state.threshold(), Ordering::Relaxed);
        }
    }

    /// The records of the request with this id, of a model or of any if it is empty, that a caller may see, newest
    /// first; at most [`WHY_LISTED_MAX`].
    pub fn of_id(&self, id: &[u8], model: &str, covers: impl Fn(&str) -> bool) -> Vec<String> {
        let id = kept_id(id);
        let mut state = self.state.lock();
        state.expire(now_ns() / MINUTE_NS);
        let all: Vec<_> = state.all().cloned().collect();
        // Requests that end wait for the lock.
        drop(state);
        let is_it = |one: &KeptRequest| one.line().id() == id && one.is_of(model) && one.is_covered(&covers);
        let mut found: Vec<_> = all.into_iter().filter(|one| is_it(one)).collect();
        found.sort_by_key(|one| Reverse(one.ended));
        found.iter().take(WHY_LISTED_MAX).map(|one| record(one, &covers)).collect()
    }

    /// All kept requests of a model, or of all models if it is empty, that a caller may see, by cause, as JSON.
    pub fn listed(&self, model: &str, covers: impl Fn(&str) -> bool) -> String {
        let now = now_ns();
        let is_seen = |one: &KeptRequest| one.is_of(model) && one.is_covered(&covers);
        let mut state = self.state.lock();
        state.expire(now / MINUTE_NS);
        let (slowest, failed): (Vec<_>, Vec<_>) = (state.slow().cloned().collect(), state.failed().cloned().collect());
        drop(state);
        let seen = |all: Vec<Arc<KeptRequest>>| all.into_iter().filter(|one| is_seen(one)).collect::<Vec<_>>();
        let (mut slowest, mut failed) = (seen(slowest), seen(failed));
        slowest.sort_by(|a, b| b.cmp(a));
        failed.sort_by_key(|one| Reverse(one.ended));
        let mut out = format!(r#"{{"minutes":{WHY_MINUTES}"#);
        for (list, by, requests) in [("slowest", "cause", &slowest), ("failed", "code", &failed)] {
            out += &format!(r#","{list}":["#);
            for (at, (cause, group)) in grouped(requests).into_iter().enumerate() {
                let records: Vec<_> = group.iter().take(WHY_LISTED_MAX).map(|one| record(one, &covers)).collect();
                let comma = if at > 0 { "," } else { "" };
                out += &format!(
                    r#"{comma}{{"{by}":"{cause}","count":{},"requests":[{}]}}"#,
                    group.len(),
                    records.join(",")
                );
            }
            out.push(']');
        }
        out.push('}');
        out
    }

    /// Number of requests that are kept: slow ones, and failed ones.
    pub fn counts(&self) -> [usize; 2] {
        let state = self.state.lock();
        [state.slowest, state.failures]
    }
}

/// A whole record, as a caller may see it.
fn record(request: &KeptRequest, covers: &impl Fn(&str) -> bool) -> String {
    request.line().explained(true, covers)
}

/// Groups of requests with one cause, the largest first; the order in a group stays.
fn grouped(requests: &[Arc<KeptRequest>]) -> Vec<(&'static str, Vec<&Arc<KeptRequest>>)> {
    let mut groups: Vec<(&'static str, Vec<&Arc<KeptRequest>>)> = Vec::new();
    for one in requests {
        match groups.iter_mut().find(|(cause, _)| *cause == one.cause) {
            Some((_, group)) => group.push(one),
            None => groups.push((one.cause, vec![one])),
        }
    }
    groups.sort_by_key(|(_, group)| Reverse(group.len()));
    groups
}

impl State {
    fn slow(&self) -> impl Iterator<Item = &Arc<KeptRequest>> {
        self.minutes.iter().flat_map(|(_, all)| all.iter().map(|Reverse(one)| one))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<KeptRequest>> {
        self.slow().chain(self.failed())
    }

    fn failed(&self) -> impl Iterator<Item = &Arc<KeptRequest>> {
        self.failed.iter().flat_map(|(_, all)| all)
    }

    /// Begins the minute of `now`, unless it was begun.
    fn turn(&mut self, kept: &Kept, now: u64) {
        let minute = now / MINUTE_NS;
        if self.minutes.back().is_some_and(|(last, _)| *last >= minute) {
            return;
        }
        self.minutes.push_back((minute, BinaryHeap::new()));
        self.expire(minute);
        kept.early.store(WHY_BEGUN_EARLY_PER_MINUTE, Ordering::Relaxed);
        kept.threshold.store(self.threshold(), Ordering::Relaxed);
        kept.minute_ends.store((minute + 1) * MINUTE_NS, Ordering::Relaxed);
    }

    fn expire(&mut self, minute: u64) {
        while let Some((first, all)) = self.minutes.front()
            && minute.saturating_sub(*first) > WHY_MINUTES
        {
            self.slowest -= all.len();
            self.minutes.pop_front();
        }
    }

    fn keep_slow(&mut self, request: Arc<KeptRequest>) {
        // The newest minute counts for a request of the one before as well, which no other thread turned.
        let Some((_, all)) = self.minutes.back_mut() else { return };
        all.push(Reverse(request));
        self.slowest += 1;
        while self.slowest > WHY_SLOWEST_MAX
            && let Some((_, all)) = self.fullest_least().and_then(|at| self.minutes.get_mut(at))
        {
            all.pop();
            self.slowest -= 1;
        }
    }

    /// The minute whose fastest request is the fastest of all that may be displaced.
    fn fullest_least(&self) -> Option<usize> {
        let may_lose = self.minutes.iter().enumerate().filter(|(_, (_, all))| all.len() > WHY_MINUTE_MIN);
        may_lose.filter_map(|(at, (_, all))| Some((all.peek()?.0.total_ns, at))).min().map(|(_, at)| at)
    }

    /// Time from which on a request of the newest minute is kept.
    fn threshold(&self) -> u64 {
        if self.slowest < WHY_SLOWEST_MAX || self.minutes.back().is_none_or(|(_, all)| all.len() < WHY_MINUTE_MIN) {
            return 0;
        }
        let all = self.fullest_least().and_then(|at| self.minutes.get(at));
        all.and_then(|(_, all)| Some(all.peek()?.0.total_ns + 1)).unwrap_or(0)
    }

    fn keep_failed(&mut self, request: Arc<KeptRequest>) {
        match self.failed.iter_mut().find(|(code, _)| *code == request.cause) {
            Some((_, all)) => all.push_back(request),
            None => self.failed.push((request.cause, VecDeque::from([request]))),
        }
        self.failures += 1;
        if self.failures > WHY_FAILED_MAX
            && let Some((_, most)) = self.failed.iter_mut().max_by_key(|(_, all)| all.len())
        {
            most.pop_front();
            self.failures -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Face, Origin};
    use crate::record::facts::{SentStatus, Target};
    use tensor::Name;

    fn request(total_ns: u64, ended: u64, cause: &'static str) -> Arc<KeptRequest> {
        let mut facts = Facts { id: format!("{total_ns}").into(), ..Facts::default() };
        (facts.target, facts.status) = (Target::Named("m".into(), Name::new()), SentStatus::Grpc(0));
        let caller = Caller { face: Face::Control, origin: Origin::Unix, peer: None };
        Arc::new(KeptRequest { total_ns, ended, cause, name: RequestName::InStream, caller, facts })
    }

    fn keep(kept: &Kept, total_ns: u64, now: u64) {
        if kept.wants(total_ns, now) {
            let mut state = kept.state.lock();
            state.turn(kept, now);
            state.keep_slow(request(total_ns, now, "full"));
            kept.threshold.store(state.threshold(), Ordering::Relaxed);
        }
    }

    #[test]
    fn the_slowest_are_kept_and_each_minute_keeps_some_of_its_own() {
        let kept = Kept::default();
        for n in 0..5000 {
            keep(&kept, 1_000_000 + n * 7 % 5000, 1);
        }
        assert_eq!(kept.counts(), [WHY_SLOWEST_MAX, 0]);
        let least = |kept: &Kept| kept.state.lock().all().map(|one| one.total_ns).min().unwrap();
        assert_eq!(least(&kept), 1_004_000);
        assert!(!kept.wants(1_003_999, 2));
        // A quiet minute after it has less slow ones, of which some are kept.
        for n in 0..500 {
            keep(&kept, 1000 + n, MINUTE_NS + n);
        }
        let state = kept.state.lock();
        let of_minute = |at: usize| state.minutes[at].1.iter().map(|Reverse(one)| one.total_ns).collect::<Vec<_>>();
        let mut quiet = of_minute(1);
        quiet.sort_unstable();
        assert_eq!(quiet.len(), WHY_MINUTE_MIN);
        assert_eq!(of_minute(0).len(), WHY_SLOWEST_MAX - WHY_MINUTE_MIN);
        drop(state);
        assert!(!kept.wants(1_004_000, MINUTE_NS + 9) && kept.wants(1_005_000, MINUTE_NS + 9));
        // After 15 whole minutes those of the first are gone.
        keep(&kept, 1, (WHY_MINUTES + 1) * MINUTE_NS);
        assert_eq!(kept.counts(), [WHY_MINUTE_MIN + 1, 0]);
        assert!(kept.of_id(b"1", "", |_| true)[0].contains(r#""model":"m","id":"1","grpc_status":0"#));
        assert_eq!(kept.of_id(b"1", "", |model| model != "m"), [""; 0]);
    }

    #[test]
    fn a_flood_of_one_failure_displaces_its_own_kind() {
        let kept = Kept::default();
        let mut state = kept.state.lock();
        (0..10).for_each(|n| state.keep_failed(request(n, n, "UNAVAILABLE")));
        (0..5000).for_each(|n| state.keep_failed(request(n, n, "INVALID_ARGUMENT")));
        let of = |state: &State, code: &str| state.failed().filter(|one| one.cause == code).count();
        assert_eq!([of(&state, "UNAVAILABLE"), of(&state, "INVALID_ARGUMENT")], [10, WHY_FAILED_MAX - 10]);
        assert_eq!(state.failed().last().unwrap().total_ns, 4999);
        // Floods of two kinds share the room.
        (0..5000).for_each(|n| state.keep_failed(request(n, n, ["NOT_FOUND", "INVALID_ARGUMENT"][n as usize % 2])));
        assert_eq!(of(&state, "UNAVAILABLE"), 10);
        assert!(of(&state, "NOT_FOUND").abs_diff(of(&state, "INVALID_ARGUMENT")) <= 1);
        assert_eq!((state.failures, state.failed().count()), (WHY_FAILED_MAX, WHY_FAILED_MAX));
    }

    #[test]
    fn a_few_requests_of_each_minute_are_recorded_from_their_head_on() {
        let kept = Kept::default();
        let early = |now| (0..1000).filter(|_| kept.begins_early(now)).count() as u32;
        assert_eq!([early(5), early(6), early(MINUTE_NS)], [WHY_BEGUN_EARLY_PER_MINUTE, 0, WHY_BEGUN_EARLY_PER_MINUTE]);
    }

    #[test]
    fn causes_are_listed_by_their_number() {
        let kept = Kept::default();
        let now = now_ns();
        let mut state = kept.state.lock();
        state.turn(&kept, now);
        for (total, cause) in [(3, "full"), (5, "instance_freed"), (4, "instance_freed")] {
            state.keep_slow(request(total, now, cause));
        }
        state.keep_failed(request(9, now, "NOT_FOUND"));
        drop(state);
        let listed = kept.listed("", |_| true);
        let value = protocol::json::Value::parse(listed.as_bytes()).unwrap();
        let groups = |list: &str, by: &str| -> Vec<_> {
            let group = |one: protocol::json::Value<'_>| {
                let ids = one
                    .get("requests")
                    .unwrap()
                    .elements()
                    .unwrap()
                    .map(|request| request.get("id").unwrap().as_string().unwrap());
                (one.get(by).unwrap().as_string().unwrap(), ids.collect::<Vec<_>>())
            };
            value.get(list).unwrap().elements().unwrap().map(group).collect()
        };
        let expected = |name: &str, ids: &[&str]| (name.to_owned(), ids.iter().map(|&id| id.to_owned()).collect());
        assert_eq!(groups("slowest", "cause"), [expected("instance_freed", &["5", "4"]), expected("full", &["3"])]);
        assert_eq!(groups("failed", "code"), [expected("NOT_FOUND", &["9"])]);
        assert_eq!(kept.listed("other", |_| true), r#"{"minutes":15,"slowest":[],"failed":[]}"#);
    }
}
