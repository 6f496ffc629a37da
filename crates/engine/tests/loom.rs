//! All interleavings of a cancelling client with a worker and with calls made for the request; of responding threads
//! with the waiting task; of jobs with starting and ending pool threads.
//! Run with `cargo test -p nereid-engine --features loom --test loom`.

use backend::RunControl;
use engine::{CancelledStage, HandOver, Mailbox, Pool, Task, TicketState, begin_mail, together};
use loom::sync::Arc as LoomArc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

#[test]
fn a_cancelled_request_is_swept_or_stops_its_batch_or_was_answered() {
    loom::model(|| {
        let ticket = Arc::new(TicketState::default());
        let stops = LoomArc::new(AtomicU32::new(0));
        let client = {
            let ticket = ticket.clone();
            loom::thread::spawn(move || ticket.cancel())
        };
        // The worker: takes the request unless it is cancelled, adds it to a batch of one, runs, responds.
        let control = Arc::new(RunControl::new(1));
        let taken = !ticket.is_cancelled();
        let mut started = false;
        if taken {
            ticket.running(&control);
            let counter = stops.clone();
            started = control.arm(|| {
                move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
            if started {
                control.disarm();
            }
            ticket.settle();
        }
        let was = client.join().unwrap();
        let stopped = stops.load(Ordering::Relaxed);
        assert!(stopped <= 1, "the hook ran {stopped} times");
        match was {
            // The client will sweep the queue, or the worker saw the flag when it joined the batch.
            Some(CancelledStage::Queued) => assert!(!taken || control.is_stopped() || started),
            Some(CancelledStage::Running) => assert!(control.is_stopped(), "the batch was told"),
            None => assert!(taken, "only an answered request has nothing to give up"),
        }
        if !started && taken {
            assert!(control.is_stopped(), "a batch that need not start has nobody who wants it");
        }
    });
}

#[test]
fn a_batch_stops_only_when_all_its_requests_are_cancelled() {
    loom::model(|| {
        let control = Arc::new(RunControl::new(2));
        let tickets = [Arc::new(TicketState::default()), Arc::new(TicketState::default())];
        for t in &tickets {
            t.running(&control);
        }
        let other = {
            let t = tickets[0].clone();
            loom::thread::spawn(move || t.cancel())
        };
        assert!(!control.is_stopped() || tickets[1].is_cancelled());
        tickets[1].cancel();
        other.join().unwrap();
        assert!(control.is_stopped());
    });
}

#[test]
fn a_call_for_a_cancelled_request_is_rejected_or_cancelled_once() {
    loom::model(|| {
        let parent = Arc::new(TicketState::default());
        let client = {
            let parent = parent.clone();
            loom::thread::spawn(move || parent.cancel())
        };
        // Counted twice, a batch of two would stop.
        let control = Arc::new(RunControl::new(2));
        let call = TicketState::new(None, Some(&parent));
        if let Ok(call) = &call {
            call.running(&control);
        }
        assert_eq!(client.join().unwrap(), Some(CancelledStage::Queued));
        if let Ok(call) = call {
            assert!(call.is_cancelled(), "it was made before, so it was told");
            assert!(!control.is_stopped(), "told twice");
            control.cancel_one();
            assert!(control.is_stopped(), "told never");
            call.settle();
        }
        assert_eq!(parent.children(), 0);
    });
}

#[test]
fn a_call_that_ends_during_a_cancellation_is_cancelled_at_most_once() {
    loom::model(|| {
        let parent = Arc::new(TicketState::default());
        let control = Arc::new(RunControl::new(2));
        let call = TicketState::new(None, Some(&parent)).unwrap();
        call.running(&control);
        let clients = [parent.clone(), call.clone()].map(|t| loom::thread::spawn(move || t.cancel()));
        call.settle();
        for client in clients {
            client.join().unwrap();
        }
        assert!(!control.is_stopped(), "told twice");
        assert_eq!((parent.children(), call.children()), (0, 0));
        assert!(TicketState::new(None, Some(&parent)).is_err(), "nothing is called for it any more");
    });
}

/// A counter of events. Waiting forever is a deadlock, which loom finds.
#[derive(Default)]
struct Count {
    so_far: Mutex<u32>,
    more: Condvar,
}

impl Count {
    fn add(&self) {
        *self.so_far.lock().unwrap() += 1;
        self.more.notify_all();
    }

    fn wait_until(&self, enough: u32) {
        let mut so_far = self.so_far.lock().unwrap();
        while *so_far < enough {
            so_far = self.more.wait(so_far).unwrap();
        }
    }

    /// Waits for an event since the last wait.
    fn take(&self) {
        let mut so_far = self.so_far.lock().unwrap();
        while *so_far == 0 {
            so_far = self.more.wait(so_far).unwrap();
        }
        *so_far = 0;
    }
}

/// A task: whether it is to be polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A thread with a mailbox, like a reactor.
struct Reactor {
    mailbox: Arc<Mailbox>,
    calls: Arc<Count>,
}

impl Reactor {
    fn new() -> Self {
        let calls = Arc::new(Count::default());
        let counted = calls.clone();
        Self { mailbox: begin_mail(move || counted.add()), calls }
    }

    /// Polls when the task was woken, and sleeps until it is called otherwise.
    fn wait(&self, hand_over: &HandOver<u32>) -> Option<u32> {
        let task = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(task.clone());
        loop {
            if task.0.swap(false, Ordering::SeqCst)
                && let Poll::Ready(value) = hand_over.poll(&mut Context::from_waker(&waker))
            {
                return value;
            }
            self.calls.take();
            self.mailbox.open();
        }
    }
}

#[test]
fn a_value_reaches_the_waiting_task() {
    loom::model(|| {
        let reactor = Reactor::new();
        let hand_over = Arc::new(HandOver::to_this_thread());
        let worker = {
            let hand_over = hand_over.clone();
            loom::thread::spawn(move || {
                hand_over.give(7);
                hand_over.give(8);
            })
        };
        assert_eq!(reactor.wait(&hand_over), Some(7));
        worker.join().unwrap();
        assert_eq!(reactor.wait(&hand_over), None, "the second was dropped");
    });
}

#[test]
fn concurrent_responses_of_two_batches_wake_every_task() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let reactor = Reactor::new();
        let hand_overs = [(); 2].map(|()| Arc::new(HandOver::to_this_thread()));
        let workers = hand_overs.clone().map(|hand_over| loom::thread::spawn(move || together(|| hand_over.give(1))));
        for hand_over in &hand_overs {
            assert_eq!(reactor.wait(hand_over), Some(1));
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn a_batch_wakes_the_thread_of_its_tasks_once() {
    loom::model(|| {
        let reactor = Reactor::new();
        let tasks = [(); 2].map(|()| Arc::new(Woken(AtomicBool::new(false))));
        let wakers = tasks.clone().map(Waker::from);
        let mailbox = reactor.mailbox.clone();
        let worker = loom::thread::spawn(move || together(|| wakers.into_iter().for_each(|waker| mailbox.post(waker))));
        // The second may come after the first was taken, and then calls again: never less, never more.
        while !tasks.iter().all(|task| task.0.load(Ordering::SeqCst)) {
            reactor.calls.take();
            reactor.mailbox.open();
        }
        worker.join().unwrap();
    });
}

struct Job(Arc<Count>);

impl Task for Job {
    fn run(self) {
        self.0.add();
    }
}

fn pools(check: impl Fn(Arc<Pool<Job>>, Arc<Count>) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    // The model ends when all pool threads have.
    model.check(move || check(Pool::new(2).unwrap(), Arc::default()));
}

#[test]
fn every_job_runs_whichever_threads_are_idle() {
    pools(|pool, done| {
        let other = {
            let (pool, job) = (pool.clone(), Job(done.clone()));
            loom::thread::spawn(move || pool.submit(job))
        };
        pool.submit(Job(done.clone()));
        done.wait_until(2);
        other.join().unwrap();
        pool.close();
    });
}

#[test]
fn a_job_submitted_while_threads_end_runs() {
    pools(|pool, done| {
        pool.submit(Job(done.clone()));
        pool.submit(Job(done.clone()));
        pool.expire();
        pool.submit(Job(done.clone()));
        done.wait_until(3);
        assert!(pool.threads().0 >= 1, "the last one stays");
        pool.close();
    });
}

#[test]
fn queued_jobs_run_after_the_pool_closes() {
    pools(|pool, done| {
        (0..3).for_each(|_| pool.submit(Job(done.clone())));
        pool.close();
        done.wait_until(3);
    });
}
