//! Frames of the runner protocol, as a process that runs a model sends them, and as our host of C libraries gets them.

/// Takes frames in a row, as they come from a socket. Whether one of them was right for one of the sides.
pub fn runner_frames(data: &[u8]) -> bool {
    let (mut rest, mut accepted) = (data, false);
    while let Ok(Some((header, body, after))) = frames::split(rest) {
        rest = after;
        accepted |= frames::read(&header, body).is_ok();
    }
    rest = data;
    while let Ok(Some((header, body, after))) = frames::split_request(rest) {
        rest = after;
        accepted |= frames::read_request(&header, body).is_ok();
    }
    accepted
}
