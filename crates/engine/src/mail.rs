//! Wakes the tasks that wait for responses of a batch, all at once.
//!
//! A thread that responds to a batch of thirty would wake thirty tasks of a reactor, each with a system call; and the
//! reactor, awake after the first, would write single responses instead of one piece per connection. So the thread
//! collects the wakers of its batch and wakes the reactor once, when all responses are there.
//!
//! Invariant: a posted waker is woken by `open`, or by the thread that posted it; none stays in `DEFERRED`.

use backend::sync::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

/// Wakers that other threads leave for the tasks of one thread.
pub struct Mailbox {
    posted: Mutex<Vec<Waker>>,
    /// Called on any thread when an empty mailbox got a waker.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Wakers collected by a thread that is responding to a batch.
type Posted = Vec<(Arc<Mailbox>, Waker)>;

#[cfg(not(feature = "loom"))]
thread_local! {
    static MINE: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
    static DEFERRED: RefCell<Option<Posted>> = const { RefCell::new(None) };
}
#[cfg(feature = "loom")]
loom::thread_local! {
    static MINE: RefCell<Option<Arc<Mailbox>>> = RefCell::new(None);
    static DEFERRED: RefCell<Option<Posted>> = RefCell::new(None);
}

/// Gives this thread a mailbox. `wake` is called on any thread for its first waker; then call [`open`](Mailbox::open).
pub fn begin_mail(wake: impl Fn() + Send + Sync + 'static) -> Arc<Mailbox> {
    let mailbox = Arc::new(Mailbox { posted: Mutex::default(), wake: Box::new(wake) });
    MINE.with(|mine| *mine.borrow_mut() = Some(mailbox.clone()));
    mailbox
}

impl Mailbox {
    /// The mailbox of this thread, if it has one.
    pub fn mine() -> Option<Arc<Self>> {
        MINE.with(|mine| mine.borrow().clone())
    }

    /// Wakes a task of the mailbox's thread: at once on that thread, otherwise together with others.
    pub fn post(self: &Arc<Self>, waker: Waker) {
        if MINE.with(|mine| mine.borrow().as_ref().is_some_and(|m| Arc::ptr_eq(m, self))) {
            return waker.wake();
        }
        let alone = DEFERRED.with(|held| match &mut *held.borrow_mut() {
            Some(list) => {
                list.push((self.clone(), waker));
                None
            }
            None => Some(waker),
        });
        if let Some(waker) = alone {
            self.put(waker);
        }
    }

    fn put(&self, waker: Waker) {
        let mut posted = self.posted.lock();
        posted.push(waker);
        let is_first = posted.len() == 1;
        drop(posted);
        if is_first {
            (self.wake)();
        }
    }

    /// Wakes all tasks. Called by the owner of the mailbox.
    pub fn open(&self) {
        let posted = std::mem::take(&mut *self.posted.lock());
        posted.into_iter().for_each(Waker::wake);
    }
}

/// Wakes everything that is posted during `work` after it, also after a panic.
pub fn together<T>(work: impl FnOnce() -> T) -> T {
    struct DeferredWakes;
    impl Drop for DeferredWakes {
        fn drop(&mut self) {
            let held = DEFERRED.with(RefCell::take).unwrap_or_default();
            for (mailbox, waker) in held {
                mailbox.put(waker);
            }
        }
    }
    // A nested call, from a response that starts another batch, leaves the collecting to the outer one.
    let is_outermost = DEFERRED.with(|held| {
        let mut held = held.borrow_mut();
        held.is_none() && held.insert(Vec::new()).is_empty()
    });
    let _held = is_outermost.then(|| DeferredWakes);
    work()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// A mailbox of this thread, the number of its wakes, and a task that counts its own.
    fn mailbox() -> (Arc<Mailbox>, Arc<AtomicUsize>, Arc<Count>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let mailbox = begin_mail(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        (mailbox, calls, Arc::default())
    }

    #[test]
    fn a_batch_wakes_the_thread_once_and_every_task() {
        let (mailbox, calls, task) = mailbox();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together(|| {
                    together(|| mailbox.post(task.clone().into()));
                    assert_eq!(calls.load(Ordering::SeqCst), 0, "not before the last answer");
                    (0..29).for_each(|_| mailbox.post(task.clone().into()));
                });
                mailbox.post(task.clone().into());
            });
        });
        assert_eq!((calls.load(Ordering::SeqCst), task.get()), (1, 0), "only its thread wakes a task");
        mailbox.open();
        assert_eq!(task.get(), 31);
        mailbox.open();
        assert_eq!((calls.load(Ordering::SeqCst), task.get()), (1, 31));
    }

    #[test]
    fn on_its_own_thread_a_task_is_woken_at_once() {
        let (mailbox, calls, task) = mailbox();
        together(|| {
            mailbox.post(task.clone().into());
            assert_eq!(task.get(), 1);
        });
        assert_eq!((calls.load(Ordering::SeqCst), task.get()), (0, 1));
    }

    #[test]
    fn wakers_posted_before_a_panic_are_woken() {
        let (mailbox, calls, task) = mailbox();
        let (theirs, waker) = (mailbox.clone(), task.clone().into());
        let ended = std::thread::spawn(move || {
            together(|| {
                theirs.post(waker);
                panic!("on purpose");
            })
        });
        assert!(ended.join().is_err());
        mailbox.open();
        assert_eq!((calls.load(Ordering::SeqCst), task.get()), (1, 1));
    }
}
