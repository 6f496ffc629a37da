//! Two switches of Triton's QA, read from the environment at start: they make races that its tests look for. Off unless set.

use std::time::Duration;

/// The longest pause that can be asked for.
const DELAY_MAX: Duration = Duration::from_secs(600);

/// Pauses of every gRPC call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// Before the response of a call with one response, inferences excepted: `TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC`, in
    /// seconds.
    pub response: Option<Duration>,
    /// Before the server takes notice that a client went away: `TRITONSERVER_DELAY_GRPC_NOTIFICATION`, in ms.
    pub notification: Option<Duration>,
}

impl Delays {
    /// What the environment asks for.
    pub fn from_env() -> Self {
        let read = |name: &str, unit: Duration| read(&std::env::var(name).ok()?, unit);
        Self {
            response: read("TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC", Duration::from_secs(1)),
            notification: read("TRITONSERVER_DELAY_GRPC_NOTIFICATION", Duration::from_millis(1)),
        }
    }
}

fn read(value: &str, unit: Duration) -> Option<Duration> {
    let count: u32 = value.trim().parse().ok()?;
    (count > 0).then(|| unit.saturating_mul(count).min(DELAY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_units_is_a_pause_and_anything_else_is_none() {
        let second = Duration::from_secs(1);
        assert_eq!(read(" 2", second), Some(Duration::from_secs(2)));
        assert_eq!(read("99999", second), Some(DELAY_MAX));
        for none in ["", "0", "-1", "x"] {
            assert_eq!(read(none, second), None, "{none}");
        }
    }
}
