//! Lines that wait to be written: bounded in bytes, for each reactor. Pure but for its locks; what is dropped is counted.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of the lines of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Written.
    pub written: u64,
    /// Dropped, as too many waited.
    pub lost_full: u64,
    /// Not written, as the system refused.
    pub lost_error: u64,
    /// Bytes of those that wait.
    pub waiting_bytes: u64,
    /// The most there may be, all reactors together.
    pub waiting_bytes_max: u64,
}

/// The lines of one reactor. On a line of the cache of its own: another reactor's must not slow this one down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Vec<u8>>);

/// The lines of all.
#[derive(Debug)]
pub struct Queue {
    shards: Box<[Shard]>,
    /// Of each.
    bytes_max: usize,
    lost: AtomicU64,
}

/// What is to be done behind a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It waits with others.
    Waits,
    /// So many wait that they should be written now.
    Urgent,
    /// There was no room.
    Lost,
}

impl Queue {
    /// For so many reactors, and so many bytes of each.
    pub fn new(shards: usize, bytes_max: usize) -> Self {
        let shards = (0..shards.max(1)).map(|_| Shard::default()).collect();
        Self { shards, bytes_max, lost: AtomicU64::new(0) }
    }

    /// Takes a line, or drops it. `shard` is any number; that of a reactor is its own.
    pub fn put(&self, shard: usize, line: &[u8]) -> Put {
        let Some(Shard(waiting)) = self.shards.get(shard % self.shards.len()) else { return Put::Lost };
        let mut waiting = waiting.lock();
        let (before, after) = (waiting.len(), waiting.len() + line.len());
        if after > self.bytes_max {
            drop(waiting);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Put::Lost;
        }
        waiting.extend_from_slice(line);
        drop(waiting);
        let half = self.bytes_max / 2;
        if before <= half && after > half { Put::Urgent } else { Put::Waits }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.0.lock().is_empty())
    }

    /// Hands what each reactor left to `write`, one after the other. `spare` goes in its place; its room is used again.
    pub fn take(&self, spare: &mut Vec<u8>, mut write: impl FnMut(&[u8])) {
        for Shard(waiting) in &self.shards {
            spare.clear();
            // Held for as long as it takes to exchange two pointers: a reactor may wait for it.
            std::mem::swap(&mut *waiting.lock(), spare);
            if !spare.is_empty() {
                write(spare);
            }
        }
    }

    /// What is known here of the counts.
    pub fn counts(&self) -> LogCounts {
        let waiting: usize = self.shards.iter().map(|shard| shard.0.lock().len()).sum();
        LogCounts {
            lost_full: self.lost.load(Ordering::Relaxed),
            waiting_bytes: waiting as u64,
            waiting_bytes_max: (self.bytes_max * self.shards.len()) as u64,
            ..LogCounts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &Queue) -> Vec<String> {
        let mut all = Vec::new();
        queue.take(&mut Vec::new(), |lines| all.push(String::from_utf8(lines.to_vec()).unwrap()));
        all
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_counted_and_whole_ones_stay() {
        let queue = Queue::new(2, 10);
        assert_eq!(queue.put(0, b"1234\n"), Put::Waits);
        assert_eq!(queue.put(0, b"1\n"), Put::Urgent);
        assert_eq!(queue.put(0, b"1234\n"), Put::Lost, "12 bytes");
        assert_eq!(queue.put(0, b"2\n"), Put::Waits, "a shorter one fits");
        assert_eq!(queue.put(3, b"other\n"), Put::Urgent, "another reactor's has room of its own");
        let counts = queue.counts();
        assert_eq!((counts.lost_full, counts.waiting_bytes, counts.waiting_bytes_max), (1, 15, 20));
        assert_eq!(taken(&queue), ["1234\n1\n2\n", "other\n"]);
        assert!(queue.is_empty() && taken(&queue).is_empty());
        assert_eq!(queue.put(0, b"again\n"), Put::Urgent);
    }

    #[test]
    fn every_line_of_many_threads_is_taken_whole_or_counted_as_lost() {
        let queue = Queue::new(3, 4096);
        let (mut got, mut spare) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4usize)
                .map(|t| {
                    let queue = &queue;
                    scope.spawn(move || (0..5000).for_each(|n| _ = queue.put(t, format!("{t} {n}\n").as_bytes())))
                })
                .collect();
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                queue.take(&mut spare, |lines| got.extend_from_slice(lines));
            }
        });
        queue.take(&mut spare, |lines| got.extend_from_slice(lines));
        let text = String::from_utf8(got).unwrap();
        let whole =
            text.lines().filter(|l| l.split_once(' ').is_some_and(|(t, n)| t.len() == 1 && n.parse::<u32>().is_ok()));
        assert_eq!(whole.count() as u64 + queue.counts().lost_full, 20_000);
    }
}
