//! Load reports to load balancers: packages `xds.data.orca.v3` and `xds.service.orca.v3` of the xDS API, by hand: of eleven fields we send three.

/// `xds.service.orca.v3.OrcaLoadReportRequest`, without the names of costs, which we have none of.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReportRequest {
    /// How often reports are wanted.
    #[prost(message, optional, tag = "1")]
    pub report_interval: Option<Interval>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Interval {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, in ns.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `xds.data.orca.v3.OrcaLoadReport`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct OrcaLoadReport {
    /// Requests per second.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Errors per second.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// How busy the application is; more than 1 is overload.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
}
