//! Frames of the runner protocol as a process that runs a model sends them.

/// Takes frames in a row, as they come from a socket. Whether one of them was right.
pub fn runner_frames(data: &[u8]) -> bool {
    let (mut rest, mut accepted) = (data, false);
    while let Ok(Some((header, body, after))) = frames::split(rest) {
        rest = after;
        accepted |= frames::read(&header, body).is_ok();
    }
    accepted
}
