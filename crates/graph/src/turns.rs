//! Requests of one sequence call each step that keeps its state in the order in which they began, whichever threads
//! drive them.

use protocol::CorrelationId;
use std::collections::{HashMap, VecDeque};

/// The requests of each sequence, in the order in which they began, and their calls that have to wait. Shared by all
/// requests of one ensemble: the engine keeps it under a lock. `T` is a call of a step.
///
/// Invariant: a call waits only behind a request that began earlier and has not left the step; each request leaves all
/// its steps once.
#[derive(Debug)]
pub struct Turns<T> {
    steps: usize,
    /// By sequence and step: the requests that have not left the step, in the order in which they began.
    lines: HashMap<CorrelationId, Vec<VecDeque<SequenceCalls<T>>>>,
    begun: u64,
    waiting: usize,
}

/// A request that has not left a step.
#[derive(Debug)]
struct SequenceCalls<T> {
    number: u64,
    /// Calls that wait. There may be several, as a step behind a decoupled one is called once for each of that one's
    /// answers.
    calls: Vec<T>,
}

impl<T> Turns<T> {
    /// Starts without requests, for an ensemble with this many steps.
    pub fn new(steps: usize) -> Self {
        Self { steps, lines: HashMap::new(), begun: 0, waiting: 0 }
    }

    /// Adds a request of a sequence, which will call the steps `in_turn` in order. Returns the number of the request
    /// for the other functions.
    pub fn join(&mut self, id: &CorrelationId, in_turn: &[usize]) -> u64 {
        self.begun += 1;
        let number = self.begun;
        let steps = self.steps;
        let lines = self.lines.entry(id.clone()).or_insert_with(|| (0..steps).map(|_| VecDeque::new()).collect());
        for &step in in_turn {
            if let Some(line) = lines.get_mut(step) {
                line.push_back(SequenceCalls { number, calls: Vec::new() });
            }
        }
        number
    }

    /// Returns the call of a step if it may be made now; otherwise queues it.
    pub fn enter(&mut self, id: &CorrelationId, number: u64, step: usize, call: T) -> Option<T> {
        let Some(line) = self.lines.get_mut(id).and_then(|lines| lines.get_mut(step)) else { return Some(call) };
        let Ok(at) = line.binary_search_by_key(&number, |entry| entry.number) else { return Some(call) };
        match line.get_mut(at) {
            Some(entry) if at > 0 => {
                entry.calls.push(call);
                self.waiting += 1;
                None
            }
            _ => Some(call),
        }
    }

    /// Ends the calls of a step by a request. Returns the waiting calls of the next request, which may be made now.
    pub fn leave(&mut self, id: &CorrelationId, number: u64, step: usize) -> Vec<T> {
        let Some(lines) = self.lines.get_mut(id) else { return Vec::new() };
        let next = lines.get_mut(step).map(|line| leave(line, number)).unwrap_or_default();
        self.waiting -= next.len();
        if lines.iter().all(VecDeque::is_empty) {
            self.lines.remove(id);
        }
        next
    }

    /// Removes a request without waiting calls. Returns the calls of other requests that may be made now.
    pub fn end(&mut self, id: &CorrelationId, number: u64) -> Vec<T> {
        (0..self.steps).flat_map(|step| self.leave(id, number, step)).collect()
    }

    /// Removes the waiting calls of a request. The request keeps its turns.
    pub fn withdraw_of(&mut self, id: &CorrelationId, number: u64) -> Vec<T> {
        let mut out = Vec::new();
        for line in self.lines.get_mut(id).into_iter().flatten() {
            let at = line.binary_search_by_key(&number, |entry| entry.number);
            if let Some(entry) = at.ok().and_then(|at| line.get_mut(at)) {
                out.append(&mut entry.calls);
            }
        }
        self.waiting -= out.len();
        out
    }

    /// Removes the waiting calls, of any request, for which `whose` is true.
    pub fn withdraw(&mut self, mut whose: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        if self.waiting > 0 {
            for entry in self.lines.values_mut().flatten().flatten() {
                out.extend(entry.calls.extract_if(.., |call| whose(call)));
            }
            self.waiting -= out.len();
        }
        out
    }

    /// Number of waiting calls.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Removes a request from the line of a step. Returns the waiting calls of the first request, if it changed.
fn leave<T>(line: &mut VecDeque<SequenceCalls<T>>, number: u64) -> Vec<T> {
    let Ok(at) = line.binary_search_by_key(&number, |entry| entry.number) else { return Vec::new() };
    line.remove(at);
    match line.front_mut() {
        Some(next) if at == 0 => std::mem::take(&mut next.calls),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CorrelationId = CorrelationId::Number(7);
    const OTHER: CorrelationId = CorrelationId::Number(8);
    const STEPS: [usize; 2] = [0, 1];

    #[test]
    fn a_call_waits_for_those_of_requests_that_began_earlier() {
        let mut turns = Turns::new(2);
        let [a, b, c] = [(); 3].map(|()| turns.join(&ID, &STEPS));
        assert_eq!(turns.enter(&ID, c, 0, "c"), None);
        assert_eq!(turns.enter(&ID, b, 0, "b"), None);
        assert_eq!(turns.waiting(), 2);
        assert_eq!(turns.enter(&ID, a, 0, "a"), Some("a"));
        assert_eq!(turns.leave(&ID, a, 0), ["b"]);
        assert_eq!(turns.enter(&ID, b, 1, "b1"), None, "a has not called step 1 yet");
        assert_eq!(turns.leave(&ID, b, 0), ["c"]);
        assert!(turns.leave(&ID, c, 0).is_empty());
        assert_eq!(turns.end(&ID, a), ["b1"], "it will not call it any more");
        assert!(turns.end(&ID, b).is_empty() && turns.end(&ID, c).is_empty());
        assert!(turns.is_empty() && turns.waiting() == 0);
    }

    #[test]
    fn a_step_that_keeps_no_state_is_called_at_once() {
        let mut turns = Turns::new(2);
        let (a, b) = (turns.join(&ID, &[1]), turns.join(&ID, &[1]));
        assert_eq!(turns.enter(&ID, b, 0, "b0"), Some("b0"));
        assert_eq!(turns.enter(&ID, b, 1, "b1"), None);
        assert_eq!(turns.end(&ID, a), ["b1"]);
    }

    #[test]
    fn sequences_do_not_wait_for_each_other() {
        let mut turns = Turns::new(2);
        let (a, b) = (turns.join(&ID, &STEPS), turns.join(&OTHER, &STEPS));
        assert_eq!(turns.enter(&OTHER, b, 0, "b"), Some("b"));
        assert_eq!(turns.enter(&ID, a, 0, "a"), Some("a"));
    }

    #[test]
    fn a_step_that_is_called_for_each_answer_keeps_its_turn_until_the_request_ends() {
        let mut turns = Turns::new(2);
        let (a, b) = (turns.join(&ID, &STEPS), turns.join(&ID, &STEPS));
        assert_eq!([turns.enter(&ID, b, 0, "b1"), turns.enter(&ID, b, 0, "b2")], [None, None]);
        assert_eq!([turns.enter(&ID, a, 0, "a1"), turns.enter(&ID, a, 0, "a2")], [Some("a1"), Some("a2")]);
        assert_eq!(turns.end(&ID, a), ["b1", "b2"]);
        assert_eq!(turns.enter(&ID, b, 0, "b3"), Some("b3"));
    }

    #[test]
    fn withdrawn_calls_are_not_made_and_delay_later_requests_until_they_end() {
        let mut turns = Turns::new(2);
        let [a, b, c] = [(); 3].map(|()| turns.join(&ID, &STEPS));
        for (number, call) in [(b, "b"), (c, "c")] {
            turns.enter(&ID, number, 0, call);
        }
        assert_eq!(turns.withdraw_of(&ID, b), ["b"]);
        assert!(turns.leave(&ID, a, 0).is_empty(), "b is not over");
        assert_eq!(turns.withdraw(|call| *call == "other"), [""; 0]);
        assert_eq!(turns.end(&ID, b), ["c"]);
        assert!(turns.end(&ID, b).is_empty(), "it left before");
    }
}
