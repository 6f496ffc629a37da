//! Wakes what awaits answers, for all requests of a batch at once.
//!
//! A thread that answers a batch of thirty would wake thirty tasks of a reactor one by one, each with a system call; and the
//! reactor, waking up with the first, would write a response for each instead of one piece per connection. So the thread collects
//! the wakers of its batch and wakes the reactor once, when all answers are there.
//!
//! Invariant: a waker that was posted is woken by `open`, or by the thread that posted it; none stays in `HELD` after `together`.

use backend::sync::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

/// Where other threads leave the wakers of one thread's tasks.
pub struct Mailbox {
    posted: Mutex<Vec<Waker>>,
    /// Called from any thread when something lies in an empty mailbox.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Posted by a thread that is answering a batch.
type Posted = Vec<(Arc<Mailbox>, Waker)>;

#[cfg(not(feature = "loom"))]
thread_local! {
    static MINE: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
    static HELD: RefCell<Option<Posted>> = const { RefCell::new(None) };
}
#[cfg(feature = "loom")]
loom::thread_local! {
    static MINE: RefCell<Option<Arc<Mailbox>>> = RefCell::new(None);
    static HELD: RefCell<Option<Posted>> = RefCell::new(None);
}

/// Gives this thread a mailbox. `wake` is called, from any thread, when it got its first waker; this thread must then call
/// [`open`](Mailbox::open).
pub fn begin_mail(wake: impl Fn() + Send + Sync + 'static) -> Arc<Mailbox> {
    let mailbox = Arc::new(Mailbox { posted: Mutex::default(), wake: Box::new(wake) });
    MINE.with(|mine| *mine.borrow_mut() = Some(mailbox.clone()));
    mailbox
}

impl Mailbox {
    /// The one of this thread, if it has one.
    pub fn mine() -> Option<Arc<Self>> {
        MINE.with(|mine| mine.borrow().clone())
    }

    /// Wakes a task of the mailbox's thread: at once on that thread, else together with others that are ready now.
    pub fn post(self: &Arc<Self>, waker: Waker) {
        if MINE.with(|mine| mine.borrow().as_ref().is_some_and(|m| Arc::ptr_eq(m, self))) {
            return waker.wake();
        }
        let alone = HELD.with(|held| match &mut *held.borrow_mut() {
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

    /// Wakes everything that lies here. For the thread the mailbox belongs to.
    pub fn open(&self) {
        let posted = std::mem::take(&mut *self.posted.lock());
        posted.into_iter().for_each(Waker::wake);
    }
}

/// What is posted during `work` is woken after it, also if it panics.
pub fn together<T>(work: impl FnOnce() -> T) -> T {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            let held = HELD.with(RefCell::take).unwrap_or_default();
            for (mailbox, waker) in held {
                mailbox.put(waker);
            }
        }
    }
    // An answer that makes this thread answer another batch leaves the collecting to the first.
    let is_outermost = HELD.with(|held| {
        let mut held = held.borrow_mut();
        held.is_none() && held.insert(Vec::new()).is_empty()
    });
    let _held = is_outermost.then(|| Held);
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

    /// A mailbox of this thread, how often its thread was woken, and a task that counts its wakes.
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
    fn what_was_posted_before_a_panic_is_woken() {
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
