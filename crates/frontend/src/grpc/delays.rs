//! Two delays that Triton's QA sets in the environment to provoke races. Read at start; off unless set.

use std::time::Duration;

/// Maximum of a delay.
const DELAY_MAX: Duration = Duration::from_secs(600);

/// Delays of every gRPC call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// Delay before the response of a unary call other than inference, `TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC`.
    pub response: Option<Duration>,
    /// Delay before a disconnect of the client takes effect, `TRITONSERVER_DELAY_GRPC_NOTIFICATION` (in ms).
    pub notification: Option<Duration>,
}

impl Delays {
    /// Reads the delays from the environment.
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
    fn only_a_positive_number_is_a_delay() {
        let second = Duration::from_secs(1);
        assert_eq!(read(" 2", second), Some(Duration::from_secs(2)));
        assert_eq!(read("99999", second), Some(DELAY_MAX));
        for none in ["", "0", "-1", "x"] {
            assert_eq!(read(none, second), None, "{none}");
        }
    }
}
