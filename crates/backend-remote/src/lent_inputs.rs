//! Blocks of inputs that front ends have. Pure: ids and lengths only.

use std::collections::HashMap;

/// Blocks of inputs that front ends have, by their ids.
#[derive(Default)]
pub(crate) struct LentInputs {
    blocks: HashMap<u64, LentInput>,
    bytes: u64,
}

struct LentInput {
    bytes: u64,
    /// The runner was sent the block and has not given it back.
    is_sent: bool,
}

impl LentInputs {
    /// Ids and lengths of all blocks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.iter().map(|(&id, block)| (id, block.bytes))
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn add(&mut self, id: u64, bytes: u64) {
        self.blocks.insert(id, LentInput { bytes, is_sent: false });
        self.bytes += bytes;
    }

    /// Forgets a block that its front end does not need any more. True if it is free: the runner does not have it.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let Some(block) = self.blocks.remove(&id) else { return false };
        self.bytes -= block.bytes;
        !block.is_sent
    }

    /// Whether `send` would be true.
    pub(crate) fn may_send(&self, id: u64, bytes: u64) -> bool {
        self.blocks.get(&id).is_some_and(|block| !block.is_sent && block.bytes == bytes)
    }

    /// Marks a block as sent. False if it is not lent, has another length, or the runner has it already.
    pub(crate) fn send(&mut self, id: u64, bytes: u64) -> bool {
        let found = self.blocks.get_mut(&id).filter(|block| !block.is_sent && block.bytes == bytes);
        found.map(|block| block.is_sent = true).is_some()
    }

    /// Takes a block back from the runner. `None` if no front end has it; false if the runner did not have it.
    pub(crate) fn give_back(&mut self, id: u64) -> Option<bool> {
        self.blocks.get_mut(&id).map(|block| std::mem::take(&mut block.is_sent))
    }
}
