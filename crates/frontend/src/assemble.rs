//! Collects a body into one slab. The announced length only reserves address space. Memory is used as bytes arrive, in
//! steps that are charged to the budget before they are read, and received bytes are never copied to a larger buffer.
//!
//! If the budget is short, a body waits unread for up to `MEMORY_WAIT_TIME_MAX`. Its charge ends with the last view.

use crate::limits::{CHARGE_BYTES_MIN, MEMORY_WAIT_TIME_MAX, MEMORY_WAIT_TIME_MIN, STEP_BYTES};
use bytes::Bytes;
use memory::budget::{SMALL_BYTES_MAX, Wait};
use memory::{Account, Charge, Kind, Short, SlabMut, SlabPool};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tensor::RegionRef;
use tensor::part::keeping;
use tokio::time::{Instant, Sleep, sleep};

/// Waits for room in the budget, up to a time limit. Resolves with a charge, which the caller merges into its own.
pub struct Pause {
    wait: Wait,
    until: Pin<Box<Sleep>>,
    late: Short,
}

impl Pause {
    /// Waits for `bytes` more for `charge`.
    pub fn new(charge: &Charge, bytes: usize, patience: Duration) -> Self {
        Self { wait: charge.wait(bytes), until: Box::pin(sleep(patience)), late: charge.account().short() }
    }

    /// Time left until the limit.
    fn left(&self) -> Duration {
        self.until.deadline().saturating_duration_since(Instant::now())
    }
}

impl Future for Pause {
    type Output = Result<Charge, Short>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = Pin::new(&mut self.wait).poll(cx) {
            return Poll::Ready(result);
        }
        let late = self.late;
        self.until.as_mut().poll(cx).map(|()| Err(late))
    }
}

/// Grows a charge by `bytes`, and waits for room if necessary.
///
/// # Errors
/// `Short` if there is no room within `MEMORY_WAIT_TIME_MAX`, or can never be.
pub async fn grow(charge: &mut Charge, bytes: usize) -> Result<(), Short> {
    match charge.grow(bytes) {
        Err(Short::Now { .. }) => {
            charge.merge(Pause::new(charge, bytes, MEMORY_WAIT_TIME_MAX).await?);
            Ok(())
        }
        result => result,
    }
}

enum BodyMemory {
    Slab(SlabMut),
    /// Memory of a model's process.
    Region(RegionRef),
}

impl BodyMemory {
    fn len(&self) -> usize {
        match self {
            Self::Slab(slab) => slab.len(),
            Self::Region(region) => region.len(),
        }
    }
}

/// A body that is being collected. Invariant: `pad <= at <= memory.len()`; no byte beyond `pad + charge.bytes()` is
/// written.
pub struct Assembler {
    memory: BodyMemory,
    /// Number of unused bytes in front, which align the tensors of the body.
    pad: usize,
    at: usize,
    charge: Charge,
    pause: Option<Box<Pause>>,
    /// Time left to wait for room, over all steps. Otherwise bodies that each hold a part could block each other at
    /// every step.
    patience: Duration,
}

impl Assembler {
    /// Reserves `length` bytes behind `pad` bytes that are not part of the body. With `near_device`, takes pinned
    /// memory if there is some for it.
    ///
    /// # Errors
    /// `Short` if one connection may not hold so much, or the system has no address space for it.
    pub fn new(length: usize, pad: usize, account: &Account, near_device: bool) -> Result<Self, Short> {
        account.check(length)?;
        let pinned = if near_device { SlabPool::pinned_for_body(pad + length) } else { None };
        let mut this = match pinned {
            Some(slab) => Self::into_slab(slab, account),
            None => Self::growing(pad + length, account)?,
        };
        (this.pad, this.at) = (pad, pad);
        Ok(this)
    }

    /// Like `new`, for a body of unknown length, of at most `length_max` bytes.
    ///
    /// # Errors
    /// `Short` if the system has no address space for it.
    pub fn growing(length_max: usize, account: &Account) -> Result<Self, Short> {
        Ok(Self::into_slab(SlabPool::global().reserve(length_max).map_err(|_| account.short())?, account))
    }

    /// Fills a region with a body of its length.
    ///
    /// # Errors
    /// `Short` if one connection may not hold so much.
    pub fn into_region(region: RegionRef, account: &Account) -> Result<Self, Short> {
        account.check(region.len())?;
        Ok(Self::into_memory(BodyMemory::Region(region), account))
    }

    fn into_slab(slab: SlabMut, account: &Account) -> Self {
        Self::into_memory(BodyMemory::Slab(slab), account)
    }

    fn into_memory(memory: BodyMemory, account: &Account) -> Self {
        let charge = account.empty(Kind::Body, memory.len() <= SMALL_BYTES_MAX);
        Self { memory, pad: 0, at: 0, charge, pause: None, patience: MEMORY_WAIT_TIME_MAX }
    }

    /// Adds a piece of a body of unknown length.
    ///
    /// # Errors
    /// `Short` if the body is too long, or there is no room for the piece.
    pub async fn collect(&mut self, mut piece: &[u8]) -> Result<(), Short> {
        while !piece.is_empty() {
            if self.missing() == 0 {
                let most = self.length();
                return Err(Short::TooLarge { bytes: most + piece.len(), most });
            }
            self.room().await?;
            let taken = self.push(piece);
            piece = piece.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Bytes that have not arrived yet.
    pub fn missing(&self) -> usize {
        self.memory.len() - self.at
    }

    /// Announced length of the body, or the maximum if it is unknown.
    pub fn length(&self) -> usize {
        self.memory.len() - self.pad
    }

    /// Offset in the slab at which the charged bytes end.
    fn charged_end(&self) -> usize {
        self.pad + self.charge.bytes()
    }

    /// Charges the next step if one is needed and there is room now. Steps double, so that a client that has sent
    /// little holds little memory, and a large body grows its charge rarely.
    fn grow_now(&mut self) -> Result<(), (usize, Short)> {
        let charged = self.charge.bytes();
        let room = self.charged_end().saturating_sub(self.at);
        // Charged before the last step is full: a read into the rest of a step would be short.
        if room > charged.min(STEP_BYTES) / 2 || charged == self.length() {
            return Ok(());
        }
        let step = charged.clamp(CHARGE_BYTES_MIN, STEP_BYTES).min(self.length() - charged);
        match self.charge.grow(step) {
            Err(short) if room == 0 => Err((step, short)),
            _ => Ok(()),
        }
    }

    /// Ready when there is room for some of the next bytes, or no bytes are missing.
    ///
    /// # Errors
    /// `Short` if there is no room within `MEMORY_WAIT_TIME_MAX`. The caller then has to drop the body.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Short>> {
        let mut pause = match self.pause.take() {
            Some(pause) => pause,
            None => match self.grow_now() {
                Ok(()) => return Poll::Ready(Ok(())),
                Err((step, Short::Now { .. })) => {
                    // Bodies that each hold a part would wait for each other until all are refused at the same time:
                    // of several, the later ones give up sooner.
                    let ahead = u32::try_from(self.charge.account().waiting()).unwrap_or(u32::MAX);
                    let share = if self.charge.bytes() > 0 { ahead.saturating_add(1) } else { 1 };
                    let patience = self.patience.min((MEMORY_WAIT_TIME_MAX / share).max(MEMORY_WAIT_TIME_MIN));
                    self.patience -= patience;
                    Box::new(Pause::new(&self.charge, step, patience))
                }
                Err((_, short)) => return Poll::Ready(Err(short)),
            },
        };
        match Pin::new(&mut *pause).poll(cx) {
            Poll::Ready(result) => {
                self.patience += pause.left();
                Poll::Ready(result.map(|more| self.charge.merge(more)))
            }
            Poll::Pending => {
                self.pause = Some(pause);
                Poll::Pending
            }
        }
    }

    /// Async form of `poll_room`.
    ///
    /// # Errors
    /// `Short` if there is no room within `MEMORY_WAIT_TIME_MAX`. The caller then has to drop the body.
    pub async fn room(&mut self) -> Result<(), Short> {
        poll_fn(|cx| self.poll_room(cx)).await
    }

    /// Buffer for the next bytes, at most `STEP_BYTES`, so that a reader that fills it lets others run before the next
    /// read. Empty if there is no room.
    pub fn spare(&mut self) -> &mut [u8] {
        let range = self.spare_range();
        match &mut self.memory {
            BodyMemory::Slab(slab) => slab.window(range),
            BodyMemory::Region(_) => &mut [],
        }
    }

    /// Like `spare`, for a body in a region. `None` if it is in a slab.
    pub fn spare_region(&self) -> Option<(&RegionRef, Range<usize>)> {
        match &self.memory {
            BodyMemory::Slab(_) => None,
            BodyMemory::Region(region) => Some((region, self.spare_range())),
        }
    }

    fn spare_range(&self) -> Range<usize> {
        self.at..self.charged_end().min(self.at + STEP_BYTES).min(self.memory.len())
    }

    /// Records that `n` bytes were written to `spare`.
    pub fn filled(&mut self, n: usize) {
        self.at = (self.at + n).min(self.memory.len());
    }

    /// Copies as many of `bytes` as there is room for, and returns their number.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let range = self.spare_range();
        let taken = bytes.len().min(range.len());
        let from = bytes.get(..taken).unwrap_or_default();
        match &mut self.memory {
            BodyMemory::Slab(slab) => slab.window(range.start..range.start + taken).copy_from_slice(from),
            // In range, as `at` never passes the end.
            BodyMemory::Region(region) => drop(region.copy_from(range.start, from)),
        }
        self.at += taken;
        taken
    }

    /// Returns the bytes collected, with their charge; none of a body in a region, which `into_filled` returns.
    pub fn into_bytes(mut self) -> Bytes {
        let BodyMemory::Slab(mut slab) = self.memory else { return Bytes::new() };
        slab.truncate(self.at);
        self.charge.shrink(self.at - self.pad);
        slab.freeze_with(self.charge).split_off(self.pad)
    }

    /// Returns the filled region, with its charge. `None` if the body is in a slab.
    pub fn into_filled(self) -> Option<RegionRef> {
        match self.memory {
            BodyMemory::Region(region) => Some(keeping(region, self.charge)),
            BodyMemory::Slab(_) => None,
        }
    }
}

impl http2::Collect for Assembler {
    fn spare(&mut self) -> &mut [u8] {
        // Without room the buffer is empty, and the caller waits in `poll_room`.
        let _ = self.grow_now();
        self.spare()
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll_room(cx).map(|room| room.is_ok())
    }

    fn filled(&mut self, n: usize) {
        self.filled(n);
    }

    fn missing(&self) -> usize {
        self.missing()
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        (*self).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Budget;
    use std::task::Waker;

    fn room(a: &mut Assembler) -> Poll<Result<(), Short>> {
        a.poll_room(&mut Context::from_waker(Waker::noop()))
    }

    /// Pushes as many of the bytes as there is room for.
    fn push(a: &mut Assembler, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && a.missing() > 0 && room(a) == Poll::Ready(Ok(())) {
            taken += a.push(&bytes[taken..]);
        }
        taken
    }

    #[test]
    fn memory_is_charged_in_steps_and_not_for_the_announced_length() {
        let budget = Budget::new(64 << 20);
        let length = 5 * STEP_BYTES / 2;
        let mut a = Assembler::new(length, 0, &budget.account(), false).expect("address space");
        assert!(a.spare().is_empty() && budget.counters().used_bytes[0] == 0, "nothing came, nothing is charged");
        assert_eq!(push(&mut a, &[7]), 1);
        let before = a.spare().as_ptr() as usize - 1;
        assert_eq!(budget.counters().used_bytes[0], CHARGE_BYTES_MIN);
        assert_eq!(push(&mut a, &vec![7; length]), length - 1);
        assert_eq!((a.missing(), a.spare().len(), room(&mut a)), (0, 0, Poll::Ready(Ok(()))));
        assert_eq!(budget.counters().used_bytes[0], length);
        let all = a.into_bytes();
        assert!(all.len() == length && all.iter().all(|&b| b == 7));
        assert_eq!(all.as_ptr() as usize, before, "nothing was moved");
        let tail = all.slice(length - 1..);
        drop(all);
        assert_eq!(budget.counters().used_bytes[0], length, "a view lives");
        drop(tail);
        assert_eq!(budget.counters().used_bytes[0], 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_room_up_to_a_time_limit() {
        let budget = Budget::new(1 << 20);
        let held: Vec<_> = (0..3)
            .map(|_| budget.account().charge(Kind::Body, false, 256 << 10).expect("room"))
            .chain([budget.account().charge(Kind::Body, false, 128 << 10).expect("room")])
            .collect();
        let account = budget.account();
        let mut a = Assembler::new(100_000, 0, &account, false).expect("address space");
        assert!(matches!(a.room().await, Err(Short::Now { limit, .. }) if limit == 1 << 20));
        drop(a);
        let mut a = Assembler::new(100_000, 0, &account, false).expect("address space");
        assert!(room(&mut a).is_pending() && budget.counters().waiting == 1);
        tokio::time::advance(MEMORY_WAIT_TIME_MAX / 2).await;
        drop(held);
        assert_eq!((room(&mut a), budget.counters().waiting), (Poll::Ready(Ok(())), 0));
        assert_eq!(a.patience, MEMORY_WAIT_TIME_MAX / 2, "what it waited is not given back with the next step");
        assert!(!a.spare().is_empty());
        assert!(
            matches!(Assembler::new(1 << 19, 0, &account, false), Err(Short::TooLarge { .. })),
            "more than a quarter"
        );
    }
}
