//! Lines that wait to be written, bounded in bytes per reactor. Dropped lines are counted. No I/O and no clock here.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the lines of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines written.
    pub written: u64,
    /// Lines dropped because too many waited.
    pub lost_full: u64,
    /// Lines that the system failed to write.
    pub lost_error: u64,
    /// Bytes of the lines that wait.
    pub waiting_bytes: u64,
    /// Limit of `waiting_bytes`, the sum over all reactors.
    pub waiting_bytes_max: u64,
}

/// The lines of one reactor. Aligned to cache lines, so that reactors do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Vec<u8>>);

/// The lines of all reactors.
#[derive(Debug)]
pub struct LineQueue {
    shards: Box<[Shard]>,
    /// Maximum bytes per shard.
    bytes_max: usize,
    lost: AtomicU64,
}

/// Result of [`LineQueue::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The line waits.
    Waits,
    /// Half of the room was just used up: the lines should be written now.
    Urgent,
    /// The line was dropped, because there was no room.
    Lost,
}

impl LineQueue {
    /// Makes a queue with room for `bytes_max` bytes in each shard.
    pub fn new(shards: usize, bytes_max: usize) -> Self {
        let shards = (0..shards.max(1)).map(|_| Shard::default()).collect();
        Self { shards, bytes_max, lost: AtomicU64::new(0) }
    }

    /// Adds a line, or drops it. `shard` may be any number; each reactor has its own.
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

    /// Passes the lines of each reactor to `write`, one reactor after the other. Their buffer is exchanged for `spare`.
    pub fn take(&self, spare: &mut Vec<u8>, mut write: impl FnMut(&[u8])) {
        for Shard(waiting) in &self.shards {
            spare.clear();
            // The lock is held only for the exchange of two pointers, because a reactor may wait for it.
            std::mem::swap(&mut *waiting.lock(), spare);
            if !spare.is_empty() {
                write(spare);
            }
        }
    }

    /// Counts of lost and waiting lines; the writer knows the others.
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

    fn taken(queue: &LineQueue) -> Vec<String> {
        let mut all = Vec::new();
        queue.take(&mut Vec::new(), |lines| all.push(String::from_utf8(lines.to_vec()).unwrap()));
        all
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_as_a_whole_and_counted() {
        let queue = LineQueue::new(2, 10);
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
        let queue = LineQueue::new(3, 4096);
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
