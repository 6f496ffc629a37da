//! When a connection is pinged, given up, asked to leave and closed. Pure: the caller has the clock, the pings and the connection.
//!
//! The timer of a busy connection is not moved with each call: when it fires, `tick` sees what was heard since and waits on.

use std::time::Duration;
use tokio::time::Instant;

/// Pings of an idle connection.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// Silence after which the client is pinged.
    pub time: Duration,
    /// Time it has to answer.
    pub timeout: Duration,
    /// Ping even when no call is open.
    pub without_calls: bool,
}

/// How long a connection may live.
#[derive(Debug, Clone, Copy, Default)]
pub struct Age {
    /// After this it is asked to leave.
    pub max: Option<Duration>,
    /// And after this closed.
    pub grace: Option<Duration>,
}

/// What the caller is to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Nothing until `due`.
    Wait,
    /// Send a ping; then call `pinged`.
    Ping,
    /// Ask the client to leave.
    Leave,
    /// Close.
    End,
}

/// The plan of one connection.
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
    /// A connection that begins now.
    pub fn new(keepalive: Keepalive, age: Age, now: Instant) -> Self {
        let end_at = age.max.map(|max| now + max);
        Self { keepalive, age, ping_at: now + keepalive.time, pong_by: None, end_at, leaving: false }
    }

    /// When to `tick` next.
    pub fn due(&self) -> Instant {
        let next = self.pong_by.unwrap_or(self.ping_at);
        self.end_at.map_or(next, |end| end.min(next))
    }

    /// Looks at the clock. `heard_at` is when the client last began a call.
    pub fn tick(&mut self, now: Instant, heard_at: Instant, has_calls: bool) -> Tick {
        if self.pong_by.is_some_and(|by| by <= now) {
            return Tick::End; // nobody is there any more
        }
        if self.end_at.is_some_and(|end| end <= now) {
            if self.leaving {
                return Tick::End; // out of grace
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

    /// A ping is on its way.
    pub fn pinged(&mut self, now: Instant) {
        self.pong_by = Some(now + self.keepalive.timeout);
    }

    /// Whether a pong is awaited.
    pub fn awaits_pong(&self) -> bool {
        self.pong_by.is_some()
    }

    /// The client answered a ping.
    pub fn ponged(&mut self, now: Instant) {
        self.pong_by = None;
        self.ping_at = now + self.keepalive.time;
    }

    /// The client was asked to leave, and is closed at `end_at`; `None` = somebody else sees to that.
    pub fn leave(&mut self, end_at: Option<Instant>) {
        self.leaving = true;
        self.end_at = end_at;
    }

    /// Whether the client was asked to leave.
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

    /// Ticks at each time in turn, having heard of the client at the second and with calls if the third says so.
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
    fn silence_is_pinged_once_and_no_answer_ends_the_connection() {
        let start = Instant::now();
        let keepalive = Keepalive { time: ms(100), timeout: ms(30), without_calls: false };
        let mut upkeep = Upkeep::new(keepalive, Age::default(), start);
        assert_eq!(upkeep.due(), start + ms(100));
        // Heard at 60: quiet until 160. Without calls nobody is pinged.
        check(&mut upkeep, start, &[(100, 60, true, Tick::Wait)]);
        assert_eq!(upkeep.due(), start + ms(160));
        check(&mut upkeep, start, &[(160, 60, false, Tick::Wait), (260, 60, true, Tick::Ping)]);
        assert_eq!((upkeep.due(), upkeep.awaits_pong()), (start + ms(290), true));
        upkeep.ponged(start + ms(270));
        assert_eq!(upkeep.due(), start + ms(370));
        check(&mut upkeep, start, &[(370, 60, true, Tick::Ping), (380, 375, true, Tick::Wait)]);
        // A call that came meanwhile is no pong: the client asked, but does not answer.
        check(&mut upkeep, start, &[(400, 375, true, Tick::End)]);
    }

    #[test]
    fn age_asks_to_leave_then_closes() {
        let start = Instant::now();
        let keepalive = Keepalive { time: ms(1000), timeout: ms(30), without_calls: true };
        let mut upkeep = Upkeep::new(keepalive, Age { max: Some(ms(50)), grace: Some(ms(20)) }, start);
        check(&mut upkeep, start, &[(50, 40, true, Tick::Leave)]);
        assert_eq!((upkeep.due(), upkeep.is_leaving()), (start + ms(70), true));
        check(&mut upkeep, start, &[(60, 55, true, Tick::Wait), (70, 65, true, Tick::End)]);
        // Without a grace it may finish whatever it does.
        let mut upkeep = Upkeep::new(keepalive, Age { max: Some(ms(50)), grace: None }, start);
        check(&mut upkeep, start, &[(50, 40, true, Tick::Leave), (60, 55, true, Tick::Wait)]);
        assert_eq!(upkeep.due(), start + ms(1055));
    }
}
