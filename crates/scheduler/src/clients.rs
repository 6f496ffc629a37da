//! Estimates the number of clients that send a request after a response: the most requests that lately waited or ran at
//! once. When so many do again, no further request is expected before a response.

/// Observations after which a maximum is old. The maximum of the last two such spans counts.
const SPAN: u32 = 256;

#[derive(Default)]
pub(crate) struct Clients {
    most: usize,
    most_before: usize,
    seen: u32,
}

impl Clients {
    /// Records the number of requests that wait or run. True if all clients wait. False while the number still grows,
    /// as in a burst.
    pub fn all_wait(&mut self, requests: usize) -> bool {
        if self.seen == SPAN {
            (self.most_before, self.most, self.seen) = (self.most, 0, 0);
        }
        self.seen += 1;
        let most = self.most.max(self.most_before);
        self.most = self.most.max(requests);
        requests == most
    }
}
