//! What came as calls, and what tells a call from what is none: the heads of requests, and the ids of streams.

use super::closed::Closed;
use super::ending::Fatal;
use crate::frame::Reason;
use crate::head::{BadHead, Builder, RequestHead};
use crate::heads::Heads;
use crate::hpack::Decoder;
use crate::ledger::Ledger;
use crate::options::Options;
use std::collections::VecDeque;
use std::rc::Rc;

/// The calls of a connection.
pub struct Calls {
    decoder: Decoder,
    heads: Heads,
    pub ledger: Ledger,
    /// The largest id of a stream.
    pub last_id: u32,
    pub closed: Closed,
    /// Keys of those that wait to be accepted.
    pub accepted: VecDeque<u32>,
}

impl Calls {
    pub fn new(options: &Options) -> Self {
        Self {
            decoder: Decoder::new(),
            heads: Heads::default(),
            ledger: Ledger::new(options.freed, options.head_room),
            last_id: 0,
            closed: Closed::default(),
            accepted: VecDeque::new(),
        }
    }

    /// The request of a whole header block, whose fields may take that many bytes.
    pub fn read_head(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
    ) -> Result<Result<Rc<RequestHead>, BadHead>, Fatal> {
        let generation = self.decoder.generation();
        if let Some(head) = self.heads.get(block, generation) {
            return Ok(Ok(head));
        }
        let mut builder = Builder::new(list_bytes_max);
        self.decode(block, &mut builder)?;
        if let Err(bad) = builder.check() {
            return Ok(Err(bad));
        }
        if !self.hold(builder.head_mut()) {
            return Ok(Err(BadHead::NoRoom));
        }
        let head = Rc::new(builder.into_head());
        if self.decoder.generation() == generation {
            self.heads.keep(block, generation, &head);
        }
        Ok(Ok(head))
    }

    /// Counts a head among those that the connection holds; false when there is no room for it.
    fn hold(&mut self, head: &mut RequestHead) -> bool {
        if head.hold(&self.ledger) {
            return true;
        }
        // Those that are only remembered go first.
        self.heads.clear();
        head.hold(&self.ledger)
    }

    pub fn decode(&mut self, block: &[u8], builder: &mut Builder) -> Result<(), Fatal> {
        let decoded = self.decoder.decode(block, |name, value| builder.field(name, value));
        decoded.map_err(|_| Fatal(Reason::COMPRESSION_ERROR, "broken header block"))
    }
}
