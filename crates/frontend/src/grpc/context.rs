//! Context of gRPC connections and of calls.

use super::delays::Delays;
use super::message::Messages;
use super::reply;
use super::upkeep::{Age, Keepalive};
use crate::access::Restrictions;
use crate::control::Control;
use crate::encoding::Encoding;
use crate::exchange::Exchange;
use crate::forward::HeaderForward;
use crate::gate::{Gate, GateOptions, PROTOCOL};
use crate::hold;
use crate::limits::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, HEADER_LIST_BYTES_MAX, SEND_BUFFER_BYTES_MAX, STREAM_WINDOW_BYTES,
    STREAMS_PER_CONNECTION_MAX,
};
use crate::record::RequestName;
use crate::shared::Shared;
use crate::table::facts::Facts;
use engine::Engine;
use http2::{Options, Pings, RequestHead, Room};
use memory::{Budget, Charge, Kind};
use options::GrpcOptions;
use parking_lot::Mutex;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tensor::Result;

/// Shared context of all gRPC connections.
pub struct GrpcContext {
    pub engine: Arc<Engine>,
    pub control: Arc<dyn Control>,
    pub shared: Arc<Shared>,
    pub gate: Gate,
    pub forward: HeaderForward,
    /// zlib level of inference responses; `None`: not compressed.
    pub compression_level: Option<u32>,
    /// Pauses that Triton's QA asks for.
    pub delays: Delays,
    pub(super) keepalive: Keepalive,
    pub(super) age: Age,
    pub(super) http2: Options,
}

impl GrpcContext {
    /// Compiles the options.
    ///
    /// # Errors
    /// INVALID_ARG for invalid options.
    pub fn new(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        shared: Arc<Shared>,
        options: &GrpcOptions,
        gate: GateOptions,
    ) -> Result<Self> {
        let positive = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Ok(Self {
            engine,
            control,
            shared,
            gate: Gate::new(PROTOCOL, Restrictions::new("protocol", &options.restrictions)?, gate),
            forward: HeaderForward::new(&options.header_forward_pattern)?,
            compression_level: match options.infer_response_compression_level.as_str() {
                "low" => Some(1),
                "medium" => Some(6),
                "high" => Some(9),
                _ => None,
            },
            delays: Delays::from_env(),
            keepalive: Keepalive {
                time: positive(options.keepalive_time_ms).unwrap_or(Duration::from_secs(7200)),
                timeout: positive(options.keepalive_timeout_ms).unwrap_or(Duration::from_secs(20)),
                without_calls: options.keepalive_permit_without_calls,
            },
            age: Age {
                max: positive(options.max_connection_age_ms),
                grace: positive(options.max_connection_age_grace_ms),
            },
            http2: Options {
                fixed: &reply::FIXED,
                pings: Pings {
                    interval_min: Duration::from_millis(options.http2_min_recv_ping_interval_without_data_ms),
                    strikes_max: options.http2_max_ping_strikes,
                    without_streams: options.keepalive_permit_without_calls,
                    sent_without_data_max: options.http2_max_pings_without_data,
                },
                ..http2_options()
            },
        })
    }
}

/// Flow control that suits tensors.
pub fn http2_options() -> Options {
    Options {
        stream_window: STREAM_WINDOW_BYTES,
        connection_window: CONNECTION_WINDOW_BYTES,
        frame_bytes_max: FRAME_BYTES_MAX,
        streams_max: STREAMS_PER_CONNECTION_MAX,
        header_list_bytes_max: HEADER_LIST_BYTES_MAX,
        send_buffer_bytes_max: SEND_BUFFER_BYTES_MAX,
        freed: memory::reclaim::freed_small,
        head_room: Room { reserve: reserve_heads, release: release_heads },
        is_short: || Budget::global().is_short(),
        is_turn_over: hold::is_due,
        ..Options::default()
    }
}

/// Charge for the heads of all HTTP/2 connections.
static HEADS: LazyLock<Mutex<Charge>> =
    LazyLock::new(|| Mutex::new(Budget::global().common().empty(Kind::Head, false)));

fn reserve_heads(bytes: usize) -> bool {
    let mut heads = HEADS.lock();
    let has_room = heads.grow(bytes).is_ok();
    if !has_room {
        heads.account().count_refusal();
    }
    has_room
}

fn release_heads(bytes: usize) {
    let mut heads = HEADS.lock();
    let left = heads.bytes().saturating_sub(bytes);
    heads.shrink(left);
}

/// The request of a call.
pub struct Call {
    pub head: Rc<RequestHead>,
    pub endpoint: &'static Facts,
    /// Responses hold its grant until they are written.
    pub exchange: Exchange,
    pub messages: Messages,
    /// Compression of inference responses.
    pub response_encoding: Encoding,
}

impl Call {
    /// From now on there is a record of the call: it fails, or its client left.
    pub fn needs_record(&self, shared: &Shared) {
        let Exchange { record, caller, .. } = &self.exchange;
        record.begin_late(shared, caller, || self.name());
    }

    /// The response of the call was left to the connection.
    pub fn sent(&self, shared: &Shared) {
        let Exchange { record, caller, .. } = &self.exchange;
        record.begin_at_end(shared, caller, || self.name());
    }

    fn name(&self) -> RequestName {
        RequestName::grpc(Some(self.endpoint), &self.head)
    }
}
