//! Connections to the program that started the server.

#![cfg(target_os = "linux")]

use backend_process::{ParentProgram, RunnerLimits};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use tensor::Name;

const THREADS: usize = 4;
const CONNECTIONS: usize = 50;

#[test]
fn connections_that_open_at_once_are_handed_over_one_after_another() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let parent = ParentProgram::new(ours.as_raw_fd()).unwrap();
    let numbers = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let instance = parent.instance(Name::from("f_0"), "{}", &RunnerLimits::default());
            scope.spawn(move || (0..CONNECTIONS).for_each(|_| drop(instance.start.start().unwrap())));
        }
        let mut numbers = [0; 5 * THREADS * CONNECTIONS];
        theirs.read_exact(&mut numbers).unwrap();
        numbers
    });
    assert_eq!(numbers.chunks(5).find(|one| one != &[0, 1, 2, 3, 4]), None);
}
