//! Plans the copies of tensors between kinds of memory (memory.md 3.2 to 3.5), before any byte is copied.
//!
//! Pure: knows kinds of memory, offsets and lengths; reads no byte and calls no driver. `copy` executes plans.
//!
//! Invariants: each byte of the pieces reaches its target once, through at most one staging block. A device may copy
//! until its `Synchronize`; only copies out of staging blocks follow. A plan without devices has neither.

use smallvec::SmallVec;
use tensor::Extent;

/// Kind of memory, as far as copies are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// Pageable host memory, which a device cannot access asynchronously.
    Pageable,
    /// Page-locked host memory, which devices copy from and to directly.
    Pinned,
    /// Memory of the device with this ordinal.
    Device(u32),
}

/// The memory of a source or a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    #[allow(missing_docs)]
    pub memory: MemoryKind,
    /// Start within the underlying allocation, if copies may cross from one source to the next: adjacent pieces of two
    /// sources are merged. `None` if each source has to be read by itself.
    pub extent: Option<Extent>,
}

impl Endpoint {
    /// Memory that is adjacent to no other.
    pub fn alone(memory: MemoryKind) -> Self {
        Self { memory, extent: None }
    }
}

/// Bytes to copy: `len` from offset `from` in the source to offset `to` in the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Piece {
    pub source: usize,
    pub from: usize,
    pub target: usize,
    pub to: usize,
    pub len: usize,
}

/// Index of a source, a target or a staging block, which is page-locked memory that lives while the plan is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum CopyEnd {
    Source(usize),
    Target(usize),
    Staging(usize),
}

/// A position in a source, a target or a staging block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Position {
    pub end: CopyEnd,
    pub offset: usize,
}

/// Performer and direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// By the processor, within host memory.
    Memcpy,
    /// By this device, from host memory.
    Upload(u32),
    /// By this device, to host memory.
    Download(u32),
    /// By this device, within its memory.
    Within(u32),
    /// From the memory of the first device to that of the second.
    Peer(u32, u32),
}

/// A step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum CopyStep {
    /// Copies `len` bytes.
    Copy { how: CopyKind, from: Position, to: Position, len: usize },
    /// Waits until the device has finished all previous steps.
    Synchronize(u32),
}

/// Copies in the order in which they are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyPlan {
    steps: SmallVec<[CopyStep; 4]>,
    staging: SmallVec<[usize; 2]>,
}

/// Contiguous pieces that share one staging block: copied into it before an upload, or out of it after a download.
struct StagedCopy {
    how: CopyKind,
    /// Start of the pieces in device memory, where one transfer reads or writes all of them.
    row: Position,
    len: usize,
    pieces: SmallVec<[Piece; 4]>,
}

impl CopyPlan {
    /// A plan for `pieces`, which refer to `sources` and `targets` by index. No staging block is larger than
    /// `staging_bytes_max`. With 0, for hosts without page-locked memory, everything is copied directly.
    pub fn new(
        sources: &[Endpoint],
        targets: &[Endpoint],
        pieces: impl IntoIterator<Item = Piece>,
        staging_bytes_max: usize,
    ) -> Self {
        let mut plan = Self::default();
        let mut queue: Option<StagedCopy> = None;
        let mut later = SmallVec::<[CopyStep; 4]>::new();
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
            let how = how(from.memory, to.memory);
            if !is_staged(from.memory, to.memory) || piece.len > staging_bytes_max {
                plan.steps.push(direct(how, &piece));
                continue;
            }
            let row = match how {
                CopyKind::Upload(_) => Position { end: CopyEnd::Target(piece.target), offset: piece.to },
                _ => Position { end: CopyEnd::Source(piece.source), offset: piece.from },
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
                    let begun = StagedCopy { how, row, len: piece.len, pieces: SmallVec::from_slice(&[piece]) };
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

    /// A plan that concatenates sources of these lengths.
    pub fn gather(sources: &[(Endpoint, usize)], target: MemoryKind, staging_bytes_max: usize) -> Self {
        let endpoints: SmallVec<[Endpoint; 8]> = sources.iter().map(|(endpoint, _)| *endpoint).collect();
        let mut to = 0;
        let pieces = sources.iter().enumerate().map(|(source, &(_, len))| {
            let piece = Piece { source, from: 0, target: 0, to, len };
            to += len;
            piece
        });
        Self::new(&endpoints, &[Endpoint::alone(target)], pieces, staging_bytes_max)
    }

    /// A plan that copies the first bytes of one source to one target.
    pub fn whole(source: Endpoint, target: MemoryKind, len: usize, staging_bytes_max: usize) -> Self {
        Self::gather(&[(source, len)], target, staging_bytes_max)
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[CopyStep] {
        &self.steps
    }

    /// Size in bytes of each staging block.
    pub fn staging(&self) -> &[usize] {
        &self.staging
    }

    /// Adds a staging block, its transfer and its copies: before the transfer for an upload, in `later` for a download.
    fn flush(&mut self, queue: &StagedCopy, later: &mut SmallVec<[CopyStep; 4]>) {
        let end = CopyEnd::Staging(self.staging.len());
        self.staging.push(queue.len);
        let block = Position { end, offset: 0 };
        let is_upload = matches!(queue.how, CopyKind::Upload(_));
        let mut offset = 0;
        for piece in &queue.pieces {
            let (source, target) = ends(piece);
            let here = Position { end, offset };
            let (from, to) = if is_upload { (source, here) } else { (here, target) };
            let step = CopyStep::Copy { how: CopyKind::Memcpy, from, to, len: piece.len };
            if is_upload {
                self.steps.push(step)
            } else {
                later.push(step)
            }
            offset += piece.len;
        }
        let (from, to) = if is_upload { (block, queue.row) } else { (queue.row, block) };
        self.steps.push(CopyStep::Copy { how: queue.how, from, to, len: queue.len });
    }

    fn end(&mut self, later: SmallVec<[CopyStep; 4]>) {
        let mut devices: SmallVec<[u32; 4]> = SmallVec::new();
        for step in &self.steps {
            let CopyStep::Copy { how, .. } = step else { continue };
            if let Some(device) = how.device()
                && !devices.contains(&device)
            {
                devices.push(device);
            }
        }
        self.steps.extend(devices.into_iter().map(CopyStep::Synchronize));
        self.steps.extend(later);
    }
}

impl StagedCopy {
    fn is_followed_by(&self, sources: &[Endpoint], piece: &Piece, row: Position) -> bool {
        match (self.row.end, self.pieces.last()) {
            (CopyEnd::Target(_), _) => self.row.end == row.end && self.row.offset + self.len == row.offset,
            (_, Some(last)) => abut(sources, last, piece),
            _ => false,
        }
    }
}

impl CopyKind {
    /// The device whose stream makes the copy.
    pub fn device(self) -> Option<u32> {
        match self {
            Self::Memcpy => None,
            Self::Upload(device) | Self::Download(device) | Self::Within(device) | Self::Peer(_, device) => {
                Some(device)
            }
        }
    }
}

/// Whether `piece` begins in memory where `before` ends.
fn abut(sources: &[Endpoint], before: &Piece, piece: &Piece) -> bool {
    if before.source == piece.source {
        return before.from + before.len == piece.from;
    }
    let of = |piece: &Piece| {
        let endpoint = sources.get(piece.source)?;
        endpoint.extent.map(|e| (endpoint.memory, e.object, e.start.saturating_add(piece.from as u64)))
    };
    let (Some((memory, object, at)), Some(next)) = (of(before), of(piece)) else { return false };
    next == (memory, object, at.saturating_add(before.len as u64))
}

/// The table of memory.md 3.2.
fn is_staged(from: MemoryKind, to: MemoryKind) -> bool {
    matches!((from, to), (MemoryKind::Pageable, MemoryKind::Device(_)) | (MemoryKind::Device(_), MemoryKind::Pageable))
}

fn how(from: MemoryKind, to: MemoryKind) -> CopyKind {
    match (from, to) {
        (MemoryKind::Device(from), MemoryKind::Device(to)) if from == to => CopyKind::Within(to),
        (MemoryKind::Device(from), MemoryKind::Device(to)) => CopyKind::Peer(from, to),
        (_, MemoryKind::Device(to)) => CopyKind::Upload(to),
        (MemoryKind::Device(from), _) => CopyKind::Download(from),
        _ => CopyKind::Memcpy,
    }
}

fn ends(piece: &Piece) -> (Position, Position) {
    let from = Position { end: CopyEnd::Source(piece.source), offset: piece.from };
    (from, Position { end: CopyEnd::Target(piece.target), offset: piece.to })
}

fn direct(how: CopyKind, piece: &Piece) -> CopyStep {
    let (from, to) = ends(piece);
    CopyStep::Copy { how, from, to, len: piece.len }
}

#[cfg(test)]
mod tests;
