//! Whether an idle instance should wait for more requests. Work-conserving by default: it waits only when measurements say
//! that the requests concerned are answered sooner, on the whole, than if it did not.
//!
//! With one idle instance, k requests of r rows here and m more of n rows due within w, t(b) = a + c·b:
//! - run now: the k are done after t(r); the m wait for the instance and are done after t(r) + t(n);
//! - wait: everybody is done after w + t(r + n).
//!
//! So waiting gains the m requests a − w each, and costs the k requests w + c·n each. It can only pay while w < a, and never
//! when a second instance is idle, which would take the late ones at once.
//!
//! What is due is a guess, so every wait is judged by what really came: after a bad one the next chances are let pass, twice
//! as many each time. That also covers clients that all wait for their answers (nobody is left to arrive) and callers whose
//! timers are coarse.

use crate::cost::Line;

/// Arrivals before their gap is believed.
const ARRIVALS_MIN: u32 = 16;
/// Shortest gap tracked, ns.
const GAP_MIN: u64 = 64;
/// Nobody has come for so many usual gaps: nobody will.
const GAPS_OF_PATIENCE: u64 = 4;
/// Most chances let pass after bad waits.
const PASS_MAX: u32 = 4095;
/// Every so many chances the size that waits used to reach is tried to be exceeded.
const REACH_FURTHER_EVERY: u32 = 16;

/// What `decide` is told.
pub(crate) struct Outlook {
    pub now: u64,
    /// Requests and rows that would go now.
    pub requests: u32,
    pub rows: u32,
    /// Rows beyond which there is no reason to wait.
    pub rows_wanted: u32,
    /// The wait ends here at the latest: arrival of the oldest plus the queue delay.
    pub latest: u64,
    /// Somebody would expire.
    pub deadline: u64,
    pub line: Option<Line>,
}

/// Arrivals, and the wait in progress.
#[derive(Default)]
pub(crate) struct Waiter {
    last_arrival: u64,
    /// Median gap between arrivals, ns. A median follows bursts; the mean would be ruled by the pauses between them.
    gap: u64,
    arrivals: u32,
    wait: Option<Wait>,
    /// Chances still to let pass, and how many to let pass after the next bad wait.
    pass: u32,
    pass_next: u32,
    /// Rows at which waits used to end for lack of arrivals, 0 = not known.
    reach: u32,
    chances: u32,
}

struct Wait {
    since: u64,
    requests: u32,
    rows: u32,
    rows_wanted: u32,
}

impl Waiter {
    /// A request arrived.
    pub fn arrived(&mut self, now: u64) {
        let gap = now.saturating_sub(self.last_arrival);
        match self.arrivals {
            0 => {}
            1 => self.gap = gap.max(GAP_MIN),
            // A step up for a longer gap, one down for a shorter: settles where half are longer.
            _ if gap > self.gap => self.gap += self.gap / 8,
            _ => self.gap = (self.gap - self.gap / 8).max(GAP_MIN),
        }
        self.arrivals = self.arrivals.saturating_add(1);
        self.last_arrival = now;
    }

    /// No wait is in progress any more, for reasons that say nothing about waiting.
    pub fn forget(&mut self) {
        self.wait = None;
    }

    /// An instance is idle, and requests are kept from it.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// When to look again; `None` = run now.
    pub fn decide(&mut self, o: &Outlook) -> Option<u64> {
        if self.wait.is_none() {
            self.wait = self.begin(o);
        }
        let wait = self.wait.as_ref()?;
        let patience = self.last_arrival.max(wait.since).saturating_add(self.gap.saturating_mul(GAPS_OF_PATIENCE));
        let until = patience.min(o.latest);
        // Nobody may expire in front of an instance that is idle for his sake.
        if o.rows < wait.rows_wanted && o.now < until && until < o.deadline {
            return Some(until);
        }
        self.end(o);
        None
    }

    fn begin(&mut self, o: &Outlook) -> Option<Wait> {
        let line = o.line.filter(|_| self.arrivals >= ARRIVALS_MIN)?;
        if o.rows >= o.rows_wanted {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        self.chances = self.chances.wrapping_add(1);
        let mut rows_wanted = o.rows_wanted;
        if self.reach != 0 && !self.chances.is_multiple_of(REACH_FURTHER_EVERY) {
            rows_wanted = rows_wanted.min(self.reach);
        }
        let rows_due = rows_wanted.checked_sub(o.rows).filter(|&n| n > 0)?;
        // The late ones are taken to be like those here.
        let due = u64::from(rows_due).saturating_mul(u64::from(o.requests)).div_ceil(u64::from(o.rows.max(1)));
        let wait_ns = due.saturating_mul(self.gap);
        let in_time = o.now.saturating_add(wait_ns) <= o.latest.min(o.deadline);
        if !in_time || gain(&line, o.requests, due, rows_due, wait_ns) <= 0.0 {
            return None;
        }
        Some(Wait { since: o.now, requests: o.requests, rows: o.rows, rows_wanted })
    }

    /// The wait in progress is over: was it worth it?
    pub fn end(&mut self, o: &Outlook) {
        let (Some(wait), Some(line)) = (self.wait.take(), o.line) else { return };
        let came = u64::from(o.requests.saturating_sub(wait.requests));
        let rows_came = o.rows.saturating_sub(wait.rows);
        if gain(&line, wait.requests, came, rows_came, o.now.saturating_sub(wait.since)) > 0.0 {
            self.pass_next /= 2;
        } else {
            self.pass_next = (self.pass_next * 2 + 1).min(PASS_MAX);
            self.pass = self.pass_next;
        }
        if o.rows < wait.rows_wanted {
            self.reach = o.rows;
        } else if o.rows > self.reach {
            self.reach = 0;
        }
    }
}

/// Time saved, summed over the requests, by waiting `wait_ns` for `due` requests of `rows_due` rows while `here` wait. May be
/// negative.
fn gain(line: &Line, here: u32, due: u64, rows_due: u32, wait_ns: u64) -> f64 {
    let wait = wait_ns as f64;
    due as f64 * (line.fixed - wait) - f64::from(here) * (wait + line.per_row * f64::from(rows_due))
}
