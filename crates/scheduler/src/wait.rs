//! Decides whether an idle instance should wait for more requests. Work-conserving by default: it waits only if
//! measurements predict that all requests concerned are answered sooner, in sum, than without waiting.
//!
//! With one idle instance, k requests of r rows here and m more of n rows due within w, t(b) = a + c·b:
//! - run now: the k are done after t(r); the m wait for the instance and are done after t(r) + t(n);
//! - wait: all are done after w + t(r + n).
//!
//! So waiting gains the m requests a − w each, and costs the k requests w + c·n each. It can only pay while w < a, and
//! never when a second instance is idle, because that one would run the late requests at once.
//!
//! Two medians predict when the m are due: the gap between arrivals, and, when an instance has just become free, the
//! time from there to the next arrival, because clients that just got their responses send again about then.
//!
//! Predictions are uncertain, so every wait is judged by the arrivals that followed. Past gains may be lost again;
//! after that, chances are skipped until the loss is one percent of the time. This also covers clients that all wait
//! for their responses, so that none is left to send, and callers with coarse timers.

use crate::profile::CostLine;
use crate::step::Cause;

/// Arrivals before their median gap is used.
const ARRIVALS_MIN: u32 = 16;
/// Shortest gap tracked, ns.
const GAP_MIN: u64 = 64;
/// After this many median gaps without an arrival, none is expected.
const GAPS_WAITED_MAX: u64 = 8;
/// Most chances skipped after bad waits.
const PASS_MAX: u32 = 4095;
/// Gains that may be lost again, and the share of time that may be lost to waits beyond them; both in executions.
const CREDIT_MAX: f64 = 4.0;
const LOSS_MAX: f64 = 0.01;
/// One in this many chances ignores the size at which waits used to end, to find out whether more can be reached.
const REACH_FURTHER_EVERY: u32 = 16;

/// Input of `decide`.
pub(crate) struct Outlook {
    pub now: u64,
    /// Requests and rows that would run now.
    pub requests: u32,
    pub rows: u32,
    /// Rows beyond which there is no reason to wait.
    pub rows_wanted: u32,
    /// Latest end of the wait: arrival of the oldest request plus the queue delay.
    pub latest: u64,
    /// Earliest expiry of a queued request.
    pub deadline: u64,
    pub line: Option<CostLine>,
}

/// Running median of durations, ns: a step up for a longer one and down for a shorter one settles where half are
/// longer. A median follows bursts; the pauses between them would dominate a mean.
#[derive(Default)]
struct Median {
    ns: u64,
    seen: u32,
}

impl Median {
    fn add(&mut self, ns: u64) {
        self.ns = match self.seen {
            0 => ns,
            _ if ns > self.ns => self.ns + self.ns / 8,
            _ => self.ns - self.ns / 8,
        };
        self.ns = self.ns.max(GAP_MIN);
        self.seen = self.seen.saturating_add(1);
    }
}

/// Statistics of arrivals, and the wait in progress.
#[derive(Default)]
pub(crate) struct Waiter {
    last_arrival: Option<u64>,
    gap: Median,
    /// Time from an instance becoming free to the next arrival.
    echo: Median,
    /// True while no instance is idle.
    busy: bool,
    /// When an instance became free; `None` after the next arrival.
    freed: Option<u64>,
    wait: Option<Wait>,
    /// Chances still to skip, and how many to skip after the next bad wait.
    pass: u32,
    pass_next: u32,
    /// Net gain of waiting that may be lost again, ns.
    balance: f64,
    /// Rows at which waits used to end for lack of arrivals; 0 = unknown.
    reach: u32,
    chances: u32,
}

struct Wait {
    since: u64,
    requests: u32,
    rows: u32,
    rows_wanted: u32,
    /// Expected time of the first arrival.
    first_due: u64,
}

impl Waiter {
    /// Records an arrival.
    pub fn arrived(&mut self, now: u64) {
        if let Some(last) = self.last_arrival.replace(now) {
            self.gap.add(now.saturating_sub(last));
        }
        if let Some(freed) = self.freed.take() {
            self.echo.add(now.saturating_sub(freed));
        }
    }

    /// Records the number of idle instances.
    pub fn idle(&mut self, now: u64, instances: u32) {
        if instances == 0 {
            self.busy = true;
            self.freed = None;
            self.wait = None;
        } else if std::mem::take(&mut self.busy) {
            self.freed = Some(now);
        }
    }

    /// Ends the wait in progress without judging it.
    pub fn forget(&mut self) {
        self.wait = None;
    }

    /// True while an instance is idle and requests are kept from it.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Returns why to run now, or `Err` with the time until which to wait.
    pub fn decide(&mut self, o: &Outlook) -> Result<Cause, u64> {
        if self.wait.is_none() {
            self.wait = self.begin(o);
        }
        let Some(wait) = &self.wait else { return Ok(Cause::WaitNotWorth) };
        let expected = wait.first_due.max(self.last_arrival.unwrap_or(0));
        let no_arrival = expected.saturating_add(self.gap.ns.saturating_mul(GAPS_WAITED_MAX));
        let until = no_arrival.min(o.latest);
        let why = match () {
            () if o.rows >= wait.rows_wanted => Cause::ExpectedArrived,
            () if o.now >= o.latest => Cause::DelayElapsed,
            () if o.now >= until => Cause::NoneExpected,
            // A request must not expire while an instance stays idle for it.
            () if until >= o.deadline => Cause::ExpiryNear,
            () => return Err(until),
        };
        self.end(o);
        Ok(why)
    }

    fn begin(&mut self, o: &Outlook) -> Option<Wait> {
        let line = o.line.filter(|_| self.gap.seen >= ARRIVALS_MIN)?;
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
        // Late requests are assumed to resemble those here: the first is due after `lead`, the others a gap apart.
        let rows_each = f64::from(o.rows) / f64::from(o.requests.max(1));
        let gap = self.gap.ns as f64;
        let lead = match self.freed {
            Some(freed) if self.echo.seen >= ARRIVALS_MIN => {
                freed.saturating_add(self.echo.ns).saturating_sub(o.now) as f64
            }
            // Half of the gaps are longer than the median, by much.
            _ => gap * 1.5,
        };
        // gain() as a function of m is a parabola; its top, clamped to at least one and at most all.
        let here = f64::from(o.requests);
        let top = (line.fixed - lead + gap - here * (gap + line.per_row * rows_each)) / (2.0 * gap);
        let due = top.min(f64::from(rows_due) / rows_each).max(1.0).round();
        let wait_ns = lead + (due - 1.0) * gap;
        let latest = o.latest.min(o.deadline).saturating_sub(o.now) as f64;
        if wait_ns > latest || gain(&line, here, due, due * rows_each, wait_ns) <= 0.0 {
            return None;
        }
        Some(Wait {
            since: o.now,
            requests: o.requests,
            rows: o.rows,
            rows_wanted: rows_wanted.min(o.rows.saturating_add((due * rows_each).ceil() as u32)),
            first_due: o.now.saturating_add(lead as u64),
        })
    }

    /// Ends the wait in progress and judges whether it paid.
    pub fn end(&mut self, o: &Outlook) {
        let (Some(wait), Some(line)) = (self.wait.take(), o.line) else { return };
        let came = f64::from(o.requests.saturating_sub(wait.requests));
        let rows_came = f64::from(o.rows.saturating_sub(wait.rows));
        let waited = o.now.saturating_sub(wait.since) as f64;
        let here = f64::from(wait.requests);
        // Value of one execution to the requests here; scales the limits of gains and losses.
        let stake = (here * line.fixed).max(1.0);
        let gained = gain(&line, here, came, rows_came, waited);
        self.balance = (self.balance + gained).min(CREDIT_MAX * stake);
        if self.balance < 0.0 {
            let amortised = (-self.balance / (LOSS_MAX * stake)).min(f64::from(PASS_MAX)) as u32;
            self.pass_next = (self.pass_next * 2 + 1).min(PASS_MAX);
            self.pass = self.pass_next.max(amortised);
            self.balance = 0.0;
        } else {
            self.pass_next /= 2;
        }
        if o.rows >= wait.rows_wanted {
            self.reach = if o.rows > self.reach { 0 } else { self.reach };
        } else if o.rows >= self.reach {
            self.reach = o.rows;
        } else {
            // A single short wait may be chance.
            self.reach -= (self.reach - o.rows).div_ceil(4);
        }
    }
}

/// Time saved, summed over the requests, by waiting `wait` ns for `due` requests while `here` wait; may be negative.
fn gain(line: &CostLine, here: f64, due: f64, rows_due: f64, wait: f64) -> f64 {
    due * (line.fixed - wait) - here * (wait + line.per_row * rows_due)
}
