//! How long a peer may leave us waiting. Pure: the caller has the clock, and looks every few seconds while there is something to
//! wait for; nothing of this is done per frame but a count of bytes.

use super::stream::Sending;
use super::{Closing, Core, Fatal};
use crate::frame::Reason;
use crate::limits::DISCARD_BYTES_MAX;
use std::time::{Duration, Instant};

/// Since when something stands still.
#[derive(Debug, Clone, Copy, Default)]
pub struct Still {
    mark: u64,
    since: Option<Instant>,
}

impl Still {
    /// How long it has been waited for without `mark` having changed; as far as was seen, which is never too long.
    pub fn time(&mut self, waits: bool, mark: u64, now: Instant) -> Duration {
        if !waits {
            self.since = None;
            return Duration::ZERO;
        }
        if self.since.is_none() || self.mark != mark {
            *self = Self { mark, since: Some(now) };
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// What a connection is waited for.
#[derive(Debug, Default)]
pub struct Patience {
    handshake: Still,
    acknowledgement: Still,
    frame: Still,
    payload: Still,
    output: Still,
    heard: Still,
}

/// What the driver is to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Go on; there may be something to write.
    GoOn,
    /// Close at once: nothing that is still to be said would be taken.
    Close,
}

impl Core {
    /// How long until `look` has to be called; `None` while there is nothing to wait for.
    pub fn look_after(&self) -> Option<Duration> {
        let times = &self.options.times;
        if self.closing == Closing::Failed {
            return (!self.output.is_empty()).then(|| times.shortest() / 4);
        }
        if self.streams.lingering() > 0 {
            return Some(times.linger / 2);
        }
        let waits = !self.settled
            || !self.acknowledged
            || self.is_inside_frame()
            || !self.output.is_empty()
            || self.streams.len() > 0;
        waits.then(|| times.shortest() / 4)
    }

    /// Whether a frame, or a header block, has begun and not ended.
    fn is_inside_frame(&self) -> bool {
        self.known_bytes > 0 || self.block.is_some() || self.data.is_some() || self.skip > 0
    }

    /// Gives up whatever has kept us waiting for too long.
    pub fn look(&mut self, now: Instant) -> Look {
        let times = self.options.times;
        let waits = !self.output.is_empty() && !self.holds_back();
        if self.patience.output.time(waits, self.output.written(), now) >= times.send {
            return Look::Close;
        }
        if self.closing == Closing::Failed {
            return Look::GoOn;
        }
        if let Err(fatal) = self.look_connection(now) {
            self.fail(fatal);
            return Look::GoOn;
        }
        let silent = self.patience.heard.time(true, self.received_bytes, now);
        self.look_streams(now, silent);
        Look::GoOn
    }

    fn look_connection(&mut self, now: Instant) -> Result<(), Fatal> {
        let times = self.options.times;
        if self.patience.handshake.time(!self.settled, 0, now) >= times.handshake {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "no preface and SETTINGS in time"));
        }
        if self.patience.acknowledgement.time(!self.acknowledged, 0, now) >= times.acknowledgement {
            return Err(Fatal(Reason::SETTINGS_TIMEOUT, "SETTINGS were not acknowledged in time"));
        }
        // From its first byte to its last, however often a byte comes: a client that sends a head has all of it.
        let inside_payload = self.data.is_some() || self.skip > 0;
        let inside_head = self.block.is_some() || (self.known_bytes > 0 && !inside_payload);
        if self.patience.frame.time(inside_head, self.frames, now) >= times.head {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "half a frame or header block, and not the rest in time"));
        }
        // A body may be slow, but must move.
        if self.patience.payload.time(inside_payload, self.received_bytes, now) >= times.body {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "half a DATA frame, and not the rest in time"));
        }
        Ok(())
    }

    /// Resets streams that do not move. A client that has said nothing at all for as long loses its connection: it is taken to be gone.
    fn look_streams(&mut self, now: Instant, silent: Duration) {
        let times = self.options.times;
        let is_short = (self.options.is_short)();
        let (connection_room, connection_window) = (self.receive_window, self.send_window);
        let keys: Vec<u32> = self.streams.keys().collect();
        for key in keys {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.lingers {
                let moves = !stream.received_all && stream.discarded < DISCARD_BYTES_MAX;
                let mark = if moves { stream.received_bytes } else { 0 };
                if stream.body_still.time(true, mark, now) >= times.linger {
                    self.reset(key, Reason::NO_ERROR);
                }
                continue;
            }
            let awaits_body =
                !stream.received_all && stream.awaits_body() && stream.receive_window > 0 && connection_room > 0;
            let body = stream.body_still.time(awaits_body, stream.received_bytes, now);
            let has_something = stream.queued > 0 || stream.wants_room;
            let awaits_room = has_something
                && matches!(stream.sending, Sending::Body | Sending::Ending)
                && (stream.send_window <= 0 || connection_window <= 0);
            let send = stream.send_still.time(awaits_room, stream.sent_bytes, now);
            // One that has begun holds memory, which others wait for.
            let gives_way = is_short && stream.received_bytes > 0 && body >= times.body_when_short;
            if body < times.body && send < times.send && !gives_way {
                continue;
            }
            if body < times.body && send < times.send {
                self.reset(key, Reason::CANCEL);
                continue;
            }
            if silent >= if body >= times.body { times.body } else { times.send } {
                let text = match body >= times.body {
                    true => "half a body, and nothing more in time",
                    false => "no room for an answer in time",
                };
                return self.fail(Fatal(Reason::CANCEL, text));
            }
            self.reset(key, Reason::CANCEL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_or_is_not_waited_for_is_not_still() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut still = Still::default();
        let seconds =
            [(true, 1, 0), (true, 1, 5), (true, 1, 9), (true, 2, 10), (true, 2, 14), (false, 2, 20), (true, 2, 21)]
                .map(|(waits, mark, now)| still.time(waits, mark, at(now)).as_secs());
        assert_eq!(seconds, [0, 5, 9, 0, 4, 0, 0]);
    }
}
