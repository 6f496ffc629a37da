//! How bytes of tensors come from where they lie to where they are wanted (memory.md 3.2 to 3.5), worked out before any is copied.
//!
//! Pure: knows kinds of memory, offsets and lengths; reads no byte and calls no driver. `carry` carries a plan out, with whatever memory
//! and devices there are.
//!
//! Invariants: each byte of the pieces reaches its target once, through one staging block at most. What a device does may be under way until
//! its `Synchronize`; behind that there are only copies out of staging blocks. A plan without devices has none of either.

use smallvec::SmallVec;
use std::fmt;
use tensor::Extent;

/// What kind of memory bytes lie in, as far as copies are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// Of the host; a device may not read or write it while other things happen.
    Pageable,
    /// Of the host, page-locked: devices copy from and to it by themselves.
    Pinned,
    /// Of the device with this ordinal.
    Device(u32),
}

/// A source or a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lies {
    /// The kind.
    pub memory: Memory,
    /// Where it begins in the memory behind it, if that may be copied across the borders of sources: pieces of two sources that abut there
    /// are one. `None` where each may be read only on its own.
    pub extent: Option<Extent>,
}

impl Lies {
    /// Memory that abuts no other.
    pub fn alone(memory: Memory) -> Self {
        Self { memory, extent: None }
    }
}

/// Bytes that are to be copied: `len` from `from` in the source to `to` in the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Piece {
    pub source: usize,
    pub from: usize,
    pub target: usize,
    pub to: usize,
    pub len: usize,
}

/// One end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// This source.
    Source(usize),
    /// This target.
    Target(usize),
    /// This staging block: page-locked memory of the host, that lives as long as the plan is carried out.
    Staging(usize),
}

/// A place at one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Which.
    pub end: End,
    /// First byte in it.
    pub offset: usize,
}

/// What copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The processor, in the memory of the host.
    Memcpy,
    /// This device, out of memory of the host.
    Upload(u32),
    /// This device, into memory of the host.
    Download(u32),
    /// This device, inside its memory.
    Within(u32),
    /// From the first device's memory to the second's.
    Peer(u32, u32),
}

/// A step of a plan, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Copies `len` bytes.
    Copy {
        /// What copies.
        how: How,
        /// First byte read.
        from: At,
        /// First byte written.
        to: At,
        /// Bytes.
        len: usize,
    },
    /// Waits until the device has done all steps before.
    Synchronize(u32),
}

/// What to copy, in which order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    steps: SmallVec<[Step; 4]>,
    staging: SmallVec<[usize; 2]>,
    bytes: usize,
    copies: u32,
}

/// A row of pieces that go through one staging block: those before it of an upload, those behind it of a download.
struct Queue {
    how: How,
    /// The end at which they are in a row, which the device reads or writes at once.
    row: At,
    len: usize,
    pieces: SmallVec<[Piece; 4]>,
}

impl Plan {
    /// A plan for these pieces, whose indices are those of `sources` and `targets`. `staging_bytes_max` is the most that one staging block
    /// may have; 0 where there is no page-locked memory: what would be staged is then copied directly.
    pub fn new(
        sources: &[Lies],
        targets: &[Lies],
        pieces: impl IntoIterator<Item = Piece>,
        staging_bytes_max: usize,
    ) -> Self {
        let mut plan = Self::default();
        let mut queue: Option<Queue> = None;
        let mut later = SmallVec::<[Step; 4]>::new();
        let mut held: Option<Piece> = None;
        let mut merged: SmallVec<[Piece; 8]> = SmallVec::new();
        for piece in pieces.into_iter().filter(|piece| piece.len > 0) {
            match &mut held {
                Some(before)
                    if abut(sources, before, &piece)
                        && before.target == piece.target
                        && before.to + before.len == piece.to =>
                {
                    before.len += piece.len;
                }
                _ => merged.extend(held.replace(piece)),
            }
        }
        merged.extend(held);
        for piece in merged {
            let (Some(from), Some(to)) = (sources.get(piece.source), targets.get(piece.target)) else { continue };
            plan.bytes += piece.len;
            let how = how(from.memory, to.memory);
            if !is_staged(from.memory, to.memory) || piece.len > staging_bytes_max {
                plan.copies = plan.copies.max(1);
                plan.steps.push(direct(how, &piece));
                continue;
            }
            plan.copies = 2;
            let row = match how {
                How::Upload(_) => At { end: End::Target(piece.target), offset: piece.to },
                _ => At { end: End::Source(piece.source), offset: piece.from },
            };
            match &mut queue {
                Some(open)
                    if open.how == how
                        && open.len.saturating_add(piece.len) <= staging_bytes_max
                        && open.is_followed_by(sources, &piece, row) =>
                {
                    open.len += piece.len;
                    open.pieces.push(piece);
                }
                _ => {
                    let begun = Queue { how, row, len: piece.len, pieces: SmallVec::from_slice(&[piece]) };
                    if let Some(full) = queue.replace(begun) {
                        plan.flush(&full, &mut later);
                    }
                }
            }
        }
        if let Some(last) = queue {
            plan.flush(&last, &mut later);
        }
        plan.end(later);
        plan
    }

    /// A plan that puts sources of these lengths in a row.
    pub fn gather(sources: &[(Lies, usize)], target: Memory, staging_bytes_max: usize) -> Self {
        let lies: SmallVec<[Lies; 8]> = sources.iter().map(|(lies, _)| *lies).collect();
        let mut to = 0;
        let pieces = sources.iter().enumerate().map(|(source, &(_, len))| {
            let piece = Piece { source, from: 0, target: 0, to, len };
            to += len;
            piece
        });
        Self::new(&lies, &[Lies::alone(target)], pieces, staging_bytes_max)
    }

    /// A plan that copies the first bytes of one source to one target.
    pub fn whole(source: Lies, target: Memory, len: usize, staging_bytes_max: usize) -> Self {
        Self::gather(&[(source, len)], target, staging_bytes_max)
    }

    /// Its steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Bytes of each staging block that it needs.
    pub fn staging(&self) -> &[usize] {
        &self.staging
    }

    /// Bytes that are brought to a target.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How often a byte is copied on its way, by the processor or a device (memory.md 3.5): of the bytes that it is most often.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// Devices that take part.
    pub fn devices(&self) -> impl Iterator<Item = u32> {
        self.steps.iter().filter_map(|step| match step {
            Step::Synchronize(device) => Some(*device),
            Step::Copy { .. } => None,
        })
    }

    /// One block, one copy of the device, and those of the processor: an upload's before it, a download's after the device is done.
    fn flush(&mut self, queue: &Queue, later: &mut SmallVec<[Step; 4]>) {
        let end = End::Staging(self.staging.len());
        self.staging.push(queue.len);
        let block = At { end, offset: 0 };
        let is_upload = matches!(queue.how, How::Upload(_));
        let mut offset = 0;
        for piece in &queue.pieces {
            let (source, target) = ends(piece);
            let here = At { end, offset };
            let (from, to) = if is_upload { (source, here) } else { (here, target) };
            let step = Step::Copy { how: How::Memcpy, from, to, len: piece.len };
            if is_upload {
                self.steps.push(step)
            } else {
                later.push(step)
            }
            offset += piece.len;
        }
        let (from, to) = if is_upload { (block, queue.row) } else { (queue.row, block) };
        self.steps.push(Step::Copy { how: queue.how, from, to, len: queue.len });
    }

    fn end(&mut self, later: SmallVec<[Step; 4]>) {
        let mut devices: SmallVec<[u32; 4]> = SmallVec::new();
        for step in &self.steps {
            let Step::Copy { how, .. } = step else { continue };
            if let Some(device) = how.device()
                && !devices.contains(&device)
            {
                devices.push(device);
            }
        }
        self.steps.extend(devices.into_iter().map(Step::Synchronize));
        self.steps.extend(later);
    }
}

impl Queue {
    fn is_followed_by(&self, sources: &[Lies], piece: &Piece, row: At) -> bool {
        match (self.row.end, self.pieces.last()) {
            (End::Target(_), _) => self.row.end == row.end && self.row.offset + self.len == row.offset,
            (_, Some(last)) => abut(sources, last, piece),
            _ => false,
        }
    }
}

impl How {
    /// The device on whose stream it is done.
    pub fn device(self) -> Option<u32> {
        match self {
            Self::Memcpy => None,
            Self::Upload(device) | Self::Download(device) | Self::Within(device) | Self::Peer(_, device) => {
                Some(device)
            }
        }
    }
}

/// Whether the second piece begins in memory where the first ends.
fn abut(sources: &[Lies], before: &Piece, piece: &Piece) -> bool {
    if before.source == piece.source {
        return before.from + before.len == piece.from;
    }
    let of = |piece: &Piece| {
        let lies = sources.get(piece.source)?;
        lies.extent.map(|e| (lies.memory, e.object, e.start.saturating_add(piece.from as u64)))
    };
    let (Some((memory, object, at)), Some(next)) = (of(before), of(piece)) else { return false };
    next == (memory, object, at.saturating_add(before.len as u64))
}

/// The table of memory.md 3.2.
fn is_staged(from: Memory, to: Memory) -> bool {
    matches!((from, to), (Memory::Pageable, Memory::Device(_)) | (Memory::Device(_), Memory::Pageable))
}

fn how(from: Memory, to: Memory) -> How {
    match (from, to) {
        (Memory::Device(from), Memory::Device(to)) if from == to => How::Within(to),
        (Memory::Device(from), Memory::Device(to)) => How::Peer(from, to),
        (_, Memory::Device(to)) => How::Upload(to),
        (Memory::Device(from), _) => How::Download(from),
        _ => How::Memcpy,
    }
}

fn ends(piece: &Piece) -> (At, At) {
    let from = At { end: End::Source(piece.source), offset: piece.from };
    (from, At { end: End::Target(piece.target), offset: piece.to })
}

fn direct(how: How, piece: &Piece) -> Step {
    let (from, to) = ends(piece);
    Step::Copy { how, from, to, len: piece.len }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = match self.end {
            End::Source(n) => ("source", n),
            End::Target(n) => ("target", n),
            End::Staging(n) => ("staging", n),
        };
        write!(f, "{name} {number}+{}", self.offset)
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memcpy => f.write_str("memcpy"),
            Self::Upload(device) => write!(f, "upload to device {device}"),
            Self::Download(device) => write!(f, "download from device {device}"),
            Self::Within(device) => write!(f, "copy on device {device}"),
            Self::Peer(from, to) => write!(f, "peer copy from device {from} to {to}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { how, from, to, len } => write!(f, "{how}: {len} bytes, {from} -> {to}"),
            Self::Synchronize(device) => write!(f, "synchronize device {device}"),
        }
    }
}

/// One line per step, and a line with the sum.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        write!(f, "{} bytes, copies: {}", self.bytes, self.copies)
    }
}

#[cfg(test)]
mod tests;
