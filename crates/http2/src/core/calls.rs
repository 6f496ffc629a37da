//! Calls that came: heads of requests and ids of streams.

use super::closed::Closed;
use super::ending::Fatal;
use crate::frame::Reason;
use crate::head::{BadHead, Builder, RequestHead};
use crate::heads::Heads;
use crate::hpack::Decoder;
use crate::ledger::HeadLedger;
use crate::options::Options;
use std::collections::VecDeque;
use std::rc::Rc;

pub struct Calls {
    decoder: Decoder,
    heads: Heads,
    pub ledger: HeadLedger,
    /// Largest stream id so far.
    pub last_id: u32,
    pub closed: Closed,
    /// Keys of the streams that wait to be accepted.
    pub accepted: VecDeque<u32>,
}

impl Calls {
    pub fn new(options: &Options) -> Self {
        Self {
            decoder: Decoder::new(),
            heads: Heads::default(),
            ledger: HeadLedger::new(options.freed, options.head_room),
            last_id: 0,
            closed: Closed::default(),
            accepted: VecDeque::new(),
        }
    }

    /// Decodes a whole header block into the head of a request, whose fields may take `list_bytes_max` bytes.
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

    /// Charges a head to the connection; returns false if there is no room for it.
    fn hold(&mut self, head: &mut RequestHead) -> bool {
        if head.hold(&self.ledger) {
            return true;
        }
        // Heads that are only remembered are dropped first.
        self.heads.clear();
        head.hold(&self.ledger)
    }

    pub fn decode(&mut self, block: &[u8], builder: &mut Builder) -> Result<(), Fatal> {
        let decoded = self.decoder.decode(block, |name, value| builder.field(name, value));
        decoded.map_err(|_| Fatal(Reason::COMPRESSION_ERROR, "broken header block"))
    }
}
