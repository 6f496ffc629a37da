//! Decides when a connection is pinged, drained and closed. Pure: the caller has the clock and the connection.
//!
//! The timer of a busy connection is not reset with each call. When it fires, `tick` takes later calls into account.

use std::time::Duration;
use tokio::time::Instant;

/// Pings of an idle connection.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// Silence after which the client is pinged.
    pub time: Duration,
    /// Time that the client has to answer a ping.
    pub timeout: Duration,
    /// Ping also without open calls.
    pub without_calls: bool,
}

/// How long a connection may live.
#[derive(Debug, Clone, Copy, Default)]
pub struct Age {
    /// Age at which the connection is drained.
    pub max: Option<Duration>,
    /// Time after the drain at which it is closed.
    pub grace: Option<Duration>,
}

/// The next action of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Wait until `due`.
    Wait,
    /// Send a ping; then call `pinged`.
    Ping,
    /// Drain the connection.
    Leave,
    /// Close the connection.
    End,
}

/// The timers of one connection.
#[derive(Debug)]
pub struct Upkeep {
    keepalive: Keepalive,
    age: Age,
    ping_at: Instant,
    /// Set while a pong is awaited.
    pong_by: Option<Instant>,
    end_at: Option<Instant>,
    leaving: bool,
}

impl Upkeep {
    /// Starts the timers of a new connection.
    pub fn new(keepalive: Keepalive, age: Age, now: Instant) -> Self {
        let end_at = age.max.map(|max| now + max);
        Self { keepalive, age, ping_at: now + keepalive.time, pong_by: None, end_at, leaving: false }
    }

    /// Time at which `tick` has to be called next.
    pub fn due(&self) -> Instant {
        let next = self.pong_by.unwrap_or(self.ping_at);
        self.end_at.map_or(next, |end| end.min(next))
    }

    /// Returns the next action. `heard_at`: time at which the client last began a call.
    pub fn tick(&mut self, now: Instant, heard_at: Instant, has_calls: bool) -> Tick {
        if self.pong_by.is_some_and(|by| by <= now) {
            return Tick::End; // the client does not respond
        }
        if self.end_at.is_some_and(|end| end <= now) {
            if self.leaving {
                return Tick::End; // the grace period is over
            }
            self.leave(self.age.grace.map(|grace| now + grace));
            return Tick::Leave;
        }
        self.ping_at = self.ping_at.max(heard_at + self.keepalive.time);
        if self.pong_by.is_some() || self.ping_at > now {
            return Tick::Wait;
        }
        self.ping_at = now + self.keepalive.time;
        if has_calls || self.keepalive.without_calls { Tick::Ping } else { Tick::Wait }
    }

    /// Records that a ping was sent.
    pub fn pinged(&mut self, now: Instant) {
        self.pong_by = Some(now + self.keepalive.timeout);
    }

    pub fn awaits_pong(&self) -> bool {
        self.pong_by.is_some()
    }

    /// Records that the client answered a ping.
    pub fn ponged(&mut self, now: Instant) {
        self.pong_by = None;
        self.ping_at = now + self.keepalive.time;
    }

    /// Records that the connection drains, and is closed at `end_at`; `None` = the caller closes it.
    pub fn leave(&mut self, end_at: Option<Instant>) {
        self.leaving = true;
        self.end_at = end_at;
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Ticks for each step: now, time of the last call, whether calls are open, expected action.
    fn check(upkeep: &mut Upkeep, start: Instant, steps: &[(u64, u64, bool, Tick)]) {
        for &(now, heard, calls, expected) in steps {
            let (now, heard) = (start + ms(now), start + ms(heard));
            assert_eq!(upkeep.tick(now, heard, calls), expected, "at {now:?}");
            if expected == Tick::Ping {
                upkeep.pinged(now);
            }
        }
    }

    #[test]
    fn a_silent_client_is_pinged_and_its_connection_closed_without_an_answer() {
        let start = Instant::now();
        let keepalive = Keepalive { time: ms(100), timeout: ms(30), without_calls: false };
        let mut upkeep = Upkeep::new(keepalive, Age::default(), start);
        assert_eq!(upkeep.due(), start + ms(100));
        // Last call at 60, so silent until 160. No ping without calls.
        check(&mut upkeep, start, &[(100, 60, true, Tick::Wait)]);
        assert_eq!(upkeep.due(), start + ms(160));
        check(&mut upkeep, start, &[(160, 60, false, Tick::Wait), (260, 60, true, Tick::Ping)]);
        assert_eq!((upkeep.due(), upkeep.awaits_pong()), (start + ms(290), true));
        upkeep.ponged(start + ms(270));
        assert_eq!(upkeep.due(), start + ms(370));
        check(&mut upkeep, start, &[(370, 60, true, Tick::Ping), (380, 375, true, Tick::Wait)]);
        // A new call is not an answer to the ping.
        check(&mut upkeep, start, &[(400, 375, true, Tick::End)]);
    }

    #[test]
    fn an_old_connection_is_drained_then_closed() {
        let start = Instant::now();
        let keepalive = Keepalive { time: ms(1000), timeout: ms(30), without_calls: true };
        let mut upkeep = Upkeep::new(keepalive, Age { max: Some(ms(50)), grace: Some(ms(20)) }, start);
        check(&mut upkeep, start, &[(50, 40, true, Tick::Leave)]);
        assert_eq!((upkeep.due(), upkeep.is_leaving()), (start + ms(70), true));
        check(&mut upkeep, start, &[(60, 55, true, Tick::Wait), (70, 65, true, Tick::End)]);
        // Without a grace period its calls may run to their end.
        let mut upkeep = Upkeep::new(keepalive, Age { max: Some(ms(50)), grace: None }, start);
        check(&mut upkeep, start, &[(50, 40, true, Tick::Leave), (60, 55, true, Tick::Wait)]);
        assert_eq!(upkeep.due(), start + ms(1055));
    }
}
