//! Timeouts of a peer. Pure: the caller has the clock and calls `look` every few seconds while something is waited for;
//! the only cost per frame is a count of bytes.

use super::stall::Look;
use super::{Closing, Core, Fatal};
use crate::frame::Reason;
use crate::limits::DISCARD_BYTES_MAX;
use std::time::{Duration, Instant};

impl Core {
    /// Time until `look` has to be called; `None` while no timeout runs.
    pub fn look_after(&self) -> Option<Duration> {
        let times = &self.options.times;
        if self.closing == Closing::Failed {
            return (!self.writing.output.is_empty()).then(|| times.shortest() / 4);
        }
        if self.streams.lingering() > 0 {
            return Some(times.linger / 2);
        }
        let waits = !self.handshake.settled
            || !self.handshake.acknowledged
            || self.reading.is_inside_frame()
            || !self.writing.output.is_empty()
            || self.streams.len() > 0;
        waits.then(|| times.shortest() / 4)
    }

    /// Ends whatever has exceeded its timeout.
    pub fn look(&mut self, now: Instant) -> Look {
        let times = self.options.times;
        let waits = !self.writing.output.is_empty() && !self.holds_back();
        if self.tolerance.stalls.output.time(waits, self.writing.output.written(), now) >= times.send {
            return Look::Close;
        }
        if self.closing == Closing::Failed {
            return Look::Continue;
        }
        if let Err(fatal) = self.look_connection(now) {
            self.fail(fatal);
            return Look::Continue;
        }
        let silent = self.tolerance.stalls.received.time(true, self.reading.received_bytes, now);
        self.look_streams(now, silent);
        Look::Continue
    }

    fn look_connection(&mut self, now: Instant) -> Result<(), Fatal> {
        let times = self.options.times;
        if self.tolerance.stalls.handshake.time(!self.handshake.settled, 0, now) >= times.handshake {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "no preface and SETTINGS in time"));
        }
        if self.tolerance.stalls.acknowledgement.time(!self.handshake.acknowledged, 0, now) >= times.acknowledgement {
            return Err(Fatal(Reason::SETTINGS_TIMEOUT, "SETTINGS were not acknowledged in time"));
        }
        // From its first byte to its last, even if single bytes keep coming: a client that sends a head has all of it.
        if self.tolerance.stalls.frame.time(self.reading.is_inside_head(), self.reading.frames, now) >= times.head {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "an incomplete frame or header block, without the rest in time"));
        }
        // A body may be slow, but must make progress.
        if self.tolerance.stalls.payload.time(self.reading.is_inside_payload(), self.reading.received_bytes, now)
            >= times.body
        {
            return Err(Fatal(Reason::PROTOCOL_ERROR, "an incomplete DATA frame, without the rest in time"));
        }
        Ok(())
    }

    /// Resets streams that make no progress. A client that was silent for as long loses its connection.
    fn look_streams(&mut self, now: Instant, silent: Duration) {
        let times = self.options.times;
        let is_short = (self.options.is_short)();
        let (connection_room, connection_window) = (self.receive_window, self.writing.send_window);
        let keys: Vec<u32> = self.streams.keys().collect();
        for key in keys {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.body.lingers {
                let moves = !stream.body.received_all && stream.body.discarded < DISCARD_BYTES_MAX;
                let mark = if moves { stream.body.received_bytes } else { 0 };
                if stream.body.stall.time(true, mark, now) >= times.linger {
                    self.reset(key, Reason::NO_ERROR);
                }
                continue;
            }
            let (awaits_body, awaits_room) = stream.awaits_client(connection_room, connection_window);
            let body = stream.body.stall.time(awaits_body, stream.body.received_bytes, now);
            let send = stream.answer.stall.time(awaits_room, stream.answer.sent_bytes, now);
            // A body that has begun holds memory that others wait for.
            let gives_way = is_short && stream.body.received_bytes > 0 && body >= times.body_when_short;
            if body < times.body && send < times.send && !gives_way {
                continue;
            }
            if body < times.body && send < times.send {
                self.reset(key, Reason::CANCEL);
                continue;
            }
            if silent >= if body >= times.body { times.body } else { times.send } {
                let text = match body >= times.body {
                    true => "an incomplete body, without more data in time",
                    false => "no room for a response in time",
                };
                return self.fail(Fatal(Reason::CANCEL, text));
            }
            self.reset(key, Reason::CANCEL);
        }
    }
}
