//! Messages of the process of a response cache, as the server reads them, and those that the process reads.

use frames::cache::{read_answer, read_request, write_answer, write_request};

/// Takes messages in a row. What was read has the same bytes when it is written. Whether one of them was right for one
/// of the sides.
pub fn cache_messages(data: &[u8]) -> bool {
    let (mut rest, mut accepted) = (data, false);
    loop {
        let before = rest;
        let Ok(answer) = read_answer(&mut rest) else { break };
        let read = before.len() - rest.len();
        assert_eq!(write_answer(answer.id, answer.status, &answer.contents), before.get(..read).unwrap_or_default());
        accepted = true;
    }
    rest = data;
    loop {
        let before = rest;
        let Ok(Some(request)) = read_request(&mut rest) else { break };
        let read = before.len() - rest.len();
        if let Ok(key) = std::str::from_utf8(&request.key) {
            let written = write_request(request.operation, request.id, key, &request.contents);
            assert_eq!(written, before.get(..read).unwrap_or_default());
        }
        accepted = true;
    }
    accepted
}
