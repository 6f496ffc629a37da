//! One budget of bytes for all memory that requests make a server hold: bodies and data made from them, heads, batches,
//! and responses that clients have not read.
//!
//! A charge is taken as bytes arrive, never for announced bytes, and belongs to the buffer: a slab's charge ends when
//! its last view is dropped. Requests that find the budget short are queued; the bytes of a charge that ends are given
//! to them in order. No clock and no threads: callers limit the time of a wait.
//!
//! Invariant: `used`, the sum of all live charges, is at most `limit`, unless that was lowered; large buffers leave
//! `RESERVE_SHARE` of it to small ones; an account has at most `ACCOUNT_SHARE`.

use crate::machine;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use tensor::Error;

/// Buffers up to this size may use the reserve for small ones.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// Divisor of the limit that gives the reserve of small buffers.
const RESERVE_SHARE: usize = 8;
/// Divisor of the limit that gives the maximum of one account, a connection.
const ACCOUNT_SHARE: usize = 4;
/// Queued requests; further ones are rejected at once.
const WAITING_MAX: usize = 4096;

const KINDS: usize = 7;

/// Purpose of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request's body as received.
    Body,
    /// A request's head.
    Head,
    /// A response in progress or not yet written.
    Answer,
    /// Data made from a body: inflated bytes, tensors of JSON.
    Unpacked,
    /// Inputs of several requests, gathered.
    Batch,
    /// Memory of models on the host, as stated by their backends (`ledger`).
    Model,
    /// Inputs that a model's runner still has when their requests are over.
    Kept,
}

impl Kind {
    /// All kinds in the order of their numbers.
    pub const ALL: [Self; KINDS] =
        [Self::Body, Self::Head, Self::Answer, Self::Unpacked, Self::Batch, Self::Model, Self::Kept];

    /// Label of the kind in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Body => "bodies",
            Self::Head => "heads",
            Self::Answer => "answers",
            Self::Unpacked => "unpacked",
            Self::Batch => "batches",
            Self::Model => "models",
            Self::Kept => "kept",
        }
    }
}

/// Why a charge failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// The charge can never fit: it exceeds the maximum of one connection.
    TooLarge {
        /// Size of the whole buffer.
        bytes: usize,
        /// Maximum of an account.
        most: usize,
    },
    /// There is no room now.
    Now {
        /// Limit of the budget in bytes.
        limit: usize,
        /// Bytes of it that are used for no request.
        other: usize,
    },
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, most } => write!(
                f,
                "{bytes} bytes are more than one connection may hold, {most} bytes: a quarter of --memory-limit"
            ),
            Self::Now { limit, other: 0 } => write!(
                f,
                "the server is short of memory: requests and responses in flight use all of --memory-limit, {limit} \
                 bytes; try again later"
            ),
            Self::Now { limit, other } => write!(
                f,
                "the server is short of memory: requests and responses in flight use all of --memory-limit, {limit} \
                 bytes, of which models and the rest of the container use {other}; try again later"
            ),
        }
    }
}

impl From<Short> for Error {
    fn from(short: Short) -> Self {
        match short {
            Short::TooLarge { .. } => Self::invalid(short.to_string()),
            Short::Now { .. } => Self::exhausted(short.to_string()),
        }
    }
}

/// Charged bytes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetCounters {
    /// Most bytes that may be charged.
    pub limit_bytes: usize,
    /// Charged bytes by kind, in the order of `Kind::ALL`.
    pub used_bytes: [usize; KINDS],
    /// Bytes of the container that are used beyond the charges and the process's own need.
    pub other_bytes: usize,
    /// Queued requests.
    pub waiting: usize,
    /// Requests and responses rejected for lack of room.
    pub refused: u64,
}

/// Bytes that requests may hold on this machine or in this container if no limit is set.
pub fn limit_of_machine() -> usize {
    usize::try_from(machine::request_bytes()).unwrap_or(usize::MAX)
}

/// The budget; clones share it.
#[derive(Clone)]
pub struct Budget(Arc<SharedBudget>, Account);

struct SharedBudget {
    limit: AtomicUsize,
    /// All charges, and `other`.
    used: AtomicUsize,
    other: AtomicUsize,
    /// Samples are taken often, because requests hold memory.
    is_watched: AtomicBool,
    /// Called at the first large charge after a call of `unwatch`.
    on_use: OnceLock<fn()>,
    kinds: [AtomicUsize; KINDS],
    refused: AtomicU64,
    /// A charge found no room since this was asked for last.
    has_lacked: AtomicBool,
    /// Length of `queue`, readable without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<QueuedCharge>>>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let shared = Arc::new(SharedBudget {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            other: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            on_use: OnceLock::new(),
            kinds: Default::default(),
            refused: AtomicU64::new(0),
            has_lacked: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        });
        let common = Account::new(&shared, 1);
        Self(shared, common)
    }

    /// The budget of the process, with [`limit_of_machine`] until `set_limit` is called.
    pub fn global() -> &'static Self {
        static BUDGET: OnceLock<Budget> = OnceLock::new();
        BUDGET.get_or_init(|| Self::new(limit_of_machine()))
    }

    /// Has `notify` called when requests begin to hold memory.
    pub(crate) fn on_use(&self, notify: fn()) {
        let _ = self.0.on_use.set(notify);
    }

    /// Ends the frequent samples: the next large charge starts them again.
    pub(crate) fn unwatch(&self) {
        self.0.is_watched.store(false, Relaxed);
    }

    /// Sets the bytes that are used by others. They may be more than the limit.
    pub(crate) fn set_other(&self, bytes: usize) {
        let before = self.0.other.swap(bytes, SeqCst);
        if bytes > before {
            self.0.used.fetch_add(bytes - before, SeqCst);
        } else if bytes < before {
            self.0.used.fetch_sub(before - bytes, SeqCst);
            self.0.grant();
        }
    }

    /// True if more than half of the limit is in use: memory should not be kept for reuse.
    pub fn is_tight(&self) -> bool {
        self.0.used.load(Relaxed) > self.limit() / 2
    }

    /// Changes the limit. Existing charges stay, also beyond it.
    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, SeqCst);
        self.0.grant();
    }

    /// Most bytes that may be charged.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Relaxed)
    }

    /// An empty account for a connection.
    pub fn account(&self) -> Account {
        Account::new(&self.0, ACCOUNT_SHARE)
    }

    /// The account for memory of no single connection: only the budget bounds it.
    pub fn common(&self) -> &Account {
        &self.1
    }

    /// True if requests are queued.
    pub fn is_short(&self) -> bool {
        self.0.waiting.load(Relaxed) > 0
    }

    /// True if a charge found no room since the last call.
    pub(crate) fn take_lack(&self) -> bool {
        self.0.has_lacked.swap(false, Relaxed)
    }

    /// Current charges.
    pub fn counters(&self) -> BudgetCounters {
        let i = &*self.0;
        BudgetCounters {
            limit_bytes: i.limit.load(Relaxed),
            used_bytes: i.kinds.each_ref().map(|n| n.load(Relaxed)),
            other_bytes: i.other.load(Relaxed),
            waiting: i.waiting.load(Relaxed),
            refused: i.refused.load(Relaxed),
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counters().fmt(f)
    }
}

impl SharedBudget {
    /// Adds `bytes` to `counter` if the sum stays within `most`.
    fn add(counter: &AtomicUsize, bytes: usize, most: usize) -> bool {
        // SeqCst here, in `release` and with `waiting`: a simultaneous release and queueing see each other.
        counter.fetch_update(SeqCst, SeqCst, |used| used.checked_add(bytes).filter(|&n| n <= most)).is_ok()
    }

    /// Limit of all charges for buffers of this size class.
    fn most(&self, small: bool) -> usize {
        let limit = self.limit.load(Relaxed);
        if small { limit } else { limit - limit / RESERVE_SHARE }
    }

    fn take(&self, account: &AccountInner, kind: Kind, small: bool, bytes: usize) -> Taken {
        if !Self::add(&account.used, bytes, self.limit.load(Relaxed) / account.share) {
            return Taken::AccountIsFull;
        }
        if !Self::add(&self.used, bytes, self.most(small)) {
            account.used.fetch_sub(bytes, SeqCst);
            return Taken::BudgetIsFull;
        }
        if let Some(of_kind) = self.kinds.get(kind as usize) {
            of_kind.fetch_add(bytes, Relaxed);
        }
        if !small
            && !self.is_watched.load(Relaxed)
            && !self.is_watched.swap(true, Relaxed)
            && let Some(notify) = self.on_use.get()
        {
            notify();
        }
        Taken::All
    }

    fn release(&self, account: &AccountInner, kind: Kind, bytes: usize) {
        if let Some(of_kind) = self.kinds.get(kind as usize) {
            of_kind.fetch_sub(bytes, Relaxed);
        }
        account.used.fetch_sub(bytes, SeqCst);
        self.used.fetch_sub(bytes, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.grant();
        }
    }

    /// Grants room to queued requests in order. A request whose account is full is skipped; one that the budget is too
    /// short for blocks the later ones of its class, because large requests would starve otherwise.
    fn grant(&self) {
        let mut woken = Vec::new();
        let mut queue = self.queue.lock();
        let (mut large, mut all) = (true, true);
        queue.retain(|w| {
            if !all || !(large || w.small) {
                return true;
            }
            match self.take(&w.account.0, w.kind, w.small, w.bytes) {
                Taken::All => {
                    w.granted.store(true, SeqCst);
                    woken.extend(w.waker.lock().take());
                    return false;
                }
                Taken::AccountIsFull => {}
                Taken::BudgetIsFull if w.small => all = false,
                Taken::BudgetIsFull => large = false,
            }
            true
        });
        self.waiting.store(queue.len(), SeqCst);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Taken {
    All,
    AccountIsFull,
    BudgetIsFull,
}

/// The charges of one connection. Clones share the account.
#[derive(Clone)]
pub struct Account(Arc<AccountInner>);

struct AccountInner {
    budget: Arc<SharedBudget>,
    used: AtomicUsize,
    /// The account may have one of this many parts of the budget.
    share: usize,
}

impl Account {
    fn new(budget: &Arc<SharedBudget>, share: usize) -> Self {
        Self(Arc::new(AccountInner { budget: budget.clone(), used: AtomicUsize::new(0), share }))
    }

    /// Charges `bytes` for a buffer; `small` if it may use the reserve as long as it does not exceed `SMALL_BYTES_MAX`.
    ///
    /// # Errors
    /// `Short` if there is no room.
    pub fn charge(&self, kind: Kind, small: bool, bytes: usize) -> Result<Charge, Short> {
        let mut charge = self.empty(kind, small);
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// An empty charge that can grow.
    pub fn empty(&self, kind: Kind, small: bool) -> Charge {
        Charge { account: self.clone(), kind, small, bytes: 0 }
    }

    /// Bytes charged to this account.
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }

    /// Most bytes it may have.
    pub fn most(&self) -> usize {
        self.0.budget.limit.load(Relaxed) / self.0.share
    }

    /// Checks whether a buffer of `bytes` could ever be charged.
    ///
    /// # Errors
    /// `Short::TooLarge` if not.
    pub fn check(&self, bytes: usize) -> Result<(), Short> {
        let most = self.most();
        if bytes > most { Err(Short::TooLarge { bytes, most }) } else { Ok(()) }
    }

    /// True if requests are queued.
    pub fn is_short(&self) -> bool {
        self.0.budget.waiting.load(Relaxed) > 0
    }

    /// Queued requests.
    pub fn waiting(&self) -> usize {
        self.0.budget.waiting.load(Relaxed)
    }

    /// Counts a rejection for lack of room.
    pub fn count_refusal(&self) {
        self.0.budget.refused.fetch_add(1, Relaxed);
    }

    /// The error for a lack of room.
    pub fn short(&self) -> Short {
        let budget = &self.0.budget;
        Short::Now { limit: budget.limit.load(Relaxed), other: budget.other.load(Relaxed) }
    }
}

/// Bytes charged for one buffer while this lives.
pub struct Charge {
    account: Account,
    kind: Kind,
    small: bool,
    bytes: usize,
}

/// Bytes with their charge.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Charge {
    /// Attaches the charge to `bytes`; it ends with their last view.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Charged { bytes, _charge: self })
    }

    /// Bytes charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` more, if there is room and no request of its class is queued.
    ///
    /// # Errors
    /// `Short`; the charge is unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Short> {
        let sum = self.bytes.saturating_add(bytes);
        self.account.check(sum)?;
        if self.small && sum > SMALL_BYTES_MAX {
            // All of it is a large one now.
            *self = self.account.charge(self.kind, false, sum)?;
            return Ok(());
        }
        let budget = &*self.account.0.budget;
        // Queued requests came first. Small charges may pass: they queue only when even the reserve is used up. So may
        // all but bodies of new requests: their requests hold memory already, which is freed when they end.
        let queued = !self.small && self.kind == Kind::Body && budget.waiting.load(SeqCst) > 0;
        if queued || budget.take(&self.account.0, self.kind, self.small, bytes) != Taken::All {
            budget.has_lacked.store(true, Relaxed);
            return Err(self.account.short());
        }
        self.bytes = sum;
        Ok(())
    }

    /// Charges what lacks to `bytes` in all. Needs no room if it covers them already.
    ///
    /// # Errors
    /// `Short`; the charge is unchanged.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Short> {
        if bytes <= self.bytes { Ok(()) } else { self.grow(bytes - self.bytes) }
    }

    /// Like `grow`, but waits for room: the result is to be merged into this charge. Dropping it ends the wait.
    pub fn wait(&self, bytes: usize) -> Wait {
        let waiting = Arc::new(QueuedCharge {
            account: self.account.clone(),
            kind: self.kind,
            small: self.small,
            bytes,
            granted: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        Wait { waiting, state: WaitState::New }
    }

    /// Counts it as another kind.
    pub fn becomes(&mut self, kind: Kind) {
        let kinds = &self.account.0.budget.kinds;
        for (of, is_new) in [(self.kind, false), (kind, true)] {
            if let Some(n) = kinds.get(of as usize) {
                if is_new {
                    n.fetch_add(self.bytes, Relaxed)
                } else {
                    n.fetch_sub(self.bytes, Relaxed)
                };
            }
        }
        self.kind = kind;
    }

    /// The account it is charged to.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Releases the bytes beyond `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        if more > 0 {
            self.bytes -= more;
            self.account.0.budget.release(&self.account.0, self.kind, more);
        }
    }

    /// Takes over another charge of the same account and kind.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.account.0, &other.account.0) && self.kind == other.kind);
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.0.budget.release(&self.account.0, self.kind, self.bytes);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes charged for {}", self.bytes, self.kind.name())
    }
}

struct QueuedCharge {
    account: Account,
    kind: Kind,
    small: bool,
    bytes: usize,
    /// Set under the queue's lock when it leaves the queue with its bytes charged.
    granted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

enum WaitState {
    New,
    Queued,
    Over,
}

/// Waits for room; see [`Charge::wait`].
pub struct Wait {
    waiting: Arc<QueuedCharge>,
    state: WaitState,
}

impl Wait {
    fn charge(&mut self) -> Charge {
        self.state = WaitState::Over;
        let w = &*self.waiting;
        Charge { account: w.account.clone(), kind: w.kind, small: w.small, bytes: w.bytes }
    }
}

impl Future for Wait {
    type Output = Result<Charge, Short>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = self.waiting.clone();
        let budget = waiting.account.0.budget.clone();
        match self.state {
            WaitState::Over => return Poll::Pending,
            WaitState::New => {
                let mut queue = budget.queue.lock();
                if queue.len() >= WAITING_MAX {
                    drop(queue);
                    self.state = WaitState::Over;
                    return Poll::Ready(Err(waiting.account.short()));
                }
                *waiting.waker.lock() = Some(cx.waker().clone());
                queue.push_back(waiting.clone());
                budget.waiting.store(queue.len(), SeqCst);
                drop(queue);
                self.state = WaitState::Queued;
                // A release before this one was queued woke no waiter.
                budget.grant();
            }
            WaitState::Queued => {
                let mut waker = waiting.waker.lock();
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
            }
        }
        // Checked after the waker is registered, so that a grant in between is noticed.
        if waiting.granted.load(SeqCst) { Poll::Ready(Ok(self.charge())) } else { Poll::Pending }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !matches!(self.state, WaitState::Queued) {
            return;
        }
        let budget = self.waiting.account.0.budget.clone();
        let mut queue = budget.queue.lock();
        queue.retain(|w| !Arc::ptr_eq(w, &self.waiting));
        budget.waiting.store(queue.len(), SeqCst);
        drop(queue);
        if self.waiting.granted.load(SeqCst) {
            drop(self.charge());
        } else {
            // It may have blocked others in the queue.
            budget.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;
    use std::time::Duration;

    const KB: usize = 1 << 10;

    fn used(budget: &Budget) -> usize {
        budget.counters().used_bytes.iter().sum()
    }

    /// A waker that unparks its thread.
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn poll(wait: &mut Wait) -> Poll<Result<Charge, Short>> {
        Pin::new(wait).poll(&mut Context::from_waker(&Waker::from(Arc::new(Unpark(std::thread::current())))))
    }

    /// Waits at most `most`, without spinning, so that a lost wake is noticed.
    fn block_on(mut wait: Wait, most: Duration) -> Option<Result<Charge, Short>> {
        let end = std::time::Instant::now() + most;
        loop {
            if let Poll::Ready(done) = poll(&mut wait) {
                return Some(done);
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }

    #[test]
    fn large_charges_leave_a_reserve_and_one_account_has_a_quarter() {
        let budget = Budget::new(800 * KB);
        let one = budget.account();
        assert_eq!(
            one.charge(Kind::Body, false, 201 * KB).err(),
            Some(Short::TooLarge { bytes: 201 * KB, most: 200 * KB })
        );
        let mut all = vec![one.charge(Kind::Body, false, 200 * KB).expect("room")];
        assert_eq!(
            one.charge(Kind::Body, true, KB).err(),
            Some(Short::Now { limit: 800 * KB, other: 0 }),
            "the account is full"
        );
        for n in [200, 200, 100] {
            all.push(budget.account().charge(Kind::Answer, false, n * KB).expect("room"));
        }
        assert!(budget.account().charge(Kind::Body, false, KB).is_err(), "the reserve is not for large ones");
        let mut small = budget.account().charge(Kind::Head, true, 50 * KB).expect("the reserve");
        assert!(small.grow(30 * KB).is_err(), "it would be a large one");
        all.extend([small, budget.account().charge(Kind::Head, true, 50 * KB).expect("the reserve")]);
        assert!(budget.account().charge(Kind::Head, true, 1).is_err());
        assert_eq!(budget.counters().used_bytes, [200 * KB, 100 * KB, 500 * KB, 0, 0, 0, 0]);
        drop(all);
        assert_eq!((used(&budget), one.used()), (0, 0));
    }

    #[test]
    fn a_released_charge_is_granted_in_queue_order() {
        let budget = Budget::new(800 * KB);
        let held: Vec<_> =
            (0..4).map(|_| budget.account().charge(Kind::Body, false, 175 * KB).expect("room")).collect();
        let empty = budget.account().empty(Kind::Body, false);
        let (mut first, mut second) = (empty.wait(190 * KB), budget.account().empty(Kind::Body, false).wait(10 * KB));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert_eq!(budget.counters().waiting, 2);
        let mut held = held.into_iter();
        drop(held.next());
        assert!(poll(&mut first).is_pending(), "175 of 190");
        assert!(poll(&mut second).is_pending(), "it came later");
        assert!(budget.account().charge(Kind::Body, false, KB).is_err(), "so does this");
        assert!(budget.account().charge(Kind::Body, true, KB).is_ok(), "small ones do not wait for large ones");
        drop(held.next());
        let charge = match poll(&mut first) {
            Poll::Ready(Ok(charge)) => charge,
            other => panic!("{other:?}"),
        };
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))));
        assert_eq!(budget.counters().waiting, 0);
        drop((charge, held));
        assert_eq!(used(&budget), 0);
    }

    #[test]
    fn a_cancelled_wait_releases_its_grant_and_its_place() {
        let budget = Budget::new(80 * KB);
        let accounts = [(); 4].map(|()| budget.account());
        let mut held: Vec<_> = accounts.iter().map(|a| a.charge(Kind::Body, false, 17 * KB).expect("room")).collect();
        let empty = budget.account().empty(Kind::Body, false);
        let (mut first, mut second) = (empty.wait(15 * KB), budget.account().empty(Kind::Body, false).wait(20 * KB));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        held.pop();
        assert_eq!((used(&budget), budget.counters().waiting), ((51 + 15) * KB, 1), "granted");
        drop(first);
        assert_eq!(used(&budget), 51 * KB, "and given back");
        assert!(poll(&mut second).is_pending());
        held.pop();
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(c)) if c.bytes() == 20 * KB));
        // The head of the queue is dropped: the next one gets the room.
        let mut held = vec![budget.account().charge(Kind::Body, false, 15 * KB).expect("room")];
        held.push(budget.account().charge(Kind::Body, false, 15 * KB).expect("room"));
        let (mut first, mut second) = (empty.wait(20 * KB), budget.account().empty(Kind::Body, false).wait(KB));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(first);
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of waits; nothing of it is unsafe")]
    fn the_queue_is_bounded_and_a_higher_limit_grants_it() {
        let budget = Budget::new(8 * KB);
        let full: Vec<_> = (0..4).map(|_| budget.account().charge(Kind::Head, true, 2 * KB).expect("room")).collect();
        let mut waits: Vec<_> = (0..WAITING_MAX).map(|_| budget.account().empty(Kind::Body, false).wait(10)).collect();
        assert!(waits.iter_mut().all(|w| poll(w).is_pending()));
        let mut one_more = budget.account().empty(Kind::Body, false).wait(10);
        assert!(matches!(poll(&mut one_more), Poll::Ready(Err(Short::Now { .. }))));
        budget.set_limit(1 << 20);
        assert!(waits.iter_mut().all(|w| matches!(poll(w), Poll::Ready(Ok(_)))));
        drop((full, waits));
        assert_eq!((used(&budget), budget.counters().waiting), (0, 0));
    }

    /// Threads charge, grow, wait, cancel and release at random: no bytes are lost, no wait is endless.
    #[test]
    fn concurrent_charges_add_up_and_no_wake_is_lost() {
        // Enough for all threads to keep their charges while they wait, and for one to get its grant.
        let budget = Budget::new(80 * KB);
        std::thread::scope(|s| {
            for seed in 1..=8u64 {
                let budget = budget.clone();
                s.spawn(move || {
                    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let mut random = move |n: u64| {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        x % n
                    };
                    let account = budget.account();
                    // Miri is some thousand times slower and checks other properties.
                    for _ in 0..if cfg!(miri) { 10 } else { 2000 } {
                        let mut charge = account.empty(Kind::ALL[random(3) as usize], random(4) == 0);
                        for _ in 0..random(4) {
                            let bytes = 1 + random(4096) as usize;
                            if charge.grow(bytes).is_err() {
                                let patience = if random(4) == 0 { Duration::ZERO } else { Duration::from_secs(20) };
                                match block_on(charge.wait(bytes), patience) {
                                    Some(Ok(more)) => charge.merge(more),
                                    _ => assert!(patience.is_zero(), "a wake was lost: {budget:?}"),
                                }
                            }
                            assert!(budget.0.used.load(SeqCst) <= 80 * KB, "{budget:?}");
                        }
                        if random(2) == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!((used(&budget), budget.counters().waiting), (0, 0));
    }
}
